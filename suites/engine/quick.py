"""`gradgate.check`: two functions at given arguments, in one line of any test."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF, to_numpy
from gradgate.references.contract import Tree, UsageError
from gradgate.references.errors import FloatsOnly
from gradgate.suites.pairs import captured, functions, trees
from gradgate.suites.pairs.draws import WIDTHS
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem, PairSpec, bare, generator

SEEDS = 3
"""Number of draws of cotangents that are tried."""
TOGETHER = 32
"""Number of further draws where sixty digits are impossible; they are judged together, as by `gradgate verify`."""
CLAIMS = (
    "tree",
    "outputs",
    "gradient_exact",
    "gradient_float64",
    "gradient_float32",
    "gradient_bfloat16",
    "gradient_float16",
    "cotangents",
)
"""Claims that a check judges, in order."""
APART = "the programs part at "
"""How the clause begins that says where the values of two programs part."""
MODULE = "module"
"""What the paths of a module's parameters begin with."""


@dataclass(frozen=True)
class Given:
    """A floating array of the arguments, or a parameter: given numbers in the place of a draw.

    Attributes:
        array: NumPy, float64.
        dtype: the dtype in which it was given.
        searched: no other numbers are tried: what is judged is a call with these.
    """

    array: Any
    dtype: str
    floating: bool = True
    gradient: bool = True
    kind: str = "given"
    searched: bool = False

    def check(self, dims: Any, what: str) -> None:
        """Nothing is declared, so nothing can be wrong."""

    def shape(self, dims: Any) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.array.shape)

    def count(self, dims: Any) -> int:
        """The number of elements of the array."""
        return int(np.prod(self.array.shape, dtype=int))


@dataclass(frozen=True, eq=False)
class GivenPair(Pair):
    """A pair whose inputs are given and not drawn; seeds change the cotangents.

    Attributes:
        inputs: name -> argument, in the order of the call.
        keywords: role -> the keywords of its call.
        modules: role -> its module, if it is one with parameters.
        first: seeds first … first + SEEDS − 1 leave the inputs as they are given. Any other seed moves them by at most
            two units in the last place, so that functions round differently every time.
    """

    keywords: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    modules: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0

    def __post_init__(self) -> None:
        """Nothing to check: `check` made it."""

    @functools.cached_property
    def _flat(self) -> list[tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]]:
        """For each argument: path -> `Given`, or what is data; and the function that makes the argument of leaves."""
        found: list[tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = []
        for name, argument in self.inputs.items():
            flat, put = trees.flatten(self.framework, argument)
            paths = {trees.joined(name, path): path for path in flat}
            placed = {whole: _given(self.framework, whole, flat[path]) for whole, path in paths.items()}
            found.append((placed, functools.partial(_put, put, paths)))
        return found

    @functools.cached_property
    def leaves(self) -> dict[str, Any]:
        """Path -> floating array: of the arguments, and of the parameters of modules."""
        found = {path: leaf for flat, _ in self._flat for path, leaf in flat.items() if isinstance(leaf, Given)}
        if self.modules:
            for name, leaf in self.modules["reference"].leaves.items():
                path = f"{MODULE}.{name}"
                found[path] = _given(self.framework, path, leaf)
        return found

    def drawn(self, spec: PairSpec) -> dict[str, Any]:
        """Path -> NumPy array."""
        if 0 <= spec.seed - self.first < SEEDS:
            return {path: leaf.array for path, leaf in self.leaves.items()}
        return {
            path: _moved(leaf, generator(spec.seed, 4000 + place))
            for place, (path, leaf) in enumerate(self.leaves.items())
        }

    def arguments(self, leaves: Mapping[str, Any]) -> list[Any]:
        """The positional arguments; whatever is no floating array is as it was given."""
        return [put({path: leaves.get(path, _again(leaf)) for path, leaf in flat.items()}) for flat, put in self._flat]

    def all_outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Path -> output of ``function`` or ``reference``.

        Raises:
            UsageError: an output is complex, or is an object with arrays inside that the framework does not know.
        """
        leaves = self.widened(problem, {**problem.data["given"], **params})
        arguments, keywords = self.arguments(leaves), self.keywords[role]
        with self.seeded(problem.spec):
            if self.modules:
                names = self.modules["reference"].leaves
                own = {name: leaves[f"{MODULE}.{name}"] for name in names}
                answer = self.modules[role](own, arguments, keywords)
            else:
                answer = self.loaded[role](*arguments, **keywords)
        found = trees.flatten(self.framework, answer)[0]
        for path, leaf in found.items():
            if trees.is_complex(self.framework, leaf):
                raise UsageError(f"{path} of the {role} is complex; complex numbers are not supported")
            if not trees.is_array(self.framework, leaf) and trees.opaque(self.framework, leaf):
                raise UsageError(f"{path} of the {role} is a {_registered(self.framework, leaf)}")
        return found

    def widened(self, problem: PairProblem, leaves: dict[str, Any]) -> dict[str, Any]:
        """The inputs in the dtypes in which they were given, or in the problem's, if that is wider.

        JAX has no float64 in the scope of a narrower problem; there float32 takes its place.
        """
        for path, leaf in self.leaves.items():
            limited = self.framework == "jax" and leaf.dtype == "float64"
            dtype = "float32" if limited else leaf.dtype
            if WIDTHS.index(problem.dtype) < WIDTHS.index(dtype):
                leaves[path] = problem.xp.astype(leaves[path], getattr(problem.xp, dtype))
        return leaves

    def _output_shapes(self, spec: PairSpec) -> dict[str, tuple[int, ...]]:
        try:
            return super()._output_shapes(spec)
        except UsageError as error:
            if error.__cause__ is None:
                raise
            from gradgate.suites.judging.subject import first_line

            cause = error.__cause__
            said = f"{type(cause).__name__}: {first_line(cause)}"
            raise UsageError(f"at these arguments, the reference raised {said}") from cause

    @staticmethod
    def rounded(array: Any, dtype: str) -> Any:
        """Given numbers stay as they are."""
        return array if dtype == "float64" else Pair.rounded(array, dtype)


def check(
    function: Callable[..., Any],
    reference: Callable[..., Any] | None,
    args: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    *,
    kappa: float = 16.0,
    seed: int = 0,
) -> None:
    """Check that a function and its gradient are those of a plain reference, at these arguments.

    Both are called as ``function(*args, **options)``; the reference gets only the options that it takes. Every floating
    array of the arguments gets a gradient, in whatever tree of the framework it is. Everything else is data: integers,
    booleans, float8, keys of random numbers, Python numbers, None, and the options. Every floating output gets a random
    cotangent. Both functions start from the same seed of PyTorch's generator.

    The formula is compared in sixty digits where it can be traced. The numbers are judged in the dtype of the
    arguments: an error may be `kappa` times the rounding error of the reference's own gradient, which is measured.
    Where sixty digits are impossible, the numbers of 32 more draws are judged together, and a warning says why.

    Two modules, or methods of two modules, are called with their own parameters, which must have the same names and
    numbers in both. Each parameter that requires a gradient is judged as ``module.NAME``. Both modules stay in their
    modes, and have their parameters and buffers back when the check ends.

    Args:
        function: the function under test, in JAX or PyTorch, or a module of torch.nn, flax.nnx or equinox.
        reference: the plain function, in the same framework; another object. None: the function's own forward pass,
            without its custom derivatives. Then the gradient must be the derivative of what the forward pass computes;
            whether it computes what it should is not judged. A module of JAX needs a reference.
        args: arrays of JAX or tensors of PyTorch, or any trees of them. JAX takes floating arrays of NumPy as its own;
            PyTorch takes them as data.
        options: keywords of the calls.
        kappa: how many times the rounding error of the reference is allowed.
        seed: the seed of the cotangents.

    Raises:
        AssertionError: they differ; the message names the claim, the leaf, its error and the noise, and the call that
            repeats the check. Or the gradient cannot be judged at these arguments; the message says why.
        UsageError: the arguments have no floating array; they have complex numbers, or objects that are not
            registered as pytrees; a function captures a tensor that requires a gradient, or a module with parameters;
            two modules have parameters of other names or numbers; both functions are the same object.

    Warns:
        FloatsOnly: the check passed, but sixty digits were impossible, because a function leaves the framework, for
            example through NumPy or a callback; the message says where, and how large an error was looked for.

    Cost: about ten calls of the function and thirty of the reference, and in JAX some ten compilations. Where sixty
    digits are impossible, 32 calls of the function and 300 of the reference more.

    Not for: decisions that these arguments do not take, such as `x > 20`, for which `gradgate.Pair` searches inputs;
    arguments of millions of numbers, since gradients are compared on the host; layouts of memory and transformations,
    which `gradgate.Pair` tries; what a module's buffers hold after the call, and modules with other names, which
    `gradgate.module_pair` takes.

    Example::

        gradgate.check(fused_cross_entropy, plain_cross_entropy, (x, weight, labels), {"reduction": "sum"})
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    framework = _framework(args, {"function": function, "reference": reference})
    if reference is None and framework == "jax" and _is_module(framework, function):
        raise UsageError("reference=None is for functions; a module needs the plain module, or gradgate.module_pair")
    plain = reference
    if plain is None:  # in PyTorch it is the function itself, of which the pair makes another object
        plain = functions.forward_of(framework, function) if framework == "jax" else function
    callables = {"function": function, "reference": plain}
    pair = GivenPair(
        function,
        reference,
        inputs=dict(zip(_names(plain, len(args)), args, strict=True)),
        kappa=kappa,
        random=True,
        framework=framework,
        keywords=_keywords(callables, options or {}),
        modules=_modules(framework, callables),
        first=seed,
    )
    pair = dataclasses.replace(pair, dtypes=(_narrowest(pair.leaves),))
    with contextlib.ExitStack() as stack:
        for module in pair.modules.values():
            stack.enter_context(module.restored())
        _refuse_captured(pair, callables)
        why = _judged(pair, seed)
    if why:
        warnings.warn(FloatsOnly(why), stacklevel=2)


def _judged(pair: GivenPair, seed: int) -> str:
    """Judge CLAIMS on SEEDS problems, and the floats on TOGETHER problems more if sixty digits are impossible.

    Returns:
        Why sixty digits were impossible, and what was judged in their place; "" if they were possible.

    Raises:
        AssertionError: a claim is refuted or gives no answer, or no claim could tell anything about the gradient.
    """
    from gradgate.references import registry
    from gradgate.suites.engine.given import judge_on
    from gradgate.suites.judging.explain import explain
    from gradgate.suites.judging.run import Run
    from gradgate.suites.judging.subject import MISSING, Subject
    from gradgate.suites.judging.verdict import Task, Verdict

    method = pair.lowered
    subject = Subject(method, pair)
    floats = f"gradient_{pair.dtypes[0]}"
    silent: dict[str, str] = {}
    upheld: dict[str, Verdict] = {}
    compared: set[str] = set()

    __tracebackhide__ = True

    def apart(spec: PairSpec, run: Run) -> list[str]:
        """Where sixty digits show that the two programs part, in clauses; [] if they do not."""
        task = Task.of(method, method.claim("gradient_exact"))
        clauses = explain(judge_on(task, subject, [(spec, {})], run)).clauses
        return [clause for clause in clauses if clause.startswith(APART)]

    def asked(claim: Any, run: Run, repeat: int, spec: PairSpec | None = None) -> None:
        __tracebackhide__ = True
        task = Task.of(method, claim)
        if spec is None:
            from gradgate.suites.engine.search import judge

            verdict = judge(task, subject, run)
        else:
            verdict = judge_on(task, subject, [(spec, {})], run)
        if verdict.verdict in ("refuted", "error"):
            words = explain(verdict)
            said = words.lines("measured", "leaf", "claim")
            if f" {MISSING}; " in verdict.reason:
                said.append(f"if {verdict.leaf} is data, capture it: lambda x: f(x, {verdict.leaf})")
            where = apart(spec, run) if spec and claim.name == "outputs" and verdict.error is not None else []
            said.append(f"repeat: gradgate.check(…, seed={repeat})")
            raise AssertionError("\n".join([*words.clauses, *where, *said]))
        if verdict.examples:
            compared.add(claim.name)
        if verdict.verdict == "upheld":
            upheld[claim.name] = verdict
        elif claim.name.startswith("gradient_"):
            silent[claim.name] = verdict.reason

    try:
        for number in range(seed, seed + SEEDS):
            spec = pair.spec(dtype="float64", seed=number)
            for claim in method.claims:
                if claim.name in CLAIMS and not (claim.name == "gradient_exact" and number > seed):
                    asked(claim, Run(spec=spec.to_json(), options={}), number, spec)
        if "gradient_exact" not in upheld and floats in compared:  # else the reference is finite nowhere
            asked(method.claim(floats), Run(examples=TOGETHER, seed=seed), seed)
    finally:
        registry.forget(method.family)
    if not any(name.startswith("gradient_") for name in upheld):
        reasons = (f"{name}: {reason}" for name, reason in silent.items())
        raise AssertionError("\n".join(["nothing could be said about the gradient here", *reasons]))
    if "gradient_exact" in upheld:
        return ""
    wider = "" if pair.dtypes[0] == "float64" else "; arguments in float64 would show smaller errors"
    return (
        f"sixty digits were impossible, so only numbers in {pair.dtypes[0]} were judged. Why: "
        f"{silent['gradient_exact']}. Judged: {explain(upheld[floats]).measured}{wider}"
    )


def _framework(args: Sequence[Any], callables: Mapping[str, Any]) -> str:
    """The framework whose arrays are among the arguments, or whose modules the functions are.

    Raises:
        UsageError: there is none, or there are both.
    """
    if not isinstance(args, (tuple, list)):
        raise UsageError(
            f"args is a tuple of the functions' arguments, such as (x, weight), not a {type(args).__name__}"
        )
    seen = set()
    for name, known in (("torch", "Tensor"), ("jax", "Array")):
        if name in sys.modules:
            kind = getattr(sys.modules[name], known)
            if any(isinstance(leaf, kind) for leaf in trees.flatten(name, list(args))[0].values()):
                seen.add(name)
    if not seen:
        seen = {name for name in ("torch", "jax") for one in callables.values() if _is_module(name, one)}
    if len(seen) != 1:
        raise UsageError(
            f"the arguments have arrays of {' and '.join(sorted(seen)) or 'neither JAX nor PyTorch'}; "
            "give arrays of JAX, or tensors of PyTorch"
        )
    return seen.pop()


def _is_module(framework: str, function: Any) -> bool:
    if framework not in sys.modules:
        return False
    if framework == "torch":
        return isinstance(captured.owner(function), sys.modules["torch"].nn.Module)
    from gradgate.suites.pairs.modules_jax import kind_of

    return bool(kind_of(captured.owner(function)))


def _modules(framework: str, callables: Mapping[str, Any]) -> dict[str, Any]:
    """Role -> module; {} if neither function is a module with parameters.

    Raises:
        UsageError: the parameters of the two are not the same; the message names `gradgate.module_pair`.
    """
    if framework == "torch":
        from gradgate.suites.pairs.given_torch import module_of
    else:
        from gradgate.suites.pairs.given_jax import module_of  # type: ignore[assignment]
    found = {role: module_of(role, one) for role, one in callables.items()}
    own = {role: module.leaves if module else {} for role, module in found.items()}
    ours, plain = own["function"], own["reference"]
    if ours.keys() != plain.keys():
        lists = {role: ", ".join(leaves) or "none" for role, leaves in own.items()}
        raise UsageError(
            "the functions are not modules with the same parameters, so no gradient of theirs could be judged: the "
            f"function has {lists['function']}; the reference has {lists['reference']}. Give the parameters in args, "
            "or declare a gradgate.module_pair, whose rename= pairs other names"
        )
    for name, leaf in plain.items():
        one, other = (f"{tuple(array.shape)} in {_dtype(array)}" for array in (ours[name], leaf))
        same = one == other and np.array_equal(to_numpy(ours[name]), to_numpy(leaf), equal_nan=True)
        if not same:
            apart = "other numbers" if one == other else f"shape {one}, and {other}"
            copied = (
                "function.load_state_dict(reference.state_dict())"
                if framework == "torch"
                else "nnx.update(function, nnx.state(reference))"
            )
            raise UsageError(
                f"parameter {name} has {apart} in the two modules. Give both the same parameters, such as "
                f"by {copied}, or declare a gradgate.module_pair, which draws them"
            )
    if not any(found.values()):
        return {}
    return {role: module or _Plain(callables[role]) for role, module in found.items()}


@dataclass(frozen=True)
class _Plain:
    """A function beside a module without parameters."""

    function: Callable[..., Any]
    leaves: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, parameters: Tree, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        return self.function(*arguments, **keywords)

    def restored(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _refuse_captured(pair: GivenPair, callables: Mapping[str, Any]) -> None:
    """Refuse functions that use something that requires a gradient besides arguments and parameters.

    In PyTorch both functions run once, and autograd's graph shows what their outputs depend on. In JAX no array
    requires a gradient, so only modules are refused.

    Raises:
        UsageError: names it, and `gradgate.module_pair`.
    """
    verb, remedy = (
        ("requires a gradient", "detach it")
        if pair.framework == "torch"
        else ("has parameters", "use its arrays in place of the module")
    )
    for role in ("reference", "function"):
        function = callables[role]
        found = _captured_torch(pair, role, function) if pair.framework == "torch" else _captured_jax(function)
        if found:
            raise UsageError(
                f"the {role} uses {', '.join(found)}, which {verb}, but whose gradient would not be judged. Give it "
                "as an argument: args=(x, weight) and lambda x, weight: …; or give two modules, or declare a "
                f"gradgate.module_pair. If it is data, {remedy}"
            )


def _captured_torch(pair: GivenPair, role: str, function: Callable[..., Any]) -> list[str]:
    from gradgate.suites.pairs.given_torch import captured_by

    spec = pair.spec(dtype=pair.dtypes[0], seed=pair.first)
    if role == "reference":
        pair.output_shapes(spec)  # an error of the reference is told in words
    options = {f"option {name}": one for name, one in pair.keywords[role].items()}
    return captured_by(pair, role, function, bare(pair, spec), {**pair.inputs, **options})


def _captured_jax(function: Callable[..., Any]) -> list[str]:
    from gradgate.suites.pairs.given_jax import modules_within

    return modules_within(function)


def _signed(function: Callable[..., Any]) -> Callable[..., Any]:
    """What has the signature of a call: of a module of PyTorch its `forward`."""
    forward = getattr(function, "forward", None)
    return forward if "torch" in sys.modules and _is_module("torch", function) and callable(forward) else function


def _keywords(callables: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Role -> keywords: the reference gets those that it takes."""
    plain = {name: value for name, value in options.items() if functions.takes(_signed(callables["reference"]), name)}
    return {"function": dict(options), "reference": plain}


def _names(function: Callable[..., Any], count: int) -> list[str]:
    """Names of the positional arguments: those of the function's signature, if it has one."""
    try:
        parameters = inspect.signature(_signed(function)).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = len(own) >= count and MODULE not in own
    return own[:count] if named else [f"args[{i}]" for i in range(count)]


def _put(put: Callable[[dict[str, Any]], Any], paths: Mapping[str, str], leaves: Mapping[str, Any]) -> Any:
    return put({path: leaves[whole] for whole, path in paths.items()})


def _dtype(leaf: Any) -> str:
    return str(leaf.dtype).removeprefix("torch.")


def _given(framework: str, path: str, leaf: Any) -> Any:
    """`Given` for a floating array; whatever is data as it is.

    Raises:
        UsageError: gradgate does not support what the leaf is.
    """
    if not trees.is_array(framework, leaf):
        if trees.opaque(framework, leaf):
            raise UsageError(f"argument {path} is a {_registered(framework, leaf)}; if it is data, capture it")
        return leaf
    if trees.is_complex(framework, leaf):
        raise UsageError(f"argument {path} is of {_dtype(leaf)}; complex numbers are not supported")
    if not trees.is_floating(framework, leaf):
        return leaf
    if framework == "jax":
        import jax

        known = isinstance(leaf, jax.Array)  # NumPy's float64 is float32 unless JAX has float64
        name = str(leaf.dtype if known else jax.dtypes.canonicalize_dtype(leaf.dtype))
    else:
        name = _dtype(leaf)
        if str(leaf.layout) != "torch.strided":
            raise UsageError(f"argument {path} has the layout {leaf.layout}; legal: dense tensors, of torch.strided")
    if name.startswith("float8"):
        return leaf
    if name not in WIDTHS:
        raise UsageError(f"argument {path} is of {name}; legal: {', '.join(WIDTHS)}, integers and booleans")
    return Given(to_numpy(leaf), name)


def _registered(framework: str, leaf: Any) -> str:
    """What an object is, and what to do so that the framework sees the arrays in it."""
    how = "jax.tree_util.register_dataclass" if framework == "jax" else "torch.export.register_dataclass"
    return (
        f"{type(leaf).__name__}, whose arrays no gradient would be judged of: register the class as a pytree "
        f"({how}), or use a dict, a list or a tuple"
    )


def _again(leaf: Any) -> Any:
    """Data for one call: a copy, because a call may change it in place."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if hasattr(leaf, "detach"):
        return leaf.detach().cpu().clone()
    if "torch" in sys.modules and isinstance(leaf, sys.modules["torch"].Generator):
        return leaf.clone_state()
    if "jax" in sys.modules and isinstance(leaf, sys.modules["jax"].Array) and leaf.dtype.name in ("int64", "uint64"):
        import jax

        with jax.ensure_compile_time_eval():  # without float64, JAX has no int64 either
            return leaf if jax.config.read("jax_enable_x64") else jax.numpy.asarray(np.asarray(leaf))
    return leaf


def _moved(leaf: Given, rng: np.random.Generator) -> Any:
    """An array moved by at most two units in the last place of its dtype."""
    moved = leaf.array * (1 + 2 * UNIT_ROUNDOFF[leaf.dtype] * rng.integers(-1, 2, leaf.array.shape))
    return moved if leaf.dtype == "float64" else np.asarray(Pair.rounded(moved, leaf.dtype), np.float64)


def _narrowest(leaves: Mapping[str, Given]) -> str:
    """The narrowest dtype of a floating argument or parameter.

    Raises:
        UsageError: there is none.
    """
    found = {leaf.dtype for leaf in leaves.values()}
    if not found:
        raise UsageError("no argument has a floating array, so there is no gradient to check")
    return min(found, key=list(WIDTHS).index)
