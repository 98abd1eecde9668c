"""`gradgate.module_pair`: a module that is to be judged, and the plain module that it must agree with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradgate.references.contract import DTYPES
from gradgate.suites.pairs.approximate import Convergence, ErrorBound
from gradgate.suites.pairs.modules_pair import MODES, ModulePair


def module_pair(
    function: Callable[..., Any] | str,
    reference: Callable[..., Any] | str | None,
    inputs: Mapping[str, Any],
    dims: Mapping[str, Sequence[int]],
    rename: Mapping[str, str] | None = None,
    *,
    modes: Sequence[str] = tuple(MODES),
    options: Mapping[str, Any] | None = None,
    regimes: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] | None = None,
    dtypes: Sequence[str] = DTYPES,
    composes: Sequence[str] = (),
    disclaims: Sequence[str] = (),
    claims: Sequence[Any] = (),
    expected: Mapping[str, str] | None = None,
    kappa: float = 16.0,
    valid: Callable[..., bool] | None = None,
    random: bool = False,
    name: str = "",
    framework: str = "",
    by_backward: bool = False,
    measured: Sequence[Mapping[str, Any]] = (),
    unmeasured: Mapping[str, str] | None = None,
    approximates: ErrorBound | Convergence | None = None,
) -> ModulePair:
    """A pair of modules: torch.nn.Module, flax.nnx, flax.linen or equinox.

    The parameters of the reference at the dims become inputs ``module.NAME``. Both modules get the same numbers, drawn
    from the seed: the reference's initial numbers plus normal numbers, so that no ones and zeros hide a mistake.
    Running statistics and other buffers start with the values that two training calls of the reference leave, and are
    compared after the call. No call changes a module.

    Args:
        function: builder of the module under test, or ``package.module:builder``. It is called with the dims and
            options that it takes as keywords, such as ``lambda H: MyRMSNorm(H)``; in JAX also with ``rngs`` or ``key``.
        reference: builder of the plain module. None: the module's own forward pass, without its custom derivatives, as
            in `Pair`. Then `module_protocol` leaves autocast out, because nothing says how much a plain module loses.
        inputs: name -> draw, the positional arguments of a call.
        dims: name -> sizes that are tried, for builders and inputs alike.
        rename: name in the reference -> name in the function, where they differ: of parameters, buffers or submodules.
        modes: ``train`` and ``eval``, or one of them. A module is switched by ``train()`` and ``eval()``, by
            `equinox.nn.inference_mode`, or by a keyword of its call, such as ``train`` or ``deterministic``.
        options: keyword -> values. The builder gets them if it takes the keyword, otherwise the call gets them.
        regimes: name -> function that takes the inputs, and ``module``: name -> parameter, and returns them changed.
        dtypes, composes, disclaims, claims, expected, kappa, valid, name, framework: as in `Pair`.
        by_backward, measured, unmeasured, approximates: as in `Pair`.
        random: whether the modules draw random numbers, as dropout does: both get the same seed or key. Flax linen
            derives keys from it by the names of submodules, which must then be the same in both modules.

    Raises:
        UsageError: the declaration is wrong; the message says what is wrong and what is legal.

    Cost: as for `gradgate.Pair`, once for each of the modes.

    Not for: modules whose parameters are made in the first call, and functions without parameters.

    Example::

        rms = gradgate.module_pair(
            lambda H: MyRMSNorm(H), lambda H: torch.nn.RMSNorm(H), {"x": normal("B H")}, {"B": (1, 3), "H": (1, 31)},
        )
    """
    return ModulePair(
        function,
        reference,
        inputs,
        dims,
        options=options or {},
        regimes=regimes or {},
        dtypes=dtypes,
        composes=composes,
        disclaims=disclaims,
        claims=claims,
        expected=expected or {},
        kappa=kappa,
        valid=valid,
        random=random,
        name=name,
        framework=framework,
        rename=rename or {},
        modes=modes,
        by_backward=by_backward,
        measured=measured,
        unmeasured=unmeasured or {},
        approximates=approximates,
    )
