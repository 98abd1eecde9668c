import dataclasses
import math

import pytest

from gradgate.references import draws, laws, registry
from gradgate.references.backends import leaves
from gradgate.references.contract import Claim, UsageError
from gradgate.references.law_kinds import Growth, Share
from gradgate.references.state_space.paper import rows as paper
from gradgate.suites.checks import quantities, sweeps
from gradgate.suites.engine import search
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Inapplicable, Refuted, Subject
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.measuring.series import Series

pytest.importorskip("jax", reason="JAX is not installed")

WRONG = '''
import jax
from gradgate.references.contract import method
from gradgate.references.laws import memory_law

SPEC = {"layers": 1, "batch": 2, "vocabulary": 8, "width": 8, "state": 8}

def claim(exponent, sizes):
    law = {"variable": "length", "sizes": sizes, "exponent": exponent, "spec": SPEC}
    return memory_law("memory_law", "stores little", "a test", **law)

@method(claims=[claim(0, (64, 256, 1024, 4096, 16384))])
def stores_everything(problem):
    """Says O(1)."""
    return jax.value_and_grad(problem.loss)(problem.params)

def blocks(problem, params, prevent_cse):
    y, T = problem.embed(params["embedding"], problem.data["tokens"]), problem.data["tokens"].shape[0]

    def block(y, _):
        for _ in range(4):
            y = jax.numpy.tanh(y @ params["head"] @ params["embedding"])
        return y

    for _ in range(T):
        y = jax.checkpoint(block, prevent_cse=prevent_cse)(y, None)
    return y.sum()

@method(claims=[claim(0.5, (4, 8, 16, 32, 64))])
def remat(problem):
    """Recomputes its blocks, or so it says."""
    return jax.value_and_grad(lambda p: blocks(problem, p, False))(problem.params)
'''


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def judged(tmp_path):
    """The verdict on the memory law of one function of WRONG."""
    path = tmp_path / "wrong_memory_claims.py"
    path.write_text(WRONG)

    def judge(name, profile="cpu"):
        declared = registry.plugged_in(f"{path}:{name}", "state_space", "jax")
        task = Task.of(declared, declared.claim("memory_law"), f"{path}:{name}", profile)
        return search.judge(task, Subject.load(declared), Run())

    return judge


def test_a_method_that_says_o1_and_stores_everything_is_refuted(judged):
    verdict = judged("stores_everything")
    assert verdict.verdict == "refuted"
    assert "T^1.0" in verdict.reason
    assert verdict.laws[0]["law"]["exponent"] == pytest.approx(1, abs=0.05)
    assert "--spec" not in verdict.reproduce
    assert Verdict.from_dict(verdict.to_dict()).to_dict() == verdict.to_dict()


def test_a_remat_that_the_compiler_undoes_is_refuted(judged):
    verdict = judged("remat")
    assert verdict.verdict == "refuted"
    assert verdict.laws[0]["law"]["exponent"] > 0.8


def test_a_missing_compiler_is_inapplicable_with_what_to_know(judged):
    verdict = judged("stores_everything", "nvidia-k80")
    assert verdict.verdict == "inapplicable"
    assert "no compiler of today" in verdict.reason


def judge(method, claim, framework="jax", profile="cpu"):
    [declared] = registry.methods("state_space", method, framework)
    task = Task.of(declared, declared.claim(claim), "", profile)
    return search.judge(task, Subject.load(declared), Run())


def test_what_grows_with_the_layers_is_shared_by_the_devices_on_the_host():
    [declared] = registry.methods("state_space", "adjoint_distributed", "jax")
    run = Subject.load(declared).function

    def temp(layers, devices):
        spec = registry.spec_class("state_space")(layers=layers, length=256, dtype="float32")
        return quantities.device_bytes(declared, run, "cpu", spec, {"devices": devices}, 60.0, "temp_bytes")

    grown = [temp(32, devices) - temp(16, devices) for devices in (1, 4)]
    assert grown[0] == pytest.approx(4 * grown[1], rel=0.01)


def test_several_devices_are_inapplicable_on_a_gpu_profile():
    verdict = judge("adjoint_distributed", "memory_per_device", profile="nvidia-h100")
    assert (verdict.verdict, verdict.profile) == ("inapplicable", "nvidia-h100")


def test_a_method_that_cannot_be_measured_is_inapplicable():
    [declared] = registry.methods("state_space", "backprop", "jax")
    claim = declared.claim("memory_law")
    odd = dataclasses.replace(declared, unmeasured="it is not here")
    verdict = search.judge(Task.of(odd, claim), Subject.load(odd), Run())
    assert (verdict.verdict, verdict.reason) == ("inapplicable", "backprop cannot be measured: it is not here")


def test_pytorch_bytes_follow_their_law_too():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert judge("backprop", "memory_law", "torch").verdict == "upheld"


def test_the_printed_flops_are_of_other_sizes_than_the_text_names():
    assert paper.flops_formula() == 1_618_200
    assert paper.flops_formula(width=125, state=256) == paper.PRINTED_FLOPS
    verdict = judge("adjoint_sharding", "vjp_flops_printed")
    assert verdict.verdict == "refuted"
    assert verdict.as_expected


def test_a_vjp_takes_three_passes_of_its_net():
    assert paper.vjp_flops("cpu") == pytest.approx(paper.net_passes(), rel=0.01)


def test_shapes_equal_those_of_the_built_problem():
    import jax

    for shape in registry.family("state_space").shapes:
        spec = registry.spec_class("state_space")(**shape, dtype="float32")
        built, known = spec.build("jax"), draws.shapes(spec)
        assert jax.tree.structure(built) == jax.tree.structure(known)
        for one, other in zip(jax.tree.leaves(built), jax.tree.leaves(known), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)


def test_a_problem_of_a_papers_size_has_shapes_without_its_numbers():
    fields = {"length": 2**20, "width": 8192, "state": 1024, "layers": 100, "vocabulary": 50_000, "dtype": "bfloat16"}
    problem = draws.shapes(registry.spec_class("state_space")(**fields))
    numbers = sum(math.prod(leaf.shape) for leaf in leaves(problem.params))
    assert numbers > 1e12


def test_points_of_no_one_law_say_so_in_words():
    points = [(2.0**k, 1e6 if k < 8 else 1e6 * 4.0 ** (k - 8)) for k in range(4, 12)]
    series = Series.of("temp_bytes", "length", "T", points)
    assert series.law is None
    assert "no single law" in series.problem
    assert "no law" in Series.of("temp_bytes", "length", "T", points[:2]).words


def test_a_law_is_printed_without_what_rounding_leaves():
    sizes = [16, 32, 64, 128, 256]
    assert Series.of("temp_bytes", "length", "T", [(T, 928 * T) for T in sizes]).words == "temp ≈ 928 B·T^1.00"
    assert Series.of("temp_bytes", "length", "T", [(T, 7 + T) for T in sizes]).words == "temp ≈ 7 B + 1 B·T^1.00"
    rounded = [(T, -(-200 * T // 4096) * 4096) for T in (256, 512, 1024, 2048, 4096)]
    assert Series.of("temp_bytes", "length", "T", rounded).words == "temp ≈ 184 B·T^1.01"
    assert Series.of("temp_bytes", "length", "T", [(T, 3 * T) for T in sizes]).words == "temp ≈ 3 B·T^1.00"


@pytest.mark.parametrize(
    ("bytes_at", "expected", "said"),
    [
        (lambda T: 163592 + T / 1024, "upheld", "changes of at most 4.1 kB and 5% do not count as growth"),
        (lambda T: T / 8, "refuted", "temp ≈ 0.125 B·T^1.00"),
        (lambda T: 163592 + T, "refuted", "temp ≈ 164 kB + 1 B·T^1.00"),
    ],
)
def test_linear_bytes_count_as_constant_only_if_they_are_few_in_all(bytes_at, expected, said, judged, monkeypatch):
    monkeypatch.setattr(quantities, "device_bytes", lambda _d, _f, _p, spec, *_: bytes_at(spec.length))
    verdict = judged("stores_everything")
    assert verdict.verdict == expected
    assert said in verdict.reason


@pytest.mark.parametrize(("power", "expected"), [(1, "inapplicable"), (2.5, "refuted")])
def test_what_follows_no_one_law_is_refuted_only_if_it_grows_too_fast_whichever_size_is_left_out(
    power, expected, monkeypatch
):
    wobbles = iter([1.0, 1.6, 0.7, 1.5, 0.8, 1.4, 1.0, 1.7])
    monkeypatch.setattr(
        quantities, "device_bytes", lambda _d, _f, _p, spec, *_: 1e6 * spec.length**power * next(wobbles)
    )
    verdict = judge("backprop", "memory_law")
    assert "no single law" in verdict.reason
    assert verdict.verdict == expected


def test_a_claim_whose_sizes_fit_no_device_is_inapplicable(monkeypatch):
    monkeypatch.setattr(quantities, "device_bytes", lambda *_: None)
    verdict = judge("backprop", "memory_law")
    assert verdict.verdict == "inapplicable"
    assert "only 0 of the 5 sizes of T fit cpu" in verdict.reason


def test_every_law_names_fields_of_its_spec():
    cls = registry.spec_class("state_space")
    names = {field.name for field in dataclasses.fields(cls)}
    for method in registry.methods("state_space"):
        for claim in method.claims:
            if isinstance(claim.law, Growth | Share):
                assert {claim.law.over.variable, *claim.law.spec} <= names
    with pytest.raises(UsageError, match="nearest: length"):
        cls.from_json('{"lenght": 3}')


SHARED = {
    "a quarter each": (lambda layers, devices: 1e6 + 4e5 * layers / devices, "upheld", "shared out 4.00 times"),
    "a fifth less than that": (
        lambda layers, devices: 1e6 + 4e5 * layers / (1 if devices == 1 else 3.2),
        "refuted",
        "claimed 4 times",
    ),
    "all of it on each": (lambda layers, devices: 1e6 + 4e5 * layers, "refuted", "claimed 4 times"),
    "a quarter of a square": (
        lambda layers, devices: 1e6 + 4e5 * layers**2 / devices,
        "refuted",
        "a share of what is linear in K",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_share_is_of_what_grows_linearly_and_is_as_large_as_claimed(name, monkeypatch):
    bytes_of, expected, said = SHARED[name]
    monkeypatch.setattr(
        quantities, "device_bytes", lambda _d, _f, _p, spec, options, *_: bytes_of(spec.layers, options["devices"])
    )
    verdict = judge("adjoint_distributed", "memory_per_device")
    assert (verdict.verdict, [one["name"] for one in verdict.laws]) == (expected, ["1 device", "4 devices"])
    assert said in verdict.reason


def figure_of(monkeypatch, measured, **law):
    """The sentence about a figure that the paper prints as 100 bytes; the function `measured` gives our figure."""
    declared = registry.methods("state_space", "backprop", "jax")[0]
    monkeypatch.setattr(sweeps.registry, "load", lambda target: measured)
    claim = laws.figure("f", "is 100 bytes", "a test", printed=100, measured="a:b", unit="bytes", **law)
    case = sweeps.Sweep(Subject(declared, None), claim)
    sweeps.figure(case)
    return case.sentence


@pytest.mark.parametrize(
    ("ours", "law"),
    [
        (100, {}),
        (101, {}),
        (99, {}),
        (120, {"tolerance": 0.2}),
        (10, {"bound": "at most"}),
        (101, {"bound": "at most"}),
        (100, {"tolerance": 0}),
    ],
)
def test_a_figure_that_is_near_enough_is_upheld(ours, law, monkeypatch):
    assert figure_of(monkeypatch, lambda profile: ours, **law).startswith(f"measured {ours} bytes, printed 100 bytes")


@pytest.mark.parametrize(
    ("ours", "law"),
    [(102, {}), (98, {}), (121, {"tolerance": 0.2}), (102, {"bound": "at most"}), (100.1, {"tolerance": 0})],
)
def test_a_figure_that_is_off_is_refuted(ours, law, monkeypatch):
    with pytest.raises(Refuted, match="printed 100 bytes"):
        figure_of(monkeypatch, lambda profile: ours, **law)


def test_a_figure_of_unlike_quantities_says_so(monkeypatch):
    sentence = figure_of(monkeypatch, lambda profile: 100, unlike="printed are seconds, ours are FLOPs")
    assert sentence.endswith("; unlike: printed are seconds, ours are FLOPs")


def test_a_figure_that_a_profile_cannot_tell_is_inapplicable_in_its_words(monkeypatch):
    def measured(profile):
        raise LookupError(f"{profile}: no compiler gives these bytes")

    with pytest.raises(Inapplicable, match="cpu: no compiler gives these bytes"):
        figure_of(monkeypatch, measured)


def test_a_claim_without_a_law_is_refused_with_what_to_do():
    declared = registry.methods("state_space", "backprop", "jax")[0]
    bare = Claim("mine", "memory_law", "stores little", "a test")
    with pytest.raises(UsageError, match=r"claim mine carries no law: declare it by a function of"):
        sweeps.growth(sweeps.Sweep(Subject(declared, None), bare))
