"""A court upholds what is right, refutes what is wrong, and survives whatever a candidate does.

All tests share two warm courts. ``GRADGATE_TRIAL=1`` runs every exploit; `python -m gradgate.suites.bugs.strangers`
does so behind both walls.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gradgate import Court, Pair, UsageError, constant, key, normal
from gradgate.references import registry
from gradgate.references.contract import installed
from gradgate.suites.bugs.strangers.exploits import EXPLOITS, JAX, OWN, TORCH, Exploit
from gradgate.suites.court import wall
from gradgate.suites.court.problems import Docket
from gradgate.suites.court.proxy import task_of
from gradgate.suites.court.stranger import descendants
from gradgate.suites.schemas import documents

TEXTS = {"torch": TORCH, "jax": JAX}
RIGHT = {framework: text.replace("return 2 * dy", "return dy") for framework, text in TEXTS.items()}
ALWAYS = ("forges_the_worker", "claims_a_huge_reply", "kills", "changes_outputs", "knows_the_shapes", "leaves_files")
"""Exploits that every run tries in PyTorch: one of each kind."""
PATIENCE = {"torch": 20.0, "jax": 60.0}


def chosen(framework: str, count: int) -> list[Exploit]:
    """Some exploits of a framework, the same in every run; all of them if the whole trial is asked for."""
    every = [one for one in EXPLOITS if framework in one.frameworks]
    if os.environ.get("GRADGATE_TRIAL"):
        return every
    quick = [one for one in every if one.name not in ("delays", "hangs", "recurses", "patches_time", "uses_all_memory")]
    first = [one for one in quick if one.name in ALWAYS and framework == "torch"]
    return first + random.Random(20264).sample([one for one in quick if one not in first], count)


def opened(framework: str, **settings: Any) -> Court:
    """A court for the task of the exploits."""
    pytest.importorskip(framework)
    task = f"gradgate.suites.bugs.strangers.task_{framework}:task"
    return Court(task, **{"seconds": PATIENCE[framework], **settings})


@pytest.fixture(scope="module")
def torch_court() -> Iterator[Court]:
    """A warm court of PyTorch."""
    with opened("torch") as court:
        yield court


@pytest.fixture(scope="module")
def jax_court() -> Iterator[Court]:
    """A warm court of JAX."""
    with opened("jax") as court:
        yield court


@pytest.fixture
def court(request: pytest.FixtureRequest) -> Court:
    """The warm court of a framework."""
    found: Court = request.getfixturevalue(f"{request.param}_court")
    return found


def rows(answer: dict[str, Any]) -> dict[str, str]:
    """Claim -> verdict."""
    return {row["claim"]: row["verdict"] for row in answer["claims"]}


@pytest.mark.parametrize("court", ["torch", "jax"], indirect=True)
def test_the_right_candidate_is_upheld_and_the_wrong_one_refuted(court: Court) -> None:
    framework = court.pair.where
    right = court.judge(RIGHT[framework])
    assert right["verdict"] == "upheld", right["reason"]
    assert set(rows(right).values()) == {"upheld"}
    assert right["score"]["claims"] == 1.0
    assert right["processes"] >= 2
    assert "gradient_exact" in right["not_judged"]
    wrong = court.judge(TEXTS[framework])
    assert wrong["verdict"] == "refuted"
    assert rows(wrong)["gradient_float64"] == "refuted"
    assert "x" in wrong["reason"]
    found = wrong["counterexample"]
    assert (found["spec"]["T"], found["spec"]["H"]) == (1, 1)
    for answer in (right, wrong):
        msgspec.convert(answer, documents.Answer, strict=True)


@pytest.mark.parametrize("court", ["torch", "jax"], indirect=True)
def test_a_small_error_is_refuted(court: Court) -> None:
    text = RIGHT[court.pair.where].replace("return dy * w", "return (1 + 1e-11) * dy * w")
    assert rows(court.judge(text))["gradient_float64"] == "refuted"


@pytest.mark.parametrize("court", ["torch", "jax"], indirect=True)
def test_sixty_digits_behind_the_wall_see_what_floats_do_not(court: Court) -> None:
    """An error of 1e-20 is no fault of the floats; it is seen, and is no verdict."""
    framework = court.pair.where
    right = court.judge(RIGHT[framework])
    assert right["sixty_digits"]["state"] == "equal", right["sixty_digits"]
    assert right["sixty_digits"]["error"] < 1e-50
    text = RIGHT[framework].replace("return dy * w", "return (dy + dy * w * 1e-20) * w")
    assert text != RIGHT[framework]
    off = court.judge(text)
    assert off["verdict"] == "upheld", off["reason"]
    assert off["sixty_digits"]["state"] == "differs"
    assert off["sixty_digits"]["reason"].startswith("x[")


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_what_the_evaluator_imports_is_behind_every_wall(framework: str) -> None:
    """Without bubblewrap everything can be read, so only this test sees there that a file is missing."""
    pytest.importorskip(framework)
    listing = (
        f"import sys, gradgate.suites.exact.on_{framework}\nprint(*(m for m in sys.modules if m[:9] == 'gradgate.'))"
    )
    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    files = {name.removeprefix("gradgate.").replace(".", "/") for name in ran.stdout.split()}
    places = {name.removesuffix(".py").removesuffix("/__init__") for name in wall.EVALUATOR}
    assert {name for name in files if not name.startswith("suites/exact")} - {"_lazy"} <= places


@pytest.mark.parametrize("court", ["torch", "jax"], indirect=True)
def test_a_lie_about_sixty_digits_is_no_verdict(court: Court) -> None:
    """A candidate that replaces the evaluator is refuted by the floats, and its hint is not asked for."""
    framework = court.pair.where
    lie = f"{OWN}type(frame.f_locals['self'].framework).exact = None\n"
    wrong = court.judge(TEXTS[framework] + lie)
    assert wrong["verdict"] == "refuted"
    assert wrong["sixty_digits"]["state"] == "unknown"
    odd = court.judge(RIGHT[framework] + lie)
    assert odd["verdict"] == "upheld"
    assert odd["sixty_digits"]["state"] == "unknown"
    assert "TypeError" in odd["sixty_digits"]["reason"]


def keep_apart(exploit: Exploit, court: Court) -> None:
    """Skip an exploit that would kill the processes of whoever runs the tests."""
    if exploit.others and not wall.keeps_apart(court.judge("")["wall"]):
        pytest.skip("nothing here keeps it from other processes")


@pytest.mark.parametrize("exploit", chosen("torch", 10), ids=lambda one: one.name)
def test_an_exploit_is_not_upheld(exploit: Exploit, torch_court: Court) -> None:
    keep_apart(exploit, torch_court)
    answer = torch_court.judge(exploit.text("torch"), exploit.name)
    assert answer["verdict"] in ("refuted", "error")
    assert answer["reason"]
    assert "please report" not in answer["reason"]


@pytest.mark.parametrize("exploit", chosen("jax", 2), ids=lambda one: one.name)
def test_an_exploit_is_not_upheld_in_jax(exploit: Exploit, jax_court: Court) -> None:
    keep_apart(exploit, jax_court)
    answer = jax_court.judge(exploit.text("jax"), exploit.name)
    assert answer["verdict"] in ("refuted", "error")
    assert answer["reason"]


def test_there_are_enough_exploits_and_each_has_its_mechanism_in_words() -> None:
    assert len({one.name for one in EXPLOITS}) == len(EXPLOITS) >= 40
    assert all(len(one.mechanism.split()) >= 3 for one in EXPLOITS)
    assert sum(bool(one.source) for one in EXPLOITS) >= 40


def test_a_candidate_without_the_exploit_would_be_upheld() -> None:
    """The base of the exploits is wrong by its factor alone."""
    assert all(text.count("return 2 * dy * w") == 1 for text in TEXTS.values())


def test_inputs_are_new_for_every_candidate(torch_court: Court) -> None:
    claim = torch_court.method.claim("gradient_float64")
    seeds = [spec.seed for _ in range(3) for spec, _ in torch_court.docket.problems(claim)]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) > 2**55
    listed = torch_court.pair.dims
    drawn = [spec for spec, _ in torch_court.docket.problems(claim)]
    assert any(spec.T not in listed["T"] or spec.H not in listed["H"] for spec in drawn)


OPTIONED = {
    "torch": "import torch\ndef plain(x, axis=-1, way='sum'):\n"
    "    return torch.exp(x).sum(axis) if way == 'sum' else x.mean(axis)\n",
    "jax": "import jax\ndef plain(x, axis=-1, way='sum'):\n"
    "    return jax.numpy.exp(x).sum(axis) if way == 'sum' else x.mean(axis)\n",
}


@pytest.mark.parametrize("regimes", [{}, {"confident": lambda given: given | {"x": 20 * given["x"]}}])
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_every_value_of_an_option_is_tried_where_no_dim_is_1(framework: str, regimes: dict[str, Any]) -> None:
    """With few shapes, as in JAX, a value that is tried at a size of 1 alone would hide a wrong axis."""
    pytest.importorskip(framework)
    space: dict[str, Any] = {}
    exec(OPTIONED[framework], space)
    declared = Pair(
        None,
        reference=space["plain"],
        inputs={"x": normal("T H")},
        dims={"T": (4, 1, 19), "H": (6, 1, 33)},
        options={"axis": (-1, 0)} if regimes else {"axis": (-1, 0), "way": ("sum", "mean")},
        regimes=regimes,
        name="reduced",
        framework=framework,
    )
    pair = task_of(declared)
    try:
        docket = Docket(pair, pair.lowered)
        for claim in ("outputs", "gradient_float64"):
            specs = [spec for spec, _ in docket.problems(docket.method.claim(claim))]
            for name, values in pair.shared.items():
                assert {getattr(spec, name) for spec in specs if spec.T > 1 and spec.H > 1} == set(values), claim
    finally:
        registry.forget(pair.family.name)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_of_two_dims_either_is_the_smaller_once(framework: str) -> None:
    """A convolution whose sequence is shorter than its kernel may lose taps, and at no other size."""
    pytest.importorskip(framework)
    declared = Pair(
        None,
        reference=lambda x, w: w.T @ x[: len(w)] if len(x) >= len(w) else w[: len(x)].T @ x,
        inputs={"x": normal("T C"), "w": normal("K C")},
        dims={"T": (5, 1, 2, 17), "C": (3, 1), "K": (4, 1)},
        name="taps",
        framework=framework,
    )
    pair = task_of(declared)
    try:
        docket = Docket(pair, pair.lowered)
        specs = [spec for spec, _ in docket.problems(docket.method.claim("gradient_float64"))]
        assert any(1 < spec.T < spec.K for spec in specs)
        assert any(1 < spec.K < spec.T for spec in specs)
        few = [shape for shape in docket.shapes if 1 < shape["T"] < shape["K"]]
        assert framework == "torch" or not few  # in JAX, the shapes of all claims would not do
    finally:
        registry.forget(pair.family.name)


def test_cotangents_come_after_the_forward_pass(torch_court: Court) -> None:
    """A candidate that returns in its forward pass what it will pull cannot know the cotangents."""
    text = TORCH + "def gradient(dy, x, w):\n    raise ValueError(str(dy.shape == x.shape))\n"
    answer = torch_court.judge(text)
    assert answer["verdict"] == "error"
    assert "ValueError: True · candidate.py" in answer["reason"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("", ""),
        ("before = lambda x, w: x.data.add_(1)", "the call changed its input x"),
        ("spoilt = lambda dy, w: w.data.mul_(1 + 1e-3)", "the backward pass changed its input w"),
        ("spoilt = lambda dy, w: dy.mul_(2)", "the backward pass changed the cotangent of output 0"),
    ],
)
def test_what_is_changed_in_place_is_seen_in_both_passes(change: str, reason: str, torch_court: Court) -> None:
    honest = "found = gradient(dy, *ctx.saved_tensors)\n        spoilt(dy, ctx.saved_tensors[1])\n        return found"
    text = RIGHT["torch"].replace("return gradient(dy, *ctx.saved_tensors)", honest)
    assert text != RIGHT["torch"]
    answer = torch_court.judge(f"{text}\nspoilt = lambda dy, w: None\n{change}\n")
    assert answer["verdict"] == ("refuted" if change else "upheld"), answer["reason"]
    pure = next(row for row in answer["claims"] if row["claim"] == "pure")
    assert pure["reason"] == reason


def test_a_candidate_sees_neither_the_command_line_nor_modules_of_the_court(torch_court: Court) -> None:
    looks = """
def before(x, w):
    modules = [*sys.modules, *vars(sys.modules["__main__"])]
    words = [*sys.argv, *sys.orig_argv, *sys.path[-1:]]
    own = ("gradgate", "message", "masks", "landlock", "Served")
    seen = [one for one in modules if one.partition(".")[0] in own]
    raise ValueError(seen + [one for one in words if "court" in one])
"""
    assert "ValueError: [] " in torch_court.judge(TORCH + looks)["reason"]


def test_the_reference_of_a_jax_task_runs_on_the_cpu_though_jax_takes_another_device(
    jax_court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    first, second = jax.devices("cpu")[:2]
    seen: list[Any] = []

    def heard() -> Iterator[Any]:
        seen.append(jax.numpy.zeros(1).device)
        return iter(())

    monkeypatch.setattr(jax_court, "_heard", heard)
    with jax.default_device(second):
        assert jax.numpy.zeros(1).device == second
        jax_court.judge(RIGHT["jax"])
    assert seen == [first]


@pytest.mark.parametrize("flags", [None, "--xla_mine=1"])
def test_a_court_of_pytorch_leaves_the_flags_of_xla_as_they_are(
    flags: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if flags is not None:
        monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    with opened("torch"):
        assert os.environ.get("XLA_FLAGS") == flags


def test_a_text_is_never_taken_for_a_path(tmp_path: Path, torch_court: Court) -> None:
    """A stranger who guesses where the reference is would be upheld."""
    file = tmp_path / "reference.py"
    file.write_text("import torch\ndef plain(x, w):\n    return torch.tanh(x) * w\n")
    named = torch_court.judge(str(file))
    assert named["verdict"] == "error"
    assert "the name of a file" in named["reason"]
    assert torch_court.judge(file)["verdict"] == "upheld"


BROKEN = {
    "bytes that are no text": (b"x = '\xff'\n", "it is not UTF-8"),
    "more than is read": (b"x = 1\n" + b"#" * (1 << 22), "it has more than 4194304 characters"),
    "a mark of the order of bytes": (b"\xef\xbb\xbf" + RIGHT["torch"].encode(), ""),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_cannot_be_read_as_text_is_a_verdict(what: str, tmp_path: Path, torch_court: Court) -> None:
    raw, reason = BROKEN[what]
    (tmp_path / "candidate.py").write_bytes(raw)
    answer = torch_court.judge(tmp_path / "candidate.py")
    assert (answer["verdict"], answer["reason"]) == ("error" if reason else "upheld", reason)
    msgspec.convert(answer, documents.Answer, strict=True)


@pytest.mark.parametrize("what", ["outputs", "gradients"])
def test_what_was_returned_must_not_change_in_a_later_call(what: str, torch_court: Court) -> None:
    """The exploit is right but for the memory that its calls share; with memory of its own it is upheld."""
    text = next(one.text("torch") for one in EXPLOITS if one.name == f"reuses_its_{what}")
    shared = torch_court.judge(text)
    assert shared["verdict"] == "refuted"
    assert shared["reason"] == "a later call changed what was returned before"
    own = text.replace("pool.setdefault((tuple(x.shape), x.dtype), ", "(lambda new: new)(")
    assert own != text
    assert torch_court.judge(own)["verdict"] == "upheld"


@pytest.mark.parametrize("views", [False, True])
def test_an_output_shares_memory_with_an_input_only_if_the_references_does(views: bool) -> None:
    torch = pytest.importorskip("torch")
    plain = torch.Tensor.t if views else lambda x: x.t().clone()
    inputs, dims = {"x": normal("T H")}, {"T": (3, 1), "H": (2,)}
    with Court(Pair(None, reference=plain, inputs=inputs, dims=dims, name="turned", framework="torch")) as court:
        answer = court.judge("def candidate(x):\n    return x.t()\n")
        assert answer["verdict"] == ("upheld" if views else "refuted"), answer["reason"]
        reason = "output 0 shares its memory with the input x; the reference's has its own"
        assert answer["reason"] == ("" if views else reason)
        assert [row for row, verdict in rows(answer).items() if verdict == "refuted"] == ([] if views else ["pure"])


def test_a_candidate_that_is_slow_in_every_answer_is_ended() -> None:
    with opened("torch", seconds=0.5) as court:
        began = time.perf_counter()
        answer = court.judge(RIGHT["torch"] + "def before(x, w):\n    time.sleep(0.4)\n")
        assert time.perf_counter() - began < 20
        assert answer["verdict"] == "error"
        assert "its answers took more than 6 s together" in answer["reason"]
        assert court.judge(RIGHT["torch"] + "def before(x, w):\n    time.sleep(0.01)\n")["verdict"] == "upheld"


@pytest.mark.parametrize("where", ["its own", "another"])
def test_memory_and_work_of_other_processes_count(where: str, torch_court: Court) -> None:
    """A candidate cannot hide what it uses in a process that it starts."""
    uses = "\nheld = bytearray(b'1') * (200 << 20)\nuntil = time.process_time() + 0.5\n"
    uses += "while time.process_time() < until:\n    pass\n"
    if where == "another":
        body = uses.replace("\n", "\n    ")
        uses = f"\nif os.fork() == 0:{body}\n    time.sleep(30)\n    os._exit(0)\ntime.sleep(2)\n"
    score = torch_court.judge(RIGHT["torch"] + uses)["score"]
    assert score["resident_bytes"] > 200 << 20
    assert score["processor_seconds"] > 0.5
    plain = torch_court.judge(RIGHT["torch"])["score"]
    assert plain["resident_bytes"] < 150 << 20
    assert plain["processor_seconds"] < 0.5


def test_an_ended_process_is_not_killed_by_its_number(torch_court: Court) -> None:
    """The system may have given its number to another process of this user."""
    stranger = torch_court.nursery.stranger(torch_court.limits)
    pid = stranger.pid
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    with subprocess.Popen(["sleep", "60"]) as another:
        stranger.pid = another.pid
        stranger.close()
        assert another.poll() is None
        living = torch_court.nursery.stranger(torch_court.limits)
        living.close()
        assert not living._lives()
        another.kill()


def test_a_court_opens_where_many_files_are_open() -> None:
    """`select.select` cannot wait for a file whose number is above 1023."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most[1] < 1500:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1500, most[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with opened("torch") as court:
            assert court.judge(RIGHT["torch"])["verdict"] == "upheld"
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_a_candidate_that_ends_its_process_costs_the_next_one_nothing(torch_court: Court) -> None:
    ends = TORCH + "def before(x, w):\n    os._exit(0)\n"
    answers = list(torch_court.judge_all([ends, RIGHT["torch"]]))
    assert [answer["verdict"] for answer in answers] == ["error", "upheld"]
    assert "its process ended" in answers[0]["reason"]
    assert "not tried: in an earlier claim its process ended" in answers[0]["claims"][-1]["reason"]


def test_a_killed_nursery_is_replaced(torch_court: Court) -> None:
    process = torch_court.nursery.process
    assert process is not None
    process.kill()
    process.wait()
    assert torch_court.judge(RIGHT["torch"])["verdict"] == "upheld"


def test_without_bubblewrap_the_verdicts_are_the_same_and_nothing_is_left() -> None:
    with opened("torch", wall="plain", seconds=6.0) as court:
        assert court.judge(RIGHT["torch"])["verdict"] == "upheld"
        for one in EXPLOITS:
            if one.name == "stays" or (one.name == "reads_the_court" and wall.keeps_apart(court.judge("")["wall"])):
                assert court.judge(one.text("torch"))["verdict"] in ("refuted", "error")
        assert court.nursery.process is not None
        pid = court.nursery.process.pid
        deadline = time.monotonic() + 20.0
        while (
            descendants(pid) and time.monotonic() < deadline
        ):  # they were killed, and a namespace ends in its own time
            time.sleep(0.1)
        assert descendants(pid) == []
    assert not Path(f"/proc/{pid}").exists()


def test_the_wall_is_said(torch_court: Court) -> None:
    answer = torch_court.judge("x = 1\n")
    assert answer["verdict"] == "error"
    assert answer["wall"]["kind"] == wall.chosen("auto")
    assert "limits" in answer["wall"]


def plain(x: Any, w: Any) -> Any:
    """The product."""
    return x * w


INPUTS = {"x": normal("T"), "w": normal("T")}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no reference": ({"reference": None, "function": plain}, "has no reference"),
    "devices": ({"devices": ("interpreter",)}, "declares devices"),
    "an option that is a function": ({"options": {"act": (abs,)}}, "does not cross the wall"),
    "a typed key": ({"inputs": {**INPUTS, "k": key(typed=True)}, "framework": "jax"}, "does not cross the wall"),
    "no framework": ({"framework": "", "reference": abs}, "does not show the framework"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_pair_that_is_no_task_is_refused_in_words(what: str) -> None:
    pytest.importorskip("torch")
    declared = {"function": None, "reference": plain, "inputs": INPUTS, "dims": {"T": (3,)}, "framework": "torch"}
    changes, words = REFUSED[what]
    assert task_of(Pair(**declared, name="task")).called == "task"
    with pytest.raises(UsageError, match=words):
        task_of(Pair(**{**declared, **changes}, name="task"))


DROPPED = {
    "torch": """
import torch
def plain(x, p):
    return torch.nn.functional.dropout(x, p) * x
""",
    "jax": """
import jax
def plain(x, key):
    kept = jax.random.bernoulli(key, 0.75, x.shape)
    return jax.numpy.where(kept, x * x + jax.random.normal(key, x.shape, x.dtype), 0)
""",
}
"""Functions that draw random numbers."""
AGAIN = {
    "torch": "def candidate(x, p):\n    return x * x * torch.empty_like(x).bernoulli_(0.75) / 0.75\n",
    "jax": "def candidate(x, key):\n    return plain(x, key)\n",
}
ANEW = {
    "torch": "def candidate(x, p):\n    torch.manual_seed(7)\n    return plain(x, float(p))\n",
    "jax": "def candidate(x, key):\n    return plain(x, jax.random.fold_in(key, 7))\n",
}


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_candidate_draws_the_random_numbers_of_the_reference(framework: str) -> None:
    pytest.importorskip(framework)
    space: dict[str, Any] = {}
    exec(DROPPED[framework], space)
    more = {"p": constant(0.25, gradient=False)} if framework == "torch" else {"key": key()}
    if framework == "torch":
        plain = space["plain"]
        space["plain"] = lambda x, p: plain(x, float(p))
    declared = Pair(
        None,
        reference=space["plain"],
        inputs={"x": normal("T"), **more},
        dims={"T": (40, 7)},
        dtypes=("float32",) if framework == "torch" else ("float64", "float32"),
        random=framework == "torch",
        name="dropped",
        framework=framework,
    )
    with Court(declared, seconds=PATIENCE[framework]) as court:
        right = court.judge(DROPPED[framework] + AGAIN[framework])
        assert right["verdict"] == "upheld", right["reason"]
        assert court.judge(DROPPED[framework] + ANEW[framework])["verdict"] == "refuted"


def test_a_wall_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="wall"):
        wall.chosen("brick")
    assert wall.chosen("plain") == "plain"


def test_a_task_with_trees_and_data_is_judged() -> None:
    torch = pytest.importorskip("torch")

    def scaled(parts: Any, unit: Any) -> Any:
        return {"sum": parts["a"] * unit + parts["b"], "count": torch.ones(3, dtype=torch.int64)}

    inputs = {"parts": {"a": normal("T"), "b": normal("T")}, "unit": constant(2.0, gradient=False)}
    task = Pair(
        None, reference=scaled, inputs=inputs, dims={"T": (3, 1)}, dtypes=("float64",), name="scaled", framework="torch"
    )
    text = (
        "import torch\n"
        "def candidate(parts, unit):\n"
        "    return {'sum': parts['a'] * unit + parts['b'], 'count': torch.ones(3, dtype=torch.int64)}\n"
    )
    with Court(task) as court:
        assert court.judge(text)["verdict"] == "upheld"
        assert court.judge(text.replace("ones(3", "zeros(3"))["verdict"] == "refuted"
        assert court.judge(text.replace(", 'count': torch.ones(3, dtype=torch.int64)", ""))["verdict"] == "refuted"


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_the_command_prints_one_object_and_its_status(tmp_path: Path, gradgate: Any) -> None:
    (tmp_path / "right.py").write_text(RIGHT["torch"])
    (tmp_path / "wrong.py").write_text(TORCH)
    task = "gradgate.suites.bugs.strangers.task_torch:task"
    lines = tmp_path / "answers.jsonl"
    files = [tmp_path / "right.py", tmp_path / "wrong.py"]
    ran = gradgate("judge", task, *files, "--lines", lines, "--json")
    assert ran.status == 1
    document = msgspec.json.decode(ran.out.encode(), type=documents.Judgement)
    assert [answer.verdict for answer in document.answers] == ["upheld", "refuted"]
    assert [msgspec.json.decode(line)["verdict"] for line in lines.read_text().splitlines()] == ["upheld", "refuted"]
    assert gradgate("judge", task, tmp_path / "none.py").status == 3


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_a_candidates_words_stay_in_one_line_and_move_no_cursor(tmp_path: Path, gradgate: Any) -> None:
    exploit = next(one for one in EXPLOITS if one.name == "forges_the_terminal")
    (tmp_path / "candidate.py").write_text(exploit.text("torch"))
    (tmp_path / "bad.py").write_bytes(b"x = '\xff'\n")
    ran = gradgate(
        "judge", "gradgate.suites.bugs.strangers.task_torch:task", tmp_path / "candidate.py", tmp_path / "bad.py"
    )
    assert ran.status == 2
    assert [line.split()[0] for line in ran.out.splitlines()] == ["error", "the", "error", "it", "2", "wall:"]
    assert "\x1b" not in ran.out
