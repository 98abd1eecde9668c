"""Whole PyTorch programs in balls: views, in-place writes, checkpoints, transforms, exits from PyTorch, refusals."""

from __future__ import annotations

import copy
import ctypes
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
flint = pytest.importorskip("flint")

from gradgate.references import registry, torch_ranks  # noqa: E402
from gradgate.suites.exact import balls  # noqa: E402
from gradgate.suites.exact.on_torch import evaluate  # noqa: E402

X = torch.tensor([0.3, -1.1, 0.7, 2.1], dtype=torch.float64)


def cube(x: Any) -> Any:
    """x³ in sixty digits."""
    with balls.digits(60):
        return np.array([flint.arb(each) ** 3 for each in x.tolist()], object)


def same(found: Any, wanted: Any, digits: int = 55) -> None:
    assert found.shape == wanted.shape
    with balls.digits(60):
        for one, other in zip(found.reshape(-1), wanted.reshape(-1), strict=True):
            assert abs(one - other) < flint.arb(10) ** -digits * (1 + abs(other))


def agree(one: Callable[[], Any], other: Callable[[], Any], digits: int = 55) -> None:
    """Two programs give the same outputs."""
    pairs = zip(evaluate(one).outputs, evaluate(other).outputs, strict=True)
    for found, wanted in pairs:
        same(found, wanted, digits)


@pytest.mark.parametrize(
    "name", ["exp", "log", "sin", "cos", "tanh", "erf", "sqrt", "atan", "expm1", "sigmoid", "gelu"]
)
def test_a_function_has_sixty_digits(name: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    x = X.abs()
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    with mpmath.workdps(70):
        known = {
            "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
            "gelu": lambda t: t * (1 + mpmath.erf(t / mpmath.sqrt(2))) / 2,
        }
        wanted = [mpmath.nstr((known.get(name) or getattr(mpmath, name))(mpmath.mpf(t)), 65) for t in x.tolist()]
    with balls.digits(65):
        same(evaluate(function, x).outputs[0], np.array([flint.arb(each) for each in wanted], object))


def test_views_need_no_rule() -> None:
    base = torch.arange(24.0, dtype=torch.float64).sqrt().reshape(2, 3, 4)

    def views() -> Any:
        y = torch.arange(24, dtype=torch.float64).sqrt().reshape(2, 3, 4)
        z = y.transpose(0, 2)[1:, ::2].permute(2, 1, 0).unsqueeze(1).expand(2, 2, 2, 3)
        return [z, y.as_strided((2, 2), (5, 3), 4), y.diagonal(dim1=1, dim2=2), y.unfold(2, 2, 1), y.view(-1)[3]]

    for found, wanted in zip(evaluate(views).outputs, views(), strict=True):
        np.testing.assert_allclose(balls.floats(found), wanted.numpy(), rtol=1e-15)
    assert evaluate(lambda x: x.mT, base).outputs[0].shape == (2, 4, 3)


def test_what_is_written_in_place_is_seen_through_every_view() -> None:
    def program() -> Any:
        y = torch.empty(3, 4, dtype=torch.float64)
        y[:] = 0
        column = y[:, 1]
        y.t()[1].add_(X[:3].sin())
        column *= 2
        y[1:, 2:] = X[:2].exp()
        torch.mul(X, X, out=y[2])
        y[0, ::2].fill_(0.1).sqrt_()
        return y, column

    def plain() -> Any:
        s, e, r = 2 * X[:3].sin(), X[:2].exp(), torch.tensor(0.1, dtype=torch.float64).sqrt()
        z = torch.tensor(0.0, dtype=torch.float64)
        y = torch.stack([torch.stack([r, s[0], r, z]), torch.stack([z, s[1], *e]), X * X])
        return y, y[:, 1]

    agree(program, plain)


def test_writing_a_slice_of_an_input_leaves_the_rest_what_it_was() -> None:
    def program() -> Any:
        y = X.clone()
        y[1:3] = y[0:2].clone()
        y[3:] = 7
        return y

    assert balls.floats(evaluate(program).outputs[0]).tolist() == [0.3, 0.3, -1.1, 7.0]


def test_what_is_written_into_a_slice_is_not_among_the_constants() -> None:
    """What is written is a result; the rest of the memory is data."""

    def program(target: Any) -> Any:
        target[1:3] = 0.1 * X[:2]
        return target

    given = {0.1, *X.abs().tolist()}
    for target, data in (
        (torch.full((4,), 0.7, dtype=torch.float64), {0.7}),
        (torch.zeros(4, 2, dtype=torch.float64).T[0], {0.0}),
    ):
        with balls.standing({}) as floats:
            evaluate(lambda target=target: program(target))
        assert floats.seen - {0.0} == given | data - {0.0}


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_gives_the_gradient(reentrant: bool) -> None:
    def program() -> Any:
        x = X.clone().requires_grad_()
        y = torch.utils.checkpoint.checkpoint(lambda t: (t.sin() * t).exp(), x, use_reentrant=reentrant)
        return torch.autograd.grad(y.sum(), x)[0] if not reentrant else (y.sum().backward(), x.grad)[1]

    agree(program, lambda: torch.func.grad(lambda t: (t.sin() * t).exp().sum())(X))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 3 * x * x


def test_a_function_of_autograd_with_hooks_and_a_second_derivative() -> None:
    def program() -> Any:
        x = X.clone().requires_grad_()
        x.register_hook(lambda g: g * 2)
        y = Cube.apply(x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.sum(), x)[0]

    found = evaluate(program)
    same(found.outputs[0], evaluate(lambda: 6 * X * X).outputs[0])
    same(found.outputs[1], evaluate(lambda: 24 * X).outputs[0])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_transforms_of_functions_compose() -> None:
    def f(t: Any) -> Any:
        return (t.tanh() * t.exp()).sum()

    v = X.flip(0)
    agree(lambda: torch.func.jvp(torch.func.grad(f), (X,), (v,))[1], lambda: torch.func.hessian(f)(X) @ v)
    agree(
        lambda: torch.func.vmap(torch.func.grad(f))(torch.stack([X, v])),
        lambda: torch.stack([torch.func.grad(f)(X), torch.func.grad(f)(v)]),
    )
    agree(lambda: torch.func.vjp(f, X)[1](torch.ones((), dtype=X.dtype)), lambda: (torch.func.jacfwd(f)(X),))
    agree(
        lambda: torch.func.vmap(lambda a, b: a[b].log1p(), (0, 0))(X.abs().expand(2, 4), torch.tensor([1, 2])),
        lambda: X.abs()[1:3].log1p(),
    )


def test_random_numbers_under_vmap_are_data() -> None:
    def program() -> Any:
        torch.manual_seed(0)
        return torch.func.vmap(lambda t: t + torch.rand_like(t), randomness="different")(X)

    near = balls.floats(evaluate(program).outputs[0])
    np.testing.assert_allclose(near, program().numpy(), rtol=1e-15)


def test_a_comparison_is_decided_by_balls_and_floats_follow() -> None:
    tiny = torch.tensor(1e-30, dtype=torch.float64)

    def program() -> Any:
        larger = 1 + tiny > 1  # in floats it is False
        return larger, torch.where(larger, X, -X), (1 + tiny).sub(1).relu()

    found = evaluate(program)
    assert found.outputs[0].item() is True
    assert found.answer[0].item() is True
    same(found.outputs[1], balls.exact(X.numpy()))
    assert abs(found.outputs[2][()] / 1e-30 - 1) < 1e-12


def test_a_tie_is_undecided_and_told_with_its_operation() -> None:
    with pytest.raises(balls.Undecided, match=r"aten\.gt"):
        evaluate(lambda: X.exp().log() > X)


def test_a_refusal_that_a_program_catches_is_raised_all_the_same() -> None:
    def program() -> Any:
        try:
            return torch.linalg.svdvals(X.reshape(2, 2))
        except balls.Unknown:
            return X * 2

    with pytest.raises(balls.Unknown, match=r"aten\._linalg_svd"):
        evaluate(program)


def test_item_is_an_exit_with_its_place_and_a_nudge_shows_that_it_matters() -> None:
    def program() -> Any:
        return X * X.exp().sum().item()

    found = evaluate(program)
    assert len(found.exits) == 1
    assert found.exits[0].startswith("aten._local_scalar_dense.default at test_torch_programs.py:")
    moved = evaluate(program, nudge=1e-6)
    assert abs(moved.outputs[0][0] / found.outputs[0][0] - 1 - 1e-6) < 1e-15
    assert not evaluate(lambda: X * X.sum().new_tensor(0.5).item() * X[0].item()).exits


@pytest.mark.parametrize("leave", [lambda t: t.numpy(), np.asarray, lambda t: np.array(t.tolist())])
def test_a_round_trip_through_numpy_is_an_exit(leave: Callable[[Any], Any]) -> None:
    def program() -> Any:
        return torch.from_numpy(leave((X + 1).sin())) * 2

    found = evaluate(program)
    assert len(found.exits) == 1
    assert "test_torch_programs.py" in found.exits[0]
    assert all(ball.is_exact() for ball in found.outputs[0])
    moved = balls.floats(evaluate(program, nudge=1e-6).outputs[0])
    np.testing.assert_allclose(moved, balls.floats(found.outputs[0]) * (1 + 1e-6), rtol=1e-14)


def test_what_is_written_into_memory_from_outside_is_data() -> None:
    def program() -> Any:
        y = (X + 1).sin()
        y.numpy()[1] = 5.0
        return y * 1

    found = evaluate(program)
    assert found.outputs[0][1] == 5
    assert found.outputs[0][0].rad() > 0
    assert "Tensor.numpy" in found.exits[0]


def test_an_answer_from_foreign_code_is_unknown() -> None:
    def program() -> Any:
        y = (X * 2).sum()
        with torch.utils._python_dispatch._disable_current_modes():  # bypasses PyTorch's dispatcher
            return y, X * 3

    with pytest.raises(balls.Unknown, match="outside of PyTorch's dispatcher"):
        evaluate(program)


def test_memory_read_by_its_address_is_an_exit() -> None:
    found = evaluate(lambda: X * ctypes.c_double.from_address((X[:1] / 3).data_ptr()).value)
    assert found.exits == (found.exits[0],)
    assert "data_ptr" in found.exits[0]


def test_a_deep_copy_keeps_its_digits() -> None:
    def program() -> Any:
        y = X.sin()
        z = copy.deepcopy(y)
        y.zero_()
        return z

    agree(program, lambda: X.sin())


def test_what_was_written_to_a_file_is_an_exit() -> None:
    def program() -> Any:
        file = io.BytesIO()
        torch.save(X.sin(), file)
        file.seek(0)
        return torch.load(file) * 2

    found, moved = evaluate(program), evaluate(program, nudge=1e-6)
    assert "set_" in found.exits[0]
    assert abs(moved.outputs[0][0] / found.outputs[0][0] - 1 - 1e-6) < 1e-15


def test_narrower_floats_are_told_and_not_rounded_to() -> None:
    found = evaluate(lambda: X.to(torch.float32).exp().double())
    assert found.narrowed.keys() == {"float32"}
    same(found.outputs[0], evaluate(lambda: X.exp()).outputs[0])
    assert not evaluate(lambda: X.exp()).narrowed


def test_complex_numbers_are_pairs_in_memory() -> None:
    def program() -> Any:
        z = torch.complex(X, X.flip(0))
        w = z.conj() * z
        torch.view_as_real(w)[0, 1] = 3.0
        w.imag[1] += X[0].exp()
        return w.real, w.imag, w.conj().imag, (z.mH @ z).abs() if z.ndim > 1 else (z * 1j).real

    reals = evaluate(program).outputs
    same(reals[0], evaluate(lambda: X * X + X.flip(0) * X.flip(0)).outputs[0])
    np.testing.assert_allclose(balls.floats(reals[1]), [3.0, np.exp(0.3), 0, 0], atol=1e-15)
    np.testing.assert_allclose(balls.floats(reals[2]), [-3.0, -np.exp(0.3), 0, 0], atol=1e-15)
    same(reals[3], balls.exact(-X.flip(0).numpy()))


def test_zeros_without_memory_do_not_crash() -> None:
    found = evaluate(lambda: torch.ops.aten.mul.Scalar(torch._efficientzerotensor((2,), dtype=X.dtype), -2.0) + X[:2])
    same(found.outputs[0], balls.exact(X[:2].numpy()))


def test_a_tensor_that_dispatches_itself_is_unknown() -> None:
    class Own(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with pytest.raises(balls.Unknown, match="Own"):
        evaluate(lambda: X.as_subclass(Own) * 2)


def test_a_sparse_tensor_is_unknown() -> None:
    with pytest.raises(balls.Unknown, match="aten"):
        evaluate(lambda: X.reshape(2, 2).to_sparse() * 2)


def test_every_operation_can_be_watched_with_the_line_that_called_it() -> None:
    seen: list[tuple[str, str]] = []
    evaluate(lambda: (X * X).exp(), watch=lambda name, line, array: seen.append((name, line)))
    assert [name for name, _ in seen] == ["aten.mul.Tensor", "aten.exp.default"]
    assert all(line.startswith("test_torch_programs.py:") for _, line in seen)


def test_a_watch_may_replace_what_an_operation_gives() -> None:
    seven = balls.exact([7.0] * 4)
    found = evaluate(lambda: X.exp() + 1, watch=lambda name, line, value: seven if "exp" in name else None)
    assert balls.floats(found.outputs[0]).tolist() == [8.0] * 4


def test_inputs_may_be_given_in_balls() -> None:
    with balls.digits(60):
        thirds = np.array([flint.arb(each) / 3 for each in range(1, 5)], object)
    found = evaluate(lambda x: x * 3, X, given=[(X, thirds)])
    same(found.outputs[0], balls.exact(np.arange(1, 5)))
    same(evaluate(lambda x: x * 1, X).outputs[0], balls.exact(X.numpy()))


def test_torch_is_left_as_it_was() -> None:
    before = torch.Tensor.numpy, torch.Tensor.tolist, torch.distributed.send, torch_ranks.run, torch.Tensor.__array__
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda: X.numpy() / (1 // 0))
    assert before == (
        torch.Tensor.numpy,
        torch.Tensor.tolist,
        torch.distributed.send,
        torch_ranks.run,
        torch.Tensor.__array__,
    )
    assert flint.ctx.dps == 15


@pytest.mark.parametrize(
    ("family", "method", "options"),
    [("state_space", "adjoint_distributed", {"devices": 2}), ("bilevel", "bilevel_sharded", {"devices": 2})],
)
def test_methods_of_several_processes_pass_balls_between_threads(family: str, method: str, options: Any) -> None:
    (declared,) = registry.methods(family, method, "torch")
    sharded, spec = registry.load(declared.implementation), registry.spec_class(family)
    shape = next(s for s in registry.family(family).shapes if s.get("layers", 2) > 1 and s.get("batch", 2) % 2 == 0)
    problem = spec(**shape).build("torch")
    found = evaluate(lambda: sharded(problem, **options))
    agree(
        lambda: sharded(problem, **options), lambda: torch.func.grad_and_value(problem.loss)(problem.params)[::-1], 45
    )
    assert not found.exits


COMPILED = """
import sys, torch
from gradgate.suites.exact.on_torch import evaluate
x = torch.arange(1.0, 4.0, dtype=torch.float64)
plain, compile = evaluate(torch.tanh, x), torch.compile
assert "torch._dynamo" not in sys.modules
calls = []
def backend(module, inputs):
    calls.append(module)
    return module
run = lambda x: torch.compile(torch.tanh, backend=backend)(x)
for _ in range(2):  # the compiler is imported in the first, and there in the second
    [found] = evaluate(run, x).outputs
    assert [one.overlaps(two) for one, two in zip(found, plain.outputs[0])] == [True] * 3
    assert max(float(one.rad()) for one in found) < 1e-58
assert "torch._dynamo" in sys.modules and not calls and torch.compile is compile
run(x)
assert calls  # outside of an evaluation, it is compiled
"""


def test_the_compiler_is_imported_only_for_what_is_compiled() -> None:
    ran = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_rank_that_fails_is_told() -> None:
    with pytest.raises(RuntimeError, match="it broke"):
        evaluate(lambda: torch_ranks.run([Broken(), Waiting()]))


class Broken:
    def work(self) -> Any:
        raise RuntimeError("it broke")


class Waiting:
    def work(self) -> Any:
        torch.distributed.recv(torch.empty(2), 0)
