"""What is drawn like what was seen, and calls whose functions hold arrays of the call."""

from __future__ import annotations

import importlib
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradgate.suites.watching import portable
from gradgate.suites.watching.recorder import Array
from gradgate.suites.watching.replay import like


def test_a_symmetric_matrix_is_drawn_symmetric_and_keeps_its_definiteness() -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((2, 4, 4))
    positive = half @ half.swapaxes(-1, -2)
    drawn = like(positive, rng)
    assert (drawn == drawn.swapaxes(-1, -2)).all()
    assert np.linalg.eigvalsh(drawn).min() > 0
    assert not np.allclose(drawn, positive)


def test_a_matrix_that_is_not_symmetric_is_drawn_as_any_array() -> None:
    rng = np.random.default_rng(0)
    drawn = like(rng.standard_normal((4, 4)), rng)
    assert (drawn != drawn.T).any()
    assert (like(np.zeros((3, 3)), rng) != 0).all()


def test_an_array_that_a_function_holds_is_given_anew(torch: Any) -> None:
    held, other = torch.tensor([2.0]), torch.tensor([3.0])
    copy = Array(held.numpy(), (1,), "float32", True)
    data = portable.dumps(None, (lambda x: x * held + other, copy), {}, [(held, copy)])
    loaded = portable.loads(data, lambda place: torch.tensor([5.0]))
    assert loaded.held == {0}
    assert loaded.arrays == [loaded.arguments[1]]
    assert loaded.arguments[0](torch.tensor([1.0])).tolist() == [8.0]
    assert portable.loads(portable.dumps(None, (copy,), {}, [(held, copy)])).held == frozenset()


def moved(value: Any) -> Any:
    """What another process gets of a value."""
    return portable.loads(portable.dumps(None, (value,), {})).arguments[0]


def test_functions_that_share_a_variable_share_it_elsewhere() -> None:
    seen, missing = 0, None

    def forward() -> None:
        nonlocal seen
        seen += 1

    def backward() -> Any:
        return seen, later() if missing else None

    given, read = moved((forward, backward))
    given()
    assert (read()[0], seen) == (1, 0)

    def later() -> None:
        """Not there when the functions are moved: its cell is empty."""


def test_a_weak_reference_moves_with_its_object() -> None:
    class Owner:
        name = "owner"

    owner = Owner()
    reference, values = moved((weakref.ref(owner), weakref.WeakValueDictionary(one=owner)))
    assert reference().name == values["one"].name == "owner"


def test_what_holds_too_much_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    large = np.zeros(200)
    portable.dumps(None, (lambda: large,), {})
    monkeypatch.setattr(portable, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="larger than 1,000 bytes"):
        portable.dumps(None, (lambda: large,), {})


def test_a_package_without_a_file_of_its_own_is_imported_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "nameless").mkdir(parents=True)
        (tmp_path / place / "nameless" / "rules.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    for module in (importlib.import_module("nameless.rules"), sys.modules["nameless"]):
        monkeypatch.setitem(sys.modules, module.__name__, module)  # and taken out when the test ends
        assert portable.importable.__wrapped__(module.__name__)
    portable.importable.cache_clear()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "there"), *sys.path[1:]])
    assert not portable.importable.__wrapped__("nameless.rules")
    portable.importable.cache_clear()
