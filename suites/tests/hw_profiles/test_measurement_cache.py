import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gradgate.hw_profiles.cache import Cache, key

WRITER = """
import sys
from gradgate.hw_profiles.cache import Cache, key
cache, rounds = Cache(sys.argv[1]), int(sys.argv[2])
print("started", flush=True)
for i in range(rounds):
    for name in range(5):
        cache.put(key(str(name), {}), {"name": name, "filling": "x" * 20000})
"""


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def writer(tmp_path, rounds):
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_value_comes_back_and_another_key_misses(cache):
    cache.put(key("program", {"jaxlib": "1"}), {"temp_bytes": 5})
    assert cache.get(key("program", {"jaxlib": "1"})) == {"temp_bytes": 5}
    assert cache.get(key("program", {"jaxlib": "2"})) is None
    assert cache.get(key("program ", {"jaxlib": "1"})) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"value": {"temp_bytes": 6}}', "half", "edited"])
def test_a_corrupt_entry_is_a_miss(cache, damage):
    entry = key("program", {})
    cache.put(entry, {"temp_bytes": 5})
    (path,) = cache.folder.rglob("*.json")
    if damage == "half":
        damage = path.read_text()[:-9]
    elif damage == "edited":
        damage = path.read_text().replace("5}", "6}")
    path.write_text(damage)
    assert cache.get(entry) is None
    cache.put(entry, {"temp_bytes": 7})
    assert cache.get(entry) == {"temp_bytes": 7}


def test_an_entry_under_the_name_of_another_key_is_a_miss(cache):
    cache.put(key("a", {}), {"temp_bytes": 5})
    (path,) = cache.folder.rglob("*.json")
    other = cache._path(key("b", {}))
    other.parent.mkdir(parents=True, exist_ok=True)
    path.rename(other)
    assert cache.get(key("b", {})) is None


def test_readers_see_all_of_an_entry_or_nothing_while_others_write(tmp_path, cache):
    writers = [writer(tmp_path, 60) for _ in range(3)]
    seen = 0
    while any(each.poll() is None for each in writers):
        for name in range(5):
            path = cache._path(key(str(name), {}))
            if path.exists():
                json.loads(path.read_text())  # never an incomplete file
                assert cache.get(key(str(name), {}))["name"] == name
                seen += 1
    assert [each.wait() for each in writers] == [0, 0, 0]
    for each in writers:
        each.stdout.close()
    assert seen
    assert cache.size()[0] == 5


def test_a_killed_writer_leaves_every_entry_whole_or_absent(tmp_path, cache):
    process = writer(tmp_path, 10**6)
    process.stdout.readline()
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for name in range(5):
        value = cache.get(key(str(name), {}))
        assert value is None or value["name"] == name
    cache.clear()
    assert cache.size() == (0, 0)


@pytest.mark.parametrize("left", ["", '{"dig', '{"digest": "12'])
def test_size_counts_what_killed_writers_left_and_clear_removes_it(cache, left):
    cache.put(key("a", {}), {"temp_bytes": 5})
    (cache.folder / "00").mkdir(exist_ok=True)
    (cache.folder / "00" / ".writing-x").write_text(left)
    (path,) = cache.folder.rglob("*.json")
    assert cache.size() == (1, path.stat().st_size + len(left))
    assert cache.clear() == 1
    assert cache.size() == (0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "results.json",
        "ab.json",
        "ab/results.json",
        "ab/notes.txt",
        "abc/x.json",
        "run/ab/x.json",
        "ab/.hidden",
        f"ab/{'cd' * 32}.json",  # not the folder of this key
        f"ab/{'ab' * 31}.json",
        f"{'ab' * 32}.json",
        f"AB/{'AB' * 32}.json",
        f"ab/{'ab' * 32}.json.bak",
        f"ab/{'ab' * 32}.json",
        "ab/.writing-plan",  # the names of the cache, with the text of somebody else
    ],
)
def test_clear_leaves_every_file_that_the_cache_did_not_write(cache, name):
    cache.put(key("a", {}), {"temp_bytes": 5})
    theirs = cache.folder / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text('{"loss": 0.5}')
    assert cache.size()[0] == 1
    assert cache.clear() == 1
    assert theirs.read_text() == '{"loss": 0.5}'
    assert cache.get(key("a", {})) is None


def test_clear_follows_no_link(tmp_path, cache):
    elsewhere = Cache(tmp_path / "elsewhere")
    elsewhere.put(key("a", {}), {"temp_bytes": 5})
    (path,) = elsewhere.folder.rglob("*.json")
    cache.folder.mkdir()
    (cache.folder / path.parent.name).symlink_to(path.parent)
    (cache.folder / "00").mkdir(exist_ok=True)
    (cache.folder / "00" / f"{'0' * 64}.json").symlink_to(path)
    assert cache.clear() == 0
    assert elsewhere.get(key("a", {})) == {"temp_bytes": 5}


def test_an_entry_that_is_nested_too_deep_is_a_miss(cache):
    entry = key("a", {})
    cache.put(entry, {"temp_bytes": 5})
    (path,) = cache.folder.rglob("*.json")
    path.write_text('{"digest": "", "value": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}")
    assert cache.get(entry) is None
    cache.put(entry, {"temp_bytes": 7})
    assert cache.get(entry) == {"temp_bytes": 7}


def test_a_folder_that_cannot_be_written_loses_the_entry_only(tmp_path):
    (tmp_path / "measurements").write_text("a file where the folder should be")
    cache = Cache(tmp_path)
    cache.put(key("a", {}), {"temp_bytes": 5})
    assert cache.get(key("a", {})) is None


def test_the_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "there"))
    assert Cache().folder.is_relative_to(tmp_path / "there")
    monkeypatch.delenv("GRADGATE_CACHE")
    assert "gradgate" in str(Cache().folder)
