"""``gradgate init``: write a file of pairs, the settings and a workflow for a project that has none of them."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.references.errors import UsageError, unknown
from gradgate.suites.settings import read_toml

PAIRS = {
    "torch": '''"""Pairs: a function with a backward pass of its own, and the plain function that it must agree with."""

import torch

from gradgate import Pair, normal


def plain(x, w):
    """In PyTorch's own operations. x: (T, H); w: (H,)."""
    return torch.nn.functional.silu(x) * w


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * torch.sigmoid(x) * w

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, upstream):
        x, w = ctx.saved_tensors
        s = torch.sigmoid(x)
        return upstream * w * s * (1 + x * (1 - s)), (upstream * x * s).sum(0)


def fused(x, w):
    return Fused.apply(x, w)


# Put your own function and its plain twin in the place of these two, as here or as "mylib.ops:fused".
example = Pair(
    fused,
    reference=plain,
    inputs={"x": normal("T H"), "w": normal("H")},
    dims={"T": (3, 1, 64), "H": (8, 1)},
)
''',
    "jax": '''"""Pairs: a function with a derivative rule of its own, and the plain function that it must agree with."""

import jax

from gradgate import Pair, normal


def plain(x, w):
    """In JAX's own operations. x: (T, H); w: (H,)."""
    return jax.nn.silu(x) * w


@jax.custom_vjp
def fused(x, w):
    return plain(x, w)


def forward(x, w):
    return plain(x, w), (x, w)


def backward(kept, upstream):
    x, w = kept
    s = jax.nn.sigmoid(x)
    return upstream * w * s * (1 + x * (1 - s)), (upstream * x * s).sum(0)


fused.defvjp(forward, backward)

# Put your own function and its plain twin in the place of these two, as here or as "mylib.ops:fused".
example = Pair(
    fused,
    reference=plain,
    inputs={"x": normal("T H"), "w": normal("H")},
    dims={"T": (3, 1, 64), "H": (8, 1)},
)
''',
}
"""Framework -> a file with one pair, which is right."""
SETTINGS = """[tool.gradgate]
pairs = ["{pairs}"]
profiles = ["cpu"]
"""
WORKFLOW = """# Compares the gradients and the bytes of a pull request with its base.
name: gradients
on: pull_request
permissions: {{contents: read}}
jobs:
  gradients:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0
        with: {{fetch-depth: 0, persist-credentials: false}}
      - uses: actions/setup-python@e797f83bcb11b83ae66e0230d6156d7c80228e7c # v6.0.0
        with: {{python-version: "3.11"}}
      - run: python -m pip install --quiet 'gradgate[{framework}]'{project}
      - env:
          BASE: origin/${{{{ github.base_ref }}}}
        run: gradgate gate --base "$BASE" --markdown "$GITHUB_STEP_SUMMARY"
"""
PLACE = Path(".github/workflows/gradients.yml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate init``."""
    which = "jax or torch (default: the one that is installed; if both are, it is asked for)"
    parser.add_argument("--framework", metavar="X", help=which)
    where = "the file of pairs (default gradients.py)"
    parser.add_argument("--pairs", type=Path, metavar="FILE", default=Path("gradients.py"), help=where)
    parser.add_argument("--no-workflow", action="store_true", help="write no workflow for GitHub")


def main(chosen: argparse.Namespace) -> int:
    """Write what is not there yet, and say what to run; returns 0.

    Raises:
        UsageError: the framework is not known or must be given, or a file has no legal place.
    """
    if chosen.pairs.is_absolute() or ".." in chosen.pairs.parts or chosen.pairs.suffix != ".py":
        raise UsageError(f"--pairs is a Python file inside this folder, such as tests/gradients.py, not {chosen.pairs}")
    framework = _framework(chosen.framework)
    project, declared = Path("pyproject.toml"), {}
    if project.exists():
        declared = read_toml(project, str(project))  # before anything is written: it may be wrong
    _write(chosen.pairs, PAIRS[framework])
    settings = SETTINGS.format(pairs=chosen.pairs.as_posix())
    if "gradgate" in declared.get("tool", {}):
        print("pyproject.toml has [tool.gradgate] already; left as it is")
    elif project.exists():
        text = project.read_text(encoding="utf-8")
        tomllib.loads(together := f"{text.rstrip()}\n\n{settings}")  # a table at the end is legal after any other
        project.write_text(together, encoding="utf-8")
        print("added [tool.gradgate] to pyproject.toml")
    else:
        _write(project, settings)
    if not chosen.no_workflow:
        own = " ." if "project" in declared or "build-system" in declared else ""
        _write(PLACE, WORKFLOW.format(framework=framework, project=own))
    print(f"next: gradgate verify {chosen.pairs.as_posix()}")
    return 0


def _write(path: Path, text: str) -> None:
    """Write a new file; a file that is there is left as it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        print(f"{path.as_posix()} is there already; left as it is")
        return
    except OSError as error:
        raise UsageError(f"cannot write {path.as_posix()}: {error.strerror}") from None
    print(f"wrote {path.as_posix()}")


def _framework(asked: str | None) -> str:
    """The framework of the skeleton: as given, or the one that is installed, or as answered.

    Raises:
        UsageError: it is unknown, or nobody can be asked.
    """
    if asked is not None:
        if asked not in PAIRS:
            raise unknown("framework", asked, PAIRS)
        return asked
    here = [name for name in FRAMEWORKS if installed(name)]
    if len(here) == 1:
        return here[0]
    if not sys.stdin.isatty():
        raise UsageError("give --framework jax or --framework torch")
    answer = input("framework of your functions, jax or torch: ").strip()
    if answer not in PAIRS:
        raise unknown("framework", answer, PAIRS)
    return answer
