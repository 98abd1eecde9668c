"""`gradgate.module_pair` as a declaration: mistakes are reported, and both modules get the same drawn numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradgate
from gradgate.suites.pairs.modules_names import matched, renamed

X = {"x": gradgate.normal("B H")}
DIMS = {"B": (3, 4), "H": (2, 5)}


class Held:
    """A stand-in for a module: names of parameters with shapes, and names of state."""

    draws: tuple[str, ...] = ()

    def __init__(self, state: tuple[str, ...] = (), **shapes: tuple[int, ...]) -> None:
        self.parameters = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.state = {name: np.zeros(1) for name in state}


def test_declaring_a_pair_imports_no_framework() -> None:
    code = (
        "import sys, gradgate\n"
        "gradgate.module_pair('a.b:mine', 'a.b:plain', {'x': gradgate.normal('H')}, {'H': (1, 2)})\n"
        "assert not {'torch', 'jax', 'flax', 'equinox'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"modes": ("training",)}, "unknown mode of mine 'training'"),
        ({"modes": "train"}, "modes is a tuple of train and eval"),
        ({"modes": ()}, "modes is a tuple of train and eval"),
        ({"options": {"training": (True,)}}, "'training' is taken"),
        ({"inputs": {"module": gradgate.normal("H")}}, "'module' is taken"),
        ({"inputs": {"x": gradgate.normal("S")}}, "unknown dim"),
        ({"reference": ""}, "needs a reference="),
    ],
)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"reference": "a.b:plain", "inputs": X, "dims": DIMS, **changes}
    with pytest.raises(gradgate.UsageError, match=said):
        gradgate.module_pair("a.b:mine", **given)


def test_a_submodule_is_renamed_with_all_that_it_holds_and_the_longest_name_counts() -> None:
    rename = {"layers": "blocks", "layers.0.norm": "first"}
    assert renamed("layers.1.weight", rename) == "blocks.1.weight"
    assert renamed("layers.0.norm.weight", rename) == "first.weight"
    assert renamed("layers_norm", rename) == "layers_norm"


def test_names_are_matched_and_state_that_one_side_lacks_is_left_out() -> None:
    plain, mine = Held(("mean", "cache"), w=(2, 3)), Held(("mu",), v=(2, 3))
    found = matched("pair", plain, mine, {"w": "v", "mean": "mu"})  # type: ignore[arg-type]
    assert found.parameters == {"w": "v"}
    assert found.state == {"mean": "mu"}


@pytest.mark.parametrize(
    ("plain", "mine", "rename", "said"),
    [
        (Held(weight=(2,)), Held(weights=(2,)), {}, "nearest to weight is weights"),
        (Held(weight=(2,)), Held(weight=(3,)), {}, r"weight of the function has shape \(3,\)"),
        (Held(weight=(2,)), Held(weight=(2,), bias=(2,)), {}, "Without a partner: bias"),
        (Held(weight=(2,)), Held(weight=(2,)), {"wieght": "weight"}, "nearest to wieght is weight"),
    ],
)
def test_names_that_do_not_match_are_told(plain: Any, mine: Any, rename: dict[str, str], said: str) -> None:
    with pytest.raises(gradgate.UsageError, match=said):
        matched("pair", plain, mine, rename)


BUILDERS = """
import torch

class Mine(torch.nn.Linear):
    def forward(self, x):
        return x @ self.weight.T + self.bias

def mine(H):
    return Mine(H, H)

def plain(H):
    return torch.nn.Linear(H, H)
"""


@pytest.fixture
def builders(tmp_path: Path) -> str:
    """A file with two builders of modules of PyTorch."""
    pytest.importorskip("torch")
    path = tmp_path / "builders.py"
    path.write_text(BUILDERS)
    return str(path)


def test_parameters_are_the_initial_ones_with_noise_that_the_seed_decides(builders: str) -> None:
    pair = gradgate.module_pair(f"{builders}:mine", f"{builders}:plain", X, DIMS)
    one, again, other = (pair.drawn(pair.spec(B=3, H=2, seed=seed)) for seed in (1, 1, 2))
    assert set(one) == {"x", "module.weight", "module.bias"}
    assert all((one[path] == again[path]).all() for path in one)
    assert (one["module.bias"] != other["module.bias"]).all()


def test_the_mode_is_a_field_of_the_spec_and_the_dims_of_the_builders_are_known(builders: str) -> None:
    pair = gradgate.module_pair(f"{builders}:mine", f"{builders}:plain", X, DIMS)
    assert pair.spec().training is True
    assert pair.of_builders == {"H"}
    assert pair.called == "mine"


def test_a_regime_changes_parameters(builders: str) -> None:
    def flat(given: dict[str, Any]) -> dict[str, Any]:
        return given | {"module": given["module"] | {"bias": 0 * given["module"]["bias"]}}

    pair = gradgate.module_pair(f"{builders}:mine", f"{builders}:plain", X, DIMS, regimes={"flat": flat})
    assert (pair.drawn(pair.spec(regime="flat"))["module.bias"] == 0).all()
    assert (pair.drawn(pair.spec())["module.bias"] != 0).all()


def test_a_module_that_cannot_be_built_names_the_dims() -> None:
    torch = pytest.importorskip("torch")

    def heads(H: int) -> Any:
        return torch.nn.MultiheadAttention(H, 3)

    pair = gradgate.module_pair(lambda H: heads(H), heads, X, DIMS)
    with pytest.raises(gradgate.UsageError, match=r"cannot be built at H=2: .*exclude them by valid="):
        _ = pair.kind
