"""A declaration that is wrong is one line that says what is legal, found before any claim is judged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import loading, registry
from gradgate.references.contract import UsageError
from gradgate.suites import cli
from gradgate.suites.pairs.calls import offered

ARRAYS = {"torch": "import torch as xp", "jax": "import jax.numpy as xp"}
OPS = """
def op(x, w): return x * w
def plain(x, w): return w * x
def one(x): return x * 1.0
def summed(x, w, reduction="mean"): return getattr(x * w, reduction)()
def summed_plain(x, w, reduction="mean"): return getattr(w * x, reduction)()
def turned(x, w): return x * w + 1j
def counted(x, w): return 3
async def later(x, w): return x * w
def gen(x, w): yield x * w
number = 3
"""
GOOD = {
    "reference": "'ops:plain'",
    "inputs": "{'x': normal('T H'), 'w': normal('H')}",
    "dims": "{'T': (3, 1), 'H': (4,)}",
}


def pair(function: str = "'ops:op'", **fields: str) -> str:
    """A file with one pair, in which these fields are different."""
    declared = ", ".join(f"{name}={text}" for name, text in {**GOOD, **fields}.items())
    return f"import gradgate\nfrom gradgate import *\np = Pair({function}, {declared})\n"


WRONG: dict[str, tuple[str, str]] = {
    "arity of the function": (pair("'ops:one'"), "p: the function one(x) cannot be called as one(x, w), as declared"),
    "arity of the reference": (pair(reference="'ops:one'"), "the reference one(x) cannot be called as one(x, w)"),
    "shapes": (
        pair(inputs="{'x': normal('T H'), 'w': normal('K')}", dims="{'T': (3,), 'H': (4,), 'K': (5,)}"),
        "p: the reference raised",
    ),
    "dims that fit only if one is 1": (
        pair(inputs="{'x': normal('T H'), 'w': normal('T')}"),
        "p: the reference raised",
    ),
    "an option nobody takes": (pair(options="{'reduction': ('sum',)}"), "cannot be called as op(x, w, reduction=…)"),
    "a string of values": (
        pair("'ops:summed'", reference="'ops:summed_plain'", options="{'reduction': 'mean'}"),
        "option reduction lists its legal values",
    ),
    "a list of options": (pair(options="['mean']"), "options maps names to values, as a dict does; it is ['mean']"),
    "a list of dims": (pair(dims="['T', 'H']"), "dims maps names to values"),
    "a module": (pair("__import__('ops')"), "function of p is a module, and cannot be called"),
    "a number": (pair("'ops:number'"), "function of p is a int, and cannot be called"),
    "complex outputs": (pair(reference="'ops:turned'"), "is complex: let both functions return"),
    "no floating output": (pair(reference="'ops:counted'"), "the reference has no floating output"),
    "a misspelt function": (pair("'ops:opp'"), "unknown function in ops 'opp'; legal: "),
    "a misspelt module": (pair("'opps:op'"), "opps:op: there is no module 'opps'"),
    "no colon": (pair("'ops'"), "a target is package.module:function or file.py:function, not 'ops'"),
    "a dim without sizes": (pair(dims="{'T': (3,)}"), "unknown dim of op, input x 'H'; legal: T"),
    "a comma between dims": (pair(inputs="{'x': normal('T,H'), 'w': normal('H')}"), "'T,H'"),
    "an unknown draw": (pair(inputs="{'x': normall('T H'), 'w': normal('H')}"), "name 'normall' is not defined"),
    "a string for a draw": (pair(inputs="{'x': 'T H', 'w': normal('H')}"), "a draw such as normal('T H')"),
    "a negative size": (pair(dims="{'T': (-3,), 'H': (4,)}"), "dim T lists the sizes to try"),
    "a bare size": (pair(dims="{'T': 3, 'H': (4,)}"), "dim T lists the sizes to try"),
    "no reference": (pair(reference="''"), "a pair needs a reference="),
    "the same function": (pair(reference="'ops:op'"), "function and reference are the same object"),
    "an unknown dtype": (pair(dtypes="('float31',)"), "unknown dtype of op 'float31'; legal: "),
    "an unknown transformation": (pair(composes="('vmapp',)"), "'vmapp'; legal: "),
    "a string for transformations": (pair(composes="'vmap'"), "composes is a tuple of names, such as ('vmap',)"),
    "a string for dtypes": (pair(dtypes="'float32'"), "dtypes is a tuple"),
    "a word for kappa": (pair(kappa="'big'"), "kappa must be a positive number"),
    "an unknown claim": (pair(expected="{'gradient_exct': 'a term'}"), "'gradient_exct'; legal: "),
    "a number for a regime": (pair(regimes="{'big': 3}"), "regime 'big' is a function of the inputs"),
    "a regime without a result": (pair(regimes="{'big': lambda given: None}"), "regime 'big' must return a dict of x"),
    "a regime of another shape": (
        pair(regimes="{'big': lambda given: given | {'x': given['x'][..., :1]}}"),
        "p: regime 'big' gives x the shape (1, 1), not (1, 4) as drawn: other sizes are for dims",
    ),
    "a regime that raises": (pair(regimes="{'big': lambda given: given['y']}"), "regime 'big' raised KeyError: 'y'"),
    "a regime that takes arrays for those of a framework": (
        pair(regimes="{'big': lambda given: given | {'x': given['x'].clone().at[0].set(1)}}"),
        "'numpy.ndarray' object has no attribute 'clone'; a regime gets NumPy arrays, and returns them",
    ),
    "a function with async": (pair("'ops:later'"), "is later, whose call runs nothing yet"),
    "a reference with yield": (pair(reference="'ops:gen'"), "reference of p is gen, whose call runs nothing yet"),
    "an unknown quantity": (pair(claims="[at_most('residual_byte', of_reference=0.5)]"), "nearest: residual_bytes"),
    "a law over an unknown dim": (pair(claims="[grows('temp_bytes', K=1)]"), "unknown dim in the claims of op 'K'"),
    "a misspelt keyword": (pair(regime="{}"), "unknown argument of Pair 'regime'; legal: "),
    "no pairs": ("x = 3\n", "declares no gradgate.Pair"),
    "wrong syntax": ("p = (\n", "was never closed"),
}
"""What is wrong -> a file with a pair, and words of the message."""

COMMANDS = {
    "no such file": (["verify", "nofile.py"], "there is no file nofile.py"),
    "no such file of bytes": (["memory", "nofile.py:p"], "there is no file nofile.py"),
    "a claim of nobody": (["verify", "--family", "chain", "--claim", "gradient_exct"], "unknown claim 'gradient_exct'"),
    "a problem that is no JSON": (["verify", "--family", "chain", "--spec", "{"], "--spec is a JSON object"),
    "no examples": (["verify", "--examples", "0"], "--examples"),
    "an unknown profile": (["verify", "--profile", "nvidia-h10"], "nvidia-h10"),
    "an unknown class": (["verify", "--family", "chains"], "'chains'; legal: "),
    "an unknown method": (["verify", "--method", "revolv"], "'revolv'; legal: "),
    "an unknown framework": (["verify", "--framework", "tensorflow"], "tensorflow"),
    "an unknown command": (["verfy"], "verfy"),
    "an unknown option": (["verify", "--exampels", "3"], "--exampels"),
    "a share that is not there": (["verify", "--shard", "5/4"], "5/4"),
    "no such report": (["report", "nofile.json"], "nofile.json"),
    "an unknown document": (["schema", "verdict"], "verdict"),
    "nothing to watch": (["watch"], "watch"),
    "no script to watch": (["watch", "nofile.py"], "there is no file nofile.py"),
    "a framework of nobody, with a target": (["verify", "pairs.py", "--framework", "pytorch"], "unknown framework"),
    "a file that is no Python": (["verify", "notes.txt"], "notes.txt is no Python file: its name must end in .py"),
    "a report into a file": (["verify", "pairs.py", "--report", "notes.txt"], "notes.txt is no folder"),
    "a folder to measure": (["memory", "."], ". is neither a Python file"),
}
"""What is wrong -> a command line, and words of the message; none of these imports a framework."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, whose module `ops` is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(registry.families())
    yield tmp_path
    sys.modules.pop("ops", None)
    for name in set(registry.families()) - known:
        registry.forget(name)


def declared(folder: Path, framework: str, text: str) -> None:
    """Load the pairs of a file and check them, as a worker does that describes them."""
    sys.modules.pop("ops", None)
    (folder / "ops.py").write_text(f"{ARRAYS[framework]}\n{OPS}")
    path = folder / "pairs.py"
    path.write_text(text)
    loading._file.cache_clear()
    assert len(offered("pairs.py")) == 1


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_declaration_is_one_line(what: str, framework: str, folder: Path) -> None:
    pytest.importorskip(framework)
    text, words = WRONG[what]
    with pytest.raises(UsageError) as raised:
        declared(folder, framework, text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value).strip()


@pytest.mark.parametrize("framework", ARRAYS)
def test_a_right_declaration_is_not_refused(framework: str, folder: Path) -> None:
    pytest.importorskip(framework)
    declared(folder, framework, pair(regimes="{'big': lambda given: given | {'x': 9 * given['x']}}"))
    sum_of = pair("'ops:summed'", reference="'ops:summed_plain'", options="{'reduction': ('mean', 'sum')}")
    declared(folder, framework, sum_of)
    declared(folder, framework, pair("lambda *args: __import__('ops').op(*args)"))
    declared(folder, framework, f"{pair()}another_name = p\n")


RULES = {
    "torch": """
class Rule(xp.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * w
    @staticmethod
    def backward(ctx, upstream):
        return upstream, upstream
""",
    "jax": """
import jax
Rule = jax.custom_vjp(lambda x, w: x * w)
Rule.__name__ = "Rule"
""",
}


@pytest.mark.parametrize("framework", ARRAYS)
def test_a_rule_that_is_given_unfinished_is_told_what_is_missing(framework: str, folder: Path) -> None:
    pytest.importorskip(framework)
    (folder / "rules.py").write_text(f"{ARRAYS[framework]}\n{RULES[framework]}")
    said = {"torch": "is the class Rule: give Rule.apply", "jax": "call Rule.defvjp(forward, backward)"}[framework]
    try:
        with pytest.raises(UsageError) as raised:
            declared(folder, framework, pair("__import__('rules').Rule"))
        assert str(raised.value).endswith(said)
        if framework == "torch":
            declared(folder, framework, pair("__import__('rules').Rule.apply"))
    finally:
        sys.modules.pop("rules", None)


LAYERS = {
    "torch": """
class Layer(xp.nn.Module):
    def __init__(self, trained=True):
        super().__init__()
        self.weight = xp.nn.Parameter(xp.ones(4), requires_grad=trained)
    def forward(self, x, w):
        return x * w * self.weight
layer, fixed = Layer(), Layer(trained=False)
""",
    "jax": """
import equinox
class Layer(equinox.Module):
    weight: object
    def __call__(self, x, w):
        return x * w if self.weight is None else x * w * self.weight
layer, fixed = Layer(xp.ones(4)), Layer(None)
""",
}


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("role", ["function", "reference"])
def test_a_module_with_parameters_is_refused_because_their_gradients_would_not_be_judged(
    role: str, framework: str, folder: Path
) -> None:
    pytest.importorskip(framework)
    pytest.importorskip("equinox")
    fields = {"reference": "'ops:plain'"} | {role: "__import__('layers').LAYER"}
    text = pair(**fields)
    (folder / "layers.py").write_text(f"{ARRAYS[framework]}\n{LAYERS[framework]}")
    try:
        with pytest.raises(UsageError) as raised:
            declared(folder, framework, text.replace("LAYER", "layer"))
        assert str(raised.value).startswith(
            f"p: the {role} is a module with parameters, weight, whose gradients would not be judged: declare a "
            "gradgate.module_pair"
        )
        declared(folder, framework, text.replace("LAYER", "fixed"))
    finally:
        sys.modules.pop("layers", None)


CAPTURED = {
    "torch": """
w = torch.ones(4, requires_grad=True)
frozen = torch.ones(4)
layer = torch.nn.Linear(4, 4)
def op(x): return x * USED
def plain(x): return x * frozen
""",
    "jax": """
import equinox
layer, frozen = equinox.nn.Linear(4, 4, key=jax.random.key(0)), jax.numpy.ones(4)
w = layer
def op(x): return x * (USED if USED is frozen else USED.weight[0])
def plain(x): return x * frozen
""",
}


@pytest.mark.parametrize("framework", ARRAYS)
def test_what_a_function_captures_is_refused_if_it_has_a_gradient(
    framework: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(framework)
    pytest.importorskip("equinox")
    declares = "\nfrom gradgate import *\np = Pair(op, plain, {'x': normal('T 4')}, {'T': (2,)})\n"
    states = {}
    for used in ("w", "frozen"):
        text = f"import {framework}\n{CAPTURED[framework]}".replace("USED", used) + declares
        (folder / f"{used}_pairs.py").write_text(text)
        status = cli.main(["verify", f"{used}_pairs.py", "--claim", "tree", "--jobs", "1"])
        told = capsys.readouterr()
        states[used] = (
            status,
            "w, whose gradients would not be judged: make them inputs" in " ".join((told.out + told.err).split()),
        )
    assert states["w"] in ((2, True), (3, True))
    assert states["frozen"] == (0, False)


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("command", ["verify", "memory"])
def test_a_framework_in_which_a_file_has_no_pair_is_refused(
    command: str, framework: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ARRAYS:
        pytest.importorskip(name)
    declared(folder, framework, pair())
    [other] = ARRAYS.keys() - {framework}
    assert cli.main([command, "pairs.py", "--framework", other]) == 3
    assert capsys.readouterr().err == f"gradgate: pairs.py has nothing in {other}: leave --framework out\n"


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("command", ["memory", "domain"])
def test_other_commands_refuse_a_wrong_declaration_in_one_line_too(
    command: str, framework: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(framework)
    declared(folder, framework, pair())
    (folder / "pairs.py").write_text(pair("'ops:one'"))
    loading._file.cache_clear()
    assert cli.main([command, "pairs.py:p"]) == 3
    (folder / "pairs.py").write_text(f"import numpyy\n{pair()}")
    loading._file.cache_clear()
    assert cli.main([command, "pairs.py:p"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "gradgate: p: the function one(x) cannot be called as one(x, w), as declared: too many positional arguments",
        "gradgate: importing pairs.py:p raised ModuleNotFoundError: No module named 'numpyy' · pairs.py:1 in <module>: "
        "import numpyy",
    ]


@pytest.mark.parametrize("what", COMMANDS)
def test_a_wrong_command_line_is_one_line_and_exits_with_3(
    what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    arguments, words = COMMANDS[what]
    assert cli.main(arguments) == 3
    found = capsys.readouterr()
    assert words in found.err
    assert len((found.out + found.err).strip().splitlines()) == 1


def test_the_command_ends_with_3_before_any_claim_is_judged(
    tmp_path: Path, torch: Any, process: Callable[..., Any]
) -> None:
    (tmp_path / "ops.py").write_text(f"{ARRAYS['torch']}\n{OPS}")
    (tmp_path / "pairs.py").write_text(pair("'ops:one'"))
    found = process("-m", "gradgate.suites.cli", "verify", "pairs.py", cwd=tmp_path)
    assert (found.status, found.out) == (3, "")
    assert len(found.err.splitlines()) == 1
    (tmp_path / "pairs.py").write_text(pair(regime="{}"))
    assert "pairs.py:" in process("-m", "gradgate.suites.cli", "verify", "pairs.py", cwd=tmp_path).err
    (tmp_path / "pairs.py").write_text(pair())
    found = process("-m", "gradgate.suites.cli", "verify", "pairs.py", "--spec", '{"TT": 3}', cwd=tmp_path)
    assert (found.status, found.out, len(found.err.splitlines())) == (3, "", 1)
    assert "'TT'" in found.err
    found = process("-m", "gradgate.suites.cli", "verify", ".", cwd=tmp_path)
    assert (found.status, found.err) == (
        3,
        "gradgate: . is neither a Python file, such as gradients.py, nor the name of a module\n",
    )
