"""A user's own model as a stack of state-space layers: its nets, norm and loss in place of `StateSpaceProblem`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gradgate.references.backends import leaves
from gradgate.references.contract import Tree, UsageError
from gradgate.references.own_problem import Own, OwnProblem, OwnSpec
from gradgate.references.state_space.problem import StateSpaceProblem

NEEDS = {
    "tokens": "what the model reads, integers (length, batch)",
    "targets": "what the loss compares with, (length, batch) or (length, batch, …)",
    "A": "a function (p, x) of params['layers']['A'] of one layer and x (…, batch, P) -> the transition (…, N, N), or "
    "its diagonal (…, N), or one number (…, 1)",
    "B": "a function (p, x) -> (…, N, P)",
    "C": "a function (p, x) -> (…, P, N)",
    "token_loss": "a function (head, y, targets) of params['head'] and y (length, batch, P) -> a sum over tokens",
}


@dataclass(frozen=True)
class OwnStateSpaceSpec(OwnSpec):
    """The sizes of a user's model, and those that methods read."""

    @property
    def length(self) -> int:
        """T."""
        return int(self.shapes.data["tokens"].shape[0])

    @property
    def batch(self) -> int:
        """Sequences."""
        return int(self.shapes.data["tokens"].shape[1])

    @property
    def layers(self) -> int:
        """K, the size of axis 0 of the layers' parameters."""
        return int(leaves(self.shapes.params["layers"])[0].shape[0])

    @property
    def width(self) -> int:
        """P."""
        return int(self._nets["B"][-1])

    @property
    def state(self) -> int:
        """N."""
        return int(self._nets["B"][-2])

    @property
    def structure(self) -> str:
        """The structure of A, which follows from its shape."""
        a = self._nets["A"]
        if len(a) == len(self._nets["B"]):
            return "unstructured"
        return "scalar" if a[-1] == 1 and self.state > 1 else "diagonal"

    @property
    def _nets(self) -> dict[str, tuple[int, ...]]:
        return _outputs(self)


_KNOWN: dict[Any, dict[str, tuple[int, ...]]] = {}


def _outputs(spec: Any) -> dict[str, tuple[int, ...]]:
    """Net -> the shape of its output for one token of every sequence."""
    key = (type(spec), *spec.sizes.values())
    if key in _KNOWN:
        return _KNOWN[key]

    def run(problem: Any) -> dict[str, Any]:
        p = {name: _first(problem, name) for name in "ABC"}
        x = problem.norm(problem.embed(problem.params["embedding"], problem.data["tokens"][:1]))
        return {name: getattr(problem, name)({name: p[name]}, x) for name in "ABC"}

    if spec.framework == "jax":
        import jax

        from gradgate.references.backends import precision
        from gradgate.references.draws import shapes

        with precision("jax", spec.dtype):
            found = jax.eval_shape(run, shapes(spec))
    else:
        found = run(spec.build(spec.framework))
    _KNOWN[key] = {name: tuple(leaf.shape) for name, leaf in found.items()}
    return _KNOWN[key]


def _first(problem: Any, name: str) -> Tree:
    from gradgate.references.backends import tree_map

    return tree_map(lambda leaf: leaf[0], problem.params["layers"][name])


@dataclass(frozen=True)
class OwnStateSpaceProblem(OwnProblem, StateSpaceProblem):
    """Loss of a user's stack; ``params`` is ``{"embedding", "layers": {"A": …, "B": …, "C": …}, "head"}``."""

    nets: ClassVar[Mapping[str, str]] = {}

    def A(self, p: Tree, x: Any) -> Any:
        """The transition."""
        return self.given.A(p["A"], x)

    def B(self, p: Tree, x: Any) -> Any:
        """The input map."""
        return self.given.B(p["B"], x)

    def C(self, p: Tree, x: Any) -> Any:
        """The output map."""
        return self.given.C(p["C"], x)

    def embed(self, embedding: Any, tokens: Any) -> Any:
        """The model's embedding, or by default rows of ``params['embedding']``."""
        own = getattr(self.given, "embed", None)
        if own:
            return own(embedding, tokens)
        flat = self.xp.take(embedding, self.xp.reshape(tokens, (-1,)), axis=0)
        return self.xp.reshape(flat, (*tokens.shape, embedding.shape[-1]))

    def norm(self, y: Any) -> Any:
        """The model's norm, or by default none."""
        own = getattr(self.given, "norm", None)
        return own(y) if own else y

    def token_loss(self, head: Any, y: Any, targets: Any, upstream: Any) -> Any:
        """The model's loss, times ``upstream``."""
        return upstream * self.given.token_loss(head, y, targets)


def _check(problem: Any) -> None:
    """Refuse a loss that is not a sum over tokens, because the losses of slices would not add up to it."""
    spec = problem.spec
    if spec.length < 2:
        return
    from gradgate.references.backends import precision, to_numpy

    problem, parts = spec.build(spec.framework), (slice(0, 1), slice(1, None))
    with precision(spec.framework, spec.dtype):
        y = problem.embed(problem.params["embedding"], problem.data["tokens"])
        targets, head = problem.data["targets"], problem.params["head"]
        whole = float(to_numpy(problem.given.token_loss(head, y, targets)))
        found = [float(to_numpy(problem.given.token_loss(head, y[part], targets[part]))) for part in parts]
    if abs(sum(found) - whole) > 1e-3 * (sum(map(abs, found)) + abs(whole)):
        raise UsageError(
            f"token_loss must be a sum over tokens, so that slices of the sequence add up: of the first token and of "
            f"the others it is {found[0]:.4g} and {found[1]:.4g}, of all together {whole:.4g}"
        )


def _prepare(made: Any) -> None:
    params = getattr(made, "params", None)
    wanted = {"embedding", "layers", "head"}
    if isinstance(params, dict) and not (wanted <= params.keys() and {"A", "B", "C"} == set(params["layers"])):
        raise UsageError(f"params must be {PARAMS}; here it has {sorted(params)}")


PARAMS = (
    "{'embedding': …, 'layers': {'A': …, 'B': …, 'C': …}, 'head': …}, each net's a dict of arrays with one layer per "
    "entry of axis 0"
)
OWN = Own(
    problem=OwnStateSpaceProblem, spec=OwnStateSpaceSpec, needs=NEEDS, params=PARAMS, prepare=_prepare, check=_check
)
