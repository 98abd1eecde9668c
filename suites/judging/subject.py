"""Calling a method that may do anything: raise, exit, return nonsense.

An answer that is not (loss, grads) is Refuted. If the method gives no answer, that is a Fault, in words.
"""

from __future__ import annotations

import contextlib
import functools
import json
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradgate.references import registry
from gradgate.references.backends import named_leaves, precision, shared
from gradgate.references.contract import IllegalOption, Method, Problem, Spec, Tree
from gradgate.references.oracle import split
from gradgate.suites.judging.frames import last_frames
from gradgate.suites.judging.surroundings import restored

NARROW = 'a function that does not support bfloat16 or float16 leaves it out of dtypes=("float64", "float32", …)'
"""What to do about an exception that names a narrow dtype."""


class Fault(Exception):
    """A method gave no answer: it raised, exited or hung. The verdict is ``error`` and this is its reason.

    Attributes: sentence: what happened; at: where in the author's files, in the form of `frames.last_frames`.
    """

    def __init__(self, sentence: str, at: str = "") -> None:
        super().__init__(sentence + at)
        self.sentence, self.at = sentence, at


MISSING = "has no gradient"
"""What is said of a leaf whose gradient is None."""


class Refuted(Exception):
    """A claim does not hold.

    Attributes: leaf, error and noise of the worst leaf where there is one; the line of source, as ``src/ops.py:12``,
        where one is known.
    """

    def __init__(
        self, reason: str, leaf: str = "", error: float | None = None, noise: float | None = None, line: str = ""
    ) -> None:
        super().__init__(reason)
        self.leaf, self.error, self.noise, self.line = leaf, error, noise, line


class Inapplicable(Exception):
    """The claim cannot be judged here; the message says why."""


ONLY = 'a function that computes in float32 alone declares dtypes=("float32",)'
"""What to do about an exception that names float32 and float64."""
DONATES = 'a function whose call gives the memory of inputs to its outputs names them, as in donates=("x",)'
"""What to do about an exception of JAX about an array that is used after it was donated."""


@dataclass
class Subject:
    """A method and its loaded implementation.

    Attributes:
        declared: the declaration.
        function: the callable.
        watch: called with a description before each call of foreign code, and with None after it; a supervisor reads
            from it how long a call has lasted.
        changed: names of what the last call changed in the process's surroundings; all of it was restored.
    """

    declared: Method
    function: Callable[..., Any]
    watch: Callable[[dict[str, Any] | None], None] = lambda _: None
    changed: list[str] = field(default_factory=list)
    _programs: dict[tuple[str, str], Any] = field(default_factory=dict)
    _working: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, declared: Method, watch: Callable[[dict[str, Any] | None], None] = lambda _: None) -> Subject:
        """Import the implementation.

        Raises:
            Fault: importing it raised or exited.
            UsageError: it does not exist.
        """
        watch({"importing": declared.implementation})
        try:
            function = _guarded(
                f"importing {declared.implementation}",
                (declared.implementation,),
                registry.load,
                declared.implementation,
            )
        finally:
            watch(None)
        return cls(declared, function, watch)

    def call(self, problem: Problem, options: Mapping[str, Any], *, eager: bool = False) -> tuple[Any, Tree]:
        """(loss, grads) as the method returns them, with their form checked.

        JAX methods run under jit where they can, one compiled program per static Spec and options; `eager` forbids it.

        Raises:
            Refuted: the method returned something other than (loss, grads like params), or it fails for this value of
                an option, which is declared legal, while it works for others.
            Fault: the method raised or exited.
        """
        try:
            return self._called(problem, options, eager)
        except Fault as fault:
            jitted = self.declared.framework == "jax" and not eager
            if not (jitted and self._answers(problem, options)):  # jit raises an error for an answer of the wrong form
                self.blame(fault, problem, options)
            raise

    def _answers(self, problem: Problem, options: Mapping[str, Any]) -> bool:
        """Whether the method gives an answer without jit. Raises Refuted if the answer is of the wrong form."""
        try:
            self._called(problem, options, True)
        except Fault:
            return False
        return True

    def _called(self, problem: Problem, options: Mapping[str, Any], eager: bool) -> tuple[Any, Tree]:
        run: Callable[..., Any] = functools.partial(self.function, **options)
        if self.declared.framework == "jax" and not eager:
            run = self._jitted(problem, options)
        expected = named_leaves(problem.params)  # before the method can change the tree

        def checked(given: Problem) -> Any:
            answer = run(given)
            check_form(expected, answer)  # under guard, too: an answer may be an object that hangs or raises
            return answer

        answer: tuple[Any, Tree] = self.guard(problem, options, checked, problem)
        return answer

    def gradient(self, problem: Problem, options: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        """Loss and judged leaves of a call, as NumPy on the host."""
        loss, grads = self.call(problem, options)
        return float(loss), split(problem, grads)

    def program(self, what: str, options: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """What `make` made for these options when it was first asked for, such as a program that was compiled."""
        key = what, json.dumps(dict(options), sort_keys=True, default=str)
        if key not in self._programs:
            self._programs[key] = make()
        return self._programs[key]

    def programs(self, what: str) -> list[Any]:
        """All that `program` has made under this name, for whichever options."""
        return [made for (name, _), made in self._programs.items() if name == what]

    def guard(self, problem: Problem, options: Mapping[str, Any], function: Callable[..., Any], *arguments: Any) -> Any:
        """Run ``function(*arguments)``, foreign code of the method, in the problem's precision; errors become Fault."""
        self.watch({"spec": json.loads(problem.spec.to_json()), "options": dict(options)})
        try:
            with restored() as self.changed, precision(problem.backend, problem.dtype):
                authors = (self.declared.implementation, str(getattr(self.function, "__module__", "")))
                return _guarded("the method", authors, _finished, problem.backend, function, *arguments)
        finally:
            self.watch(None)

    def fault_of_reference(self, error: Exception) -> Fault | None:
        """The fault for an error that a pair's reference raised; None if the error is not in its author's files.

        Raises:
            Inapplicable: PyTorch cannot compute it on a CPU in this dtype.
        """
        if not hasattr(self.function, "reference") or type(error).__module__.startswith("gradgate."):
            return None
        if why := no_kernel(error):
            raise Inapplicable(f"the reference: {why}") from error
        at = last_frames(error, self.declared.implementation)
        return Fault(f"the reference {what_happened(error)}", at) if at else None

    def blame(self, fault: Fault, problem: Problem, options: Mapping[str, Any]) -> None:
        """Find out whether a fault is caused by the value of one option, although that value is declared legal.

        Raises:
            Refuted: the method refuses the value with IllegalOption, or gives an answer for another value of the
                option. The message names option and value. Nothing is raised for a value that is not declared, or if
                every value fails.

        Cost: a call for each other legal value until one works, once for each shape and options.
        """
        legal = {
            option.name: list(option.values(problem.spec)) for option in self.declared.options if option.name in options
        }
        if not legal or any(not _among(options[name], values) for name, values in legal.items()):
            return
        if isinstance(fault.__cause__, IllegalOption):
            message = first_line(fault.__cause__)
            named = [name for name in legal if re.search(rf"\b{re.escape(name)}\b", message)]
            told = " and ".join(self._declared(name, options) for name in named or legal)
            raise Refuted(f"{told}, but the method refuses it: {message}{fault.at}")
        key = problem.spec.static().to_json() + json.dumps(dict(options), sort_keys=True, default=str)
        if key not in self._working:
            self._working[key] = self._spared(problem, options, legal)
        if self._working[key]:
            name, _, other = self._working[key].partition("=")
            told = self._declared(name, options)
            raise Refuted(f"{told}, but with it {fault.sentence}; with {name}={other} it gives an answer{fault.at}")

    def _declared(self, name: str, options: Mapping[str, Any]) -> str:
        [legal] = [option.legal for option in self.declared.options if option.name == name]
        return f"{name}={options[name]!r} is declared legal ({legal})"

    def _spared(self, problem: Problem, options: Mapping[str, Any], legal: Mapping[str, list[Any]]) -> str:
        """A legal value of one option with which the method does not fail, such as ``chunk=1``; "" if there is none."""
        for name, values in legal.items():
            for other in values:
                if _among(other, [options[name]]):
                    continue
                with contextlib.suppress(Refuted):  # an answer of the wrong form is an answer
                    if not self._answers(problem, {**options, name: other}):
                        continue
                return f"{name}={other!r}"
        return ""

    def _jitted(self, problem: Problem, options: Mapping[str, Any]) -> Callable[..., Any]:
        """The jitted method; or the method without jit, if JAX cannot trace it and it does not claim jit."""
        import jax

        def made() -> Callable[..., Any]:
            plain = functools.partial(self.function, **options)
            jitted = shared(plain)
            if "jit" not in self.declared.composes:
                try:
                    self.guard(problem, options, jitted, problem)
                except Fault as fault:
                    if not isinstance(fault.__cause__, (jax.errors.JAXTypeError, jax.errors.JAXIndexError)):
                        raise
                    return plain
            return jitted

        found: Callable[..., Any] = self.program("jitted", options, made)
        return found


def _finished(backend: str, function: Callable[..., Any], *arguments: Any) -> Any:
    result = function(*arguments)
    if backend == "jax":
        import jax

        jax.block_until_ready(result)  # otherwise an error, or a hang, would occur outside the guard
    return result


def _among(value: Any, values: Sequence[Any]) -> bool:
    """Whether a value is one of these, and of the same kind: neither True nor 1.0 is 1."""
    return any(_kind(value) is _kind(one) and value == one for one in values)


def _kind(value: Any) -> type:
    return next((kind for kind in (bool, numbers.Integral, numbers.Real) if isinstance(value, kind)), type(value))


def _guarded(who: str, authors: tuple[str, ...], function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (Fault, Refuted, Inapplicable):
        raise
    except BaseException as error:
        if type(error).__name__ == "UsageError":
            raise
        if why := no_kernel(error):
            raise Inapplicable(why) from error
        raise Fault(f"{who} {what_happened(error)}", last_frames(error, *authors)) from error


def no_kernel(error: BaseException) -> str:
    """Why a function cannot be judged, if PyTorch has no kernel for a narrow dtype on a CPU; else ""."""
    if not isinstance(error, (NotImplementedError, RuntimeError)):
        return ""
    said = first_line(error)
    if not re.search(r"_cpu\S* not implemented for '(BFloat16|Half)'", said):
        return ""
    return f"PyTorch cannot compute it on a CPU in this dtype: {said}; {NARROW}"


def what_happened(error: BaseException) -> str:
    """What foreign code did, such as ``raised ValueError: no``, and what to do if it supports no narrow dtype."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({repr_short(error.code)})"
    if isinstance(error, KeyboardInterrupt):
        return "raised KeyboardInterrupt"
    if isinstance(error, MemoryError):
        return "ran out of memory (MemoryError)"
    said = f"raised {type(error).__name__}: {first_line(error)}"
    if re.search("bfloat16|float16|half", said, re.IGNORECASE):
        return f"{said}; {NARROW}"
    if re.search("has been (deleted|donated)", said):
        return f"{said}; {DONATES}"
    mixed = ("float32" in said and "float64" in said) or "float != double" in said or "double != float" in said
    return f"{said}; {ONLY}" if mixed else said


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, cut to 300 characters; even making the message may raise."""
    try:
        lines = str(error).strip().splitlines()
    except BaseException as another:
        return f"(its message raises {type(another).__name__})"
    return lines[0][:300] if lines else "(no message)"


def check_form(expected: Mapping[str, Any], answer: Any) -> None:
    """Check that an answer is (scalar loss, grads shaped like ``problem.params``), in the problem's dtype and backend.

    Args:
        expected: leaf path -> leaf of ``problem.params``.

    Raises:
        Refuted: the message says which part is wrong, what was expected and what was returned.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        came = (
            f"a {type(answer).__name__} of {len(answer)}" if isinstance(answer, (tuple, list)) else repr_short(answer)
        )
        raise Refuted(f"the method returned {came}; a method returns (loss, grads)")
    loss, grads = answer
    if grads is None:
        raise Refuted("the method returned None for grads; expected a tree like problem.params")
    got = named_leaves(grads)
    missing, extra = sorted(expected.keys() - got.keys()), sorted(got.keys() - expected.keys())
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has {', '.join(extra)} besides"] if extra else []
        raise Refuted(
            f"wrong tree: grads {' and '.join(parts)}; expected the leaves of problem.params", next(iter(missing), "")
        )
    _check_leaf("loss", loss, next(iter(expected.values())), ())
    for name, like in expected.items():
        _check_leaf(name, got[name], like, tuple(like.shape))


def _check_leaf(name: str, leaf: Any, like: Any, shape: tuple[int, ...]) -> None:
    def wrong(said: str) -> Refuted:
        return Refuted(said, "" if name == "loss" else name)

    module = type(like).__module__.partition(".")[0].replace("jaxlib", "jax")
    kind = type(leaf).__module__.partition(".")[0].replace("jaxlib", "jax")
    if leaf is None:
        what = "the loss is None" if name == "loss" else f"{name} {MISSING}"
        raise wrong(f"{what}; None came in place of an array of shape {shape}")
    if kind != module or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise wrong(f"{name} is {repr_short(leaf)} of {kind}; expected an array of {module}")
    if tuple(leaf.shape) != shape:
        raise wrong(f"wrong shape: {name} has shape {tuple(leaf.shape)}; expected {shape}")
    if leaf.dtype != like.dtype:
        raise wrong(f"wrong dtype: {name} is {leaf.dtype}; expected {like.dtype}")
    if module == "torch" and (leaf.device, leaf.layout) != (like.device, like.layout):
        raise wrong(f"{name} is {leaf.layout} on {leaf.device}; expected {like.layout} on {like.device}")


def repr_short(value: Any) -> str:
    """A value's repr, cut to one short line; the value's type if repr raises."""
    try:
        text = " ".join(repr(value).split())
    except BaseException:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def build(subject: Subject, spec: Spec) -> Problem:
    """The Problem of a Spec in the subject's framework."""
    return spec.build(subject.declared.framework)  # type: ignore[arg-type]
