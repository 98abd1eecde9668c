"""A new class of problems is one folder: claims, mutants, calibration, report and gate work without any other edit."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.claims import COMPOSITIONS, contract_claims
from gradgate.references.contract import FRAMEWORKS, Family, Trial, UsageError
from gradgate.suites.bugs.corpus import corpus, unbroken
from gradgate.suites.bugs.facts import facts
from gradgate.suites.calibration import alarms
from gradgate.suites.commands import calibrate
from gradgate.suites.gate import manifest
from gradgate.suites.judging.verdict import Task
from gradgate.suites.settings import Settings

DECLARATION = '''"""relay: a value passes through a sequence of steps; each step applies tanh."""

import functools

from gradgate.references import counts
from gradgate.references.claims import ORACLE_CLAIMS, reference_method
from gradgate.references.contract import Family, Option

EVERY = Option("every", "an integer of at least 1", lambda spec: (1, 2, spec.steps + 1), illegal=(0, -1, 1.5, None))
ONCE = counts.evaluations(at_most=1, name="counts")
SHAPES = ({"steps": 1, "width": 1}, {"steps": 2, "width": 3}, {"steps": 5, "width": 2})


def _methods(framework):
    declare = functools.partial(
        reference_method, "relay", framework, {"backprop": (ONCE,)}, package=__name__, module=f"in_{framework}"
    )
    return declare("backprop", *ORACLE_CLAIMS), declare("recompute", options=(EVERY,), source="by hand")


FAMILY = Family(
    "relay", "nobody, nowhere, never", f"{__name__}.problem:RelaySpec", _methods("jax") + _methods("torch"), SHAPES,
    {"scale": (0.5, 2.0)}, ({**SHAPES[2], "scale": 3.0},), letters={"N": "steps"}, measured={"steps": 6, "width": 64},
)
'''
PROBLEM = '''"""loss = c/2 · |y_N − target|², y_k = tanh(w_k · y_{k−1} + b_k)."""

from dataclasses import dataclass, field
from typing import Any

from gradgate.references.contract import Problem, Spec, value_field
from gradgate.references.draws import Constant, Normal, draw


@dataclass(frozen=True)
class RelaySpec(Spec):
    steps: int = 3
    width: int = 2
    scale: float = value_field(1.0)

    def layout(self):
        size = (self.width,)
        layers = [{"w": Normal(size, self.scale), "b": Normal(size)} for _ in range(self.steps)]
        data = {"x": Normal(size), "target": Normal(size), "upstream": Constant(self.upstream)}
        return RelayProblem, {"layers": layers}, data

    def build(self, backend):
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        return cls(self, backend, params, data)


@dataclass(frozen=True)
class RelayProblem(Problem):
    spec: RelaySpec
    backend: str
    params: Any
    data: dict[str, Any] = field(default_factory=dict)
    nets = {"step": "step"}

    def step(self, p, y):
        return self.xp.tanh(p["w"] * y + p["b"])

    def loss(self, params):
        y = self.data["x"]
        for p in params["layers"]:
            y = self.step(p, y)
        return self.data["upstream"] * self.xp.sum((y - self.data["target"]) ** 2) / 2
'''
WALK = '''"""Backprop by hand: it keeps one value in `every` and recomputes the others."""

from gradgate.references.contract import check_integer


def walk(problem, every):
    every, layers = check_integer("every", every, 1), problem.params["layers"]
    y, kept, grads = problem.data["x"], [], []
    for k, p in enumerate(layers):
        kept += [y] if k % every == 0 else []
        y = problem.step(p, y)
    off = y - problem.data["target"]
    loss, g = problem.data["upstream"] * problem.xp.sum(off**2) / 2, problem.data["upstream"] * off
    for first in reversed(range(0, len(layers), every)):
        ys, some = [kept.pop()], layers[first : first + every]
        for p in some:
            ys.append(problem.step(p, ys[-1]))
        for p in reversed(some):
            y = ys.pop()
            a = g * (1 - y * y)
            grads.append({"w": a * ys[-1], "b": a})
            g = a * p["w"]
    return loss, {"layers": grads[::-1]}
'''
IN_JAX = '''"""The methods in JAX."""

import jax

from relay.walk import walk


def backprop(problem):
    return jax.value_and_grad(problem.loss)(problem.params)


def recompute(problem, *, every=1):
    return walk(problem, every)
'''
IN_TORCH = (
    IN_JAX.replace("JAX", "PyTorch")
    .replace("import jax", "import torch")
    .replace(
        "    return jax.value_and_grad(problem.loss)(problem.params)",
        "    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)\n    return loss, grads",
    )
)
BUGS = '''"""A bug of its own."""

from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.edits import Edit

MUTANTS = bug(
    "relay", "square_added", "recompute", "tanh' is taken for 1 + tanh²", "new", both=Edit("walk", "(1 - y", "(1 + y")
)
'''
FILES = {
    "__init__": DECLARATION,
    "problem": PROBLEM,
    "walk": WALK,
    "in_jax": IN_JAX,
    "in_torch": IN_TORCH,
    "bugs": BUGS,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the class; its modules are removed from `sys.modules` afterwards."""
    made = tmp_path_factory.mktemp("elsewhere") / "relay"
    made.mkdir()
    for name, text in FILES.items():
        (made / f"{name}.py").write_text(text)
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "relay"]:
        del sys.modules[name]


@pytest.fixture
def relay(folder: Path) -> Family:
    """The class, after registration."""
    return registry.family(str(folder))


def test_its_methods_make_the_contracts_claims(relay: Family) -> None:
    assert "relay" in registry.families()
    assert [m.key for m in registry.methods("relay")] == [
        f"relay:{name}:{framework}" for framework in FRAMEWORKS for name in ("backprop", "recompute")
    ]
    for method in relay.methods:
        owed = contract_claims(composes=COMPOSITIONS[method.framework], options=method.options)
        assert {claim.name for claim in owed} <= {claim.name for claim in method.claims}


def test_the_suites_trial_has_a_mutant_of_every_generic_bug_and_of_its_own(relay: Family) -> None:
    bugs: dict[str, set[str]] = {}
    for mutant in corpus().values():
        bugs.setdefault(f"{mutant.family}.{mutant.framework}", set()).add(mutant.name.rpartition(".")[2])
    others = [names for place, names in bugs.items() if not place.startswith("relay.")]
    generic = set.intersection(*others)
    assert {"planted_1e11", "leaf_detached", "evaluated_again", "wrong_where_ragged", "wrong_at_size_one"} <= generic
    dtypes = {f"{m}_off_in_{d}" for m in ("backprop", "recompute") for d in ("float64", "float32", "bfloat16")}
    never = {"square_transposed", "row_dropped"}  # no leaf of this class is a matrix
    for framework in FRAMEWORKS:
        assert bugs[f"relay.{framework}"] >= (generic - never) | dtypes | {"layers_reversed", "square_added"}
        assert not bugs[f"relay.{framework}"] & never
        assert f"relay.{framework}.unbroken_recompute" in unbroken()


def test_where_bugs_are_planted_is_derived_from_methods_and_shapes_or_declared(relay: Family) -> None:
    known = facts(relay)
    assert (known.plain, known.clever, known.lossy) == ("backprop", "recompute", "recompute")
    assert known.leaves == known.turns == ("layers[0].b", "layers[0].w")
    assert (known.target, known.state, known.single) == ("target", "x", ("steps",))
    large, ragged = known.large, known.ragged
    assert large is not None
    assert ragged is not None
    cls = registry.spec_class("relay")
    assert {bool(large(cls(**shape).build("numpy"), {})) for shape in relay.shapes} == {False, True}
    assert [ragged(cls(**shape).build("numpy"), {}) for shape in relay.shapes] == [False, False, True]
    trial = Trial(lossy="backprop", leaves=("layers",), single=("width",), ragged=("steps", "every"))
    told = facts(dataclasses.replace(relay, trial=trial))
    assert (told.lossy, told.leaves, told.single) == ("backprop", ("layers",), ("width",))
    assert told.ragged is not None
    assert told.ragged(cls(steps=3).build("numpy"), {"every": 2})
    assert not told.ragged(cls(steps=4).build("numpy"), {"every": 2})


def test_a_class_that_is_not_registered_has_no_mutants() -> None:
    assert not [name for name in (*corpus(), *unbroken()) if name.startswith("relay.")]


def test_its_mutants_are_killed_in_a_worker_and_its_methods_are_not(
    relay: Family, framework: str, gradgate: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    names = ("square_added", "planted_1e30", "wrong_where_ragged", "none_for_a_leaf", "unbroken_recompute")
    mutants = [f"relay.{framework}.{name}" for name in names]
    ran = gradgate("selftest", *mutants, "--family", folder, "--examples", 3, "--jobs", 1, "--json", kept)
    found = {row["name"]: row["status"] for row in json.loads(kept.read_text())["mutants"]}
    assert found == {**dict.fromkeys(mutants, "killed"), mutants[-1]: "sound"}, ran
    assert ran.status == 0


def test_verify_judges_it_by_its_path_and_writes_a_report(
    torch: Any, gradgate: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    asked = ("verify", "--family", f"{folder}:FAMILY", "--framework", "torch", "--method", "recompute")
    ran = gradgate(*asked, "--examples", 2, "--jobs", 1, "--report", tmp_path)
    assert ran.status == 0, ran
    rows = json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]
    assert {row["verdict"] for row in rows} <= {"upheld", "inapplicable"}
    assert {"gradient_exact", "options", "refusal"} <= {row["claim"] for row in rows if row["verdict"] == "upheld"}
    assert all(f"--family {folder}:FAMILY" in row["reproduce"] for row in rows)
    page = (tmp_path / "index.html").read_text()
    assert "nobody, nowhere, never" in page
    assert "recompute" in page


def test_calibration_has_its_pieces_and_a_problem_of_it_raises_no_alarm(relay: Family, torch: Any) -> None:
    pieces = calibrate._pieces("relay", 8)
    assert ("power", "torch", "recompute") in pieces
    assert ("alarms", "torch", "0") in pieces
    found = alarms.measure("relay", "torch", seed=1, start=0, count=2)
    assert found["judged"] == {"relay:backprop:torch": 2, "relay:recompute:torch": 2}
    assert found["alarms"] == []


def test_the_gate_has_a_cell_of_every_method_and_its_claims(relay: Family) -> None:
    settings = Settings.read(Path(__file__).parent)
    gated = {known.declared.key: known for known in manifest.gated(settings, own=True)}
    for method in relay.methods:
        known = gated[method.key]
        [cell] = known.cells(("cpu",))
        assert cell.spec == registry.spec_class("relay")(steps=6, width=64, dtype="float32")
        assert cell.to_cell().static["family"] == relay.origin
        assert "gradient_float64" in {task.claim for task in known.tasks(("cpu",))}


def test_a_task_names_where_its_class_comes_from(relay: Family, folder: Path) -> None:
    method = relay.methods[0]
    assert Task.of(method, method.claims[0]).origin == f"{folder}:FAMILY"
    own = registry.methods("chain")[0]
    assert Task.of(own, own.claims[0]).origin == ""


def test_a_class_may_be_one_file(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    text = "".join(text.replace("__name__", "__file__") for text in (DECLARATION, PROBLEM.replace("relay", "one")))
    text = text.replace('"relay"', '"one"').replace(".problem:", ":")
    path.write_text(text.replace("from __future__", "#"))
    one = registry.family(str(path))
    assert (one.name, one.origin) == ("one", f"{path}:FAMILY")
    assert registry.spec_class("one")(steps=2).build("numpy").params["layers"][1]["w"].shape == (2,)
    assert one.methods[0].implementation == f"{path}:backprop"


def test_registering_twice_changes_nothing(relay: Family, folder: Path) -> None:
    assert registry.register(relay) is registry.family(f"{folder}/__init__.py:FAMILY") is registry.family("relay")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"relay"', '"chain"', "there is a family 'chain' already, of gradgate"),
        ('"steps": 1, "width": 1}', '"stepps": 1}', "unknown Spec field in the family relay 'stepps'"),
        (":RelaySpec", ":RelaySpek", "unknown function in .*nearest: RelaySpec"),
        ("FAMILY = Family", "OTHER = Family", "unknown function in .* 'FAMILY'"),
        ("import functools", "import functools\n1 / 0", "importing .* raised ZeroDivisionError"),
        ('_methods("jax") + _methods("torch")', "()", "the family relay declares no methods"),
        ('_methods("jax") + _methods("torch")', '_methods("jax") * 2', "relay:backprop:jax is declared twice"),
        ("FAMILY = Family(", "FAMILY = dict(a=1)\nOTHER = Family(", "is a dict, no Family"),
    ],
)
def test_a_wrong_declaration_is_told(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    text = (DECLARATION + PROBLEM).replace("__name__", "__file__").replace(".problem:", ":")
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=said):
        registry.family(str(path))
    assert "relay" not in registry.families()


def test_a_class_without_an_origin_is_refused(relay: Family) -> None:
    with pytest.raises(UsageError, match="has no origin: give it origin="):
        registry.register(dataclasses.replace(relay, name="another", origin=""))


def test_an_entry_point_names_a_class(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    def points(group: str) -> list[EntryPoint]:
        return [EntryPoint("relay", f"{folder}:FAMILY", group)] if group == "gradgate.families" else []

    monkeypatch.setattr(registry.metadata, "entry_points", points)
    registry.of_entry_points.cache_clear()
    try:
        assert registry.family("relay").origin == f"{folder}:FAMILY"
    finally:
        registry.of_entry_points.cache_clear()


def test_a_spec_is_checked_whether_or_not_its_annotations_are_text(relay: Family) -> None:
    with pytest.raises(UsageError, match=r"steps must be an integer, not 2\.5"):
        registry.spec_class("relay")(steps=2.5)


def test_a_sweep_finds_it_in_a_process_of_its_own(
    torch: Any, gradgate: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    asked = ("memory", "--family", folder, "--method", "recompute", "--framework", "torch", "--sweep", "N=4:16")
    ran = gradgate(*asked, "--json", tmp_path / "found.json")
    assert ran.status == 0, ran
    rows = json.loads((tmp_path / "found.json").read_text())["cells"]
    assert [row["status"] for row in rows] == ["measured"] * len(rows)
    assert {row["spec"]["steps"] for row in rows} >= {4, 16}


def test_a_folder_in_references_is_found_without_being_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gradgate.references

    place = "gradgate.references.relay"
    (tmp_path / "relay").mkdir()
    for name, text in FILES.items():
        text = text.replace("from relay.", f"from {place}.").replace(", package=__name__", "")
        (tmp_path / "relay" / f"{name}.py").write_text(text)
    monkeypatch.setattr(gradgate.references, "__path__", [*gradgate.references.__path__, str(tmp_path)])
    registry._folders.cache_clear()
    try:
        assert registry.family("relay").address == "relay"
        assert registry.load(registry.methods("relay", "recompute", "torch")[0].implementation).__module__ == (
            f"{place}.in_torch"
        )
        assert registry.package("relay") == place
        assert {
            f"relay.{framework}.{name}" for framework in FRAMEWORKS for name in ("square_added", "planted_1e2")
        } <= (corpus().keys())
    finally:
        registry._folders.cache_clear()
        for name in [name for name in sys.modules if name.startswith(place)]:
            del sys.modules[name]
        vars(gradgate.references).pop("relay", None)
