"""A user's own model as a problem of an existing class, so that the class's reference methods can solve it.

``file.py:Model@bilevel`` names one wherever a class of problems is named. It is lowered to a Family at run time. The
fields of its Spec are the model's sizes; its methods are those of the class in the model's framework.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gradgate.references import registry
from gradgate.references.backends import named_leaves, precision, to_backend, tree_map
from gradgate.references.claims import contract_claims
from gradgate.references.contract import Backend, Family, Method, Option, Problem, Spec, Tree, UsageError, unknown
from gradgate.references.draws import Constant, Shaped, rounded
from gradgate.references.own_model import Model, Parts, filled

IN = "@"
"""Separates a model from the class that it is put in."""
SERVED = {
    "bilevel": "gradgate.references.bilevel.own_models:OWN",
    "chain": "gradgate.references.chain.own_models:OWN",
    "invertible": "gradgate.references.invertible.own_models:OWN",
    "state_space": "gradgate.references.state_space.own_models:OWN",
}
"""Class that takes a user's own problem -> the target of its `Own`, which says how."""
NOT_SERVED = {
    "performer": "its methods take the kernel's features and their prefix sums as separate parts, so a model would "
    "have to be written in terms of these; judge your model with gradgate.Pair instead"
}
JUDGED = (
    "tree",
    "value",
    "gradient_exact",
    "gradient_float64",
    "upstream",
    "gradient_float32",
    "deterministic",
    "pure",
    "options",
)
"""The contract's claims that make sense for a single problem."""
DTYPES = ("float64", "float32")
AFFORDABLE = 1e8
"""The most FLOPs of a loss that is computed in sixty digits: 6e7, in products of matrices, took 16 s in JAX."""
SEVERAL = "it runs on several devices; methods for your model are compared on one device"


@dataclass(frozen=True)
class Own:
    """How a class of problems takes a user's model.

    Attributes:
        problem: the class's Problem with the model's functions in place of its own; also a subclass of `OwnProblem`.
        spec: the class's Spec; the sizes that methods and options read are properties. A subclass of `OwnSpec`.
        needs: attribute that a model must have besides ``params`` -> what it is, in words.
        params: what ``params`` is.
        prepare: changes a made model before it is taken apart.
        check: raises UsageError if a Problem of the model, of shapes or of numbers, cannot be of this class.
        unfit: (method, Spec) -> why that method cannot take the model; "": it can.
        options: (method, Spec) -> the options that make sense for the model.
        arranged: params as the user has them -> params as the class's methods take them.
    """

    problem: type[Problem]
    spec: type[OwnSpec]
    needs: Mapping[str, str]
    params: str
    prepare: Callable[[Any], None] = lambda made: None
    check: Callable[[Any], None] = lambda problem: None
    unfit: Callable[[Method, Any], str] = lambda method, spec: ""
    options: Callable[[Method, Any], tuple[Option, ...]] = lambda method, spec: method.options
    arranged: Callable[[Tree], Tree] = lambda params: params


@dataclass(frozen=True)
class OwnSpec(Spec):
    """The Spec of a user's model. Each model has a subclass, which adds the model's sizes."""

    foreign: ClassVar[bool] = True
    model: ClassVar[Any] = None
    served: ClassVar[Any] = None
    framework: ClassVar[str] = ""

    @property
    def sizes(self) -> dict[str, Any]:
        """What the model is called with."""
        return {name: getattr(self, name) for name in self.model.sizes}

    @property
    def shapes(self) -> Parts:
        """The model at these sizes, with shapes in place of arrays; cached."""
        cls: Any = type(self)
        return _shapes(cls, tuple(self.sizes.items()))

    def layout(self) -> tuple[type[Problem], Tree, dict[str, Any]]:
        """The shapes of the Problem, without its numbers."""
        parts = self.shapes

        def typed(leaf: Shaped) -> Shaped:
            return Shaped(leaf.shape, leaf.dtype or self.dtype)

        data = {name: tree_map(typed, tree) for name, tree in parts.data.items()}
        return self.served.problem, tree_map(typed, parts.params), {**data, "upstream": Constant(self.upstream)}

    def build(self, backend: Backend) -> Problem:
        """The Problem with the numbers that the model has for this seed, rounded to float32 first.

        Raises:
            UsageError: the backend is neither the model's nor NumPy; or the model raises, which the message reports.
        """
        import numpy as np

        if backend not in (self.framework, "numpy"):
            raise UsageError(f"{self.model.target} is written in {self.framework}; it cannot be built in {backend}")
        self.shapes  # noqa: B018 - known before a method is traced, or run on fake tensors
        cls: Any = type(self)
        params, data = _numbers(cls, tuple(self.sizes.items()), self.seed)

        def cast(leaf: Any) -> Any:
            if leaf.dtype.kind != "f":
                narrow = leaf.dtype.kind in "iu" and self.framework == "jax"
                return to_backend(backend, leaf.astype(np.int32) if narrow else leaf)
            return to_backend(backend, rounded(leaf, self.dtype), self.dtype)

        with precision(backend, self.dtype):
            upstream = to_backend(backend, rounded(np.asarray(self.upstream), self.dtype), self.dtype)
            built: Problem = self.served.problem(
                self, backend, tree_map(cast, params), {**tree_map(cast, data), "upstream": upstream}
            )
            return built


class OwnProblem:
    """What every Problem of a user's model has. In a subclass, the class's Problem is the second base."""

    spec: Any
    data: dict[str, Any]

    @property
    def given(self) -> Any:
        """The user's model with the arrays of this Problem."""
        return filled(self.spec.shapes.template, self.data)

    def scaled(self, loss: Any) -> Any:
        """A loss times ``upstream``."""
        return self.data["upstream"] * loss

    def rerounded(self, amount: Any) -> Any:
        """The Problem itself, because no other way to compute a user's model is known."""
        return self


@functools.lru_cache(maxsize=64)
def _shapes(cls: Any, sizes: tuple[tuple[str, Any], ...]) -> Parts:
    parts = cls.model.shaped(dict(sizes), cls.framework)
    return dataclasses.replace(parts, params=cls.served.arranged(parts.params))


@functools.lru_cache(maxsize=32)
def _numbers(cls: Any, sizes: tuple[tuple[str, Any], ...], seed: int) -> tuple[Tree, dict[str, Tree]]:
    parts = cls.model.made(dict(sizes), seed)
    return cls.served.arranged(parts.params), parts.data


def address(problem: str, family: str | None) -> str:
    """The name under which any command finds a user's model in a class: ``mine.py:Model@bilevel``.

    Raises:
        UsageError: no class is named, or a class that takes no user's problem; the message says why.
    """
    legal = " | ".join(SERVED)
    if not family:
        raise UsageError(f"say which class {problem} is a problem of: --family {legal}")
    if family in NOT_SERVED:
        raise UsageError(f"{family} takes no problem of your own: {NOT_SERVED[family]}; legal: {legal}")
    if family not in SERVED:
        raise unknown("class for a problem of your own", family, SERVED)
    if ":" not in problem:
        raise UsageError(f"--problem is file.py:Model or package.module:Model, not {problem!r}")
    return f"{problem}{IN}{family}"


@functools.lru_cache(maxsize=32)
def lowered(target: str) -> Family:
    """The class of problems of one model: ``place:Model@family``.

    Raises:
        UsageError: there is no such model or class, or the model lacks something; the message says what it must have.
    """
    place, _, family = target.rpartition(IN)
    address(place, family)
    own: Own = registry.load(SERVED[family])
    model = Model.of(place, registry.load(place), own.prepare)
    spec = _spec_class(model, own, family)
    _check(spec, own)
    name = f"{place.rpartition(':')[2]}_in_{family}"
    usual = spec()
    classed = registry.family(family)
    mine = [m for m in classed.methods if m.framework == spec.framework]
    methods = tuple(_method(name, m, own, usual) for m in mine if not why_not(m, own, usual))
    letters = {short: field for short, field in classed.letters.items() if field in model.sizes}
    shapes = (dict(model.sizes),)
    return Family(
        name,
        f"methods of {family}: {classed.paper}",
        spec,
        methods,
        shapes,
        {},
        (),
        letters,
        {**model.sizes, "dtype": "float32"},
        origin=target,
    )


def left_out(target: str) -> dict[str, str]:
    """Method of the class, in the model's framework -> why it cannot take this model. A claim may be left out too."""
    spec: Any = registry.spec_class(lowered(target).name)
    family = target.rpartition(IN)[2]
    found: dict[str, str] = {}
    if not _affordable(spec()):
        found["gradient_exact"] = f"its loss takes over {AFFORDABLE:.0g} FLOPs; make the default sizes smaller"
    for method in registry.family(family).methods:
        reason = why_not(method, spec.served, spec()) if method.framework == spec.framework else ""
        if reason:
            found[method.name] = reason
    return found


def why_not(method: Method, own: Own, spec: OwnSpec) -> str:
    """Why a reference method does not solve a user's model; "" if it does."""
    wrong = [c for c in method.claims if c.name == "gradient_float64" and c.expected == "refuted"]
    if wrong:
        return f"its gradient is declared not to be that of backprop: {wrong[0].declared_reason}"
    if any(option.name == "devices" for option in method.options):
        return SEVERAL
    return own.unfit(method, spec)


def _method(family: str, method: Method, own: Own, spec: OwnSpec) -> Method:
    options = own.options(method, spec)
    gradient = "the gradient of backprop" if method.oracle == "loss" else f"the gradient of {method.oracle}"
    claims = contract_claims(options=options, dtypes=DTYPES, gradient=gradient)
    kept = tuple(c for c in claims if c.name in JUDGED and (c.name != "gradient_exact" or _affordable(spec)))
    return dataclasses.replace(
        method, family=family, claims=kept, options=options, rounding="", composes=(), disclaims=(), dtypes=DTYPES
    )


@functools.lru_cache(maxsize=64)
def _affordable(spec: Any) -> bool:
    """Whether the loss is small enough for sixty digits."""
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    if spec.framework == "jax":
        with precision("jax", spec.dtype):
            flops = work.of(lambda p: p.loss(p.params), (shapes(spec),), x64=spec.dtype == "float64", trips=1).flops
    else:
        flops = work.torch_flops(lambda problem: problem.loss(problem.params), spec.build(spec.framework))
    return flops <= AFFORDABLE


def _spec_class(model: Model, own: Own, family: str) -> Any:
    fields: list[Any] = [
        (name, type(default).__name__, dataclasses.field(default=default)) for name, default in model.sizes.items()
    ]
    with model.in_words(model.sizes):
        parts = model.made(model.sizes, 0)
    missing = [name for name in own.needs if not hasattr(parts.template, name)]
    if missing:
        wanted = [f"params: {own.params}", *(f"{name}: {what}" for name, what in own.needs.items())]
        listed = "".join(f"\n  {line}" for line in wanted)
        raise UsageError(f"{model.target} has no {' and no '.join(missing)}. A model of {family} has{listed}")
    namespace = {"model": model, "served": own, "framework": _framework(model, parts)}
    return dataclasses.make_dataclass(
        f"{family}Spec",
        fields,
        bases=(own.spec,),
        frozen=True,
        namespace={**namespace, "__module__": own.spec.__module__},
    )


def _framework(model: Model, parts: Parts) -> str:
    """The framework of the model's parameters; JAX if they are NumPy arrays, because JAX takes those too."""
    kinds = sorted(parts.kinds - {"numpy"}) or ["jax"]
    if len(kinds) > 1:
        raise UsageError(f"{model.target}: its params are arrays of {' and '.join(kinds)}; legal: one framework")
    return kinds[0]


def _check(cls: Any, own: Own) -> None:
    """Check in both dtypes that the model's loss is a scalar of the requested dtype.

    Raises:
        UsageError: it is not, or the model raised; the message says what it is, or what was raised.
    """
    from gradgate.references.draws import shapes

    for dtype in DTYPES:
        spec = cls(dtype=dtype)
        for name, value in spec.sizes.items():
            derived: Any = getattr(own.spec, name, value)
            found = derived.__get__(spec) if isinstance(derived, property) else value
            if found != value:
                raise UsageError(
                    f"{cls.model.target}: {name} is {found} in the methods' words, by the shapes of the arrays, but "
                    f"{value} in yours; change the arrays, or call your argument something else"
                )
        with cls.model.in_words(spec.sizes), precision(cls.framework, dtype):
            if cls.framework == "jax":
                import jax

                problem: Any = shapes(spec)
                own.check(problem)
                loss = jax.eval_shape(lambda problem: problem.loss(problem.params), problem)
            else:
                problem = spec.build("torch")
                own.check(problem)
                loss = problem.loss(problem.params)
        if tuple(loss.shape) or not str(loss.dtype).endswith(dtype):
            raise UsageError(
                f"{cls.model.target}: with {dtype} arrays its loss is of shape {tuple(loss.shape)} and {loss.dtype}; "
                f"it must be a scalar of {dtype}. Keep every array in an attribute of the model, where its dtype can "
                "be set, and none in a closure"
            )
        odd = [name for name, leaf in named_leaves(problem.params).items() if "float" not in str(leaf.dtype)]
        if odd:
            raise UsageError(f"{cls.model.target}: params.{odd[0]} is no floating array; keep it outside of params")
