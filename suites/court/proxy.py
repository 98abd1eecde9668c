"""A task as a pair whose function runs behind the wall, so that the checks of every pair judge it unchanged.

The pair's reference, its draws and the rule of equality stay in this process. A call of its function sends arrays to
the stranger and gets arrays back; its backward pass sends the cotangents, which no one there could know before. What
comes back is copied, and checked for dtype and shape, before a check sees it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flint
import numpy as np

from gradgate.references.contract import Tree, UsageError
from gradgate.suites.court import inside, message
from gradgate.suites.court.benchmarks import Benchmark
from gradgate.suites.court.message import Array
from gradgate.suites.court.stranger import Gone, Raised, Stranger
from gradgate.suites.exact import balls
from gradgate.suites.judging.subject import Fault, Refuted
from gradgate.suites.pairs import functions, trees
from gradgate.suites.pairs.draws import Draw
from gradgate.suites.pairs.matching import check_outputs
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem, PairSpec

SLACK = 1 << 24
"""Bytes by which a reply may be larger than four times what the reference returns."""
REPLAYED = {"torch": 6, "jax": 16}
"""One call in so many is repeated in a fresh process, on average, and compared bit by bit."""
MOST_REPLAYS = {"torch": 2, "jax": 1}
"""Fresh processes for one candidate, besides those that a claim asks for: each begins by running the module again."""
OFFSETS = (0, 0, 16, 48)
"""Numbers before a tensor in its memory, so that addresses differ from call to call."""
WIDTH = dict(message.DTYPES)


@dataclass
class Answer:
    """What one call has returned; `gradients` are there after its backward pass."""

    number: int
    outputs: list[Array]
    gradients: list[Array] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(len(one.numbers) for one in (*self.outputs, *self.gradients))


@dataclass
class Call:
    """One call: its request, what was sent and what came back, for a repetition in a fresh process.

    Attributes:
        paths: names of the arrays that were sent.
        earlier: what a call before it with the same shapes has returned, which it must not change.
    """

    answer: Answer
    request: dict[str, Any]
    arrays: list[Array]
    differentiable: list[bool]
    tree: Any
    paths: Sequence[str]
    earlier: Answer | None


@dataclass
class Desk:
    """Where one candidate after another is heard: the calls go to `stranger`, and `fresh` makes further processes.

    Attributes:
        claim: the claim that is judged.
        calls, replays: how many there were of this candidate; `repeated` are replays of the claim about two calls.
        framework: of the task.
        writes: whether the candidate writes its outputs into arrays that it gets.
        shared: (number of an output, input) that have one memory in the last call, as the candidate's process says.
        waited: seconds in which its answers were waited for.
        earlier: shapes and options -> what the last call with them has returned.
        measured: claim about a workload -> errors and seconds.
    """

    stranger: Stranger | None = None
    fresh: Callable[[], Stranger] | None = None
    claim: str = ""
    calls: int = 0
    replays: int = 0
    repeated: int = 0
    shared: list[tuple[int, str]] = field(default_factory=list)
    waited: float = 0.0
    earlier: dict[str, Answer] = field(default_factory=dict)
    framework: str = "torch"
    writes: bool = False
    measured: dict[str, dict[str, Any]] = field(default_factory=dict)

    def begin(self, stranger: Stranger | None, fresh: Callable[[], Stranger] | None, writes: bool = False) -> None:
        """Take the next candidate."""
        self.stranger, self.fresh, self.writes, self.measured = stranger, fresh, writes, {}
        self.claim, self.calls, self.replays, self.repeated = "", 0, 0, 0
        self.waited, self.earlier = 0.0, {}

    def ask(self, request: dict[str, Any], arrays: Sequence[Array], most: int, of: Stranger | None = None) -> Any:
        """The stranger's reply.

        Raises:
            Fault: there is none; says why.
        """
        stranger = of or self.stranger
        assert stranger is not None
        began = time.monotonic()
        try:
            if self.waited > stranger.limits.together:
                stranger.end(f"its answers took more than {stranger.limits.together:g} s together")
            return stranger.ask(request, arrays, most)
        except Raised as why:
            raise Fault(f"the candidate raised {why}") from None
        except Gone as why:
            raise Fault(f"the candidate gave no answer: {why}") from None
        finally:
            self.waited += time.monotonic() - began

    def forward(
        self,
        tree: Any,
        arrays: list[Array],
        layouts: list[dict[str, Any]],
        wanted: list[int],
        options: Mapping[str, Any],
        wide: bool,
        most: int,
        paths: Sequence[str],
        into: Sequence[Any] = (),
        randomness: Mapping[str, Any] | None = None,
    ) -> Call:
        """Run the candidate's function on arrays.

        Args:
            into: shapes and dtypes of outputs that it writes.
            randomness: how it draws random numbers: a ``seed`` in PyTorch, ``alike`` every dtype in JAX.

        Raises:
            Fault: it gave no answer. Refuted: its answer is no tree of arrays; it changed an input; it changed what an
                earlier call has returned.
        """
        self.calls += 1
        request = {
            "do": "forward",
            "id": self.calls,
            "tree": tree,
            "layouts": layouts,
            "wanted": wanted,
            "options": dict(options),
            "wide": wide,
            "into": list(into) if self.writes else [],
            **(randomness or {}),
        }
        reply, outputs = self.ask(request, arrays, most)
        shape, can, changed = reply.get("tree"), reply.get("differentiable"), reply.get("changed")
        shared = _places(reply.get("shared"), len(outputs), len(paths))
        if not _is_tree(shape, len(outputs)) or not _are(can, bool, len(outputs)) or not _are(changed, int, None):
            raise Refuted("the candidate's process did not describe its outputs")
        self._look_for(changed, paths, "the call changed its input")
        if any(one.dtype == "none" for one in outputs):
            raise Refuted("an output is None")
        key = json.dumps([[(one.dtype, one.shape) for one in arrays], wanted, request["options"]])
        answer = Answer(self.calls, outputs)
        call = Call(answer, request, arrays, can, shape, paths, self.earlier.pop(key, None))
        if answer.size <= SLACK:
            self.earlier[key] = answer
        self.shared = [(output, paths[place]) for output, place in shared]
        if call.earlier and not wanted:
            self._ask_again(call.earlier, "a later call changed")
        if into:  # a task of outputs alone: no backward pass will come, after which it would be repeated
            self._repeat(call)
        return call

    def backward(
        self,
        call: Call,
        places: list[int],
        cotangents: list[Array],
        layouts: list[dict[str, Any]],
        names: Sequence[str],
    ) -> list[Array]:
        """Pull cotangents through a call; returns the gradients of its wanted leaves.

        Raises:
            Fault: it gave no answer. Refuted: a gradient has another shape or dtype than its leaf; an output changed
                after it was returned; a fresh process gives other bits.
        """
        wanted = [call.arrays[place] for place in call.request["wanted"]]
        most = sum(len(one.numbers) for one in wanted) + SLACK
        request = {
            "do": "backward",
            "id": call.answer.number,
            "places": places,
            "layouts": layouts,
            "wide": call.request["wide"],
        }
        reply, grads = self.ask(request, cotangents, most)
        changed, spoilt = reply.get("changed"), reply.get("cotangents")
        if not _are(changed, int, None) or not _are(spoilt, int, None):
            raise Refuted("the candidate's process did not describe its gradients")
        self._look_for(changed, call.paths, "the backward pass changed its input")
        self._look_for(spoilt, [f"of output {place}" for place in places], "the backward pass changed the cotangent")
        if len(grads) != len(wanted):
            raise Refuted(f"the candidate's process returned {len(grads)} gradients; expected {len(wanted)}")
        for name, grad, leaf in zip(names, grads, wanted, strict=True):
            if grad.dtype != "none" and grad.shape != leaf.shape:
                raise Refuted(f"wrong shape: {name} has shape {grad.shape}; expected {leaf.shape}", name)
            if grad.dtype != "none" and grad.dtype != leaf.dtype:
                raise Refuted(f"wrong dtype: {name} is {grad.dtype}; expected {leaf.dtype}", name)
        call.answer.gradients += grads
        if call.earlier:
            self._ask_again(call.earlier, "a later call changed")
            call.earlier = None
        self._repeat(call, request, cotangents, most, names)
        return grads

    def _ask_again(self, answer: Answer, what: str) -> None:
        """Ask again for what a call has returned.

        Raises:
            Refuted: it is something else now.
        """
        reply, now = self.ask({"do": "again", "id": answer.number}, (), answer.size + SLACK)
        if reply.get("forgotten") is not True and now != [*answer.outputs, *answer.gradients]:
            raise Refuted(f"{what} what was returned before")

    def _look_for(self, changed: Sequence[int], names: Sequence[str], what: str) -> None:
        """Refute the claim that nothing is changed, if the candidate's process says what was."""
        seen = [names[i] for i in changed if 0 <= i < len(names)]
        if self.claim == "pure" and changed:
            raise Refuted(f"{what} {', '.join(seen)}", seen[0] if seen else "")

    def _repeat(
        self,
        call: Call,
        request: dict[str, Any] | None = None,
        cotangents: Sequence[Array] = (),
        most: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        """Now and then, ask for what was returned again, and for the whole call in a fresh process."""
        framework = self.framework
        asked = self.claim == "deterministic"
        if not asked and (self.replays >= MOST_REPLAYS[framework] or secrets.randbelow(REPLAYED[framework])):
            return
        if asked and self.repeated >= MOST_REPLAYS[framework]:
            return
        self.repeated += asked
        self.replays += 1
        bytes_out = call.answer.size + SLACK
        self._ask_again(call.answer, "something changed")
        assert self.fresh is not None
        try:
            other = self.fresh()
        except (Gone, Raised) as why:
            raise Fault(f"in a fresh process, the candidate gave no answer: {why}") from None
        try:
            _, outputs = self.ask(call.request, call.arrays, bytes_out, other)
            again = self.ask(request, cotangents, most, other)[1] if request else []
        finally:
            other.close()
        if outputs != call.answer.outputs:
            raise Refuted("in a fresh process, the same call returns other bits")
        if len(again) != len(call.answer.gradients):
            count = len(call.answer.gradients)
            raise Refuted(f"in a fresh process, the same call gives {len(again)} gradients; expected {count}")
        for name, one, two in zip(names, again, call.answer.gradients, strict=True):
            if one != two:
                raise Refuted(f"in a fresh process, the same call gives {name} a gradient of other bits", name)


def _are(value: Any, kind: type, count: int | None) -> bool:
    whole = isinstance(value, list) and all(type(one) is kind for one in value)
    return whole and (count is None or len(value) == count)


def _places(pairs: Any, returned: int, given: int) -> list[tuple[int, int]]:
    """Pairs of places, of what is returned and of inputs, as a candidate's process says; none if it says nonsense."""
    if not isinstance(pairs, list) or not all(_are(one, int, 2) for one in pairs):
        return []
    return [(i, j) for i, j in pairs if 0 <= i < returned and 0 <= j < given]


def _is_tree(tree: Any, leaves: int, deep: int = 8) -> bool:
    """Whether a reply's tree has leaves 0 … `leaves` − 1, each once."""
    seen: list[int] = []

    def walk(one: Any, left: int) -> bool:
        if left < 0:
            return False
        if one is None:
            return True
        if type(one) is int:
            seen.append(one)
            return True
        if isinstance(one, list):
            return all(walk(item, left - 1) for item in one)
        if isinstance(one, dict) and len(one) == 1:
            if isinstance(one.get("t"), list):
                return all(walk(item, left - 1) for item in one["t"])
            if isinstance(one.get("d"), dict):
                return all(walk(item, left - 1) for item in one["d"].values())
        return False

    return walk(tree, deep) and sorted(seen) == list(range(leaves))


def behind_the_wall(*_: Any, **__: Any) -> Any:
    """Stands for the candidate where a pair needs a function."""
    raise RuntimeError("a candidate is not called in this process")


@dataclass(frozen=True, eq=False)
class Judged(Pair):
    """A task whose function is a candidate behind the wall.

    Attributes:
        desk: where its calls go.
        benchmark: the benchmark's task that it is made from, if there is one.
    """

    desk: Desk = field(default_factory=Desk)
    benchmark: Benchmark | None = None

    def given(self, spec: PairSpec) -> dict[str, Any]:
        """Input -> tree of NumPy arrays; some benchmarks draw their own."""
        found = super().given(spec)
        if self.benchmark is not None and self.benchmark.made is not None:
            found |= self.benchmark.made(spec.fields, spec.seed)
        return found

    @property
    def called(self) -> str:
        """The task's name."""
        return self.name or "task"

    def __call__(self, problem: PairProblem, **options: Any) -> tuple[Any, Tree]:
        """⟨cotangents, outputs of the candidate⟩ and its gradient by its own backward pass."""
        return self.gradient("function", problem, options)

    def all_outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Path -> output of the candidate or of the reference."""
        if role != "function":
            return super().all_outputs(role, problem, params, options)
        given = self._given(problem, params, options)
        began = time.perf_counter()
        found = _in_torch(self, given) if self.where == "torch" else _in_jax(self, given)[0]
        took = time.perf_counter() - began
        outputs = trees.usual(self.called, role, trees.flatten(self.where, found)[0])
        if self.desk.claim == "pure" and self.desk.shared:
            plain = super().all_outputs("reference", problem, params, options)
            inputs = {leaf.untyped_storage().data_ptr() for leaf in given.leaves}
            if not any(leaf.untyped_storage().data_ptr() in inputs for leaf in plain.values()):
                output, name = self.desk.shared[0]
                raise Refuted(f"output {output} shares its memory with the input {name}; the reference's has its own")
        if self.benchmark is not None and self.benchmark.workloads:
            began = time.perf_counter()
            plain = super().all_outputs("reference", problem, params, options)
            times = {"seconds": took, "reference_seconds": time.perf_counter() - began}
            self.desk.measured[self.desk.claim] = _errors(outputs, plain) | times
        return outputs

    def gradient(self, role: str, problem: PairProblem, options: Mapping[str, Any]) -> tuple[Any, Tree]:
        """`__call__` for ``function`` or ``reference``. In JAX nothing of the candidate is traced here."""
        if role != "function" or self.where == "torch":
            return super().gradient(role, problem, options)
        return _gradient_in_jax(self, problem, self._given(problem, problem.params, options))

    def _given(self, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None) -> Given:
        leaves = self.widened(problem, {**problem.data["given"], **params})
        shared = {name: functions.value_of(self.options[name], getattr(problem.spec, name)) for name in self.shared}
        flat: list[Any] = []
        tree = inside.structure(self.arguments(leaves), flat)
        paths = {id(leaf): path for path, leaf in leaves.items()}
        names = [paths.get(id(leaf), "") for leaf in flat]
        outputs = sum(math.prod(shape) for shape in self.output_shapes(problem.spec).values())
        told, most = {**shared, **(options or {})}, 32 * outputs + SLACK
        return Given(
            tree, flat, names, told, problem.dtype, most, self._into(problem.spec), self._randomness(problem.spec)
        )

    def _randomness(self, spec: PairSpec) -> dict[str, Any]:
        """How the candidate has to draw random numbers, so that they are the reference's (`Pair.seeded`)."""
        if self.where == "torch":
            return {"seed": spec.seed} if self.random else {}
        return {"alike": self.random or any(draw.kind == "key" for draw in self.leaves.values())}

    def in_sixty_digits(self, problem: PairProblem) -> dict[str, Any]:
        """Leaf -> balls, of ⟨cotangents, outputs⟩, "", and of the gradients, as the candidate's process says.

        Raises:
            Fault: it gave no answer; says why.
        """
        given = self._given(problem, problem.params, {})
        wanted = [place for place, name in enumerate(given.names) if name in problem.params]
        convert, back = (torch_bytes, torch_tensor) if self.where == "torch" else (_jax_bytes, _jax_array)
        arrays = [convert(leaf) for leaf in given.leaves]
        layouts: list[dict[str, Any]] = [{} for _ in arrays]
        call = self.desk.forward(
            given.tree,
            arrays,
            layouts,
            wanted,
            given.options,
            True,
            given.most,
            given.names,
            randomness=given.randomness,
        )
        found = inside.filled(call.tree, [back(one) for one in call.answer.outputs])
        paths = {id(leaf): path for path, leaf in trees.flatten(self.where, found)[0].items()}
        order: list[Any] = []
        inside.structure(found, order)
        cotangents = problem.data["cotangents"]
        places = [place for place, leaf in enumerate(order) if paths.get(id(leaf)) in cotangents]
        upstream = [convert(cotangents[paths[id(order[place])]]) for place in places]
        request = {**call.request, "do": "exact", "layouts": layouts, "places": places}
        most = (inside.PARTS + 1) * 8 * sum(math.prod(one.shape) for one in arrays) + SLACK
        _, sent = self.desk.ask(request, [*arrays, *upstream], most)
        shapes = [(), *(arrays[place].shape for place in wanted)]
        if [one.shape for one in sent] != [shape for shape in shapes for _ in range(inside.PARTS + 1)]:
            raise Refuted("the candidate's process sent something else than balls")
        names = ["", *(given.names[place] for place in wanted)]
        step = inside.PARTS + 1
        return {name: _balls(sent[i * step : (i + 1) * step]) for i, name in enumerate(names)}

    def _into(self, spec: PairSpec) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of every output, for a candidate that writes them."""
        listed = self.benchmark.outputs if self.benchmark is not None else ()
        return [(Draw(dims, "normal").shape(spec.sizes), dtype) for dims, dtype in listed]


@dataclass(frozen=True)
class Given:
    """The arguments of one call.

    Attributes:
        tree: their tree, with numbers in place of leaves; `leaves` and their paths, `names`, are in this order.
        options: what is given by keyword.
        dtype: of the problem.
        most: bytes that the reply may have.
        into: shapes and dtypes of the outputs of a task that has nothing but outputs.
        randomness: how the candidate draws random numbers.
    """

    tree: Any
    leaves: list[Any]
    names: list[str]
    options: dict[str, Any]
    dtype: str
    most: int
    into: Sequence[Any] = ()
    randomness: Mapping[str, Any] = field(default_factory=dict)


def _errors(found: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """The largest errors of outputs of PyTorch, as SOL-ExecBench's traces have them."""
    import torch

    worst: dict[str, Any] = {"max_absolute_error": 0.0, "max_relative_error": 0.0, "has_nan": False, "has_inf": False}
    for path in found.keys() & plain.keys():
        one, two = (leaf.detach().to(torch.float64) for leaf in (found[path], plain[path]))
        if one.shape != two.shape or not one.numel():
            continue
        worst["has_nan"] |= bool(one.isnan().any() or two.isnan().any())
        worst["has_inf"] |= bool(one.isinf().any() or two.isinf().any())
        apart = (one - two).abs()
        worst["max_absolute_error"] = max(worst["max_absolute_error"], float(apart.max()))
        worst["max_relative_error"] = max(worst["max_relative_error"], float((apart / (two.abs() + 1e-8)).max()))
    if worst["has_nan"] or worst["has_inf"]:
        worst |= {"max_absolute_error": 0.0, "max_relative_error": 0.0, "has_inf": not worst["has_nan"]}
    return worst


# ---- PyTorch


def _in_torch(pair: Judged, given: Given) -> Any:
    import torch

    places = [place for place, leaf in enumerate(given.leaves) if isinstance(leaf, torch.Tensor)]
    if len(places) != len(given.leaves):
        raise UsageError(f"{pair.called}: every input of a task is a tensor, or a tree of tensors")
    holder: list[Any] = []
    flat = _torch_call()(pair.desk, given, holder, *given.leaves)
    return inside.filled(holder[0], list(flat))


_MADE: list[Any] = []


def _torch_call() -> Callable[..., Any]:
    """`apply` of the autograd.Function that asks the stranger; PyTorch is imported when it is first used."""
    if _MADE:
        return _MADE[0]
    import torch

    class Asked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, desk: Desk, given: Given, holder: list[Any], *leaves: Any) -> Any:
            wanted = [i for i, leaf in enumerate(leaves) if ctx.needs_input_grad[3 + i]]
            arrays = [torch_bytes(leaf) for leaf in leaves]
            layouts = [_layout(leaf) for leaf in leaves]
            call = desk.forward(
                given.tree,
                arrays,
                layouts,
                wanted,
                given.options,
                True,
                given.most,
                given.names,
                given.into,
                given.randomness,
            )
            holder.append(call.tree)
            outputs = tuple(torch_tensor(one) for one in call.answer.outputs)
            floating = [out.is_floating_point() for out in outputs]
            ctx.mark_non_differentiable(
                *(
                    out
                    for out, can, is_float in zip(outputs, call.differentiable, floating, strict=True)
                    if not (can and is_float)
                )
            )
            ctx.set_materialize_grads(False)
            ctx.call, ctx.desk, ctx.wanted = call, desk, wanted
            ctx.names = [given.names[i] for i in wanted]
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *upstream: Any) -> Any:
            places = [i for i, one in enumerate(upstream) if one is not None]
            cotangents = [torch_bytes(upstream[i]) for i in places]
            grads = ctx.desk.backward(ctx.call, places, cotangents, [_layout(upstream[i]) for i in places], ctx.names)
            found = dict(zip(ctx.wanted, grads, strict=True))
            wanted = [found.get(i, message.NONE) for i in range(len(ctx.needs_input_grad) - 3)]
            return (None, None, None, *(None if one.dtype == "none" else torch_tensor(one) for one in wanted))

    _MADE.append(Asked.apply)
    return Asked.apply


def torch_bytes(leaf: Any) -> Array:
    """A tensor as it crosses the wall."""
    import torch

    flat = torch.empty(leaf.numel(), dtype=leaf.dtype)
    flat.view(leaf.shape).copy_(leaf.detach())
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return Array(str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape), raw)


def torch_tensor(array: Array) -> Any:
    """A tensor of its own memory with these numbers."""
    import torch

    dtype = getattr(torch, array.dtype)
    if not array.numbers:
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.numbers), dtype=dtype).reshape(array.shape)


def _layout(leaf: Any) -> dict[str, Any]:
    """How the stranger stores a tensor: as it is stored here, or if that is the usual way, at another address."""
    if leaf.is_contiguous():
        return {"offset": secrets.choice(OFFSETS)}
    strides, span = list(leaf.stride()), 1
    for size, stride in sorted(zip(leaf.shape, strides, strict=True), key=lambda one: one[1]):
        if stride and stride < span and size > 1:
            return {"offset": 0}  # its numbers overlap in memory
        span = max(span, size * stride)
    return {"offset": int(leaf.storage_offset()), "strides": strides}


# ---- JAX


def _jax_bytes(leaf: Any) -> Array:
    plain = np.asarray(leaf)
    return Array(str(plain.dtype), tuple(plain.shape), plain.tobytes())


def _jax_array(array: Array) -> Any:
    import jax

    dtype = np.dtype(jax.numpy.bfloat16 if array.dtype == "bfloat16" else array.dtype)
    return jax.device_put(np.frombuffer(array.numbers, dtype=dtype).reshape(array.shape).copy())


def _in_jax(pair: Judged, given: Given, wanted: Sequence[int] = ()) -> tuple[Any, Call]:
    arrays = [_jax_bytes(leaf) for leaf in given.leaves]
    wide = given.dtype == "float64"
    call = pair.desk.forward(
        given.tree,
        arrays,
        [{} for _ in arrays],
        list(wanted),
        given.options,
        wide,
        given.most,
        given.names,
        randomness=given.randomness,
    )
    for one in call.answer.outputs:
        if WIDTH[one.dtype] == 8 and not wide:
            raise Refuted(f"an output is of {one.dtype} where JAX has no numbers of 64 bits")
    return inside.filled(call.tree, [_jax_array(one) for one in call.answer.outputs]), call


def _gradient_in_jax(pair: Judged, problem: PairProblem, given: Given) -> tuple[Any, Tree]:
    wanted = [place for place, name in enumerate(given.names) if name in problem.params]
    found, call = _in_jax(pair, given, wanted)
    flat = trees.flatten("jax", found)[0]
    floats = {path: leaf for path, leaf in flat.items() if trees.is_floating("jax", leaf)}
    cotangents = problem.data["cotangents"]
    check_outputs(floats, cotangents)
    loss = problem.inner(floats)
    order: list[Any] = []
    inside.structure(found, order)
    paths = {id(leaf): path for path, leaf in floats.items()}
    places = [place for place, leaf in enumerate(order) if id(leaf) in paths]
    upstream = [_jax_bytes(cotangents[paths[id(order[place])]].astype(order[place].dtype)) for place in places]
    names = [given.names[place] for place in wanted]
    grads = pair.desk.backward(call, places, upstream, [{} for _ in upstream], names)
    got = {name: None if grad.dtype == "none" else _jax_array(grad) for name, grad in zip(names, grads, strict=True)}
    return loss, {path: got.get(path) for path in problem.params}


def _balls(sent: Sequence[Array]) -> Any:
    """Balls from the parts of their midpoints and their radii."""
    numbers = [np.frombuffer(one.numbers).tolist() for one in sent]
    found = np.empty(len(numbers[0]), object)
    with balls.digits(100):
        for i, (*middle, radius) in enumerate(zip(*numbers, strict=True)):
            finite = all(map(math.isfinite, (*middle, radius)))
            found[i] = flint.arb(sum(map(flint.arb, middle)), abs(radius)) if finite else flint.arb.nan()
    return found.reshape(sent[0].shape)


# ---- a task


def task_of(declared: Pair, name: str = "", benchmark: Benchmark | None = None) -> Judged:
    """A pair as a task: its function is a candidate behind the wall.

    Args:
        declared: the pair.
        name: what messages call it.
        benchmark: the task of a benchmark that the pair is made from.

    Raises:
        UsageError: it is no task for strangers; says why.
    """
    who = name or declared.name or "the task"
    if type(declared) is not Pair:
        raise UsageError(f"{who} is a {type(declared).__name__}; a task is a gradgate.Pair of functions")
    if declared.reference is None:
        raise UsageError(f"{who} has no reference; the truth about a stranger's function needs one")
    if declared.approximates is not None and hasattr(declared.approximates, "option"):
        raise UsageError(f"{who} declares an order of convergence; a court judges functions that are equal to rounding")
    if declared.devices:
        raise UsageError(f"{who} declares devices; candidates run on the CPU")
    for path, draw in declared.leaves.items():
        if draw.dtype == "typed" or draw.dtype.startswith("float8"):
            raise UsageError(f"{who}: {path} is of {draw.dtype}, which does not cross the wall")
    for option, values in declared.options.items():
        for value in () if callable(values) else values:
            if not isinstance(value, (str, int, float, bool, type(None))):
                raise UsageError(f"{who}: {option}={value!r} does not cross the wall; strings, numbers and None do")
    same = {f.name: getattr(declared, f.name) for f in dataclasses.fields(Pair)}
    same |= {
        "function": behind_the_wall,
        "name": _plain(name or declared.name or "task"),
        "composes": (),
        "disclaims": (),
        "framework": _framework(who, declared),
        "claims": (),
        "expected": {},
        "donates": (),
        "unmeasured": {},
        "measured": (),
    }
    return Judged(**same, desk=Desk(framework=same["framework"]), benchmark=benchmark)


def _framework(who: str, declared: Pair) -> str:
    """The framework of a task's reference.

    Raises:
        UsageError: the reference does not show it, or cannot be found.
    """
    if declared.framework:
        return declared.framework
    seen = functions.frameworks(declared._load("reference"))
    if len(seen) != 1:
        raise UsageError(f"{who}: its reference does not show the framework; give framework='jax' or 'torch'")
    return seen[0]


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "task"
