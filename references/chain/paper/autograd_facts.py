"""What §2.3.2 says of PyTorch's autograd, and §3.2 of `weakref` and pip: each as the percent of cases that hold.

Every function takes the operation that it looks at as an argument, so that a test can see it fail. Derivatives that
serve as the truth are written out, or are complex steps of a program in NumPy.
"""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gradgate.references.published import Published, equal, figures_of, refuted, upheld

DRAWN = 20
"""Drawn inputs of a program."""
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], tuple[Any, Any]]]] = {
    "+": (lambda x, y: x + y, lambda x, y: (1 + 0 * x, 1 + 0 * y)),
    "−": (lambda x, y: x - y, lambda x, y: (1 + 0 * x, -1 + 0 * y)),
    "·": (lambda x, y: x * y, lambda x, y: (y, x)),
    "/": (lambda x, y: x / y, lambda x, y: (1 / y, -x / (y * y))),
}
"""Name -> an operator on two tensors, and its two derivatives."""
Operator = Callable[[Any, Any], Any]


def _percent(held: Iterable[bool]) -> float:
    told = list(held)
    return 100 * sum(told) / len(told)


def _operators(operator: Operator | None) -> list[tuple[Operator, Callable[[Any, Any], tuple[Any, Any]]]]:
    """All operators with their derivatives; the given one takes the place of each."""
    return [(operator or f, slopes) for f, slopes in OPERATIONS.values()]


def _leaves() -> tuple[Any, Any]:
    """Two tensors (3,), set by a user, of which a gradient is required."""
    import torch

    x = torch.tensor([1.5, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.5, 4.0, -1.0], dtype=torch.float64, requires_grad=True)
    return x, y


def branching(xp: Any, x: Any, real: Callable[[Any], Any] = lambda value: value) -> Any:
    """A number x -> a number, by a loop and a branch of Python on its value; `real` is what they look at."""
    steps = 0
    while abs(real(x)) < 10:
        x = x * x + 1.5 if real(x) > 0 else 2 - 3 * x
        steps += 1
    return xp.sin(x / 10) * steps if steps % 2 else xp.exp(-x / 10)


def control_flow(program: Callable[..., Any] = branching) -> float:
    """Percent of drawn inputs for which the gradient of a program with a loop and a branch is that of complex steps."""
    import numpy as np
    import torch

    told = []
    for start in np.random.default_rng(0).normal(size=DRAWN):
        x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        [ours] = torch.autograd.grad(program(torch, x), x, allow_unused=True, materialize_grads=True)
        truth = branching(np, start + 1e-30j, lambda value: value.real).imag / 1e-30
        told.append(bool(np.isclose(float(ours), truth, rtol=1e-12)))
    return _percent(told)


def differences_fail(program: Callable[..., Any] = branching) -> float:
    """Percent of drawn inputs for which a central difference does not give that derivative, to five digits (§2.2.1).

    The step is so small that both sides take the same branches.
    """
    import numpy as np

    told = []
    for start in np.random.default_rng(0).normal(size=DRAWN):
        truth = branching(np, start + 1e-30j, lambda value: value.real).imag / 1e-30
        found = (program(np, start + 1e-7) - program(np, start - 1e-7)) / 2e-7
        told.append(not np.isclose(found, truth, rtol=1e-5, atol=1e-5))
    return _percent(told)


def leaves(operator: Operator | None = None) -> float:
    """Percent of the operators for which x and y are leaves, and z = f(x, y) is none."""
    told = []
    for f, _ in _operators(operator):
        x, y = _leaves()
        told.append(x.is_leaf and y.is_leaf and not f(x, y).is_leaf)
    return _percent(told)


def backward_functions(operator: Operator | None = None) -> float:
    """Percent of the operators for which z requires a gradient, and z.grad_fn, called, gives f' at x and y.

    Also: of an input that requires no gradient, f' gives none.
    """
    import torch

    told = []
    for f, slopes in _operators(operator):
        x, y = _leaves()
        z, upstream = f(x, y), torch.tensor([2.0, 3.0, 5.0], dtype=torch.float64)
        alone = f(x, y.detach())
        if not (z.requires_grad and z.grad_fn is not None and alone.grad_fn is not None):
            told.append(False)
            continue
        found, wanted = z.grad_fn(upstream), [upstream * slope for slope in slopes(x, y)]
        right = all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))
        told.append(right and alone.grad_fn(upstream)[1] is None)
    return _percent(told)


def next_functions(operator: Operator | None = None) -> float:
    """Percent of the operators whose next_functions are as listed, steps 4 and 5.

    Those of z = f(x, y) are AccumulateGrad of x and of y, which have none themselves. The first of f(z, y) is
    z.grad_fn.
    """
    told = []
    for f, _ in _operators(operator):
        x, y = _leaves()
        z = f(x, y)
        after = f(z, y).grad_fn
        if z.grad_fn is None or after is None:
            told.append(False)
            continue
        ends = [node for node, _ in z.grad_fn.next_functions]
        told.append(
            [type(node).__name__ for node in ends] == ["AccumulateGrad"] * 2
            and all(
                node.variable is leaf and node.next_functions == () for node, leaf in zip(ends, (x, y), strict=True)
            )
            and after.next_functions[0][0] is z.grad_fn
        )
    return _percent(told)


def accumulated(operator: Operator | None = None) -> float:
    """Percent of cases in which grad of a leaf is the sum of all that comes in: 1 to 4 uses, one or two passes."""
    import torch

    told = []
    for f, slopes in _operators(operator):
        for uses in range(1, 5):
            x, y = _leaves()
            each = slopes(x, y)[0].detach()
            for passes in (1, 2):
                sum(((n + 1) * f(x, y)).sum() for n in range(uses)).backward()
                wanted = passes * sum(range(1, uses + 1)) * each
                told.append(x.grad is not None and torch.allclose(x.grad, wanted))
    return _percent(told)


def handles(operator: Operator = OPERATIONS["·"][0]) -> float:
    """Percent of two inputs that f' keeps as they are, without a copy, and that it refuses after a change of them."""
    told = []
    for n in range(2):
        inputs = [2 * leaf for leaf in _leaves()]
        z = operator(*inputs)
        kept = getattr(z.grad_fn, ("_saved_self", "_saved_other")[n], None)
        shared = kept is not None and kept.data_ptr() == inputs[n].data_ptr()
        inputs[n].add_(1.0)
        try:
            z.sum().backward()
        except RuntimeError:
            told.append(shared)
        else:
            told.append(False)
    return _percent(told)


def no_pointers(operator: Operator | None = None) -> float:
    """Percent of operators that save no input for which the input's object is gone once its last name is."""
    told = []
    for f in (operator,) if operator else (OPERATIONS["+"][0], OPERATIONS["−"][0]):
        x, y = _leaves()
        inside = 2 * x
        z, seen = f(inside, y), weakref.ref(inside)
        del inside
        gc.collect()
        told.append(seen() is None and z.grad_fn is not None)
    return _percent(told)


def detached(detach: Callable[[Any], Any] | None = None) -> float:
    """Percent of operators whose detached result shares the data, is a leaf without a graph, and frees the graph.

    Freed is what the backward functions save, once the detached tensor alone is kept.
    """
    told = []
    for f, _ in _operators(None):
        x, y = _leaves()
        inside = 2 * x
        z = f(inside * inside, y)  # the product saves `inside`
        new = (detach or (lambda tensor: tensor.detach()))(z)
        alike = new is not z and new.data_ptr() == z.data_ptr() and new.is_leaf and not new.requires_grad
        apart = new.grad_fn is None and not (new * 2).requires_grad
        seen = weakref.ref(inside)
        del inside, z
        gc.collect()
        told.append(alike and apart and seen() is None)
    return _percent(told)


def untracked(context: Callable[[], Any] | None = None) -> float:
    """Percent of operators that keep nothing of a sweep without gradients: its inner value is gone (§3.2.4)."""
    import torch

    told = []
    for f, _ in _operators(None):
        x, y = _leaves()
        with (context or torch.no_grad)():
            inside = f(x, y)
            z, seen = inside * inside, weakref.ref(inside)
            del inside
            gc.collect()
            told.append(seen() is None and bool(z.isfinite().all()))
    return _percent(told)


def reached(context: Callable[[], Any] | None = None) -> float:
    """Percent of operators past whose result, made without gradients and not detached, a backward pass goes on."""
    import torch

    told = []
    for f, _ in _operators(None):
        x, y = _leaves()
        with (context or torch.no_grad)():
            f_k = f(x, y)
        if f_k.is_leaf:
            f_k.requires_grad = True  # as line 14 of Alg. 3.5
        (f_k * f_k).sum().backward()
        told.append(x.grad is not None)
    return _percent(told)


def weakly_held(hold: Callable[[Any, Any], None] | None = None) -> float:
    """Percent of two gradients, computed and assigned, that are gone although f.grad holds them (§3.2.4).

    Args:
        hold: what keeps the assigned one, from the leaf and the gradient; by default f.grad.
    """

    def assign(leaf: Any, gradient: Any) -> None:
        leaf.grad = gradient

    told = []
    for computed in (True, False):
        f, _ = _leaves()
        gradient = f.detach() * 2
        if computed:
            (f * f).sum().backward()
            gradient = f.grad
        if hold is not None:
            f.grad = None
        (hold or assign)(f, gradient)
        seen = weakref.ref(gradient)
        del gradient
        gc.collect()
        told.append(seen() is None)
    return _percent(told)


def installed(asked: str) -> float:
    """100 if pip would install what is asked for, besides a directory of the library's name, without an index; else 0.

    Args:
        asked: what is printed after ``pip install``.

    Raises:
        LookupError: pip or setuptools is missing.
    """
    if missing := [name for name in ("pip", "setuptools") if importlib.util.find_spec(name) is None]:
        raise LookupError(f"{missing[0]} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        cloned = Path(folder) / LIBRARY
        cloned.mkdir()
        (cloned / "setup.py").write_text(f"from setuptools import setup\nsetup(name={LIBRARY!r}, version='0')\n")
        options = ["--no-index", "--no-deps", "--no-build-isolation", "--dry-run", "--quiet"]
        command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", *options, asked]
        return 100.0 * (subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0)


LIBRARY = "pytorch-autograd-checkpointing"
HERE = "gradgate.references.chain.paper.autograd_facts"
EXACT = equal(0.0, "the sentence says so of every case")


_row = figures_of(HERE)


PLACE, FOUR, HOLDS = "§2.3.2, autograd", "4 operators", "% that hold"
ROWS = (
    _row(
        PLACE,
        "a loop and a branch",
        f"{DRAWN} drawn inputs",
        "% with the derivative of complex steps",
        "control_flow",
        {},
        100.0,
        upheld(EXACT),
    ),
    _row(PLACE, "is_leaf of x, y and z", FOUR, HOLDS, "leaves", {}, 100.0, upheld(EXACT)),
    _row(PLACE, "grad_fn of z, called", FOUR, HOLDS, "backward_functions", {}, 100.0, upheld(EXACT)),
    _row(PLACE, "next_functions", FOUR, HOLDS, "next_functions", {}, 100.0, upheld(EXACT)),
    _row(
        PLACE,
        "grad of a leaf that is used several times",
        f"{FOUR}, 1 to 4 uses, 2 passes",
        HOLDS,
        "accumulated",
        {},
        100.0,
        upheld(EXACT),
    ),
    _row(PLACE, "inputs kept without a copy", "a product's two", HOLDS, "handles", {}, 100.0, upheld(EXACT)),
    _row(PLACE, "no pointer from a result to an input", "+ and −", HOLDS, "no_pointers", {}, 100.0, upheld(EXACT)),
    _row(PLACE, "detach", FOUR, HOLDS, "detached", {}, 100.0, upheld(EXACT)),
    _row(
        "§2.2.1, finite differences",
        "of a program with a loop and a branch, impossible",
        f"{DRAWN} drawn inputs",
        "% without the derivative",
        "differences_fail",
        {},
        100.0,
        refuted(equal(0.0, "'both these techniques require' a closed form"), instead=0.0),
        "a difference needs two values of the program, and no formula",
    ),
    _row(
        "§3.2.1, Listing 3.1",
        "as printed",
        "beside the clone, without an index",
        "% that install",
        "installed",
        {"asked": LIBRARY},
        100.0,
        refuted(EXACT, instead=0.0),
        "pip takes a name without a slash for a package of the index, where §3.2 says that there is none",
    ),
    _row(
        "§3.2.1, Listing 3.1",
        "with ./ before the directory",
        "beside the clone, without an index",
        "% that install",
        "installed",
        {"asked": f"./{LIBRARY}"},
        100.0,
        upheld(EXACT),
    ),
    _row("§3.2.4, no_grad", "nothing of a sweep is kept", FOUR, HOLDS, "untracked", {}, 100.0, upheld(EXACT)),
    _row(
        "§3.2.4, no_grad",
        "a backward pass goes past f_k, not detached",
        FOUR,
        HOLDS,
        "reached",
        {},
        100.0,
        refuted(EXACT, instead=0.0),
        "f_k, made without gradients, has no graph that a backward pass could follow",
    ),
    Published(
        "§3.2.4, weak references",
        "gradients gone that f.grad holds",
        "a computed and an assigned one",
        "%",
        f"{HERE}:weakly_held",
        {},
        None,
        "PyTorch of today keeps the Python object of a tensor that C++ holds. The thesis ran on 1.2.0, which did "
        "not, and which no Python of today installs",
    ),
)
