"""A hardware target as plain facts: how to compile for it, and its memory, bandwidth and peak rates.

One TOML file is one profile. The built-in profiles are in the folder ``devices`` next to this module. An installed
package may register more under the entry point group ``gradgate.profiles``; each entry point names an object that is
the path of a TOML file. Any profile may also be given by its path.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

GROUP = "gradgate.profiles"
KINDS = ("cpu", "gpu", "tpu")
DTYPES = ("float64", "float32", "tensorfloat32", "bfloat16", "float16")

# What each compiler needs to know: key -> (type, required).
_TARGETS: dict[str | None, dict[str, tuple[type, bool]]] = {
    None: {},
    "host": {},
    "cuda": {
        "capability": (str, True),
        "cores": (int, True),
        "lanes_per_core": (int, True),
        "threads_per_core": (int, True),
        "clock_ghz": (float, True),
        "l2_bytes": (int, True),
        "shared_bytes_per_core": (int, True),
        "shared_bytes_per_block": (int, True),
    },
    "tpu": {"topology": (str, True), "chip_config": (str, False), "devices_per_chip": (int, False)},
}
_TOP: dict[str, tuple[type, bool]] = {
    "name": (str, True),
    "kind": (str, True),
    "compiler": (str, False),
    "memory": (dict, False),
    "peak": (dict, False),
    "target": (dict, False),
}
_MEMORY: dict[str, tuple[type, bool]] = {"bytes": (int, True), "bandwidth": (float, True)}

# The distributions that make up each compiler, and the extra of gradgate that installs them.
_TOOLCHAINS = {
    "host": ("gradgate[jax]", ("jax", "jaxlib")),
    "tpu": ("gradgate[tpu]", ("jax", "jaxlib", "libtpu")),
}


@dataclass(frozen=True)
class Cuda:
    """One generation of JAX's compiler for CUDA.

    Attributes:
        plugin: the distribution of JAX's plug-in; with `pjrt` it has jaxlib's version.
        pjrt: the distribution of the compiler.
        assembler: the distribution with ``ptxas``.
        folder: where ``ptxas`` is in it.
        extra: the extra of gradgate that installs all of them.
    """

    plugin: str
    pjrt: str
    assembler: str
    folder: str
    extra: str

    @property
    def packages(self) -> tuple[str, ...]:
        """All distributions that make up the compiler."""
        return ("jax", "jaxlib", self.plugin, self.pjrt, self.assembler)

    @property
    def module(self) -> str:
        """The module that registers the platform."""
        return f"jax_plugins.xla_cuda{self.plugin.removeprefix('jax-cuda').removesuffix('-plugin')}"


CUDA = (
    Cuda("jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12", "nvidia/cuda_nvcc/bin", "gradgate[cuda]"),
    Cuda("jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cuda-nvcc", "nvidia/cu13/bin", "gradgate[cuda13]"),
)
"""The generations. The first is used where its plug-in is installed, or none is."""


def cuda() -> Cuda:
    """The generation of CUDA whose plug-in for JAX is installed. Reads package metadata only."""
    return next((one for one in CUDA if installed((one.plugin,))), CUDA[0])


class ProfileError(ValueError):
    """A profile that is not known, or a profile file that breaks the format."""


class Availability(NamedTuple):
    """Whether a profile's compiler is installed; if not, the extra that installs it; and the reason as a sentence."""

    available: bool
    extra: str | None
    reason: str


@dataclass(frozen=True)
class Profile:
    """One hardware target.

    Attributes:
        name: unique name, such as ``nvidia-h100``.
        kind: ``cpu``, ``gpu`` or ``tpu``.
        memory_bytes: memory of one chip in bytes; None if it is not known.
        bandwidth: memory bandwidth of one chip in bytes per second; None if it is not known.
        peak: dense peak rate of one chip in FLOP/s by dtype name; a dtype without a known rate is absent.
        compiler: ``host``, ``cuda``, ``tpu``, or None if no current compiler supports the device.
        target: what the compiler needs to know (the built-in files show the keys of each compiler).
        source: where the facts come from, by group (``memory``, ``peak``, ``target``).
    """

    name: str
    kind: str
    memory_bytes: int | None = None
    bandwidth: float | None = None
    peak: Mapping[str, float] = field(default_factory=dict)
    compiler: str | None = None
    target: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices_per_chip(self) -> int:
        """1, or 2 for a chip whose two cores are separate devices that share its memory and rates."""
        return int(self.target.get("devices_per_chip", 1))

    @property
    def device_memory_bytes(self) -> int | None:
        """Bytes that a program on one device may use; None if this is not known."""
        return None if self.memory_bytes is None else self.memory_bytes // self.devices_per_chip

    def digest(self) -> str:
        """Hash of the facts (sha256, 16 hexadecimal digits), without the sources and the name."""
        facts = {key: value for key, value in asdict(self).items() if key not in ("name", "source")}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def load(name_or_path: str | os.PathLike[str]) -> Profile:
    """One profile, by its name (built in or registered) or by the path of a TOML file.

    A string is a path if it ends in ``.toml`` or contains a path separator.

    Raises:
        ProfileError: the name is unknown, or the file is missing or breaks the format.
    """
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith(".toml") or os.sep in text:
        return _read(Path(text))
    paths = dict(_known())
    if text not in paths:
        near = [name for name in sorted(paths) if text and name.startswith(text)]
        near += difflib.get_close_matches(text, paths, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ProfileError(
            f"unknown profile {text!r}{hint} Known: {', '.join(sorted(paths))}. "
            "Or give the path of a TOML file (it ends in .toml)."
        )
    return _read(paths[text])


def load_all() -> list[Profile]:
    """Every built-in and registered profile, sorted by kind (cpu, gpu, tpu), then by name.

    Raises:
        ProfileError: a file breaks the format, or two profiles share a name.
    """
    profiles: dict[str, Profile] = {}
    for name, path in _known():
        if name in profiles:
            raise ProfileError(f"two profiles are called {name!r}; the second is {path}: rename one of them")
        profiles[name] = _read(path)
        if profiles[name].name != name:
            raise ProfileError(f"{path} is registered as {name!r} but calls itself {profiles[name].name!r}")
    return sorted(profiles.values(), key=lambda profile: (KINDS.index(profile.kind), profile.name))


def availability(profile: Profile) -> Availability:
    """Whether the profile's compiler is installed here. Reads package metadata only; imports nothing."""
    if profile.compiler is None:
        return Availability(False, None, "no compiler of today supports this device: work and roofline time only")
    extra, packages = _toolchain(profile.compiler)
    versions = installed(packages)
    missing = [package for package in packages if package not in versions]
    if missing:
        return Availability(False, extra, f"{', '.join(missing)} not installed: pip install '{extra}'")
    if profile.compiler == "cuda":
        wrong = [p for p in (cuda().plugin, cuda().pjrt) if versions[p] != versions["jaxlib"]]
        if wrong:
            found = ", ".join(f"{package} {versions[package]}" for package in wrong)
            return Availability(False, extra, f"{found}, but jaxlib {versions['jaxlib']}: pip install '{extra}'")
    return Availability(True, None, "installed: " + ", ".join(f"{p} {versions[p]}" for p in packages))


def toolchain(compiler: str) -> tuple[str, ...]:
    """Names of the distributions that make up a compiler: those whose versions can change its bytes."""
    return _toolchain(compiler)[1]


def _toolchain(compiler: str) -> tuple[str, tuple[str, ...]]:
    return (cuda().extra, cuda().packages) if compiler == "cuda" else _TOOLCHAINS[compiler]


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the version of each of these distributions that is installed. Reads only metadata, once per process."""
    versions = {package: _version(package) for package in packages}
    return {package: version for package, version in versions.items() if version is not None}


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _known() -> Iterator[tuple[str, Path]]:
    for path in sorted((Path(__file__).parent / "devices").glob("*.toml")):
        yield path.stem, path
    for entry in metadata.entry_points(group=GROUP):
        try:
            yield entry.name, Path(os.fspath(entry.load()))
        except Exception as error:
            raise ProfileError(
                f"entry point {entry.name!r} = {entry.value!r} of group {GROUP} must name the path of a TOML file: "
                f"{type(error).__name__}: {error}"
            ) from error


def _read(path: Path) -> Profile:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read the profile {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} is not TOML: {error}") from error

    top = _section(path, "the file", data, _TOP)
    compiler = top.get("compiler")
    _one_of(path, "kind", top["kind"], KINDS)
    _one_of(path, "compiler", compiler, tuple(_TARGETS))
    memory = _section(path, "[memory]", top.get("memory"), _MEMORY)
    peak = _section(path, "[peak]", top.get("peak"), dict.fromkeys(DTYPES, (float, False)))
    if compiler in ("cuda", "tpu") and "target" not in top:
        raise ProfileError(f"{path}: the table [target] is missing; the compiler {compiler!r} needs it")
    target = _section(path, "[target]", top.get("target"), _TARGETS[compiler])
    if compiler == "cuda" and not memory:
        raise ProfileError(f"{path}: the table [memory] is missing; the compiler 'cuda' needs it")
    if "capability" in target and not target["capability"].replace(".", "", 1).isdigit():
        raise ProfileError(f"{path}: capability is {target['capability']!r}; it must read like '8.0'")
    return Profile(
        name=top["name"],
        kind=top["kind"],
        memory_bytes=memory.get("bytes"),
        bandwidth=memory.get("bandwidth"),
        peak={key: peak[key] for key in DTYPES if key in peak},
        compiler=compiler,
        target={key: value for key, value in target.items() if key != "source"},
        source={group: top[group]["source"] for group in ("memory", "peak", "target") if group in top},
    )


def _one_of(path: Path, key: str, value: object, legal: tuple[object, ...]) -> None:
    if value not in legal:
        names = ", ".join("absent" if name is None else repr(name) for name in legal)
        raise ProfileError(f"{path}: {key} is {value!r}; legal: {names}")


def _section(path: Path, where: str, data: Any, keys: dict[str, tuple[type, bool]]) -> dict[str, Any]:
    """Check the keys and types of a table, and return it; every table below the top must have a source."""
    if data is None:
        return {}
    if where != "the file":
        keys = {**keys, "source": (str, True)}
    out = {}
    for key, value in data.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ProfileError(f"{path}: {where} has the unknown key {key!r}{hint} Legal: {', '.join(keys)}")
        kind = keys[key][0]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ProfileError(f"{path}: {where} {key} must be a {kind.__name__}, not {value!r}")
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            raise ProfileError(f"{path}: {where} {key} must be positive and finite, not {value!r}")
        out[key] = value
    for key, (kind, required) in keys.items():
        if required and key not in out:
            raise ProfileError(f"{path}: {where} lacks the key {key!r} (a {kind.__name__})")
    return out
