"""A traced JAX program: its text for each platform, and its work. Both are computed once for all profiles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any

from gradgate.hw_profiles import work


class LoweringError(ValueError):
    """The program could not be traced, or could not be lowered for a platform. The message has the error."""


class Traced:
    """A traced program.

    Attributes:
        devices: the number of devices that the program runs on.
        x64: whether the program was traced with 64-bit types enabled.
    """

    def __init__(self, traced: Any, context: Callable[[], contextlib.ExitStack], devices: int, x64: bool) -> None:
        self._traced, self._context, self.devices, self.x64 = traced, context, devices, x64
        self._texts: dict[str, str] = {}

    def text(self, platform: str) -> str:
        """The program as StableHLO text for ``cpu``, ``cuda`` or ``tpu``; no compiler is needed.

        Raises:
            LoweringError: an operation has no rule for that platform.
        """
        if platform not in self._texts:
            with self._context(), _told():
                self._texts[platform] = str(self._traced.lower(lowering_platforms=(platform,)).as_text())
        return self._texts[platform]

    @cached_property
    def work(self) -> tuple[dict[str, int], str]:
        """The figures of ``work.count`` by name, and what is not exact about them; or no figures, and the reason."""
        try:
            counted = work.count(self._traced.jaxpr)
        except work.WorkError as error:
            return {}, f"work not counted: {error}"
        figures = {
            "flops": counted.flops,
            "nominal_flops": counted.nominal_flops,
            "transcendentals": counted.transcendentals,
            "bytes_moved": counted.bytes_moved,
        }
        return figures, "; ".join(counted.notes)


def trace(
    program: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    x64: bool = False,
    static: Mapping[str, Any] | None = None,
    donate: Sequence[int] = (),
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Traced:
    """Trace ``program(*arguments, **static)``; it is never run.

    Args:
        program: a function that JAX can trace.
        arguments: one tree per positional argument; leaves are Python scalars, arrays or ``jax.ShapeDtypeStruct``. Only
            the shapes and dtypes of arrays matter.
        x64: whether 64-bit types are enabled while the program is traced. Enabling them changes the bytes even of a
            program without such types. So this is an argument, and no global flag is read or set.
        static: keyword arguments bound before tracing (options of a method).
        donate: positions of arguments whose memory the outputs may reuse.
        mesh: axis names and sizes, such as ``{"x": 4}``, for a program on several chips of one TPU topology, or on
            several devices into which the host is divided. The program is traced under this mesh, so ``jax.shard_map``
            needs no mesh argument.
        in_specs: with ``mesh``: a tree prefix of ``PartitionSpec`` for the arguments; None leaves it to the compiler.
        out_specs: the same for the result.

    Raises:
        LoweringError: the program raised; the message has its exception.
    """
    import jax

    options: dict[str, Any] = {"donate_argnums": tuple(donate)}
    abstract = jax.sharding.AbstractMesh(tuple(mesh.values()), tuple(mesh)) if mesh else None

    def context() -> contextlib.ExitStack:
        entered = contextlib.ExitStack()
        entered.enter_context(jax.enable_x64(x64))
        if abstract is not None:
            entered.enter_context(jax.sharding.use_abstract_mesh(abstract))
        return entered

    if abstract is not None:
        place = partial(jax.sharding.NamedSharding, abstract)
        for name, specs in (("in_shardings", in_specs), ("out_shardings", out_specs)):
            if specs is not None:
                options[name] = jax.tree.map(place, specs, is_leaf=lambda x: isinstance(x, jax.P))
    with _told():
        shapes = jax.tree.map(partial(_shape, x64=x64), tuple(arguments))
        # A new function object, so that JAX's cache of traces does not return a trace for other settings.
        jitted = jax.jit(partial(program, **(static or {})), **options)
        with context():
            traced = jitted.trace(*shapes)
    return Traced(traced, context, prod((mesh or {}).values()), x64)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise LoweringError(f"the program could not be lowered: {type(error).__name__}: {error}") from error


def _shape(leaf: Any, x64: bool) -> Any:
    import jax

    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    if not x64 and str(leaf.dtype) in ("float64", "complex128", "int64", "uint64"):
        raise TypeError(f"an argument of dtype {leaf.dtype} needs x64=True; without it JAX would narrow it silently")
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=bool(getattr(leaf, "weak_type", False)))
