"""The state-space methods, beyond their claims: which leaves the erratum spoils, refusals, killed ranks."""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate.references import registry
from gradgate.references.backends import precision, to_numpy
from gradgate.references.contract import IllegalOption, NotComposable
from gradgate.references.registry import load, spec_class
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import compare
from gradgate.suites.tests.references import gradients

StateSpace = spec_class("state_space")


run = functools.partial(gradients.run, "state_space")


def wrong(framework: str, method: str, spec: Any, **options: Any) -> set[str]:
    """The judged leaves that differ from backprop."""
    _, grads = run(framework, method, spec, **options)
    return set(compare(grads, truth.reference(spec, framework, "float64"), "float64").wrong)


@pytest.mark.parametrize("layers", [2, 3])
def test_the_printed_method_is_wrong_in_every_layer_below_the_last_and_in_the_embedding(
    layers: int, torch: Any
) -> None:
    found = wrong("torch", "adjoint_sharding_printed", StateSpace(layers=layers, seed=1))
    assert {leaf.partition(".")[0] for leaf in found} == {"embedding", *(f"layers[{k}]" for k in range(layers - 1))}


def test_the_printed_method_is_wrong_below_the_last_layer_in_jax_too(jax: Any) -> None:
    found = wrong("jax", "adjoint_sharding_printed", StateSpace(layers=2, length=3, seed=1))
    assert {leaf.partition(".")[0] for leaf in found} == {"embedding", "layers[0]"}


@pytest.mark.parametrize("structure", ["diagonal", "scalar", "unstructured"])
def test_the_printed_method_is_exact_with_one_layer(structure: str, torch: Any) -> None:
    assert not wrong("torch", "adjoint_sharding_printed", StateSpace(layers=1, structure=structure, seed=1))


def test_the_printed_loss_is_right_all_the_same(torch: Any) -> None:
    spec = StateSpace(layers=3)
    assert run("torch", "adjoint_sharding_printed", spec)[0] == pytest.approx(run("torch", "backprop", spec)[0], 1e-14)


@pytest.mark.parametrize("window", [5, 6, 1000])
def test_a_window_that_covers_the_sequence_is_backprop(window: int, torch: Any) -> None:
    assert not wrong("torch", "adjoint_truncated", StateSpace(length=5, seed=2), window=window)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_shorter_window_is_not_backprop_but_the_gradient_of_the_cut_loss(window: int, torch: Any) -> None:
    spec = StateSpace(length=5, seed=2, decay=3.0)
    assert wrong("torch", "adjoint_truncated", spec, window=window)
    _, grads = run("torch", "adjoint_truncated", spec, window=window)
    cut = truth.reference(spec, "torch", "float64", "cut_loss", window=window)
    assert compare(grads, cut, "float64").equal


@pytest.mark.parametrize(("window", "devices"), [(1, 2), (2, 3), (9, 2)])
def test_a_window_on_several_devices_is_that_on_one(window: int, devices: int, framework: str) -> None:
    spec = StateSpace(length=4, layers=3, seed=2, decay=3.0)
    found = run(framework, "adjoint_distributed_truncated", spec, devices=devices, window=window)
    cut = truth.reference(spec, framework, "float64", "cut_loss", window=window)
    assert compare(found[1], cut, "float64").equal
    exact = not wrong(framework, "adjoint_distributed_truncated", spec, devices=devices, window=window)
    assert exact == (window >= 4)


@pytest.mark.parametrize("instances", [1, 2, 3, 100])
@pytest.mark.parametrize("length", [1, 6, 7])
def test_any_number_of_instances_gives_the_gradient_of_backprop(length: int, instances: int, torch: Any) -> None:
    spec = StateSpace(length=length, structure="unstructured", seed=3)
    assert not wrong("torch", "adjoint_parallel", spec, instances=instances)


@pytest.mark.parametrize("structure", ["diagonal", "scalar", "unstructured"])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 13])
def test_a_parallel_scan_of_any_length_is_the_recurrence(length: int, structure: str, torch: Any) -> None:
    assert not wrong("torch", "associative_scan", StateSpace(length=length, structure=structure, seed=3))


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 6, 7, 8, 100])
def test_reverse_recurrence_is_exact_for_chunks_that_divide_the_length_or_not(chunk: int | None, torch: Any) -> None:
    assert not wrong("torch", "reverse_recurrence", StateSpace(length=7, layers=3, seed=3), chunk=chunk)


@pytest.mark.parametrize("chunk", [2, 9])
def test_ragged_chunks_in_jax_too(chunk: int, jax: Any) -> None:
    assert not wrong("jax", "reverse_recurrence", StateSpace(length=5, seed=3), chunk=chunk)


@pytest.mark.parametrize(("layers", "devices"), [(3, 2), (4, 3)])
def test_layers_that_do_not_divide_among_the_devices_give_the_same_gradient(
    layers: int, devices: int, framework: str
) -> None:
    spec = StateSpace(layers=layers, length=3, seed=4)
    assert not wrong(framework, "adjoint_distributed", spec, devices=devices)


def test_each_device_holds_a_run_of_layers_and_all_are_held(framework: str) -> None:
    residency = load(f"gradgate.references.state_space.in_{framework}.distributed:residency")
    problem = StateSpace(layers=3, length=2).build(framework)
    with precision(framework, "float64"):
        held = residency(problem, 2)
    assert [device["layers"] for device in held] == [[0], [1, 2]]
    if framework == "torch":
        assert held[1]["parameter_bytes"] == 2 * held[0]["parameter_bytes"]
        assert all(device["live_bytes"] >= device["parameter_bytes"] + device["gradient_bytes"] for device in held)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("adjoint_truncated", {"window": 0}, "window must be an integer of at least 1, not 0"),
        ("adjoint_truncated", {"window": None}, "window must be an integer of at least 1, not None"),
        ("adjoint_truncated", {"window": 2.5}, "window must be an integer of at least 1, not 2.5"),
        ("reverse_recurrence", {"chunk": 0}, "chunk must be an integer of at least 1, not 0"),
        ("reverse_recurrence", {"chunk": "all"}, "chunk must be an integer of at least 1, not 'all'"),
        ("reverse_recurrence", {"chunk": True}, "chunk must be an integer of at least 1, not True"),
        ("adjoint_parallel", {"instances": 0}, "instances must be an integer of at least 1, not 0"),
        ("adjoint_parallel", {"instances": None}, "instances must be an integer of at least 1, not None"),
        (
            "adjoint_distributed_truncated",
            {"devices": 2, "window": 0},
            "window must be an integer of at least 1, not 0",
        ),
        ("adjoint_distributed", {"devices": 0}, "devices must be an integer of at least 1 and at most 2, not 0"),
        ("adjoint_distributed", {"devices": 3}, "devices must be an integer of at least 1 and at most 2, not 3"),
    ],
)
def test_an_illegal_option_is_refused_with_the_legal_values(
    method: str, options: dict[str, Any], message: str, framework: str
) -> None:
    with pytest.raises(IllegalOption) as caught:
        run(framework, method, StateSpace(layers=2), **options)
    assert str(caught.value) == message


def test_more_devices_than_jax_has_are_refused_with_the_remedy(jax: Any) -> None:
    count = jax.device_count()
    with pytest.raises(IllegalOption, match=rf"at most {count}, the number of JAX devices.*jax_num_cpu_devices"):
        run("jax", "adjoint_distributed", StateSpace(layers=count + 1, length=1), devices=count + 1)


def test_what_cannot_be_differentiated_again_says_so_and_names_what_can(framework: str) -> None:
    problem = StateSpace(length=3).build(framework)
    truncated = load(registry.methods("state_space", "adjoint_truncated", framework)[0].implementation)

    def total(params: Any) -> Any:
        return (truncated(problem.with_params(params), window=1)[1]["head"] ** 2).sum()

    differentiate = load({"jax": "jax:grad", "torch": "torch.func:grad"}[framework])

    with (
        precision(framework, "float64"),
        pytest.raises(NotComposable, match=r"cannot be differentiated again: .*; use adjoint_sharding or reverse_rec"),
    ):
        differentiate(total)(problem.params)


def test_a_distributed_pytorch_gradient_refuses_transformations(torch: Any) -> None:
    problem = StateSpace().build("torch")
    method = load(registry.methods("state_space", "adjoint_distributed", "torch")[0].implementation)
    stacked = {**problem.params, "head": torch.stack([problem.params["head"]] * 2)}
    dims = ({"embedding": None, "layers": None, "head": 0},)
    with pytest.raises(NotComposable, match=r"neither torch\.func\.vmap nor a further derivative"):
        torch.func.vmap(lambda p: method(problem.with_params(p), devices=2), in_dims=dims)(stacked)
    problem.params["head"].requires_grad_()
    with pytest.raises(NotComposable, match="or detach the parameters"):
        method(problem, devices=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")
def test_a_killed_rank_is_an_error_and_the_next_call_works(torch: Any) -> None:
    from gradgate.references import torch_ranks

    spec = StateSpace(layers=2, length=2, seed=5)
    before = run("torch", "adjoint_distributed", spec, devices=2)
    ranks = torch_ranks._ranks
    assert ranks is not None
    children = (
        [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _parent(int(entry)) == ranks.process.pid]
        if os.path.isdir("/proc")
        else []
    )
    if not children:
        pytest.skip("no /proc to find the ranks in")
    for child in children:  # the ranks of all pools, because the pool of a rank is unknown here
        os.kill(child, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"(?s)^\d of 2 ranks failed\nrank \d (ended unexpectedly|failed: )"):
        run("torch", "adjoint_distributed", spec, devices=2)
    after = run("torch", "adjoint_distributed", spec, devices=2)
    assert after[0] == before[0]
    assert all(np.array_equal(after[1][name], leaf) for name, leaf in before[1].items())


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            found = re.search(r"^PPid:\s+(\d+)", status.read(), re.MULTILINE)
    except OSError:
        return -1
    return int(found.group(1)) if found else -1


def test_a_problem_that_fails_in_a_rank_is_told_with_its_traceback(torch: Any) -> None:
    problem = StateSpace(layers=2, length=2).build("torch")
    method: Callable[..., Any] = load(registry.methods("state_space", "adjoint_distributed", "torch")[0].implementation)
    broken = problem.with_params({**problem.params, "head": problem.params["head"].new_zeros(1, 1)})
    with pytest.raises(RuntimeError, match=r"(?s)of 2 ranks failed.*rank 1 failed: .*shapes cannot be multiplied"):
        method(broken, devices=2)
    assert np.isfinite(to_numpy(method(problem, devices=2)[0]))
