"""Tiny libraries for tests: wheels that pip installs from a folder, and library files."""

from __future__ import annotations

import zipfile
from pathlib import Path

PAIR = """
import torch

import gradgate
from gradgate import normal


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 3 * x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, upstream):
        return FACTOR * ctx.saved_tensors[0] * upstream


scaled = gradgate.Pair(
    lambda x: Scaled.apply(x), reference=lambda x: 3 * x * x, name="scaled", framework="torch",
    inputs={"x": normal("T")}, dims={"T": (3, 1)}, dtypes=("float64",), disclaims=("second_order", "vmap"),
)
"""
"""A pair whose gradient is right if FACTOR is 6."""
DISCLAIMED = ' disclaims=("second_order", "vmap"),'
"""The part of `PAIR` that does not hold for a plain function."""


def wheel(folder: Path, name: str, version: str, text: str) -> str:
    """Make a wheel with one module; returns the requirement that installs it, without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as made:
        for file, content in files.items():
            made.writestr(file, content)
        made.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]))
    return f"{name} @ {path.as_uri()}"


def library(folder: Path, name: str, requirement: str, text: str, **fields: str | int) -> Path:
    """Write a library file; further fields of its metadata as keywords."""
    own = {"home": "https://example.org/", "framework": "torch"} | fields
    lines = [f"{field} = {value!r}".replace("'", '"') for field, value in own.items()]
    head = ["# /// script", f'# dependencies = ["{requirement}"]', "# [tool.gradgate]"]
    path = folder / f"{name}.py"
    path.write_text("\n".join([*head, *(f"# {line}" for line in lines), "# ///", f'"""{name}."""', text]) + "\n")
    return path
