"""What can be verified: classes of problems, their methods, and callables that are given by name.

A class is a folder next to this file, an entry point of the group ``gradgate.families`` or ``gradgate.pairs``, or a
class that was given to `register`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from gradgate.references import counts, laws
from gradgate.references.claims import contract_claims
from gradgate.references.contract import FRAMEWORKS, Claim, Family, Method, Spec, UsageError, unknown
from gradgate.references.loading import is_path, load, module_of, shortest
from gradgate.references.restriction import check_fields, check_where, left, words

ENTRY_POINTS = "gradgate.methods"
GROUPS = ("gradgate.families", "gradgate.pairs")
"""The groups of entry points whose values name classes of problems: Families, and pairs."""
_REGISTERED: dict[str, Family] = {}


def families() -> dict[str, Family]:
    """Name -> Family: one for each folder next to this file, then those of entry points, then those registered.

    Raises:
        UsageError: an entry point names no Family, or a Family whose name is taken.
    """
    return {**{name: _in_this_folder(name) for name in _folders()}, **of_entry_points(), **_REGISTERED}


def names() -> tuple[str, ...]:
    """The names of `families`. No folder next to this file is imported for them: each is named as its class."""
    return (*_folders(), *of_entry_points(), *_REGISTERED)


def _known(name: str) -> Family | None:
    """The class of that name; no other class is imported."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    return _of_folder(name) or of_entry_points().get(name)


def register(declared: Family) -> Family:
    """Add a class of problems from elsewhere; everything that reads the registry then finds it.

    Args:
        declared: its declaration. `origin` says where other processes, such as the workers, find it.

    Returns:
        The class as registered. Registering one a second time changes nothing.

    Raises:
        UsageError: the declaration is incomplete, or another class has the name.
    """
    known = _known(declared.name)
    if known is not None and known.origin == declared.origin:
        return known
    _check(declared, known)
    _REGISTERED[declared.name] = declared
    return declared


def forget(name: str) -> None:
    """Remove a registered class, such as one that was made at run time and has been judged."""
    _REGISTERED.pop(name, None)


def family(name: str) -> Family:
    """The class of that name, or the class that a target names, which is then registered.

    Args:
        name: a name, or ``package.module:FAMILY``, ``path/to/file.py:FAMILY`` or ``path/to/folder:FAMILY``. After a
            path, ``:FAMILY`` may be left out.

    Raises:
        UsageError: there is no such class; the message lists all classes and names the nearest.
    """
    if ":" in name or is_path(name):
        return register(_at(name))
    known = _known(name)
    if known is None:
        raise unknown("family", name, names())
    return known


def origin(name: str) -> str:
    """The origin of the class of that name; "" for gradgate's own, and for a name that is not known here."""
    known = _known(name)
    return known.origin if known else ""


def package(name: str) -> str:
    """The package of a class, such as ``gradgate.references.chain``; "" if the class is in one file or not known."""
    known = _known(name)
    if known is None:
        return ""
    place = known.spec.rpartition(":")[0] if isinstance(known.spec, str) else known.spec.__module__
    return "" if is_path(place) else place.rpartition(".")[0]


def offered(target: str) -> tuple[Family, ...]:
    """The classes of problems that a target offers, registered: pairs and Families. Imports and so runs foreign code.

    Args:
        target: ``file.py:name`` or ``package.module:name`` of one class, or a file or module, for all that it declares.

    Raises:
        UsageError: the target names no class, or the file declares none.
    """
    if ":" in target:
        found = load(target)
        if not _is_class(found):
            raise UsageError(
                f"{target} is no gradgate.Pair; say which problems it solves: --family {' | '.join(families())}"
            )
        return (family(target),)
    own: dict[int, str] = {}  # a class with two names is offered once
    for name, value in vars(module_of(target)).items():
        if _is_class(value) and not name.startswith("_"):
            own.setdefault(id(value), name)
    if not own:
        raise UsageError(f"{target} declares no gradgate.Pair; to judge a method of it: {target}:function --family F")
    return tuple(family(f"{target}:{name}") for name in own.values())


def _is_class(value: Any) -> bool:
    """Whether this is a class of problems: a Family, or a pair."""
    return isinstance(value, Family) or (hasattr(value, "found_at") and not isinstance(value, type))


def targets_of(method: Method) -> list[str]:
    """The targets that declare a method: a pair's two functions, or the `Own` that puts a user's model in a class."""
    if "@" in family(method.family).origin:
        served = importlib.import_module("gradgate.references.own_problem").SERVED
        return [served[family(method.family).origin.rpartition("@")[2]]]
    found = load(method.implementation) if family(method.family).origin else None
    named = [getattr(found, role, None) for role in ("function", "reference")] if hasattr(found, "found_at") else []
    return [target for target in named if isinstance(target, str)]


def spec_class(name: str) -> type[Spec]:
    """The Spec class of a family."""
    return _spec_of(family(name))


def _spec_of(declared: Family) -> type[Spec]:
    found: type[Spec] = load(declared.spec) if isinstance(declared.spec, str) else declared.spec
    return found


def methods(
    family_name: str | None = None, method: str | None = None, framework: str | None = None
) -> tuple[Method, ...]:
    """Reference methods, all or those that match, in the order of declaration.

    Raises:
        UsageError: a name matches nothing; the message lists what is legal and names the nearest.
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
        framework: ``jax`` or ``torch``; by default the one of the two that the function's module has imported.

    Raises:
        UsageError: the target cannot be found, its framework is not clear, or a name is unknown.
    """
    function = load(target)
    if hasattr(function, "found_at"):
        pair: Method = function.found_at(target).lowered
        return pair
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
    claims = known_to_fail(target, expected, claims)
    return Method(family(family_name).name, target.rpartition(":")[2], framework, target, claims, **declared)


def _restricted(declared: Family, where: Mapping[str, Any], claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, restricted to some of the family's problems; each statement says to how many of them."""
    cls = spec_class(declared.name)
    check_where(declared, cls, where)

    def restricted(claim: Claim) -> Claim:
        if claim.check in laws.CHECKS:  # the law itself says which problem is measured
            return claim
        kind, problems = (
            ("stress problems", declared.stress) if claim.check == "stability" else ("shapes", declared.shapes)
        )
        scope = f"on {left(cls, problems, where)} of {len(problems)} {kind}, {words(where)}"
        return dataclasses.replace(claim, where={**where, **claim.where}, statement=f"{claim.statement} ({scope})")

    return tuple(restricted(claim) for claim in claims)


def known_to_fail(target: str, expected: Mapping[str, str], claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims; those that a plug-in declares to fail are expected to be refuted.

    Raises:
        UsageError: `expected` names a claim that the method does not have.
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


@functools.cache
def _folders() -> tuple[str, ...]:
    import gradgate.references

    return tuple(info.name for info in pkgutil.iter_modules(gradgate.references.__path__) if info.ispkg)


def _of_folder(name: str) -> Family | None:
    return _in_this_folder(name) if name in _folders() else None


@functools.cache
def _in_this_folder(name: str) -> Family:
    """The class of a folder, whose name is the folder's."""
    declared: Family = importlib.import_module(f"gradgate.references.{name}").FAMILY
    if declared.name != name:
        raise UsageError(f"the folder references/{name} declares the class {declared.name}: give both one name")
    return declared


@functools.cache
def of_entry_points() -> dict[str, Family]:
    """Name -> Family, of every installed entry point in one of `GROUPS`.

    Raises:
        UsageError: an entry point names neither a Family nor a pair, or one whose name is taken.
    """
    found: dict[str, Family] = {}
    for group in GROUPS:
        for point in sorted(metadata.entry_points(group=group)):
            try:
                declared = _at(point.value)
                _check(declared, found.get(declared.name, _of_folder(declared.name)))
            except UsageError as error:
                raise UsageError(f"the entry point {point.name} of {group}: {error}") from None
            found[declared.name] = declared
    return found


def _at(target: str) -> Family:
    """The Family that a target names, whose origin is that target."""
    if "@" in target:  # a user's own model in an existing class
        found: Family = importlib.import_module("gradgate.references.own_problem").lowered(target)
        return found
    place, colon, name = target.rpartition(":") if ":" in target else (target, ":", "FAMILY")
    if is_path(place):
        path = Path(place).resolve()
        place = shortest(path.parent if path.name == "__init__.py" else path)
    try:
        declared = load(f"{place}{colon}{name}")
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"importing {place} raised {type(error).__name__}: {error}") from error
    if hasattr(declared, "found_at"):  # a pair, which is a class of problems with one method
        return cast("Family", declared.found_at(f"{place}:{name}").family)
    if not isinstance(declared, Family):
        raise UsageError(f"{target} is a {type(declared).__name__}, no Family")
    return declared if declared.origin else dataclasses.replace(declared, origin=f"{place}:{name}")


def _check(declared: Family, known: Family | None) -> None:
    """Check what a class from elsewhere declares.

    Raises:
        UsageError: something is missing or wrong; the message says what.
    """
    name = declared.name
    if known is not None:
        raise UsageError(f"there is a family {name!r} already, of {known.origin or 'gradgate'}: choose another name")
    if not name.isidentifier():
        raise UsageError(f"the name of a family is an identifier such as my_class, not {name!r}")
    if not declared.origin:
        raise UsageError(f"the family {name} has no origin: give it origin='package.module:FAMILY' or 'path.py:FAMILY'")
    cls = _spec_of(declared)
    if not (isinstance(cls, type) and issubclass(cls, Spec)):
        raise UsageError(f"{declared.spec}, the spec of the family {name}, is no subclass of Spec")
    if not declared.shapes or not declared.methods:
        raise UsageError(f"the family {name} declares no {'methods' if declared.shapes else 'shapes'}")
    legal = [f.name for f in dataclasses.fields(cls)]
    for fields in (*declared.shapes, *declared.stress, declared.measured, declared.values, declared.eager):
        if wrong := [field for field in fields if field not in legal]:
            raise unknown(f"Spec field in the family {name}", wrong[0], legal)
    for fields in (*declared.shapes, *declared.stress, declared.measured):
        cls(**fields)
    seen: set[str] = set()
    for method in declared.methods:
        if method.framework not in FRAMEWORKS:
            raise unknown(f"framework of {method.key}", method.framework, FRAMEWORKS)
        if method.family != name or method.key in seen:
            said = "declared twice" if method.key in seen else f"a method of {method.family}, not of {name}"
            raise UsageError(f"{method.key} is {said}")
        seen.add(method.key)
