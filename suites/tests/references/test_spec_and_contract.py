"""Specs as JSON, the exact text of errors, and problems that are the same in every backend and dtype."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest

from gradgate.references import registry
from gradgate.references.backends import leaves, named_leaves, precision, scan, to_backend, to_numpy, tree_map
from gradgate.references.contract import IllegalOption, Spec, UsageError, check_integer, unknown
from gradgate.references.oracle import gradient
from gradgate.references.registry import spec_class
from gradgate.references.state_space import linear_count
from gradgate.suites.engine.strategies import edge_specs

StateSpace = spec_class("state_space")
EDGES = edge_specs(registry.family("state_space"), None, seed=2)


@pytest.mark.parametrize("fields", [{}, {"length": 9, "decay": -1.5, "upstream": -2.0, "seed": 2**63 - 1}])
def test_a_spec_survives_json(fields: dict[str, Any]) -> None:
    spec = StateSpace(**fields)
    text = spec.to_json()
    assert "\n" not in text
    assert StateSpace.from_json(text) == spec
    assert StateSpace.from_json(json.dumps(fields)) == spec


DTYPE = "unknown dtype 'float46'; legal: bfloat16, float32, float64, longdouble; nearest: float64"
STRUCTURE = "unknown structure 'diag'; legal: diagonal, scalar, unstructured; nearest: diagonal"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "float46"}, DTYPE),
        ({"structure": "diag"}, STRUCTURE),
        ({"head": "xent"}, "unknown head 'xent'; legal: cross_entropy, squared_error"),
        ({"norm": "batch"}, "unknown norm 'batch'; legal: layer, none, rms"),
        ({"activation": "tahn"}, "unknown activation 'tahn'; legal: identity, silu, tanh; nearest: tanh"),
        ({"length": 0}, "length must be at least 1, not 0"),
        ({"layers": -3}, "layers must be at least 1, not -3"),
        ({"depth": 0}, "depth must be at least 1, not 0"),
        ({"vocabulary": 0}, "vocabulary must be at least 1, not 0"),
        ({"length": 2.0}, "length must be an integer, not 2.0"),
        ({"length": "2"}, "length must be an integer, not '2'"),
        ({"batch": True}, "batch must be an integer, not True"),
        ({"seed": -1}, "seed must lie in 0 … 2**63 - 1, not -1"),
        ({"seed": 2**63}, f"seed must lie in 0 … 2**63 - 1, not {2**63}"),
        ({"scale": 0.0}, "scale must be positive, not 0.0"),
        ({"scale": float("nan")}, "scale must be a finite number, not nan"),
        ({"decay": float("inf")}, "decay must be a finite number, not inf"),
        ({"decay": "1"}, "decay must be a finite number, not '1'"),
        ({"upstream": None}, "upstream must be a finite number, not None"),
        ({"norm": None}, "norm must be a string, not None"),
        ({"dtype": 64}, "dtype must be a string, not 64"),
        ({"structure": ["diagonal"]}, "structure must be a string, not ['diagonal']"),
        ({"scale": True}, "scale must be a finite number, not True"),
    ],
)
def test_an_impossible_spec_is_refused_in_words(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as direct:
        StateSpace(**fields)
    assert str(direct.value) == message
    with pytest.raises(UsageError) as parsed:
        StateSpace.from_json(json.dumps(fields))
    assert str(parsed.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"lenght": 3}', "unknown Spec field 'lenght'; legal: activation, batch, decay, .*; nearest: length"),
        ("[1]", re.escape("a Spec is a JSON object, not '[1]'")),
        ("{length: 3}", r"a Spec is a JSON object such as \{.*\}; '\{length: 3\}' is not JSON: Expecting property.*"),
        ("", "a Spec is a JSON object such as .*; '' is not JSON: Expecting value.*"),
    ],
)
def test_what_is_no_spec_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        StateSpace.from_json(text)
    assert re.fullmatch(message, str(caught.value)), caught.value


def test_the_nearest_name_is_given_only_if_one_is_near() -> None:
    assert unknown("family", "state_spce", ["state_space", "chain"]).args == (
        "unknown family 'state_spce'; legal: chain, state_space; nearest: state_space",
    )
    assert unknown("family", "zzz", ["state_space"]).args == ("unknown family 'zzz'; legal: state_space",)
    assert unknown("claim", "x", []).args == ("unknown claim 'x'; legal: (none)",)


@pytest.mark.parametrize("value", [1, 5, np.int64(3), np.int32(1)])
def test_check_integer_takes_integers_of_any_kind(value: Any) -> None:
    found = check_integer("chunk", value, 1)
    assert (found, type(found)) == (int(value), int)


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, "3", None, True, np.float64(2), [1]])
def test_check_integer_refuses_the_rest_and_states_what_is_legal(value: Any) -> None:
    with pytest.raises(IllegalOption) as caught:
        check_integer("chunk", value, 1)
    assert str(caught.value) == f"chunk must be an integer of at least 1, not {value!r}"


def test_check_integer_states_both_ends() -> None:
    assert check_integer("devices", 4, 1, 4) == 4
    with pytest.raises(IllegalOption, match=r"^devices must be an integer of at least 1 and at most 4, not 5$"):
        check_integer("devices", 5, 1, 4)


def test_static_forgets_what_changes_numbers_only() -> None:
    one, two = StateSpace(seed=1, scale=2.0, decay=3.0, upstream=4.0), StateSpace(seed=9)
    assert one != two
    assert one.static() == two.static() == StateSpace()
    assert StateSpace(length=5).static() != two.static()
    assert StateSpace(dtype="float32").static() != two.static()


def test_problems_of_one_static_spec_share_one_compiled_program(jax: Any) -> None:
    traced = []

    @jax.jit
    def run(problem: Any) -> Any:
        traced.append(problem.spec)
        return problem.loss(problem.params)

    def losses(*specs: Spec) -> list[float]:
        with precision("jax", "float64"):
            return [float(run(spec.build("jax"))) for spec in specs]

    found = losses(*(StateSpace(seed=s, scale=1.0 + s, upstream=1.0 + s) for s in range(3)))
    assert len(traced) == 1
    assert len(set(found)) == 3
    losses(StateSpace(length=5))
    assert len(traced) == 2


@pytest.mark.parametrize("spec", EDGES[::3], ids=lambda spec: f"shape{EDGES.index(spec)}")
def test_every_backend_builds_the_same_numbers(spec: Spec, framework: str) -> None:
    ours, theirs = spec.build("numpy"), spec.build(framework)
    for kind in ("params", "data"):
        here, there = named_leaves(getattr(ours, kind)), named_leaves(getattr(theirs, kind))
        assert here.keys() == there.keys()
        for name, leaf in here.items():
            other = to_numpy(there[name])
            assert leaf.shape == tuple(other.shape), name
            assert np.array_equal(leaf, other), name
    with precision(framework, "float64"):
        assert float(theirs.loss(theirs.params)) == pytest.approx(float(ours.loss(ours.params)), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_every_floating_leaf_has_the_dtype_of_the_spec(dtype: str, framework: str) -> None:
    problem = StateSpace(dtype=dtype, head="squared_error").build(framework)
    kinds = {str(leaf.dtype).removeprefix("torch.") for leaf in leaves({"p": problem.params, "d": problem.data})}
    assert kinds == {dtype, "int32"}


@pytest.mark.parametrize("spec", EDGES[:4], ids=["shape0", "shape1", "shape2", "shape3"])
def test_float32_and_float64_of_one_seed_are_one_problem(spec: Spec, framework: str) -> None:
    wide, narrow = (
        dataclasses.replace(spec, dtype=d, upstream=3.3125).build(framework) for d in ("float64", "float32")
    )
    for kind in ("params", "data"):
        pairs = zip(leaves(getattr(wide, kind)), leaves(getattr(narrow, kind)), strict=True)
        assert all(np.array_equal(to_numpy(one), to_numpy(two)) for one, two in pairs)


def test_bfloat16_is_float32_rounded_to_nearest_even(framework: str) -> None:
    spec = StateSpace(width=5, state=7, seed=3)
    exact = named_leaves(dataclasses.replace(spec, dtype="float32").build("numpy").params)
    short = named_leaves(dataclasses.replace(spec, dtype="bfloat16").build(framework).params)
    for name, leaf in exact.items():
        got = to_numpy(short[name])
        mantissa, exponent = np.frexp(leaf.astype(np.float64))
        assert np.array_equal(got, np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent)), name


@pytest.mark.parametrize(("backend", "dtype"), [("numpy", "bfloat16"), ("torch", "longdouble")])
def test_a_dtype_that_a_backend_lacks_is_refused(backend: str, dtype: str, request: pytest.FixtureRequest) -> None:
    if backend == "torch":
        request.getfixturevalue("torch")
    with pytest.raises(UsageError, match=f"{'NumPy has no bfloat16' if backend == 'numpy' else 'longdouble exists'}"):
        StateSpace(dtype=dtype).build(backend)


def test_another_seed_is_another_problem_and_another_value_the_same_draw() -> None:
    one, other = (StateSpace(seed=s).build("numpy") for s in (1, 2))
    assert not np.array_equal(one.params["head"], other.params["head"])
    scaled = StateSpace(seed=1, scale=4.0).build("numpy")
    assert np.array_equal(scaled.params["head"], one.params["head"])
    assert np.allclose(scaled.params["layers"]["B"]["w0"], 4 * one.params["layers"]["B"]["w0"], rtol=1e-6)


@pytest.mark.parametrize("fields", [{"length": 1, "layers": 1}, {"length": 3, "layers": 2}])
def test_counted_counts_every_vjp_of_backprop_and_changes_no_number(fields: dict[str, int], framework: str) -> None:
    counts: collections.Counter[str] = collections.Counter()

    def on_call(net: str, kind: str, number: int) -> None:
        counts[net] += number * (kind == "vjps")

    plain = StateSpace(**fields).build(framework)
    counted = plain.counted(on_call)
    with precision(framework, "float64"):
        if framework == "jax":
            import jax

            with jax.disable_jit():
                loss, grads = jax.value_and_grad(counted.loss)(counted.params)
        else:
            import torch

            grads, loss = torch.func.grad_and_value(counted.loss)(counted.params)
    assert dict(counts) == linear_count(plain.spec)
    value, exact = gradient(plain)
    assert float(loss) == pytest.approx(float(value), rel=1e-14)
    for one, two in zip(leaves(grads), leaves(exact), strict=True):
        assert np.allclose(to_numpy(one), to_numpy(two), rtol=1e-12, atol=1e-14)
    counts.clear()
    gradient(plain)
    assert not counts, "counting one problem must not count another"


def test_a_counted_problem_of_jax_stays_counted_where_it_goes_through_jit(jax: Any) -> None:
    def on_call(net: str, kind: str, number: int) -> None: ...

    counted = StateSpace().build("jax").counted(on_call)
    seen: list[Any] = []
    jax.eval_shape(lambda problem: seen.append(problem.on_call), counted)
    assert seen == [on_call]
    assert counted.with_params(counted.params).on_call is on_call
    assert counted.counted(None).on_call is None


def test_a_changed_problem_forgets_what_it_has_computed_of_itself() -> None:
    spec = spec_class("invertible")(residual="conv", side=2)
    problem = spec.build("numpy")
    assert problem.blocks[0].unit["0_additive"].residual.kind == "conv"
    assert problem.rerounded(np.asarray(0.5)).blocks[0].unit["0_additive"].residual.kind == "patches"


def test_with_params_keeps_everything_else(framework: str) -> None:
    problem = StateSpace().build(framework)
    with precision(framework, "float64"):
        other = problem.with_params(tree_map(lambda leaf: 2 * leaf, problem.params))
    assert (other.spec, other.backend, other.data) == (problem.spec, problem.backend, problem.data)
    assert np.array_equal(to_numpy(other.params["head"]), 2 * to_numpy(problem.params["head"]))


def test_scan_is_the_loop_it_stands_for(framework: str) -> None:
    with precision(framework, "float64"):
        xs = to_backend(framework, np.arange(5.0), "float64")
        carry, ys = scan(framework, lambda c, x: (c + x, c * x), 0 * xs[0], xs)
    assert float(carry) == 10.0
    assert to_numpy(ys).tolist() == [0.0, 0.0, 2.0, 9.0, 24.0]


def test_a_class_of_problems_imported_after_jax_was_first_used_is_a_pytree_too(jax: Any) -> None:
    from gradgate.references.backends import namespace
    from gradgate.references.contract import Problem

    namespace("jax")

    class Late(Problem):
        pass

    namespace("jax")
    assert jax.tree.leaves(Late(spec_class("state_space")(), "jax", {"w": 1.0}, {"x": 2.0})) == [1.0, 2.0]


def test_the_nearest_name_is_one_that_begins_so_before_one_that_looks_alike() -> None:
    legal = ["nvidia-a100-40", "nvidia-v100"]
    assert str(unknown("profile", "nvidia-a100", legal)).endswith("nearest: nvidia-a100-40")
    assert str(unknown("profile", "nvidia-v10", legal)).endswith("nearest: nvidia-v100")
    assert "nearest" not in str(unknown("profile", "", legal))


@pytest.mark.parametrize("family", sorted(registry.families()))
def test_a_problem_has_its_keys_in_one_order_in_every_backend(family: str, jax: Any, torch: Any) -> None:
    # The oracle draws a sign for each number in this order. JAX's own trees would sort the keys.
    def keys(tree: Any) -> Any:
        if isinstance(tree, dict):
            return [(key, keys(value)) for key, value in tree.items()]
        return [keys(one) for one in tree] if isinstance(tree, (list, tuple)) else None

    spec = edge_specs(registry.family(family), None, seed=2)[-1]
    found = [spec.build(backend) for backend in ("numpy", "jax", "torch")]
    assert [keys([one.params, one.data]) for one in found[1:]] == 2 * [keys([found[0].params, found[0].data])]
