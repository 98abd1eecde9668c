"""What there is to verify: the families in this folder, plug-ins of entry points, and targets given by name."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from gradgate.references import counts, laws
from gradgate.references.claims import contract_claims
from gradgate.references.contract import FRAMEWORKS, Claim, Family, Method, Spec, UsageError, unknown
from gradgate.references.restriction import check_fields, check_where, left, words

ENTRY_POINTS = "gradgate.methods"


@functools.cache
def families() -> dict[str, Family]:
    """Name -> Family, one for each folder beside this file whose package declares FAMILY."""
    import gradgate.references

    found = {}
    for info in pkgutil.iter_modules(gradgate.references.__path__):
        if info.ispkg:
            declared = importlib.import_module(f"gradgate.references.{info.name}").FAMILY
            found[declared.name] = declared
    return found


def family(name: str) -> Family:
    """The family of that name.

    Raises:
        UsageError: no such family; lists those there are and names the nearest.
    """
    if name not in families():
        raise unknown("family", name, families())
    return families()[name]


def spec_class(name: str) -> type[Spec]:
    """The Spec class of a family."""
    found: type[Spec] = load(family(name).spec)
    return found


def methods(
    family_name: str | None = None, method: str | None = None, framework: str | None = None
) -> tuple[Method, ...]:
    """Reference methods, all or those that match, in the order of declaration.

    Raises:
        UsageError: a name that matches nothing; lists what is legal and names the nearest.
    """
    chosen = [family(family_name)] if family_name else list(families().values())
    if framework is not None and framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    every = [m for f in chosen for m in f.methods]
    if method is not None and method not in {m.name for m in every}:
        raise unknown("method", method, {m.name for m in every})
    return tuple(m for m in every if method in (None, m.name) and framework in (None, m.framework))


def plugged_in(target: str, family_name: str, framework: str | None = None) -> Method:
    """Declare a foreign callable as a method of a family. Imports and so runs foreign code.

    Args:
        target: ``package.module:function`` or ``path/to/file.py:function``.
        framework: ``jax`` or ``torch``; by default whichever of the two the function's module has imported.

    Raises:
        UsageError: the target cannot be found, its framework cannot be told, or a name is unknown.
    """
    function = load(target)
    if not callable(function):
        raise UsageError(f"{target.rpartition(':')[2]!r} is a {type(function).__name__}, no function, in {target}")
    if framework is None:
        module = sys.modules.get(function.__module__)
        names = {
            getattr(v, "__name__", "").partition(".")[0] for v in vars(module).values() if isinstance(v, ModuleType)
        }
        guesses = [f for f in FRAMEWORKS if f in names]
        if len(guesses) != 1:
            seen = " and ".join(guesses) or "neither JAX nor PyTorch"
            raise UsageError(f"{target}: its module imports {seen}; say --framework jax or --framework torch")
        framework = guesses[0]
    elif framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    declared: dict[str, Any] = dict(getattr(function, "gradgate", {}))
    problem = spec_class(family_name)().build("numpy")
    for role in ("oracle", "rounding"):
        name = declared.get(role) or "loss"
        if not callable(getattr(problem, name, None)):
            raise unknown(f"{role} of {target}", name, [n for n in dir(problem) if "loss" in n and n[0] != "_"])
    where, expected = declared.pop("where", {}), declared.pop("expected", {})
    own = tuple(declared.pop("claims", ()))
    for claim in own:
        check_fields(spec_class(family_name), claim.where, f"the claim {claim.name}")
        counts.check_names(claim, [option.name for option in declared.get("options", ())], load)
    asked = {key: declared[key] for key in ("composes", "disclaims", "options", "dtypes") if key in declared}
    contract = contract_claims(**asked, replaced=own)
    claims = contract + tuple(claim for claim in own if claim not in contract)
    if problem.nets and "counts" not in {claim.name for claim in claims}:
        claims += (counts.REPORT,)
    if where:
        claims = _restricted(family(family_name), where, claims)
    claims = _known_to_fail(target, expected, claims)
    return Method(family(family_name).name, target.rpartition(":")[2], framework, target, claims, **declared)


def _restricted(declared: Family, where: Mapping[str, Any], claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, those that are judged on the family's problems restricted to some of them; they say to how many."""
    cls = spec_class(declared.name)
    check_where(declared, cls, where)

    def restricted(claim: Claim) -> Claim:
        if claim.check in laws.CHECKS:  # its problem is its own
            return claim
        kind, problems = (
            ("stress problems", declared.stress) if claim.check == "stability" else ("shapes", declared.shapes)
        )
        scope = f"on {left(cls, problems, where)} of {len(problems)} {kind}, {words(where)}"
        return dataclasses.replace(claim, where={**where, **claim.where}, statement=f"{claim.statement} ({scope})")

    return tuple(restricted(claim) for claim in claims)


def _known_to_fail(target: str, expected: Mapping[str, str], claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, those that a plug-in declares to fail expected to be refuted.

    Raises:
        UsageError: one of them is no claim of the method.
    """
    for name in expected:
        if name not in {claim.name for claim in claims}:
            raise unknown(f"claim in expected of {target}", name, [claim.name for claim in claims])
    return tuple(
        dataclasses.replace(claim, expected="refuted", declared_reason=expected[claim.name])
        if claim.name in expected
        else claim
        for claim in claims
    )


def entry_points() -> list[tuple[str, str]]:
    """(family, target) of every installed entry point in the group ``gradgate.methods``.

    An entry point is named ``family.anything`` and its value is the target.
    """
    found = []
    for point in metadata.entry_points(group=ENTRY_POINTS):
        found.append((point.name.partition(".")[0], point.value))
    return sorted(found)


def load(target: str) -> Any:
    """The object named by ``package.module:name`` or ``path/to/file.py:name``.

    Raises:
        UsageError: no colon, no such file, module or name; the nearest name is given. An error inside the module
            itself is passed on as it is.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"a target is package.module:function or file.py:function, not {target!r}")
    module = _file(Path(place)) if place.endswith(".py") else _module(place, target)
    if not hasattr(module, name):
        functions = [n for n, v in vars(module).items() if isinstance(v, Callable) and not n.startswith("_")]  # type: ignore[arg-type]
        raise unknown(f"function in {place}", name, functions)
    return getattr(module, name)


def _module(place: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            raise UsageError(f"{target}: there is no module {error.name!r}; is its project installed here?") from None
        raise


@functools.cache
def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    name = f"gradgate_plugin_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module
