"""Reference methods of a class applied to a user's model: what is judged, measured, left out and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import own_problem, registry
from gradgate.references.contract import Method, UsageError
from gradgate.references.draws import shapes
from gradgate.suites.engine import search
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.measuring import choice

BILEVEL = """
import jax
import jax.numpy as jnp


class Maml:
    def __init__(self, steps=3, width=4, batch=2, seed=0):
        a, b, c, d, e = jax.random.split(jax.random.key(seed), 5)
        self.params = {"w": jax.random.normal(a, (width, width)) / width, "v": jax.random.normal(b, (width,))}
        self.xs = {"in": jax.random.normal(c, (steps, batch, width)), "out": jax.random.normal(d, (steps, batch))}
        self.y = {"in": jax.random.normal(e, (batch, width)), "out": jnp.ones(batch)}

    def inner_loss(self, theta, eta, x):
        return jnp.mean((jnp.tanh(x["in"] @ theta["w"]) @ theta["v"] - x["out"]) ** 2)

    def update(self, grad, theta, state, eta, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, theta, grad), state

    def outer_loss(self, theta, y):
        return self.inner_loss(theta, None, y)
"""

CHAIN = """
import torch
from torch import nn


class Net:
    def __init__(self, depth=4, width=3, batch=2, seed=0):
        torch.manual_seed(seed)
        self.layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
        self.x, self.target = torch.randn(batch, width), torch.randn(batch, width)

    def head(self, y):
        return ((y - self.target) ** 2).mean()
"""

INVERTIBLE = """
import jax
import jax.numpy as jnp


class RevNet:
    def __init__(self, layers=3, width=4, batch=2, seed=0):
        a, b, c, d = jax.random.split(jax.random.key(seed), 4)
        half = (layers, width // 2, width // 2)
        self.params = {
            "layers": {"f": jax.random.normal(a, half), "g": jax.random.normal(b, half)},
            "head": jax.random.normal(c, (width,)),
        }
        self.x = jax.random.normal(d, (batch, width))

    def layer(self, p, x):
        a, b = jnp.split(x, 2, axis=-1)
        a = a + jnp.tanh(b @ p["f"])
        return jnp.concatenate([a, b + jnp.tanh(a @ p["g"])], axis=-1)

    def inverse(self, p, y):
        a, b = jnp.split(y, 2, axis=-1)
        b = b - jnp.tanh(a @ p["g"])
        return jnp.concatenate([a - jnp.tanh(b @ p["f"]), b], axis=-1)

    def head(self, w, y):
        return jnp.mean((y @ w) ** 2)
"""

STATE_SPACE = """
import jax
import jax.numpy as jnp


class Scan:
    def __init__(self, length=5, layers=2, state=3, width=4, batch=2, vocabulary=7, seed=0):
        self.state, self.width = state, width
        keys = iter(jax.random.split(jax.random.key(seed), 6))
        draw = lambda *shape: jax.random.normal(next(keys), shape) / width**0.5
        sizes = {"A": state, "B": state * width, "C": state * width}
        self.params = {
            "embedding": draw(vocabulary, width),
            "layers": {net: {"w": draw(layers, width, size)} for net, size in sizes.items()},
            "head": draw(width, vocabulary),
        }
        self.tokens = jax.random.randint(next(keys), (length, batch), 0, vocabulary)
        self.targets = jnp.roll(self.tokens, -1, axis=0)

    def A(self, p, x):
        return jax.nn.sigmoid(x @ p["w"])

    def B(self, p, x):
        return (x @ p["w"]).reshape(*x.shape[:-1], self.state, self.width)

    def C(self, p, x):
        return (x @ p["w"]).reshape(*x.shape[:-1], self.width, self.state)

    def token_loss(self, head, y, targets):
        logits = jax.nn.log_softmax(y @ head)
        return -jnp.take_along_axis(logits, targets[..., None], axis=-1).sum()
"""

MODELS = {
    "bilevel": ("Maml", BILEVEL, "jax", ("mixflow", "truncated_bptt")),
    "chain": ("Net", CHAIN, "torch", ("sqrt_n", "precise_dp")),
    "invertible": ("RevNet", INVERTIBLE, "jax", ("reversible", "moonwalk_mixed")),
    "state_space": ("Scan", STATE_SPACE, "jax", ("reverse_recurrence",)),
}
LINES = {"bilevel": 25, "chain": 25}
"""The most lines that an example model may have, with blank lines and imports."""


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A function that writes the example of a class, with replacements in its text, and returns its address."""
    written = 0

    def write(family: str, *changes: tuple[str, str]) -> str:
        nonlocal written
        name, text, framework, _ = MODELS[family]
        pytest.importorskip(framework)
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        written += 1
        path = tmp_path / str(written) / "mine.py"
        path.parent.mkdir()
        path.write_text(text)
        registry.forget(f"{name}_in_{family}")
        return own_problem.address(f"{path}:{name}", family)

    yield write
    for family, (name, *_) in MODELS.items():
        registry.forget(f"{name}_in_{family}")


def method(address: str, name: str) -> Method:
    (found,) = registry.methods(address, name)
    return found


def judged(address: str, name: str, claim: str) -> Verdict:
    declared = method(address, name)
    task = Task.of(declared, declared.claim(claim))
    return search.judge(task, Subject.load(declared), Run(examples=4))


@pytest.mark.parametrize("family", LINES)
def test_an_example_is_short(family: str) -> None:
    assert len(MODELS[family][1].strip().splitlines()) <= LINES[family]


@pytest.mark.parametrize(("family", "name"), [(family, name) for family in MODELS for name in MODELS[family][3]])
@pytest.mark.parametrize("claim", ["gradient_exact", "gradient_float32"])
def test_reference_methods_are_right_on_a_model_of_their_class(
    family: str, name: str, claim: str, model: Callable[..., str]
) -> None:
    verdict = judged(model(family), name, claim)
    assert verdict.verdict == "upheld", verdict.reason


def test_every_option_of_a_method_is_tried_on_the_model(model: Callable[..., str]) -> None:
    verdict = judged(model("state_space"), "reverse_recurrence", "options")
    assert verdict.verdict == "upheld", verdict.reason


def test_a_model_whose_inverse_is_wrong_refutes_the_method_that_trusts_it_and_no_other(
    model: Callable[..., str],
) -> None:
    address = model("invertible", ("[a - jnp.tanh(b", "[a - 1.01 * jnp.tanh(b"))
    assert judged(address, "reversible", "gradient_exact").verdict == "refuted"
    assert judged(address, "backprop", "gradient_exact").verdict == "upheld"


def test_a_model_with_one_more_place_that_depends_on_params_is_judged_with_it(model: Callable[..., str]) -> None:
    """Here a meta-parameter is also in the update: a method that ignored it there would be refuted."""
    address = model(
        "bilevel",
        ("p - 0.1 * g, theta, grad)", "p - 0.1 * g * e**2, theta, grad, eta)"),
        ("lambda p, g:", "lambda p, g, e:"),
    )
    assert judged(address, "log_remat", "gradient_exact").verdict == "upheld"


def test_methods_that_cannot_take_the_model_are_named_with_the_reason(model: Callable[..., str]) -> None:
    address = model("bilevel")
    registry.family(address)
    left = own_problem.left_out(address)
    taken_back = {"momentum_inversion", "compensated_inversion", "buffered_inversion"}
    assert set(left) == {*taken_back, "bilevel_sharded"}
    assert "of your update only the step forward is known" in left["momentum_inversion"]
    without = model("invertible", ("def inverse", "def _inverse"))
    registry.family(without)
    assert own_problem.left_out(without)["reversible"] == "your model has no inverse(p, y) -> x"


@pytest.mark.parametrize(("family", "size"), [("bilevel", "width=4"), ("chain", "width=3")])
def test_a_model_too_large_for_sixty_digits_is_judged_in_floats_and_says_so(
    family: str, size: str, model: Callable[..., str]
) -> None:
    small = model(family)
    assert "gradient_exact" in {claim.name for claim in registry.family(small).methods[0].claims}
    assert "gradient_exact" not in own_problem.left_out(small)
    large = model(family, (size, "width=2000"), ("batch=2", "batch=64"))
    assert "gradient_exact" not in {claim.name for claim in registry.family(large).methods[0].claims}
    assert "make the default sizes smaller" in own_problem.left_out(large)["gradient_exact"]


def test_rematerialisation_is_an_option_only_of_a_model_whose_layers_can_be_wrapped(model: Callable[..., str]) -> None:
    assert [o.name for o in method(model("bilevel"), "mixflow").options] == ["save_inner_grads"]
    wrapped = model(
        "bilevel",
        ("inner_loss(self, theta, eta, x):", "inner_loss(self, theta, eta, x, block=lambda layer: layer):"),
        ('jnp.tanh(x["in"] @ theta["w"])', 'block(lambda w: jnp.tanh(x["in"] @ w))(theta["w"])'),
    )
    assert [o.name for o in method(wrapped, "mixflow").options] == ["remat", "save_inner_grads"]
    assert judged(wrapped, "mixflow", "options").verdict == "upheld"


def test_shapes_of_a_large_model_in_jax_are_known_without_its_numbers(model: Callable[..., str]) -> None:
    family = registry.family(model("bilevel"))
    spec = registry.spec_class(family.name)(width=2_000_000)  # type: ignore[call-arg]
    assert shapes(spec).params["w"].shape == (2_000_000, 2_000_000)


def test_another_seed_moves_the_parameters_of_a_model_that_takes_none(model: Callable[..., str]) -> None:
    family = registry.family(model("bilevel", (", seed=0", ""), ("key(seed)", "key(3)")))
    cls = registry.spec_class(family.name)
    first, again, other = (cls(seed=seed).build("numpy").params["v"] for seed in (1, 1, 2))
    assert (first == again).all()
    assert (abs(first - other) > 0).all()
    assert (abs(first / other - 1) < 0.3).all()


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("bilevel", [("def update", "def step")], "Maml has no update. A model of bilevel has\n  params: η"),
        ("bilevel", [("jnp.tanh(x", "jnp.tanh(0 * self.params['w'].sum() + x")], "do not read self.params there"),
        ("bilevel", [("steps=3", "steps")], "give steps a default"),
        (
            "bilevel",
            [("(steps, batch, width)", "(5, batch, width)"), ("(steps, batch))", "(5, batch))")],
            "steps is 5 in the methods' words",
        ),
        ("bilevel", [("(steps, batch))", "(steps + 1, batch))")], r"one entry of axis 0 per inner step.*\[3, 4\]"),
        ("bilevel", [("jnp.mean((", "((")], r"its loss is of shape \(2,\)|raised TypeError"),
        ("bilevel", [('theta["v"]', 'theta["u"]')], r"raised KeyError: 'u' \(line 14: "),
        ("chain", [("self.x, self.target", "self.z, self.target")], "Net has no x"),
        ("state_space", [(".sum()", ".mean()")], "token_loss must be a sum over tokens"),
    ],
)
def test_a_model_that_lacks_something_is_refused_in_words(
    family: str, changes: list[tuple[str, str]], said: str, model: Callable[..., str]
) -> None:
    with pytest.raises(UsageError, match=said):
        registry.family(model(family, *changes))


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("performer", "performer takes no problem of your own: its methods take the kernel's features"),
        ("bilevl", "nearest: bilevel"),
        (None, "say which class mine.py:Maml is a problem of: --family bilevel | chain"),
    ],
)
def test_a_class_that_takes_no_model_is_refused_with_those_that_do(family: str | None, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        own_problem.address("mine.py:Maml", family)
    assert said in str(raised.value)


def test_memory_answers_which_method_on_which_device(
    model: Callable[..., str], gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed: pip install 'gradgate[report]'")
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    problem, _, family = model("bilevel").rpartition("@")
    out = tmp_path / "memory.json"
    asked = ["--sweep", "T=2:4", "--method", "mixflow", "--json", str(out), "--report", str(tmp_path), "--jobs", "1"]
    ran = gradgate("memory", "--problem", problem, "--family", family, *asked)
    assert ran.status == 0, ran
    (row,) = json.loads(out.read_text())["choice"]["rows"]
    assert (row["method"], row["profile"], row["size"], row["right"]) == ("mixflow", "cpu", 4, True)
    assert row["required_bytes"] > 0
    assert row["flops"] > 0
    assert "not run on your model: momentum_inversion" in ran.out
    assert "cpu at T = 4: mixflow takes the fewest bytes" in ran.out
    assert "mixflow" in (tmp_path / "choice.html").read_text()


def test_a_target_or_another_framework_beside_a_problem_is_refused(
    model: Callable[..., str], gradgate: Callable[..., Any]
) -> None:
    problem, _, family = model("bilevel").rpartition("@")
    ran = gradgate("verify", "other.py:method", "--problem", problem, "--family", family)
    assert ran.status == 3
    assert "leave other.py:method out" in ran.err
    ran = gradgate("verify", "--problem", problem, "--family", family, "--framework", "torch")
    assert ran.status == 3
    assert "is written in jax" in ran.err


def cell(method: str, size: int, required: int, seconds: float, fits: bool = True) -> dict[str, Any]:
    return {
        "method": method,
        "profile": "p",
        "spec": {"T": size},
        "status": "measured",
        "reason": "",
        "options": {},
        "required_bytes": required,
        "temp_bytes": required,
        "flops": 1,
        "roofline_seconds": seconds,
        "fits": fits,
    }


LAW = {"profile": "p", "quantity": "required_bytes", "variable": "T", "largest_measured": 4, "largest_foretold": 9.0}


def test_the_answer_is_of_right_methods_that_fit_at_the_largest_size() -> None:
    cells = [
        cell("wrong", 4, 1, 0.1),
        cell("large", 4, 2, 0.2, fits=False),
        cell("small", 2, 1, 9.0),
        cell("small", 4, 10, 2.0),
        cell("fast", 4, 20, 1.0),
    ]
    told = {name: choice.Judged(name != "wrong", "") for name in ("wrong", "large", "small", "fast")}
    rows = choice.rows(cells, [LAW | {"method": name} for name in told], told)
    assert [row["size"] for row in rows] == [4, 4, 4, 4]
    best = choice.best(rows, "p")
    assert (best["least memory"]["method"], best["least time"]["method"]) == ("small", "fast")
    assert choice.best([row for row in rows if row["method"] in ("wrong", "large")], "p") == {}


def test_one_refuted_claim_makes_a_method_wrong_and_an_approximation_is_never_right() -> None:
    upheld = {"claim": "gradient_exact", "verdict": "upheld", "digits": 54, "reason": ""}
    refuted = {"claim": "options", "verdict": "refuted", "digits": None, "reason": "chunk 2"}
    assert choice.judged([upheld]) == choice.Judged(True, "right, 54 digits")
    assert choice.judged([upheld, refuted]) == choice.Judged(False, "wrong", "options: chunk 2")
    assert choice.judged([upheld], "cut_loss").right is None
    assert choice.judged([]).right is None
