"""What is installed for a release, and which releases there are."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.releases import environments
from gradgate.suites.releases.environments import Release

ROOT = Path(__file__).resolve().parents[3]
PROJECT = {
    "dependencies": ["numpy>=2.0"],
    "optional-dependencies": {
        "jax": ["jax>=0.8.3,<0.12"],
        "torch": ["torch>=2.11"],
        "tpu": ["gradgate[jax]", "jax[tpu]"],
        "cuda": ["gradgate[jax]", "jax[cuda12-local]", "nvcc>=12"],
    },
}


def test_a_release_is_pinned_and_brings_its_own_compilers() -> None:
    wanted = environments.requirements(PROJECT, Release.of("jax-0.9.2"))
    assert wanted == ["numpy>=2.0", "jax[tpu]", "jax[cuda12-local]", "nvcc>=12", "jax==0.9.2"]


def test_a_release_below_the_range_is_possible() -> None:
    wanted = environments.requirements(PROJECT, Release.of("jax-0.7.2"), ("jax",))
    assert wanted == ["numpy>=2.0", "jax==0.7.2"]


@pytest.mark.parametrize("name", ["jax-", "jax-main", "jax-0.9.2;rm", "numpy-2.0"])
def test_what_is_no_release_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"no version|unknown framework"):
        Release.of(name)


def test_releases_are_ordered_by_version() -> None:
    names = ["jax-0.10.2", "jax-0.9.2", "jax-0.9.0.1", "torch-2.13.0+cpu"]
    assert [r.name for r in sorted(map(Release.of, names))] == ["jax-0.9.0.1", "jax-0.9.2", "jax-0.10.2", names[3]]


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not a checkout")
def test_an_environment_that_has_everything_is_not_installed_again(tmp_path: Path) -> None:
    release = Release.of("jax-0.9.2")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (tmp_path / release.name).mkdir()
    wanted = [*environments.requirements(project, release), "more"]
    (tmp_path / release.name / "installed").write_text("\n".join(wanted))
    assert environments.make(release, tmp_path, ROOT) == environments.python_of(tmp_path / release.name)
