"""A history survives its files, says which file is damaged, and takes shards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.releases import history
from gradgate.suites.releases.environments import Release
from gradgate.suites.tests.releases.recorded import NAME, step


def test_a_step_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [step("0.9.2", 1000, again=1000), step("0.10.2", None)]
    for each in written:
        history.write(tmp_path, each)
    assert list(history.steps(tmp_path)) == written


def test_the_file_is_a_result_of_asv(tmp_path: Path) -> None:
    results = pytest.importorskip("asv.results")
    history.write(tmp_path, step("0.9.2", 1000))
    path = history.path_of(tmp_path, Release.of("jax-0.9.2"), "nvidia-h100")
    read = results.Results.load(str(path), machine_name="nvidia-h100")
    key = history.BENCHMARKS["required_bytes"]
    assert read.commit_hash == "jax-0.9.2"
    assert read.get_result_value(key, [[repr(NAME)]]) == [1000]


@pytest.mark.parametrize("damage", ["", "{}", '{"results": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cpu" / "jax-0.9.2.json"
    path.parent.mkdir()
    path.write_text(damage)
    with pytest.raises(UsageError, match=r"jax-0\.9\.2\.json"):
        list(history.steps(tmp_path))


def test_shards_are_united(tmp_path: Path) -> None:
    history.write(tmp_path / "one", step("0.9.2", 1000))
    history.write(tmp_path / "two", step("0.9.2", 5, name="chain:other:jax~0000"))
    assert [history.unite(tmp_path / shard, tmp_path / "all") for shard in ("one", "two")] == [1, 1]
    [united] = history.steps(tmp_path / "all")
    assert {name: row["required_bytes"] for name, row in united.figures.items()} == {
        NAME: 1000,
        "chain:other:jax~0000": 5,
    }


def test_an_empty_shard_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="measured nothing"):
        history.unite(tmp_path / "nothing", tmp_path / "all")


def test_a_new_figure_forgets_the_reason_and_the_second_compilation() -> None:
    changed = step("0.9.2", 1000, again=1000)
    changed.put(NAME, {}, "timeout: too long")
    assert (changed.figures, changed.again) == ({}, {})
    changed.put(NAME, {"required_bytes": 7})
    assert changed.reasons == {}


def test_the_committed_history_is_whole() -> None:
    for each in history.steps(history.FOLDER):
        assert each.figures, f"{each.release.name} on {each.profile} has no figures"
        assert each.versions.get(each.release.framework) == each.release.version
        known = json.loads(history.path_of(history.FOLDER, each.release, each.profile).read_text())
        assert history.Step.from_json(known) == each
