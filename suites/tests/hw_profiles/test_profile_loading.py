import json
import subprocess
import sys
from importlib import metadata

import pytest

from gradgate.hw_profiles import profile as profiles
from gradgate.hw_profiles.compiler_main import gpu_target
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.profile import ProfileError, availability, load, load_all

BUILT_IN = """
cpu nvidia-a100-40 nvidia-a4500 nvidia-b200 nvidia-h100 nvidia-h200 nvidia-k80 nvidia-p100 nvidia-v100
tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e
""".split()  # noqa: SIM905
GOOD = """
name = "mine"
kind = "tpu"
compiler = "tpu"
[memory]
bytes = 1000
bandwidth = 10
source = "here"
[target]
topology = "v5e:2x2"
source = "here"
"""


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_the_fourteen_built_in_profiles_load_and_every_group_of_facts_has_a_source():
    loaded = load_all()
    assert [each.name for each in loaded] == BUILT_IN
    for each in loaded:
        assert (each.memory_bytes is None) == (each.kind == "cpu")
        stated = {"memory": each.memory_bytes, "peak": each.peak, "target": each.target}
        assert set(each.source) == {group for group, facts in stated.items() if facts}


def test_every_profile_but_the_oldest_has_a_compiler():
    assert [each.name for each in load_all() if each.compiler is None] == ["nvidia-k80"]


def test_an_unknown_name_lists_the_legal_ones_and_the_nearest():
    with pytest.raises(ProfileError, match=r"did you mean 'nvidia-h100'\? Known: cpu, .*tpu-v6e"):
        load("nvidia-h10")


def test_a_path_loads_a_profile_of_ones_own(tmp_path):
    mine = load(write(tmp_path, GOOD))
    assert (mine.name, mine.memory_bytes, mine.bandwidth, mine.target) == ("mine", 1000, 10.0, {"topology": "v5e:2x2"})
    assert load(str(tmp_path / "mine.toml")) == mine


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "tpu"', 'kind = "npu"', "kind is 'npu'; legal: 'cpu', 'gpu', 'tpu'"),
        ('compiler = "tpu"', 'compiler = "rocm"', "legal: absent, 'host', 'cuda', 'tpu'"),
        ('name = "mine"', "", "lacks the key 'name'"),
        ("bytes = 1000", "", r"\[memory\] lacks the key 'bytes'"),
        ("bytes = 1000", 'bytes = "1 GB"', r"\[memory\] bytes must be a int, not '1 GB'"),
        ("bytes = 1000", "bytes = -1", "must be positive and finite"),
        ("bandwidth = 10", "bandwith = 10", "unknown key 'bandwith'; did you mean 'bandwidth'"),
        ('topology = "v5e:2x2"', "", "lacks the key 'topology'"),
        ("[memory]", "[memory", "is not TOML"),
    ],
)
def test_a_file_that_breaks_the_format_says_where_and_what_is_legal(tmp_path, old, new, message):
    with pytest.raises(ProfileError, match=message):
        load(write(tmp_path, GOOD.replace(old, new, 1)))


def test_a_missing_file_is_a_profile_error(tmp_path):
    with pytest.raises(ProfileError, match="cannot read the profile"):
        load(tmp_path / "none.toml")


def test_an_entry_point_registers_a_profile(tmp_path, monkeypatch):
    path = write(tmp_path, GOOD)
    (tmp_path / "registered_profile_module.py").write_text(f"PATH = {str(path)!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = metadata.EntryPoint("mine", "registered_profile_module:PATH", profiles.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == profiles.GROUP else [])
    assert load("mine").memory_bytes == 1000
    assert len(load_all()) == len(BUILT_IN) + 1


def test_an_entry_point_that_names_no_path_is_told(monkeypatch):
    entry = metadata.EntryPoint("broken", "json:loads", profiles.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    with pytest.raises(ProfileError, match="entry point 'broken'"):
        load_all()


def test_a_missing_compiler_names_the_extra_that_installs_it(monkeypatch):
    monkeypatch.setattr(profiles, "installed", lambda packages: {"jax": "0.10.2", "jaxlib": "0.10.2"})
    assert availability(load("cpu")).available
    missing = availability(load("tpu-v5p"))
    assert not missing.available
    assert missing.extra == "gradgate[tpu]"
    assert "libtpu" in missing.reason
    assert availability(load("nvidia-h100")).extra == "gradgate[cuda]"
    assert availability(load("nvidia-k80")).extra is None


@pytest.mark.parametrize(
    ("plugins", "extra", "module"),
    [
        ((), "gradgate[cuda]", "jax_plugins.xla_cuda12"),
        (("jax-cuda12-plugin",), "gradgate[cuda]", "jax_plugins.xla_cuda12"),
        (("jax-cuda13-plugin",), "gradgate[cuda13]", "jax_plugins.xla_cuda13"),
        (("jax-cuda12-plugin", "jax-cuda13-plugin"), "gradgate[cuda]", "jax_plugins.xla_cuda12"),
    ],
)
def test_the_generation_of_cuda_is_that_of_the_plugin(monkeypatch, plugins, extra, module):
    there = {"jax", "jaxlib", *plugins}
    monkeypatch.setattr(profiles, "installed", lambda packages: {p: "0.11.2" for p in packages if p in there})
    assert profiles.cuda().module == module
    assert availability(load("nvidia-h100")).extra == extra
    there |= set(profiles.cuda().packages)
    assert availability(load("nvidia-h100")).available
    assert not {"nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"} <= set(profiles.toolchain("cuda"))


def test_a_cuda_plugin_of_another_version_than_jaxlib_is_not_available(monkeypatch):
    monkeypatch.setattr(profiles, "installed", lambda packages: {p: p[-1] for p in packages})
    found = availability(load("nvidia-h100"))
    assert not found.available
    assert "but jaxlib" in found.reason


def test_the_hash_of_a_profile_follows_its_facts_and_not_its_sources(tmp_path):
    one = load(write(tmp_path, GOOD))
    assert load(write(tmp_path, GOOD.replace("here", "there"))).digest() == one.digest()
    assert load(write(tmp_path, GOOD.replace("1000", "1001"))).digest() != one.digest()


def test_a_chip_of_two_devices_gives_each_its_share_of_the_memory():
    v3 = load("tpu-v3")
    assert v3.device_memory_bytes == v3.memory_bytes // 2


def test_the_compilers_target_text_states_the_facts_of_the_profile():
    text = gpu_target(load("nvidia-a4500"))
    for line in (
        "core_count: 56",
        "threads_per_core_limit: 1536",
        "major: 8 minor: 6",
        "memory_bandwidth: 640000000000",
    ):
        assert line in text


def test_profiles_and_fingerprint_need_neither_jax_nor_torch():
    code = (
        "import json, sys\n"
        "from gradgate.hw_profiles.profile import availability, load_all\n"
        "from gradgate.hw_profiles.fingerprint import fingerprint\n"
        "[availability(p) for p in load_all()]\n"
        "found = fingerprint(load_all()[0], {'X': 'y'})\n"
        "print(json.dumps([found, 'jax' in sys.modules or 'torch' in sys.modules]))\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    found, imported = json.loads(output)
    assert not imported
    assert found["profile"] == "cpu"
    assert found["flag:X"] == "y"
    assert found["python"] == fingerprint()["python"]
