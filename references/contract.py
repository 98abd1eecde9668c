"""The contract between problems, methods and the suite.

A *Spec* is plain numbers and strings and builds one *Problem*. A *Method* is a callable
``(problem, **options) -> (loss, grads)``. A *Claim* is one promise of a method, with its source. A *Family* is a class
of problems with the methods and claims of one paper. Families and methods name their implementations as strings, so
that declaring them imports neither JAX nor PyTorch.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from gradgate.hw_profiles.calls import OnCall
from gradgate.references.backends import PROBLEM_CLASSES, Tree, mark_calls, namespace
from gradgate.references.errors import IllegalOption, NotComposable, UsageError, check_integer, unknown
from gradgate.references.law_kinds import Law
from gradgate.references.plugged import DTYPES, TRANSFORMATIONS, method
from gradgate.references.trial import Trial

__all__ = [
    "DTYPES", "FRAMEWORKS", "TRANSFORMATIONS", "Backend", "Claim", "Expected", "Family", "IllegalOption", "Method",
    "NotComposable", "Option", "Problem", "Spec", "Tree", "Trial", "UsageError", "check_integer", "countable",
    "counting", "installed", "method", "unknown", "value_field",
]  # fmt: skip

Backend = Literal["jax", "torch", "numpy"]
Expected = Literal["upheld", "refuted"]
FRAMEWORKS = ("jax", "torch")


def value_field(default: Any) -> Any:
    """A Spec field that changes numbers only, never a shape: programs compiled for one value serve every other."""
    return field(default=default, metadata={"value": True})


@dataclass(frozen=True)
class Spec:
    """Plain numbers and strings that build one Problem; its JSON form is enough to reproduce it.

    Subclasses add the structural fields and override `validate` and `build`.

    Attributes:
        dtype: ``float32``, ``float64``, ``bfloat16``, or ``longdouble`` (NumPy only).
        seed: seeds every random number of the Problem.
        upstream: the factor c of the loss c·L, by which a method's handling of the upstream cotangent is checked.
    """

    dtype: str = "float64"
    seed: int = value_field(0)
    upstream: float = value_field(1.0)

    def __post_init__(self) -> None:
        """Check every field at once, so that an impossible Spec never builds.

        Raises:
            UsageError: names the field, the value and the legal values.
        """
        for item in dataclasses.fields(self):
            value, kind = getattr(self, item.name), getattr(item.type, "__name__", item.type)
            if kind == "str" and not isinstance(value, str):
                raise UsageError(f"{item.name} must be a string, not {value!r}")
            if kind == "int" and (not isinstance(value, int) or isinstance(value, bool)):
                raise UsageError(f"{item.name} must be an integer, not {value!r}")
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if kind == "float" and not (number and abs(value) < 1e30):
                raise UsageError(f"{item.name} must be a finite number, not {value!r}")
        if self.dtype not in ("float32", "float64", "bfloat16", "longdouble"):
            raise unknown("dtype", self.dtype, ("float32", "float64", "bfloat16", "longdouble"))
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must lie in 0 … 2**63 - 1, not {self.seed}")
        self.validate()

    def validate(self) -> None:
        """Raise UsageError for a combination of fields that builds no legal Problem."""

    def build(self, backend: Backend) -> Problem:
        """The Problem in one backend. The numbers do not depend on the backend nor, but for rounding, on the dtype."""
        raise NotImplementedError

    def work(self) -> float:
        """Multiplications of the plain loss, about; 0 where every Problem is small enough for sixty digits."""
        return 0.0

    def layout(self) -> tuple[type[Problem], Tree, dict[str, Any]] | None:
        """The Problem's class, and params and data as draws (`draws`); None: only building tells their shapes."""
        return None

    def static(self) -> Spec:
        """This Spec without what changes numbers only: equal for two Specs that share compiled programs."""
        return _static(self)

    def to_json(self) -> str:
        """One line of JSON from which `from_json` makes an equal Spec."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """The Spec of `to_json`.

        Raises:
            UsageError: not JSON, an unknown field (the nearest is named), or an impossible value.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"a Spec is a JSON object such as {cls().to_json()}; {text!r} is not JSON: {error}"
            ) from None
        if not isinstance(fields, dict):
            raise UsageError(f"a Spec is a JSON object, not {text!r}")
        legal = [f.name for f in dataclasses.fields(cls)]
        for name in fields:
            if name not in legal:
                raise unknown("Spec field", name, legal)
        return cls(**fields)


@functools.lru_cache(maxsize=4096)
def _static(spec: Spec) -> Spec:
    values: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(spec) if f.metadata.get("value")}
    return dataclasses.replace(spec, **values)


@dataclass(frozen=True)
class Problem:
    """A scalar loss with the structure that a class of methods exploits.

    Under JAX a Problem is a pytree (children `params` and `data`, the static Spec as metadata), so ``jax.jit(method)``
    takes one directly, and Problems of equal static Spec share compiled programs.

    Attributes:
        spec: what built it. Inside a trace only its structural fields are meaningful.
        backend: ``jax``, ``torch`` or ``numpy``.
        params: tree of arrays in `dtype`; gradients have this shape.
        data: dict of arrays that need no gradient.
    """

    spec: Any
    backend: Backend
    params: Tree
    data: dict[str, Any]

    stacked: ClassVar[tuple[str, ...]] = ()
    """Keys of `params` whose leaves are per layer along axis 0; gradients are then judged layer by layer."""
    nets: ClassVar[Mapping[str, str]] = {}
    """Methods whose evaluations, JVPs and VJPs are counted -> the names under which they are."""
    on_call: ClassVar[Any] = None
    """What `counted` was given, for methods that run nets in other processes and report them from here."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register every subclass as a JAX pytree once JAX is first used, and make its `nets` countable."""
        super().__init_subclass__(**kwargs)
        PROBLEM_CLASSES.append(cls)
        countable(cls)

    @property
    def dtype(self) -> str:
        """Name of the dtype of every floating leaf."""
        return str(self.spec.dtype)

    @property
    def xp(self) -> Any:
        """The Array API namespace of this Problem's backend."""
        return namespace(self.backend)

    def loss(self, params: Tree) -> Any:
        """The scalar loss at `params`: what the oracle differentiates."""
        raise NotImplementedError

    def rerounded(self, amount: Any) -> Self:
        """This Problem computed another way, on which `loss` does not depend but its rounding does.

        If backprop's terms happen to cancel exactly, as in a row of softmax with one score, its noise misses the
        rounding error of a method that sums in another order. So the oracle measures its noise on these too.

        Args:
            amount: how far, a number in [0, 1), an array of the backend's; another for each run.
        """
        return self

    def with_params(self, params: Tree) -> Self:
        """The same Problem at other parameters."""
        return self._replace(params=params)

    def counted(self, on_call: OnCall | None) -> Self:
        """The same Problem, whose `nets` tell ``on_call(net, kind, number)`` of their calls.

        In PyTorch they do so while the program runs. A JAX program is only marked: ``hw_profiles.call_count`` reads the
        calls from its text, and an evaluator of jaxprs calls `on_call`.

        Args:
            on_call: receives the net's name, the kind of call, ``evaluations``, ``jvps`` or ``vjps``, and how many of
                them were made at once, by `positions`; None: nothing is counted.

        Cost: an identity with rules of its own around each net; numbers are unchanged.
        """
        return self._replace(on_call=on_call)

    def positions(self, net: str, *args: Any) -> int:
        """How many calls of a net one call with these arguments counts as, such as the tokens that it is given."""
        return 1

    def _replace(self, **changes: Any) -> Self:
        clone = copy.copy(self)  # keeps `on_call`, which dataclasses.replace would drop
        for name in [n for n in vars(clone) if isinstance(getattr(type(self), n, None), functools.cached_property)]:
            object.__delattr__(clone, name)  # computed from what is about to change
        for name, value in changes.items():
            object.__setattr__(clone, name, value)
        return clone


def countable(cls: type) -> None:
    """Make the methods that a class lists in its own `nets` tell of their calls, where an instance has an `on_call`."""

    def told(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return counting(self, functools.partial(original, self), name)(*args, **kwargs)

        return call

    for attribute, name in vars(cls).get("nets", {}).items():
        setattr(cls, attribute, told(getattr(cls, attribute), name))


def counting(owner: Any, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function` as it is; where its owner has an `on_call`, a function that tells of its calls under a name.

    Args:
        owner: a Problem, or another object with its ``backend``, ``on_call`` and ``positions``.
    """
    if owner.on_call is None:
        return function

    def weight(*args: Any, **_: Any) -> int:
        return int(owner.positions(name, *args))

    return mark_calls(owner.backend, function, name, owner.on_call, weight)


@dataclass(frozen=True)
class Option:
    """One option of a method.

    Attributes:
        name: keyword of the method.
        legal: the legal values in words, used in messages and in ``gradgate list``.
        values: Spec -> legal values to try, ragged ones included; the first is the simplest.
        illegal: values that the method must refuse with IllegalOption.
        usual: Spec -> the value at which memory and work are measured unless told; None: the first of `values`.
    """

    name: str
    legal: str
    values: Callable[[Any], Sequence[Any]]
    illegal: Sequence[Any] = ()
    usual: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Claim:
    """One promise of a method, with its source.

    Attributes:
        name: stable name, used in verdicts.
        check: name of the check that judges it (`gradgate.suites.checks`).
        statement: the promise in one sentence.
        source: paper and equation, or "contract" for what every method owes.
        expected: ``refuted`` for a claim that is known to be false; `declared_reason` then says why.
        declared_reason: why the claim is false; "" for a claim that is expected to hold.
        where: Spec fields that the claim is restricted to; a value may be a tuple of alternatives.
        settings: arguments of the check; every check reads ``options`` of these, the method's options that are fixed,
            and those about the gradient ``kappa`` and ``rounding``, in place of the method's.
        law: what a claim about memory or work says (`gradgate.references.laws`); None for every other claim.
    """

    name: str
    check: str
    statement: str
    source: str
    expected: Expected = "upheld"
    declared_reason: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    law: Law | None = None


@dataclass(frozen=True)
class Method:
    """A method as declared: where it is implemented and what it promises.

    Attributes:
        implementation: ``package.module:function`` or ``file.py:function``.
        oracle: name of the Problem's function whose gradient this method claims to compute; options of the method that
            are not in the plain loss, such as a window, are passed to it by keyword.
        kappa: beyond 16, how much more of its own rounding the method may lose (the rule of equality,
            `gradgate.suites.judging.tolerance`).
        rounding: for a method that is allowed to lose digits, name of the Problem's loss that rounds as it does, of
            (params, amount): κ multiplies how far plain backprop of that strays (`oracle.measure`). "": it multiplies
            the noise of the plain loss.
        composes: transformations that must work: ``jit``, ``vmap``, ``second_order``.
        disclaims: transformations that must be refused.
        sharded: ``module:function`` of (Problem of shapes, **options) -> (program, arguments, arguments of
            ``hw_profiles.compile.measure``), for a method over several devices; "": the method itself is measured.
        unmeasured: why its bytes and work cannot be measured; "": they can.
        dtypes: those that it supports, float64 among them.
    """

    family: str
    name: str
    framework: str
    implementation: str
    claims: tuple[Claim, ...] = ()
    options: tuple[Option, ...] = ()
    oracle: str = "loss"
    kappa: float = 16.0
    rounding: str = ""
    composes: tuple[str, ...] = ()
    disclaims: tuple[str, ...] = ()
    sharded: str = ""
    unmeasured: str = ""
    dtypes: tuple[str, ...] = DTYPES

    @property
    def key(self) -> str:
        """``family:name:framework``, unique in a run."""
        return f"{self.family}:{self.name}:{self.framework}"

    def claim(self, name: str) -> Claim:
        """The claim of that name.

        Raises:
            UsageError: no such claim; lists those there are.
        """
        for claim in self.claims:
            if claim.name == name:
                return claim
        raise unknown(f"claim of {self.family}:{self.name}", name, [c.name for c in self.claims])


@dataclass(frozen=True)
class Family:
    """A class of problems, the methods of one paper on it, and what is claimed of them.

    Attributes:
        paper: citation of the source.
        spec: ``package.module:SpecClass``, or the class itself where it is made on the spot.
        methods: every method in every framework.
        shapes: settings of the structural Spec fields, from the smallest to the largest, edge cases included: the
            vocabulary from which strategies draw. Small, so that compiled programs are reused.
        values: value field -> (low, high), drawn freely.
        stress: Spec fields of problems that are hard on rounding, for the stability check.
        letters: the paper's letter -> the Spec field that it stands for.
        measured: Spec fields of the problem whose bytes and work are measured unless told, one field of it swept.
        eager: those of `measured` that are smaller where the gate runs a program to measure it (PyTorch).
        trial: where the suite's own trial plants bugs in its methods.
        origin: ``package.module:FAMILY`` or ``path:FAMILY`` of a class that is not gradgate's own, by which another
            process finds it (`registry.register`).
    """

    name: str
    paper: str
    spec: str | type[Spec]
    methods: tuple[Method, ...]
    shapes: tuple[Mapping[str, Any], ...]
    values: Mapping[str, tuple[float, float]]
    stress: tuple[Mapping[str, Any], ...] = ()
    letters: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    eager: Mapping[str, Any] = field(default_factory=dict)
    trial: Trial = field(default_factory=Trial)
    origin: str = ""

    @property
    def address(self) -> str:
        """By which any process finds it (`registry.family`): its origin, or its name where it is gradgate's own."""
        return self.origin or self.name


def installed(framework: str) -> bool:
    """Whether a framework can be imported, without importing it."""
    return importlib.util.find_spec(framework) is not None
