"""The pairs of public kernels: they are always declared, and judged if Triton and the libraries are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import gradgate.suites.gallery
from gradgate.references import registry
from gradgate.suites.gallery import kernels
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Inapplicable
from gradgate.suites.workers.supervisor import Limits, Supervisor

pytest.importorskip("torch")

FOLDER = Path(gradgate.suites.gallery.__file__).parent
LIBRARIES = {"liger": ("liger-kernel", "0.8.5"), "fla": ("fla-core", "0.6.0")}
REFUSED = {"dyt": "multiprocessors", "delta_in_chunks": "bfloat16 only"}
"""Pairs of kernels that need a device -> words that the reason contains."""
CHEAP = {
    "liger": ("ce", "flce", "swiglu_pair", "rms", "layer", "rotary", "kl", "dyt"),
    "fla": ("recurrent", "gated_recurrent", "hgrn", "delta_in_chunks"),
}
"""The pairs that a test judges; ``gradgate verify suites/gallery/…`` judges all."""


def installed(file: str) -> bool:
    """Whether Triton is installed, and the library of a file in the right version."""
    name, version = LIBRARIES[file]
    try:
        return importlib.util.find_spec("triton") is not None and metadata.version(name) == version
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with Supervisor(Run(examples=3), 1, Limits(240)) as made:
        yield made


@pytest.mark.parametrize("file", LIBRARIES)
def test_a_file_declares_its_pairs_without_the_library(file: str) -> None:
    offered = registry.offered(str(FOLDER / f"{file}.py"))
    assert len(offered) >= 8
    assert all(registry.load(family.methods[0].implementation).devices == ("interpreter",) for family in offered)


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in CHEAP.items() for name in names])
def test_the_gradient_of_a_public_kernel_is_right_or_its_refusal_has_a_reason(
    file: str, name: str, supervisor: Supervisor
) -> None:
    if not installed(file):
        pytest.skip(f"needs Triton and {'=='.join(LIBRARIES[file])}, installed with --no-deps")
    tasks = supervisor.describe(f"{FOLDER / file}.py:{name}", "", None)
    [task] = [task for task in tasks if task.claim == "gradient_float32"]
    found = supervisor.judge(task)
    assert found.verdict == ("inapplicable" if name in REFUSED else "upheld"), found
    assert REFUSED.get(name, "") in found.reason


def test_what_is_known_of_a_kernel_is_found_again(supervisor: Supervisor) -> None:
    if not installed("liger"):
        pytest.skip(f"needs Triton and {'=='.join(LIBRARIES['liger'])}, installed with --no-deps")
    tasks = supervisor.describe(f"{FOLDER / 'liger.py'}:ce", "", None)
    [task] = [task for task in tasks if task.claim == "layouts"]
    found = supervisor.judge(task)
    assert (found.verdict, found.as_expected, "transposed inputs" in found.reason) == ("refuted", True, True), found


def test_a_library_in_another_version_is_not_judged() -> None:
    with pytest.raises(Inapplicable, match=r"these pairs are of numpy 0\.0\.1, and .* is installed: pip install"):
        kernels("numpy", "0.0.1", "numpy")
    with pytest.raises(Inapplicable, match="and no version is installed"):
        kernels("no-such-kernels", "1", "no_such_kernels")
