"""Second derivatives of right rules that lose small numbers are no faults; wrong ones are, however small they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = {
    "torch": """
import torch


class Right(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy / (-x).exp()

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t / (-x).exp()


class Stopped(Right):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy / (-x).exp().detach() + 0 * x


class Halved(Right):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        y = (-x).exp()
        return dy / (y / 2 + y.detach() / 2)


if __name__ == "__main__":
    import rules

    for rule in (rules.Right, rules.Stopped, rules.Halved):
        rule.apply(torch.tensor([-52.0, -53.0, -51.5], requires_grad=True)).sum().backward()
""",
    "jax": """
import jax
import jax.numpy as jnp


def right(x):
    return jnp.exp(x)


def stopped(x):
    return jnp.exp(x)


def halved(x):
    return jnp.exp(x)


right = jax.custom_jvp(right)
right.defjvps(lambda t, y, x: t / jnp.exp(-x))
stopped = jax.custom_jvp(stopped)
stopped.defjvps(lambda t, y, x: t / jax.lax.stop_gradient(jnp.exp(-x)))
halved = jax.custom_jvp(halved)
halved.defjvps(lambda t, y, x: t / (jnp.exp(-x) / 2 + jax.lax.stop_gradient(jnp.exp(-x)) / 2))

if __name__ == "__main__":
    import rules

    for rule in (rules.right, rules.stopped, rules.halved):
        jax.grad(lambda x: rule(x).sum())(jnp.array([-52.0, -53.0, -51.5]))
""",
}
SMALL = "a result on the way is too small for float32"


def test_only_a_right_second_derivative_may_lose_small_numbers(
    framework: str, tmp_path: Path, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(SCRIPTS[framework])
    ran = gradgate("watch", "--jobs", 1, "--json", "rules.json", "rules.py")
    rules = {
        one["name"].partition(":")[2].lower(): one for one in json.loads((tmp_path / "rules.json").read_text())["rules"]
    }
    assert (rules["right"]["state"], rules["right"]["warnings"]) == ("upheld", []), ran.out
    said = [verdict["reason"] for call in rules["right"]["seen"] for verdict in call["verdicts"]]
    assert any(SMALL in one for one in said), said
    for name in ("stopped", "halved"):
        found = rules[name]
        wrong = found["reason"] if found["state"] == "refuted" else "; ".join(found["warnings"])
        assert "wrong gradient of x" in wrong, (name, found["state"], wrong)
        assert SMALL not in wrong
    assert {rules["stopped"]["state"], rules["halved"]["state"]} >= {"refuted"}
    assert ran.status == 1
