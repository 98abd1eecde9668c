"""What the laws and figures of bilevel rest on: buffers, coverings, collectives, and the baselines of mixed mode."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gradgate.references.bilevel.paper import buffers, growth, printed, scale, sizes
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.contract import NotComposable

USAGE = "Memory Space: default (color=0)\nTotal bytes: 300 (300B)\n"
RANGES = """HloLiveRange (max 9):
  InstructionSequence:
    0:a
  BufferLiveRange:
    a{}:0-3
    b{0}:4-8
    c{}:2-2
"""
ASSIGNED = """BufferAssignment:
allocation 0: size 100, parameter 0, shape |f32[25]| at ShapeIndex {}:
 value: <1 p @0> (size=100,offset=0): f32[25]{0}
allocation 1: size 200, preallocated-temp:
 value: <2 a @0> (size=120,offset=0): f32[30]{0}
 value: <3 b{0} @0> (size=80,offset=0): f32[4,5]{1,0}
 value: <4 c @0> (size=60,offset=128): f32[15]{0}
"""


def test_an_assignment_says_what_is_live_when_and_where_the_peak_is() -> None:
    found = buffers.read(USAGE, RANGES, ASSIGNED)
    assert (found.total, found.instructions, found.peak) == (300, 9, 2)
    assert {one.shape: one.bytes for one in found.live(2)} == {"f32[25]": 100, "f32[30]": 120, "f32[15]": 60}
    assert {one.shape for one in found.live(5)} == {"f32[25]", "f32[4,5]"}
    assert [one.persistent for one in found.live(9)] == [True]


def test_bytes_of_an_assignment_are_those_that_the_compiler_reports(jax: Any) -> None:
    from gradgate.hw_profiles.compile import measure

    shape = jax.ShapeDtypeStruct((64, 64), "float32")

    def program(x: Any) -> Any:
        return (jax.numpy.tanh(x @ x) @ x).sum()

    reported = measure(program, (shape,), "cpu").required_bytes
    assert reported is not None
    assert buffers.assignment(program, (shape,), "cpu").total == pytest.approx(reported, rel=0.01)


def test_a_profile_without_a_compiler_is_told(jax: Any) -> None:
    with pytest.raises(LookupError, match=r"\Anvidia-k80: "):
        buffers.assignment(lambda x: x, (1.0,), "nvidia-k80")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("f32[2,21,5120,1280]", "kept of every step"),
        ("f32[21,5120,1280]", "like θ"),
        ("f32[1,21,5120,1280]", "like θ"),
        ("f32[40,2048,2048]", "scores"),
        ("f32[8192,32000]", "logits"),
        ("f32[21,4,2048,1280]", "inputs of layers"),
        ("f32[21,4,10,2048,2048]", "kept of every layer"),
        ("f32[4,2048,5120]", "others"),
        ("(f32[2,21,5120,1280]", "others"),
    ],
)
def test_a_buffer_has_a_kind_by_its_shape(shape: str, kind: str, jax: Any) -> None:
    assert sizes.kind(shape, scale.configuration(489)) == kind


def uncovered(chosen: tuple[tuple[int, ...], ...]) -> set[tuple[int, int, int, int]]:
    """The pairs of values of two parameters of Table 1 that no chosen configuration has."""
    axes = (tuple(sizes.TABLE_1), sizes.STEPS, sizes.BATCHES, sizes.CONTEXTS)
    pairs = {(i, j, a, b) for i, j in itertools.combinations(range(4), 2) for a in axes[i] for b in axes[j]}
    return pairs - {(i, j, one[i], one[j]) for one in chosen for i, j in itertools.combinations(range(4), 2)}


def test_fifteen_configurations_cover_every_pair_of_values_and_fourteen_do_not() -> None:
    assert len(sizes.COVERING) == 15
    assert not uncovered(sizes.COVERING)
    assert all(uncovered(tuple(set(sizes.COVERING) - {one})) for one in sizes.COVERING)


def test_collectives_in_a_loop_are_counted_once_for_each_iteration(jax: Any) -> None:
    def program(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jax.lax.psum(c, "d"), None), jax.lax.psum(x, "d"), None, length=4)[0]

    def traced(function: Any) -> Any:
        return jax.make_jaxpr(function, axis_env=[("d", 2)])(jax.numpy.ones(3)).jaxpr

    assert growth._collectives(traced(program)) == [3] * 5
    assert growth._collectives(traced(lambda x: x + 1)) == []


def test_leaves_that_travel_one_by_one_are_more_collectives(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradgate.references.bilevel.in_jax import sharded

    assert growth.collectives("cpu") == 6
    monkeypatch.setattr(sharded, "_by_dtype", lambda leaves: [[i] for i in range(len(leaves))])
    assert growth.collectives("cpu") > 6


def test_the_mended_listing_works_where_the_printed_one_does_not(jax: Any) -> None:
    from gradgate.references.bilevel.in_jax.drop_in import mixflow_drop_in

    assert all(printed.works("jax", mixflow_drop_in, model, TypeError) for model in ("toy", "mlp"))
    assert printed.listing_1("cpu") == 1


def test_autograd_without_its_checkpoints_takes_more_memory(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.bilevel.in_torch import autograd

    problem = BilevelSpec(dtype="float32", model="mlp", steps=8, batch=64, layers=4, width=16).build("torch")
    kept = peak(autograd.autograd_checkpoint, (problem,)).total_bytes
    monkeypatch.setattr(autograd, "_kept", lambda function, *args: function(*args))
    assert peak(autograd.autograd_checkpoint, (problem,)).total_bytes > 2 * kept


def test_autograd_refuses_transforms_in_words(torch: Any) -> None:
    from gradgate.references.bilevel.in_torch.autograd import autograd_checkpoint

    problem = BilevelSpec(model="toy").build("torch")
    with pytest.raises(NotComposable, match="use mixflow, or detach the parameters"):
        torch.func.grad(lambda p: autograd_checkpoint(problem.with_params(p))[0])(problem.params)


def test_the_baseline_leaves_the_problem_as_it_is(torch: Any) -> None:
    from gradgate.references.bilevel.in_torch.autograd import autograd_checkpoint

    problem = BilevelSpec(task="learning_lr", model="toy").build("torch")
    autograd_checkpoint(problem)
    assert not problem.data["theta"]["weights"].requires_grad
    assert not problem.params["weights"].requires_grad


def test_forward_mode_costs_more_than_mixed_mode_from_two_numbers_on(jax: Any) -> None:
    assert 1 <= growth.crossing("cpu") < 2


def test_a_product_that_is_cheap_is_not_forward_over_forward(jax: Any) -> None:
    assert growth.forward_over_forward("cpu") == pytest.approx(1, abs=0.1)
    assert growth.jvp_work("cpu") == pytest.approx(1, abs=0.05)


def test_a_jvp_that_grows_faster_than_an_evaluation_is_not_proportional(monkeypatch: pytest.MonkeyPatch) -> None:
    powers = {growth._pushed: 2}
    monkeypatch.setattr(growth, "_flops", lambda function, **fields: float(fields["layers"] ** powers.get(function, 1)))
    assert growth.jvp_work("cpu") == 4


def test_figures_of_bytes_are_of_the_host_alone() -> None:
    with pytest.raises(LookupError, match="nvidia-h100: claimed of the host's compiler alone"):
        growth.only_host("nvidia-h100")
