"""A pair: a function, the plain function that it must agree with, and how their inputs are drawn."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradgate.references import draws as layouts
from gradgate.references import registry
from gradgate.references.backends import named_leaves, precision
from gradgate.references.contract import Family, Method, Tree, UsageError
from gradgate.suites.pairs import devices as places
from gradgate.suites.pairs import functions, masks, trees, unseen
from gradgate.suites.pairs.declaration import check_declaration
from gradgate.suites.pairs.declared import DeclaredPair
from gradgate.suites.pairs.draws import FLOAT8, WIDTHS, typed
from gradgate.suites.pairs.lowering import lower
from gradgate.suites.pairs.spec import ONLY, ZERO, PairProblem, PairSpec, bare, generator, integers_of
from gradgate.suites.pairs.spec import reference_for_shapes as for_shapes


@dataclass(frozen=True, eq=False)
class Pair(DeclaredPair):
    """A function to judge, declared once for pytest, the command line, the gate and the history.

    The function is called as ``function(*inputs, **options)``, the inputs in the order in which they are declared. A
    pair is a method of its own class of problems: ``pair(problem, **options)`` gives ⟨cotangents, outputs⟩ and the
    gradient by the function's own backward pass.

    Attributes:
        function: the function under test: a callable, or ``package.module:name`` or ``file.py:name``. None in a task of
            `gradgate.Court`, whose candidates take its place; such a pair has a name.
        reference: the plain function that it must agree with, in the same framework; another object. None: the
            function's own forward pass, without its custom derivatives. Then the gradient must be the derivative of
            what the forward pass computes; whether it computes what it should is not judged.
        inputs: name -> draw (`gradgate.normal` and the like), or a tree of draws and None in dicts, lists and tuples.
        dims: name -> sizes that are tried. The first is the usual one; 1, odd sizes and 0 are worth including.
        options: keyword -> legal values, or a function of the dims that gives them. The reference gets the options that
            it takes. An option that it does not take may only change how the function computes.
        regimes: name -> function of the inputs (name -> NumPy arrays) that returns them changed.
        dtypes: the dtypes that the function supports, out of ``float64``, ``float32``, ``bfloat16`` and ``float16``;
            by default the first three.
        composes: transformations that must work: ``jit`` (JAX), ``compile`` (PyTorch), ``vmap`` over all or some of the
            inputs, ``second_order``.
        disclaims: transformations that it refuses in words.
        claims: promises about bytes and work, such as `gradgate.grows` and `gradgate.at_most`.
        expected: claim -> why it is known to fail, by a refutation or by an error. If it is upheld after all, the run
            fails.
        kappa: how many times plain backprop's rounding error the error may reach.
        valid: function of the dims, as keywords: whether they make sense together; None: all do.
        random: whether the function draws random numbers from PyTorch's global generator, which then gets the same seed
            before both functions.
        name: name of the class of problems; by default the function's name.
        framework: ``jax`` or ``torch``; by default it is found from the functions.
        devices: ``interpreter`` (Triton's), ``cuda``: the first that the machine has runs the function; none: the CPU.
        by_backward: whether gradients are taken by ``backward()``, because the function refuses `torch.autograd.grad`.
        measured: problems at which the gate, the history and ``gradgate memory`` measure: mappings of dims and options
            to values, such as ``[{"T": 1024}, {"T": 4096, "chunk": 64}]``. What one leaves out is as usual: the largest
            size of a dim, the first value of an option. Empty: one problem, with everything as usual.
        unmeasured: quantity -> why it is left out, for a function that the measurement cannot run. Legal are
            ``residual_bytes``, ``compiled_residual_bytes``, ``compiled_peak_bytes``, and ``temp_bytes``, which leaves
            out every figure, because all others come from the same program. What is left out is shown.
        donates: names of inputs whose memory a call of the function gives to its outputs, in JAX
            (``jax.jit(…, donate_argnums=…)``). The claim ``donation`` judges that each is donated and reused.
        approximates: for a function that is approximate by design, what it declares: `gradgate.within`, a bound on its
            error, or `gradgate.order`, how fast it converges. None: nothing but rounding is allowed.
        accumulates: ``float32`` for a function that computes in float32 what it gets and returns in bfloat16 or
            float16. Its gradient in these is then compared with the reference's in float32, rounded once, and sums of
            up to 65,536 terms are tried. "": it may lose what plain backprop loses in the dtype.

    Raises:
        UsageError: the declaration is wrong; the message says what is legal. Errors that only the functions show are
            raised when the pair is judged.

    Cost: judging a pair takes seconds to a minute of one core in PyTorch, and about twice that in JAX, which compiles
    each shape. It grows with the number of options' values and regimes, hardly with that of sizes.

    Not for: complex numbers; one call at given arguments,
    for which `gradgate.check` is enough; modules with parameters, which `gradgate.module_pair` takes.

    Example::

        flce = gradgate.Pair(
            "mylib.ops:cross_entropy", reference="mylib.plain:cross_entropy",
            inputs={"x": normal("T H"), "w": normal("V H", scale="H**-0.5"), "labels": integers("T", below="V")},
            dims={"T": (1, 3, 64), "H": (1, 31), "V": (2, 127)}, options={"reduction": ("mean", "sum")},
        )
    """

    def __post_init__(self) -> None:
        """Check the declaration, as far as it can be without importing either function.

        Raises:
            UsageError: says what is wrong and what is legal.
        """
        check_declaration(self)

    @property
    def lowered(self) -> Method:
        """The pair as a method of its own class of problems. The class is registered, again if it was forgotten."""
        if registry.origin(self.family.name) not in ("", self.family.origin):  # the name was taken in between
            del vars(self)["family"]
        return registry.register(self.family).methods[0]

    @functools.cached_property
    def family(self) -> Family:
        """The pair's class of problems, not registered."""
        return lower(self)

    def drawn(self, spec: PairSpec) -> dict[str, Any]:
        """Path -> NumPy array, for a Spec's sizes, seed and regime."""
        given = self.given(spec)
        if spec.regime and not spec.regime.startswith(unseen.PREFIX):
            changed = self.regimes[spec.regime](dict(given))
            if not isinstance(changed, dict) or changed.keys() != given.keys():
                raise UsageError(f"regime {spec.regime!r} must return a dict of {', '.join(given)}")
            given = changed
        flat = {path: leaf for name, tree in given.items() for path, leaf in named_leaves(tree, name).items()}
        flat = {path: leaf for path, leaf in flat.items() if leaf is not None}
        whole = integers_of(self.where)
        return {path: leaf.astype(whole) if leaf.dtype.kind == "i" else leaf for path, leaf in flat.items()}

    def given(self, spec: PairSpec) -> dict[str, Any]:
        """Input -> tree of NumPy arrays, as they are drawn before a regime changes them."""
        draws = enumerate(self.leaves.items())
        arrays = {path: draw.drawn(spec.sizes, generator(spec.seed, i)) for i, (path, draw) in draws}
        if spec.regime.startswith(unseen.PREFIX):
            arrays = unseen.changed(self, spec.regime, arrays)
            arrays = {path: self.leaves[path].legal(array, spec.sizes) for path, array in arrays.items()}
        return {name: _placed(tree, name, arrays) for name, tree in self.inputs.items()}

    def cotangents(self, spec: PairSpec) -> dict[str, Any]:
        """Path of an output -> its cotangent: normal numbers where it has one, else zeros."""
        found = {}
        for place, (path, shape) in enumerate(self.output_shapes(spec).items()):
            numbers = generator(spec.seed, 1000 + place).standard_normal(shape)
            absent = spec.cotangents == ZERO or (spec.cotangents.startswith(ONLY) and spec.cotangents != ONLY + path)
            found[path] = 0.0 * numbers if absent else numbers
        return found

    def output_shapes(self, spec: PairSpec) -> dict[str, tuple[int, ...]]:
        """Path -> shape, of the reference's floating outputs."""
        key = tuple(getattr(spec, name) for name in (*self.dims, *self.shared))
        if key not in self._shapes:
            self._shapes[key] = self._output_shapes(spec)
        return self._shapes[key]

    @functools.cached_property
    def _shapes(self) -> dict[Any, dict[str, tuple[int, ...]]]:
        return {}

    def _output_shapes(self, spec: PairSpec) -> dict[str, tuple[int, ...]]:
        backend: Any = self.where
        blank = dataclasses.replace(spec, dtype="float32")
        with precision(backend, "float32"):
            problem = bare(self, blank)
            try:
                found = for_shapes(self, problem)
            except UsageError:
                raise
            except Exception as error:
                from gradgate.suites.judging.subject import first_line

                at = " ".join(f"{name}={value!r}" for name, value in spec.fields.items())
                raise UsageError(
                    f"{self.called}: the reference raised {type(error).__name__} at {at}: {first_line(error)}; "
                    "it must take what is drawn at every combination of the dims; valid= leaves some of them out"
                ) from error
        if not found:
            raise UsageError(
                f"{self.called}: the reference has no floating output, so there is nothing to differentiate"
            )
        return {path: tuple(leaf.shape) for path, leaf in found.items()}

    def outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Path -> output, of the floating outputs of ``function`` or ``reference``.

        Args:
            problem: gives sizes and the inputs without a gradient.
            params: path -> array, for the inputs with a gradient.
            options: the options that only the function takes.
        """
        found = self.all_outputs(role, problem, params, options).items()
        return {path: leaf for path, leaf in found if trees.is_floating(self.where, leaf)}

    def all_outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """`outputs`, and also the outputs that are not floating."""
        leaves = self.widened(problem, {**problem.data["given"], **params})
        if role == "function" and self.donates:  # a call deletes them, and the problem is used again
            copied = importlib.import_module(f"gradgate.suites.pairs.in_{self.where}").copied
            leaves |= {path: copied(leaves[path]) for path in self.donated}
        arguments = self.arguments(leaves)
        shared = {name: functions.value_of(self.options[name], getattr(problem.spec, name)) for name in self.shared}
        keywords = shared | dict(options or {})
        with self.seeded(problem.spec), places.running(self._devices(role)) as device:
            answer = places.call(device, self.loaded[role], arguments, keywords)
        return trees.usual(self.called, role, trees.flatten(self.where, answer)[0])

    def widened(self, problem: PairProblem, leaves: dict[str, Any]) -> dict[str, Any]:
        """The inputs; if the draw of an input requests float8, or a wider dtype than the problem's, it is cast to that.

        The words of a typed key become the key.
        """
        for path, draw in self.leaves.items():
            if draw.kind == "key":
                leaves[path] = typed(leaves[path]) if draw.dtype else leaves[path]
            elif draw.dtype in FLOAT8 or (draw.dtype and WIDTHS.index(problem.dtype) < WIDTHS.index(draw.dtype)):
                leaves[path] = problem.xp.astype(leaves[path], getattr(problem.xp, draw.dtype))
        return leaves

    def arguments(self, leaves: Mapping[str, Any]) -> list[Any]:
        """The positional arguments of both functions, from path -> array."""
        return [_placed(tree, name, leaves) for name, tree in self.inputs.items()]

    @staticmethod
    def rounded(array: Any, dtype: str) -> Any:
        """Drawn numbers, rounded so that a problem in float32 and in float64 is the same."""
        return layouts.rounded(array, dtype)

    def __call__(self, problem: PairProblem, **options: Any) -> tuple[Any, Tree]:
        """⟨cotangents, outputs of the function⟩ and its gradient by the function's own backward pass."""
        return self.gradient("function", problem, options)

    def gradient(self, role: str, problem: PairProblem, options: Mapping[str, Any]) -> tuple[Any, Tree]:
        """`__call__` for ``function`` or ``reference``."""
        module = importlib.import_module(f"gradgate.suites.pairs.in_{self.where}")
        found: tuple[Any, Tree] = module.gradient(self, problem, options, role)
        return found

    @functools.cached_property
    def plain(self) -> Plain:
        """The reference as a method of the same problems."""
        return Plain(self)

    def residual_bytes(self, spec: PairSpec, options: Mapping[str, Any], role: str = "function") -> int:
        """Bytes that are kept between the forward and the backward pass (`hw_profiles.residuals`)."""
        module = importlib.import_module(f"gradgate.suites.pairs.in_{self.where}")
        return int(module.residual_bytes(self, spec, options, role))

    def work(self, spec: PairSpec) -> float:
        """About how many multiplications the reference takes: its products of matrices, and its numbers in and out."""
        shape = spec.static()
        if shape not in self._works:
            self._works[shape] = self._work(spec)
        return self._works[shape]

    @functools.cached_property
    def _works(self) -> dict[Any, float]:
        return {}

    def _work(self, spec: PairSpec) -> float:
        numbers = self.numbers(spec.fields)
        numbers += sum(math.prod(shape) for shape in self.output_shapes(spec).values())
        flops = importlib.import_module(f"gradgate.suites.pairs.in_{self.where}").flops
        return float(numbers + flops(self, spec) / 2)

    def compiled(self) -> Pair:
        """This pair with its function under torch.compile, which captures it and runs it in eager kernels."""
        import torch

        function = torch.compile(self.loaded["function"], backend="aot_eager")
        return dataclasses.replace(self, function=function, framework="torch", name=self.called)

    @contextlib.contextmanager
    def seeded(self, spec: PairSpec) -> Iterator[None]:
        """The scope in which random numbers are the same in every dtype and, in PyTorch, in every call."""
        if self.where == "jax" or not self.random:
            drawn = self.where == "jax" and (self.random or any(d.kind == "key" for d in self.leaves.values()))
            with masks.alike() if drawn else contextlib.nullcontext():
                yield
            return
        import torch

        with torch.random.fork_rng(devices=[]):
            # For each device that is not in use, torch.manual_seed would format the stack.
            (torch.manual_seed if torch.cuda.is_initialized() else torch.default_generator.manual_seed)(spec.seed)
            yield


@dataclass(frozen=True, eq=False)
class Plain:
    """A pair's reference as a method: its gradient by plain backprop."""

    pair: Pair

    def __call__(self, problem: PairProblem, **options: Any) -> tuple[Any, Tree]:
        """⟨cotangents, outputs of the reference⟩ and its gradient."""
        return self.pair.gradient("reference", problem, options)

    def residual_bytes(self, spec: PairSpec, options: Mapping[str, Any]) -> int:
        """Bytes that the reference keeps between its passes."""
        return self.pair.residual_bytes(spec, options, "reference")


def _placed(tree: Any, path: str, leaves: Mapping[str, Any]) -> Any:
    """A tree with leaves in the place of its draws, by their paths: dicts keep the order in which they are declared.

    None stays where it is.
    """
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: _placed(item, f"{path}.{key}", leaves) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [_placed(item, f"{path}[{i}]", leaves) for i, item in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return leaves[path]
