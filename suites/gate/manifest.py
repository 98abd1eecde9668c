"""What is gated: derived from the registry, or from the methods that a project names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradgate.hw_profiles.profile import load
from gradgate.references import laws, registry
from gradgate.references.contract import Family, Method, Spec, UsageError
from gradgate.references.loading import is_path
from gradgate.references.restriction import fits
from gradgate.suites.judging.verdict import Task
from gradgate.suites.measuring.cells import MethodCell, usual_options
from gradgate.suites.settings import Settings, Target


@dataclass(frozen=True)
class Gated:
    """One gated method: its declaration, and where it comes from."""

    declared: Method
    given: Target = field(default_factory=lambda: Target("", ""))

    def tasks(self, profiles: tuple[str, ...]) -> Iterator[Task]:
        """Its claims. A law of bytes or work is judged on each profile on which its cells are measured."""
        for claim in self.declared.claims:
            for profile in self._profiles(profiles) if claim.check in laws.CHECKS else ("cpu",):
                yield Task.of(self.declared, claim, self.given.target, profile)

    def named(self) -> set[str]:
        """The modules that its declaration names: of the method, or of a pair's function and reference."""
        found = {self.declared.implementation.rpartition(":")[0]}
        if registry.origin(self.declared.family):
            pair = registry.load(self.declared.implementation)
            found |= {target.rpartition(":")[0] for target in registry.targets_of(self.declared)}
            if hasattr(pair, "loaded"):
                found |= {str(getattr(role, "__module__", "")) for role in pair.loaded.values()}
        return {name for name in found if name and not is_path(name) and name.partition(".")[0] != "gradgate"}

    def _profiles(self, profiles: tuple[str, ...]) -> Iterator[str]:
        """The profiles on which its bytes are measured: one in PyTorch, as eager bytes are the same on all."""
        for profile in profiles if self.declared.framework == "jax" else profiles[:1]:
            compiler = load(profile).compiler
            if self.declared.framework == "jax" and compiler is None:
                raise UsageError(f"no compiler of today supports {profile}, so nothing can be gated on it")
            if not self.declared.sharded or compiler in ("host", "tpu"):  # several devices need one of these
                yield profile

    def cells(self, profiles: tuple[str, ...]) -> Iterator[MethodCell]:
        """Its cells: in JAX one per profile that can run it; in PyTorch one, as eager bytes are the same on all."""
        if self.declared.unmeasured:
            return
        family = registry.family(self.declared.family)
        settings = getattr(family, "settings", ())  # a base may be older than the field
        if not settings:
            yield from self._cells(family, profiles, self.given.spec, self.given.options, "")
        for setting in settings:
            fields, options = {**setting.fields, **self.given.spec}, {**setting.options, **self.given.options}
            yield from self._cells(family, profiles, fields, options, setting.name if len(settings) > 1 else "")

    def _cells(
        self, family: Family, profiles: tuple[str, ...], fields: Mapping[str, Any], chosen: Mapping[str, Any], name: str
    ) -> Iterator[MethodCell]:
        """Its cells at one problem: Spec fields and options that differ from the usual ones, and the setting's name."""
        own = {**getattr(self.declared, "measured", {}), **fields}  # a base may be older than the field
        spec = measured_spec(family, self.declared.framework, own)
        # A method of a part of its class restricts each claim to it. The claim `tree` is one that every method has.
        where: Mapping[str, Any] = next((claim.where for claim in self.declared.claims if claim.name == "tree"), {})
        if all(isinstance(value, str) for value in where.values()) and not fits(spec, where):
            spec = measured_spec(family, self.declared.framework, {**own, **where})
        options = usual_options(self.declared, spec) | dict(chosen)
        for profile in self._profiles(profiles):
            yield MethodCell(self.declared, profile, spec, options, self.given.target, name)


def gated(settings: Settings, own: bool, base: bool = False) -> list[Gated]:
    """Every gated method. Plugged-in methods are imported.

    Args:
        settings: the settings of the side.
        own: whether these are the files of gradgate itself.
        base: whether this is the base. It may gate nothing: the change that adds the gate has such a base.

    Raises:
        UsageError: a project names no method, or one that cannot be loaded.
    """
    if settings.targets:
        found: list[Gated] = []
        for given in settings.targets:
            if given.family:
                found.append(Gated(registry.plugged_in(given.target, given.family, given.framework or None), given))
            else:
                found += [Gated(declared) for family in registry.offered(given.target) for declared in family.methods]
        for place, known in enumerate(found):
            if any(known.declared.key == old.declared.key for old in found[:place]):
                raise UsageError(f"two methods are called {known.declared.key}; rename one of them")
        return found
    if not own and base:
        return []
    if not own:
        raise UsageError(
            'pyproject.toml names nothing to gate; add [tool.gradgate] with pairs = ["tests/gradients.py"], or '
            '[[tool.gradgate.methods]] with target = "mine.py:my_gradient" and family = "state_space"'
        )
    elsewhere = registry.of_entry_points()  # their files belong to other projects
    return [Gated(declared) for declared in registry.methods() if declared.family not in elsewhere]


def measured_spec(family: Family, framework: str, fields: Mapping[str, Any] | None = None) -> Spec:
    """The problem at which a method of this family is gated: the family's `measured` one; in PyTorch, with `eager`."""
    smaller = getattr(family, "eager", {}) if framework == "torch" else {}  # a base may be older than the field
    chosen = {"dtype": "float32", **family.measured, **smaller, **(fields or {})}
    return registry.spec_class(family.name).from_json(json.dumps(chosen))


def from_dict(row: Mapping[str, Any], methods: Mapping[str, Gated]) -> MethodCell | None:
    """The cell of `MethodCell.to_dict`, with this side's declaration of its method; None if this side lacks the method.

    Raises:
        UsageError: this side's Spec does not have these fields or values.
    """
    known = methods.get(owner(row))
    if known is None:
        return None
    spec = registry.spec_class(row["family"]).from_json(json.dumps(row["spec"]))
    return MethodCell(known.declared, row["profile"], spec, row["options"], known.given.target, row.get("setting", ""))


def owner(row: Mapping[str, Any]) -> str:
    """``family:method:framework`` of a cell's dict."""
    return f"{row['family']}:{row['method']}:{row['framework']}"


def name(row: Mapping[str, Any]) -> str:
    """``family:method:framework@profile``: the name of a cell in messages and in allow.toml.

    If the method is measured at several problems, the problem follows after a space: ``…@cpu T=4096 chunk=64``.
    """
    return f"{owner(row)}@{row['profile']} {row.get('setting', '')}".strip()


def identity(row: Mapping[str, Any]) -> str:
    """A string that is equal for cells that measure the same. The file of a plug-in or of a pair may have moved."""
    return json.dumps({k: v for k, v in row.items() if k not in ("target", "origin")}, sort_keys=True)
