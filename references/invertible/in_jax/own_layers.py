"""A user's functions as layers of a chain: they take parameters and x, and if they need it a key and a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree, UsageError
from gradgate.references.invertible import halves
from gradgate.references.invertible.layer import Chained, NotInvertible, Step, Vjp

Function = Callable[..., Any]


@dataclass(frozen=True)
class InvertibleLayer:
    """A user's layer; `invertible_layer`, the couplings and `keep` make it.

    Attributes:
        kind: ``layer``, ``additive``, ``affine`` or ``keep``.
        forward: ``(p, x) -> y``; F of a coupling.
        inverse: ``(p, y) -> x``; G of a coupling.
        vijp: ``(p, x, h) -> h of y``.
        axis: the one that a coupling splits.
        random: whether the functions take ``key=``.
        stateful: whether the functions take ``state=``, and the forward one returns (y, state).
        log_det: ``(p, x) -> log |det ∂y/∂x|`` of every entry of axis 0.
    """

    kind: str
    forward: Function
    inverse: Function | None = None
    vijp: Function | None = None
    axis: int = -1
    random: bool = False
    stateful: bool = False
    log_det: Function | None = None


def invertible_layer(
    forward: Function,
    inverse: Function | None = None,
    vijp: Function | None = None,
    *,
    random: bool = False,
    stateful: bool = False,
    log_det: Function | None = None,
) -> InvertibleLayer:
    """A layer of the user's own for `invertible_sequential`.

    Args:
        forward: ``(p, x) -> y``, a tree of parameters and arrays of any shape.
        inverse: ``(p, y) -> x``.
        vijp: ``(p, x, h) -> ∂J/∂y`` where h is ∂J/∂x; without it Moonwalk takes the VJP of the inverse.
        random: the functions take ``key=``, the same one whenever they run again.
        stateful: the functions take ``state=``, a tree; `forward` returns ``(y, state)``. Nothing is differentiated by
            the state, and it changes once per call.
        log_det: ``(p, x) -> (batch,)``, log |det ∂y/∂x| of every entry of axis 0, for `with_log_det`.

    Raises:
        UsageError: an argument is not a function.
    """
    given = (("forward", forward), ("inverse", inverse), ("vijp", vijp), ("log_det", log_det))
    for name, function in given:
        if not callable(function) and not (function is None and name != "forward"):
            raise UsageError(f"{name} is a {type(function).__name__}; legal: a function")
    return InvertibleLayer("layer", forward, inverse, vijp, random=random, stateful=stateful, log_det=log_det)


def additive_coupling(
    f: Function, g: Function, *, axis: int = -1, random: bool = False, stateful: bool = False
) -> InvertibleLayer:
    """y1 = x1 + F(x2), y2 = x2 + G(y1), of the halves along `axis`: the block of a RevNet.

    Its parameters are ``{"f": those of F, "g": those of G}``, and so is its state.

    Args:
        f: ``(p, x2) -> `` the shape of x1; with ``key=`` and ``state=`` as of `invertible_layer`. Its key is not the
            one that G gets.
        g: ``(p, y1) -> `` the shape of x2.
        axis: the one that is split; if its length is odd, the first half is the shorter one.
        random, stateful: as of `invertible_layer`.

    Raises:
        UsageError: F or G is not a function.

    Source:
        Gomez et al. (2017), Eq. 6 and 8; Moonwalk, Eq. 12 and 13: two such couplings are one block.
    """
    _check_functions(f, g)
    return InvertibleLayer("additive", f, g, axis=axis, random=random, stateful=stateful)


def affine_coupling(
    f: Function, g: Function, *, axis: int = -1, random: bool = False, stateful: bool = False
) -> InvertibleLayer:
    """y1 = x1·e^s + t with (t, s') = F(x2), y2 = x2·e^s + t with (t, s') = G(y1); s = ½·tanh s'.

    Args:
        f: as of `additive_coupling`, but gives t and s', one after the other along `axis`.
        g: the same.
        axis, random, stateful: as of `additive_coupling`.

    Raises:
        UsageError: F or G is not a function.

    Source:
        Dinh et al. (2017); the bound is ours: no number is stretched by more than e^½.
    """
    _check_functions(f, g)
    return InvertibleLayer("affine", f, g, axis=axis, random=random, stateful=stateful)


def keep(forward: Function, *, random: bool = False, stateful: bool = False) -> InvertibleLayer:
    """A layer without an inverse among others that have one: reversing keeps its input, mixed Moonwalk its ∂J/∂y.

    Args:
        forward, random, stateful: as of `invertible_layer`.

    Raises:
        UsageError: `forward` is not a function.
    """
    if not callable(forward):
        raise UsageError(f"forward is a {type(forward).__name__}; legal: a function")
    return InvertibleLayer("keep", forward, random=random, stateful=stateful)


def _check_functions(f: Any, g: Any) -> None:
    for name, function in (("F", f), ("G", g)):
        if not callable(function):
            raise UsageError(f"{name} is a {type(function).__name__}; legal: a function (p, x) -> the shape of a half")


class Bound(Chained):
    """A layer with the key and the state of one call.

    Attributes:
        after: the state after a call.
        kept: of a kept layer, its input.
    """

    def __init__(self, layer: InvertibleLayer, name: str, key: Any, state: Any) -> None:
        self.layer, self.name, self.key, self.state = layer, name, key, state
        self.after: Any = state
        self.saved: Any = None

    @property
    def hands_over(self) -> bool:
        """A kept layer does."""
        return self.layer.kind == "keep"

    def run(self, p: Tree, x: Any) -> tuple[Any, Any]:
        """Y, and the state after the call."""
        y, after = self._called(self.layer.forward, self.key, self.state, p, x)
        return self._array(y, "returned"), after

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> y."""
        return self.run(p, x)[0]

    def with_log_det(self, p: Tree, x: Any) -> tuple[Any, Any]:
        """Y, and log |det ∂y/∂x| of every entry of axis 0.

        Raises:
            UsageError: the layer has no `log_det`, or it gives another shape.
        """
        if self.layer.log_det is None:
            raise UsageError(
                f"{self.name} has no log-determinant; legal: a coupling, or invertible_layer(…, log_det=(p, x) -> "
                "(batch,))"
            )
        found = self._array(
            self.layer.log_det(p, x, **self._keywords(self.key, self.state)), "has a log_det that gives"
        )
        if found.shape != x.shape[:1]:
            raise UsageError(f"{self.name}: its log_det has shape {found.shape}; legal: {x.shape[:1]}")
        return self(p, x), found

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """As `Chained.push`; the state after the call goes to `after`."""
        y, pull, self.after = jax.vjp(lambda x: self.run(p, x), x, has_aux=True)
        return y, pull

    def inverse(self, p: Tree, y: Any) -> Any:
        """y -> x.

        Raises:
            NotInvertible: there is no inverse.
        """
        if self.hands_over:
            return self.saved
        if self.layer.inverse is None:
            raise NotInvertible(f"{self.name} has no inverse")
        return self._array(
            self.layer.inverse(p, y, **self._keywords(self.key, self.state)), "has an inverse that gives"
        )

    def handed(self, kept: Tree, h: Any) -> Tree:
        """H itself, of a kept layer."""
        return h if self.hands_over else {}

    def vijp(self, vjp: Vjp, p: Tree, x: Any, y: Any, h: Any) -> Any:
        """The user's own; else the VJP of the inverse."""
        if self.layer.vijp is None:
            return super().vijp(vjp, p, x, y, h)
        found = self._array(self.layer.vijp(p, x, h, **self._keywords(self.key, self.state)), "has a vijp that gives")
        if found.shape != y.shape:
            raise NotInvertible(f"{self.name}: its vijp gives shape {found.shape}; expected {y.shape}")
        return found

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """A kept layer has its h_i from phase 1."""
        if not self.hands_over:
            return tied(super().advance(vjp, p, x, h, handed))
        y, pull = vjp(lambda p: self(p, x), p)
        return tied((y, handed, pull(handed)[0]))

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """As `Chained.retreat`; NotInvertible if the inverse gives an input of another shape."""
        x = self.inverse(p, y)
        found, pull = vjp(self, p, x)
        if found.shape != y.shape:
            raise NotInvertible(
                f"{self.name}: its inverse gives shape {x.shape}, from which the layer makes {found.shape}; expected "
                f"an input from which it makes {y.shape}"
            )
        dp, h = pull(h)
        return tied((x, h, dp))

    def _array(self, found: Any, how: str) -> Any:
        if not hasattr(found, "shape"):
            raise UsageError(f"{self.name} {how} a {type(found).__name__}; legal: one array")
        return found

    def _keywords(self, key: Any, state: Any) -> dict[str, Any]:
        found = {"key": key} if self.layer.random else {}
        return {**found, "state": state} if self.layer.stateful else found

    def _called(self, function: Any, key: Any, state: Any, p: Tree, x: Any) -> tuple[Any, Any]:
        answer = function(p, x, **self._keywords(key, state))
        if not self.layer.stateful:
            return answer, None
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise UsageError(f"{self.name} is stateful and returned a {type(answer).__name__}; legal: (y, state)")
        y, after = answer
        return y, jax.tree.map(jax.lax.stop_gradient, after)


class BoundCoupling(Bound):
    """A coupling block with the keys and the states of one call, F's and G's."""

    def __init__(self, layer: InvertibleLayer, name: str, key: Any, state: Any) -> None:
        super().__init__(layer, name, key, state)
        self._keys = jax.random.split(key) if layer.random else (None, None)
        self._states = (state["f"], state["g"]) if layer.stateful else (None, None)

    def run(self, p: Tree, x: Any) -> tuple[Any, Any]:
        """Y, and the state after the call."""
        if not isinstance(p, Mapping) or set(p) != {"f", "g"}:
            got = f"a dict with {sorted(map(str, p))}" if isinstance(p, Mapping) else f"a {type(p).__name__}"
            raise UsageError(f'the parameters of {self.name} are {got}; legal: {{"f": those of F, "g": those of G}}')
        x1, x2 = self._split(x)
        found, f_after = self._f(p["f"], x2, x1)
        y1 = halves.moved(jnp, found, x1)
        found, g_after = self._g(p["g"], y1, x2)
        after = {"f": f_after, "g": g_after} if self.layer.stateful else None
        return self._join(y1, halves.moved(jnp, found, x2)), after

    def with_log_det(self, p: Tree, x: Any) -> tuple[Any, Any]:
        """Y, and the sum of the log-scales of every entry of axis 0; UsageError if that axis is split."""
        halves.check_samples(self.layer.axis, x.shape, self.name)
        x1, x2 = self._split(x)
        of_f, _ = self._f(p["f"], x2, x1)
        y1 = halves.moved(jnp, of_f, x1)
        of_g, _ = self._g(p["g"], y1, x2)
        total = halves.log_scale(of_f, x1) + halves.log_scale(of_g, x2)
        return self._join(y1, halves.moved(jnp, of_g, x2)), total

    def inverse(self, p: Tree, y: Any) -> Any:
        """y -> x."""
        y1, y2 = self._split(y)
        x2 = halves.restored(jnp, self._g(p["g"], y1, y2)[0], y2)
        return self._join(halves.restored(jnp, self._f(p["f"], x2, y1)[0], y1), x2)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """Each function is run once, and pulled back once."""
        (x1, x2), (h1, h2) = self._split(x), self._split(h)
        y1, h2, h1, df = halves.advance(jnp, vjp, lambda p, x: self._f(p, x, x1)[0], p["f"], x2, x1, h2, h1)
        y2, h1, h2, dg = halves.advance(jnp, vjp, lambda p, x: self._g(p, x, x2)[0], p["g"], y1, x2, h1, h2)
        return tied((self._join(y1, y2), self._join(h1, h2), {"f": df, "g": dg}))

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """Each function is run once, and pulled back once."""
        (y1, y2), (h1, h2) = self._split(y), self._split(h)
        x2, h1, h2, dg = halves.retreat(jnp, vjp, lambda p, x: self._g(p, x, y2)[0], p["g"], y1, y2, h1, h2)
        x1, h2, h1, df = halves.retreat(jnp, vjp, lambda p, x: self._f(p, x, y1)[0], p["f"], x2, y1, h2, h1)
        return tied((self._join(x1, x2), self._join(h1, h2), {"f": df, "g": dg}))

    def _f(self, p: Tree, x: Any, like: Any) -> tuple[tuple[Any, ...], Any]:
        with halves.of_half(f"F of {self.name}", x.shape, self._whole(x, like), self.layer.axis):
            found, after = self._called(self.layer.forward, self._keys[0], self._states[0], p, x)
        return self._parts(found, like, "F"), after

    def _g(self, p: Tree, x: Any, like: Any) -> tuple[tuple[Any, ...], Any]:
        with halves.of_half(f"G of {self.name}", x.shape, self._whole(x, like), self.layer.axis):
            found, after = self._called(self.layer.inverse, self._keys[1], self._states[1], p, x)
        return self._parts(found, like, "G"), after

    def _whole(self, x: Any, like: Any) -> tuple[int, ...]:
        """The shape of both halves together."""
        shape = list(x.shape)
        shape[self.layer.axis] += like.shape[self.layer.axis]
        return tuple(shape)

    def _parts(self, found: Any, like: Any, name: str) -> tuple[Any, ...]:
        affine = self.layer.kind == "affine"
        halves.check_shape(found, like.shape, self.layer.axis, affine, f"{name} of {self.name}")
        if not affine:
            return (found,)
        shift, raw = jnp.split(found, 2, self.layer.axis)
        return shift, 0.5 * jnp.tanh(raw)

    def _split(self, x: Any) -> tuple[Any, Any]:
        axis = self.layer.axis
        if not -x.ndim <= axis < x.ndim or x.shape[axis] < 2:
            raise UsageError(
                f"{self.name} splits axis {axis}, and its input has shape {x.shape}; legal: at least 2 numbers along "
                "that axis; axis= names another one"
            )
        first, second = jnp.split(x, [x.shape[axis] // 2], axis)
        return first, second

    def _join(self, first: Any, second: Any) -> Any:
        return jnp.concatenate([first, second], self.layer.axis)


# x does not depend on h, and nothing depends on a gradient. Without a tie in every layer the compiler may compute every
# x first, or leave every gradient to the end, and keep what they need until then.
def tied(step: Step) -> Step:
    """The x, the h and the gradient of a layer, which become available together."""
    leaves, tree = jax.tree.flatten(step)
    places = [i for i, leaf in enumerate(leaves) if leaf.dtype != jax.dtypes.float0]  # that of an integer parameter
    for i, leaf in zip(places, jax.lax.optimization_barrier([leaves[i] for i in places]), strict=True):
        leaves[i] = leaf
    found: Step = jax.tree.unflatten(tree, leaves)
    return found


def bound(layers: Sequence[InvertibleLayer], key: Any, state: Any) -> list[Bound]:
    """The layers for one call, in order.

    Raises:
        UsageError: a layer draws random numbers or has a state, and none is given.
    """
    found: list[Bound] = []
    states = [None] * len(layers) if state is None else list(state)
    if len(states) != len(layers):
        raise UsageError(f"there are {len(layers)} layers and states of {len(states)}; give None for one without state")
    for i, (layer, held) in enumerate(zip(layers, states, strict=True)):
        coupling = layer.kind in ("additive", "affine")
        name = f"layer {i} ({layer.kind} coupling)" if coupling else f"layer {i} ({_called(layer)})"
        if layer.random and key is None:
            raise UsageError(f"{name} draws random numbers; give key=jax.random.key(…)")
        if layer.stateful and held is None:
            raise UsageError(f"{name} has a state; give state=, a list with an entry for each layer")
        own = jax.random.fold_in(key, i) if layer.random else None
        found.append((BoundCoupling if coupling else Bound)(layer, name, own, held))
    return found


def _called(layer: InvertibleLayer) -> str:
    return str(getattr(layer.forward, "__name__", type(layer.forward).__name__))
