"""Shared code of the scripts for sequences: kept bytes, peak bytes and seconds of one forward and backward pass.

Kept bytes are those of the storages that the outputs keep alive (`gradgate.hw_profiles.residuals`), without inputs and
outputs. Peak bytes are those of tensors in PyTorch, and of temporaries of the compiled gradient in JAX. Seconds are the
processor time of the fastest of several runs in one process. A busy machine distorts it less than the time of a clock,
and the rows take turns. The cotangent of the output is drawn: XLA would not store a constant one.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def main(description: str | None, tables: Mapping[str, Callable[[argparse.Namespace], str]], **sizes: int) -> None:
    """Print a table for each framework.

    Args:
        tables: framework -> the function that makes its table.
        sizes: options of the command line, and their defaults.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--framework", choices=sorted(tables))
    for name, size in {**sizes, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    asked = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for framework in [asked.framework] if asked.framework else tables:
        print(tables[framework](asked), flush=True)


@dataclass
class Row:
    """One way to compute the same thing.

    Attributes:
        name: its name in the table.
        function: inputs -> one output; None if it cannot be run here.
        why: the reason, if the function is None.
    """

    name: str
    function: Callable[..., Any] | None
    why: str = ""

    @property
    def called(self) -> Callable[..., Any]:
        """The function of a row that can be run."""
        assert self.function is not None, self.why
        return self.function


@dataclass
class Figures:
    """The figures of one way."""

    kept: int
    peak: int
    seconds: float
    error: float


def table(title: str, rows: Sequence[Row], found: dict[str, Figures]) -> str:
    """A table for Markdown; seconds are ratios to the first row."""
    first = found[rows[0].name].seconds
    lines = [f"{title}", "", "| | kept | peak | time | largest difference |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        if row.name not in found:
            lines.append(f"| {row.name} | {row.why} | | | |")
            continue
        f = found[row.name]
        ratio = f"{f.seconds / first:.2f}"
        lines.append(f"| {row.name} | {megabytes(f.kept)} | {megabytes(f.peak)} | {ratio} | {f.error:.0e} |")
    return "\n".join([*lines, "", f"time 1.00 is {1000 * first:.0f} ms"])


def megabytes(size: int) -> str:
    """Bytes as text."""
    return f"{size / 1e6:,.2f} MB"


def version(package: str) -> str:
    """The version of an installed package, or ``not installed``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def of_torch(rows: Sequence[Row], inputs: Sequence[Any], repeats: int = 3) -> dict[str, Figures]:
    """Figures of each row that can be run; errors are differences of gradients, relative to the last row."""
    import torch

    from gradgate.hw_profiles import residuals, torch_memory

    there = [row for row in rows if row.function is not None]

    torch.manual_seed(1)
    y = there[0].called(*inputs)
    g = torch.randn_like(y) / y.numel() ** 0.5

    def gradient(function: Any, *given: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in given]
        return torch.autograd.grad(function(*leaves), leaves, g)

    grads = {row.name: gradient(row.function, *inputs) for row in there}
    runs = {row.name: functools.partial(gradient, row.function, *inputs) for row in there}
    times = in_turns(runs, repeats)
    found = {}
    for row in there:
        leaves = [x.detach().requires_grad_() for x in inputs]
        kept = residuals.of_torch(lambda row=row, leaves=leaves: row.function(*leaves), leaves)
        peak = torch_memory.peak(lambda *given, row=row: gradient(row.function, *given), list(inputs)).total_bytes
        error = max(float((a - b).norm() / b.norm()) for a, b in zip(grads[row.name], grads[there[-1].name]))  # noqa: B905
        found[row.name] = Figures(kept, peak, times[row.name], error)
    return found


def of_jax(rows: Sequence[Row], inputs: Sequence[Any], repeats: int = 3) -> dict[str, Figures]:
    """Figures of each row; errors are differences of gradients, relative to the last row."""
    import jax
    import jax.numpy as jnp

    from gradgate.hw_profiles import residuals

    found, programs, grads = {}, {}, {}
    y = jax.eval_shape(rows[0].called, *inputs)
    g = jax.random.normal(jax.random.key(1), y.shape, y.dtype) / y.size**0.5
    for row in rows:

        def gradient(g: Any, *given: Any, row: Row = row) -> Any:
            return jax.vjp(row.called, *given)[1](g)

        programs[row.name] = jax.jit(gradient).lower(g, *inputs).compile()
        grads[row.name] = programs[row.name](g, *inputs)
    times = in_turns({name: functools.partial(_finished, run, g, *inputs) for name, run in programs.items()}, repeats)
    for row in rows:
        kept = residuals.of_jax(row.called, inputs)
        memory: Any = programs[row.name].memory_analysis()
        peak = int(memory.temp_size_in_bytes)
        error = max(
            float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))
            for a, b in zip(grads[row.name], grads[rows[-1].name])  # noqa: B905
        )
        found[row.name] = Figures(kept, peak, times[row.name], error)
    return found


def _finished(program: Callable[..., Any], *inputs: Any) -> None:
    import jax

    jax.block_until_ready(program(*inputs))


def in_turns(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Name -> least seconds of processor time of `repeats` runs, which take turns."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            begun = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - begun)
    return least
