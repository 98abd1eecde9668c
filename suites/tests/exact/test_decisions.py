"""Decisions of programs in both frameworks: which sides occurred, at which line, and how near."""

import numpy as np
import pytest

from gradgate.suites.exact import balls, decisions


def seen_in_jax(x):
    jax = pytest.importorskip("jax")
    from gradgate.suites.exact import on_jax

    def function(x):
        return jax.numpy.where(x > 20.0, x, jax.numpy.sign(x)).sum()

    program, found = on_jax.trace(function, balls.exact(x)), {}
    decisions.recorded(lambda watch: program.evaluate(balls.exact(x), watch=watch), found)
    return {operation: decision for (operation, _, _), decision in found.items()}, found


def seen_in_torch(x):
    torch = pytest.importorskip("torch")
    from gradgate.suites.exact import on_torch

    def function(x):
        return torch.where(x > 20.0, x, torch.sign(x)).sum()

    found = {}
    decisions.recorded(lambda watch: on_torch.evaluate(function, torch.tensor(x), watch=watch), found)
    return {decisions.short_name(operation): decision for (operation, _, _), decision in found.items()}, found


@pytest.mark.parametrize("seen", [seen_in_jax, seen_in_torch])
@pytest.mark.parametrize(
    ("x", "sides", "margin", "signs"),
    [([1.0, -2.0], {-1}, 19.0, {-1, 1}), ([1.0, 1000.0], {-1, 1}, 19.0, {1}), ([20.0, 0.0], {0, -1}, 20.0, {0, 1})],
)
def test_sides_lines_and_margins(seen, x, sides, margin, signs):
    """A side is there if and only if an input reached it; the line is the user's."""
    found, located = seen(np.asarray(x))
    assert found["gt"].sides == sides
    assert min(found["gt"].nearest.get(side, np.inf) for side in (-1, 1)) == margin
    assert found["sign"].sides == signs
    assert {line.partition(":")[0] for _, line, _ in located} == {"test_decisions.py"}


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_line_is_looked_up_for_comparisons_alone(framework, monkeypatch):
    """To find a line takes longer than to compute a few numbers; who asks for every operation has all lines."""
    xp = pytest.importorskip({"jax": "jax.numpy", "torch": "torch"}[framework])
    from gradgate.suites.exact.parting import recorded

    asked = []
    if framework == "jax":
        from gradgate.suites.exact import on_jax
        from gradgate.suites.exact.on_jax import block as module

        name = "source_line"
    else:
        from gradgate.suites.exact import on_torch
        from gradgate.suites.exact.on_torch import exits as module

        name = "caller"
    look_up = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: asked.append(given) or look_up(*given))

    def function(x):
        return xp.where(x > 1.0, xp.exp(x), xp.sin(x)) * xp.cos(x)

    def run(watch):
        if framework == "jax":
            on_jax.trace(function, balls.exact([0.5, 2.0])).evaluate(balls.exact([0.5, 2.0]), watch=watch)
        else:
            on_torch.evaluate(function, xp.tensor([0.5, 2.0]), watch=lambda *given: watch(*given[:2], [given[2]]))

    decisions.recorded(run, {})
    few = len(asked)  # > and where, and in JAX what calls it
    steps = recorded(run).steps
    assert few <= 3 < 5 <= len(asked) - few
    assert all(step.line for step in steps)


@pytest.mark.parametrize(("x", "sides"), [([1.0, 2.0], {0, -1}), ([1.0, 3.0], {0})])
def test_torch_equal_is_a_decision_of_its_own(x, sides):
    """Its answer is a boolean of Python, and the operation after it is no part of it; nor are those in place."""
    torch = pytest.importorskip("torch")
    from gradgate.suites.exact import on_torch

    def function(x):
        torch.equal(x, torch.tensor([1.0, 3.0]))
        return 2 * x

    found = {}
    decisions.recorded(lambda watch: on_torch.evaluate(function, torch.tensor(x), watch=watch), found)
    assert {decisions.short_name(operation) for operation, _, _ in found} == {"equal"}
    assert {side for decision in found.values() for side in decision.sides} == sides
    assert decisions.short_name("aten.gt_.Scalar") == "gt"


def test_outside_the_scope_nothing_is_listed():
    """A comparison after the scope is not in its list."""
    with balls.comparing() as listed:
        balls.compare("gt", balls.exact([1.0]), balls.exact([0.0]))
    balls.compare("gt", balls.exact([1.0]), balls.exact([0.0]))
    assert len(listed) == 1
