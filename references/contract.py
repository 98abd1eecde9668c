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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from gradgate.hw_profiles.calls import OnCall
from gradgate.references.backends import PROBLEM_CLASSES, Tree, mark_calls, namespace
from gradgate.references.claim import Claim, Expected, Option
from gradgate.references.errors import IllegalOption, NotComposable, UsageError, check_integer, unknown
from gradgate.references.plugged import DTYPES, TRANSFORMATIONS, method
from gradgate.references.trial import Trial

__all__ = [
    "DTYPES",
    "FRAMEWORKS",
    "TRANSFORMATIONS",
    "Backend",
    "Claim",
    "Expected",
    "Family",
    "IllegalOption",
    "Method",
    "NotComposable",
    "Option",
    "Problem",
    "Spec",
    "Tree",
    "Trial",
    "UsageError",
    "check_integer",
    "countable",
    "counting",
    "installed",
    "method",
    "unknown",
    "value_field",
]

Backend = Literal["jax", "torch", "numpy"]
FRAMEWORKS = ("jax", "torch")


def value_field(default: Any) -> Any:
    """A Spec field that changes numbers only, never a shape: a program compiled for one value serves every value."""
    return field(default=default, metadata={"value": True})


@dataclass(frozen=True)
class Spec:
    """Plain numbers and strings that build one Problem; its JSON form is enough to reproduce it.

    Subclasses add the structural fields and override `validate` and `build`.

    Attributes:
        dtype: ``float32``, ``float64``, ``bfloat16``, ``float16`` (pairs only), or ``longdouble`` (NumPy only).
        seed: seeds every random number of the Problem.
        upstream: the factor c of the loss c·L, by which a method's handling of the upstream cotangent is checked.
        listed: whether every size is a choice of its own, as in a pair's dims; otherwise only 1, few and many differ.
        foreign: whether the loss is a user's own code, which may call kernels.
    """

    listed: ClassVar[bool] = False
    foreign: ClassVar[bool] = False

    dtype: str = "float64"
    seed: int = value_field(0)
    upstream: float = value_field(1.0)

    widest: ClassVar[str] = "float64"
    """The widest dtype in which the plain loss can be computed. Sixty digits ignore it, and floats never leave it."""

    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "longdouble")
    """Legal values of `dtype`."""

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
        if self.dtype not in self.dtypes:
            raise unknown("dtype", self.dtype, self.dtypes)
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must lie in 0 … 2**63 - 1, not {self.seed}")
        self.validate()

    def validate(self) -> None:
        """Raise UsageError for a combination of fields that builds no legal Problem."""

    def build(self, backend: Backend) -> Problem:
        """The Problem in one backend. Every backend gets the same numbers; a dtype only rounds them differently."""
        raise NotImplementedError

    def work(self) -> float:
        """About how many multiplications the plain loss takes; 0 if all Problems are small enough for sixty digits."""
        return 0.0

    def layout(self) -> tuple[type[Problem], Tree, dict[str, Any]] | None:
        """The Problem's class, and params and data as draws (`draws`); None: their shapes are known only when built."""
        return None

    def static(self) -> Spec:
        """This Spec with its value fields at their defaults: equal for two Specs that share compiled programs."""
        return _static(self)

    def to_json(self) -> str:
        """One line of JSON from which `from_json` makes an equal Spec."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """The Spec that `to_json` wrote.

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
    """Methods whose evaluations, JVPs and VJPs are counted -> the names under which they are counted."""
    on_call: ClassVar[Any] = None
    """What `counted` was given. Methods that run nets in other processes report their calls to it in this process."""

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
        """This Problem computed in another way: `loss` is the same in exact arithmetic, but rounds differently.

        The terms of backprop may happen to cancel exactly, as in a row of softmax with one score. Its noise is then
        smaller than the rounding error of a method that sums in another order. So the oracle measures noise here too.
        Inputs that are no parameters may also be moved by two roundoffs, as the oracle moves the parameters; then the
        loss differs by that.

        Args:
            amount: how different the computation is: a number in [0, 1), as an array of the backend; each run has its
                own.
        """
        return self

    def with_params(self, params: Tree) -> Self:
        """The same Problem with other parameters."""
        return self._replace(params=params)

    def counted(self, on_call: OnCall | None) -> Self:
        """The same Problem, whose `nets` report their calls to ``on_call(net, kind, number)``.

        In PyTorch they do so while the program runs. A JAX program is only marked: ``hw_profiles.call_count`` reads the
        calls from its text, and an evaluator of jaxprs calls `on_call`.

        Args:
            on_call: receives the net's name, the kind of call, ``evaluations``, ``jvps`` or ``vjps``, and how many of
                them were made at once, by `positions`; None: nothing is counted.

        Cost: an identity with rules of its own around each net; numbers are unchanged.
        """
        return self._replace(on_call=on_call)

    def positions(self, net: str, *args: Any) -> int:
        """How many calls of a net one call with these arguments counts as, such as the number of tokens."""
        return 1

    def _replace(self, **changes: Any) -> Self:
        clone = copy.copy(self)  # keeps `on_call`, which dataclasses.replace would drop
        for name in [n for n in vars(clone) if isinstance(getattr(type(self), n, None), functools.cached_property)]:
            object.__delattr__(clone, name)  # computed from what is about to change
        for name, value in changes.items():
            object.__setattr__(clone, name, value)
        return clone


def countable(cls: type) -> None:
    """Make the methods that a class lists in its own `nets` report their calls if an instance has an `on_call`."""

    def reporting(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return counting(self, functools.partial(original, self), name)(*args, **kwargs)

        return call

    for attribute, name in vars(cls).get("nets", {}).items():
        setattr(cls, attribute, reporting(getattr(cls, attribute), name))


def counting(owner: Any, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that reports its calls under a name if `owner` has an `on_call`; otherwise `function` itself.

    Args:
        owner: a Problem, or another object with its ``backend``, ``on_call`` and ``positions``.
    """
    if owner.on_call is None:
        return function

    def weight(*args: Any, **_: Any) -> int:
        return int(owner.positions(name, *args))

    return mark_calls(owner.backend, function, name, owner.on_call, weight)


@dataclass(frozen=True)
class Method:
    """A method as declared: where it is implemented and what it promises.

    Attributes:
        implementation: ``package.module:function`` or ``file.py:function``.
        oracle: name of the Problem's function whose gradient this method claims to compute; options of the method that
            are not in the plain loss, such as a window, are passed to it by keyword.
        kappa: κ in the rule of equality (`gradgate.suites.judging.tolerance`): the bound grows by κ − 16 times the
            method's own rounding.
        rounding: for a method that is allowed to lose digits, the name of the Problem's loss, a function of (params,
            amount), that rounds as the method does. The method's own rounding is the error of plain backprop of that
            loss (`oracle.measure`). "": it is the noise of the plain loss.
        composes: transformations that must work: ``jit``, ``vmap``, ``second_order``.
        disclaims: transformations that must be refused.
        sharded: ``module:function`` of (Problem of shapes, **options) -> (program, arguments, arguments of
            ``hw_profiles.compile.measure``), for a method over several devices; "": the method itself is measured.
        unmeasured: why its bytes and work cannot be measured; "": they can.
        dtypes: the dtypes that it supports; float64 is always one of them.
        measured: fields of the problem at which it is gated that differ from its family's, for a method whose work
            grows faster than that of the others.
        left_out: quantity -> why a pair leaves it out of what is measured; the gate shows it.
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
    measured: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``family:name:framework``, unique in a run."""
        return f"{self.family}:{self.name}:{self.framework}"

    def claim(self, name: str) -> Claim:
        """The claim of that name.

        Raises:
            UsageError: there is no such claim; the message lists the claims of the method.
        """
        for claim in self.claims:
            if claim.name == name:
                return claim
        raise unknown(f"claim of {self.family}:{self.name}", name, [c.name for c in self.claims])


@dataclass(frozen=True)
class Setting:
    """One of several problems at which a method is measured.

    Attributes:
        name: what distinguishes it, such as ``T=4096 chunk=64``.
        fields: Spec fields that differ from those of `Family.measured`.
        options: options of the method that differ from the usual ones.
    """

    name: str
    fields: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """A class of problems, the methods of one paper on it, and what is claimed of them.

    Attributes:
        paper: citation of the source.
        spec: ``package.module:SpecClass``, or the class itself if it is made at run time.
        methods: every method in every framework.
        shapes: settings of the structural Spec fields, from the smallest to the largest, edge cases included.
            Strategies draw from them. There are few, so that compiled programs are reused.
        values: value field -> (low, high), drawn freely.
        stress: Spec fields of problems that are hard on rounding, for the stability check.
        letters: the paper's letter -> the Spec field that it stands for.
        measured: Spec fields of the problem whose bytes and work are measured by default, while one field is swept.
        eager: smaller values of fields of `measured`, for PyTorch, where the gate runs a program to measure it.
        trial: where the trial of the suite itself plants bugs in its methods.
        origin: ``package.module:FAMILY`` or ``path:FAMILY`` of a class that is not part of gradgate; other processes
            find the class by it (`registry.register`).
        settings: the problems at which it is measured, if there are several or if they set options; (): `measured`.
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
    settings: tuple[Setting, ...] = ()

    @property
    def address(self) -> str:
        """What any process finds it by (`registry.family`): its origin, or its name if it is part of gradgate."""
        return self.origin or self.name


def installed(framework: str) -> bool:
    """Whether a framework can be imported, without importing it."""
    return importlib.util.find_spec(framework) is not None
