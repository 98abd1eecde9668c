"""How often the methods evaluate layers and inverses, and push or pull them: the formulas of their claims about counts.

A call is a call of a layer, of its inverse, of its pull-back by x (``pull``) or of the head, on a whole batch. ψ and
submersive layers count among the chain's layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gradgate.hw_profiles.calls import Calls
from gradgate.references.contract import Claim
from gradgate.references.counts import claim

HERE = "gradgate.references.invertible.counts"
COUPLINGS = ("additive", "affine")
MATRICES = ("dense", "conv1x1")


@dataclass(frozen=True)
class Chain:
    """The layers of a Spec's chain, in order.

    Attributes:
        words: each layer's kind: a word of the unit, ``psi`` or ``submersive``.
        outputs: numbers per sample that each layer puts out.
    """

    words: tuple[str, ...]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, spec: Any) -> Chain:
        """The chain of a Spec."""
        words, outputs = [], []
        for k in range(spec.blocks):
            numbers = spec.block_shape(k).numbers
            words += list(spec.words) * spec.layers
            outputs += [numbers] * len(spec.words) * spec.layers
            words += ["psi"] * (spec.side > 1) + ["submersive"] * (spec.submersive > 0)
            outputs += [numbers] * (spec.side > 1) + [spec.block_shape(k + 1).numbers] * (spec.submersive > 0)
        return cls(tuple(words), tuple(outputs))

    def number(self, *words: str) -> int:
        """How many layers are of these kinds; without arguments, of all kinds."""
        return sum(word in words for word in self.words) if words else len(self.words)

    @property
    def parametrised(self) -> int:
        """Layers with parameters."""
        return self.number(*COUPLINGS, *MATRICES, "submersive")

    def unused(self, framework: str) -> int:
        """How many steps of Moonwalk leave out their h, because nothing reads it: ψ at the end of the chain, in JAX.

        A layer with parameters needs its h. A step of a scan computes whatever is written in it, and so does PyTorch.
        """
        return int(framework == "jax" and self.words[-1] == "psi")


def plain(spec: Any, **_: Any) -> dict[str, Calls]:
    """One forward and one backward pass."""
    return {"layer": Calls(Chain.of(spec).number(), 0, Chain.of(spec).number()), "head": Calls(1, 0, 1)}


def pushed(spec: Any, **_: Any) -> dict[str, Calls]:
    """One forward pass with a tangent (§3.3)."""
    return {"layer": Calls(Chain.of(spec).number(), Chain.of(spec).number()), "head": Calls(1, 1)}


# A JVP per parameter, `tangents` at a time: these share the evaluations along which they are pushed. The loss is then
# evaluated by itself.
def forward(spec: Any, *, tangents: int, **_: Any) -> dict[str, Calls]:
    """A JVP through the chain for each of the P parameters (§3.2)."""
    layers, numbers = Chain.of(spec).number(), _parameters(spec)
    passes = math.ceil(numbers / tangents) + 1
    return {"layer": Calls(passes * layers, numbers * layers), "head": Calls(passes, numbers)}


# Forward through all layers; then each layer's input by its inverse, and the VJP at that input, which evaluates the
# layer again. A coupling runs its residual functions once for both its inverse and its VJP. ψ needs no VJP: its inverse
# takes h back too.
def reversible(spec: Any, **_: Any) -> dict[str, Calls]:
    """A forward pass, an inverse per layer and a VJP per layer."""
    chain = Chain.of(spec)
    psi, couplings = chain.number("psi"), chain.number(*COUPLINGS)
    pulled = chain.number() - psi - couplings
    return {
        "layer": Calls(chain.number() + pulled, 0, pulled),
        "inverse": Calls(chain.number() + psi, 0, couplings),
        "head": Calls(1, 0, 1),
    }


# Phase 2 with vijp in closed form: each layer is evaluated once, and pulled back once. ψ needs no VJP; it is applied to
# h as well as to x.
def _walk(chain: Chain, framework: str) -> tuple[int, int]:
    """Evaluations and VJPs of layers in phase 2."""
    psi = chain.number("psi")
    return chain.number() + psi - chain.unused(framework), chain.number() - psi


# h_0 has a component per number of a sample; where batch norm joins the samples, one per number of the batch. JAX goes
# through them sample by sample, PyTorch through all of them, `tangents` at a time.
def moonwalk(spec: Any, *, framework: str, tangents: int, **_: Any) -> dict[str, Calls]:
    """A JVP through the chain for each component of h_0, then phase 2 (Algorithm 1, §4.1)."""
    chain, numbers = Chain.of(spec), spec.numbers
    components = numbers * (spec.batch if spec.coupled else 1)
    passes = math.ceil(components / tangents)
    if framework == "jax" and spec.coupled:
        passes = spec.batch * math.ceil(numbers / tangents)
    evaluations, vjps = _walk(chain, framework)
    return {
        "layer": Calls(passes * chain.number() + evaluations, components * chain.number(), vjps),
        "head": Calls(passes + 1, components, 1),
    }


# Phase 1 goes by x alone: a forward pass, and each layer's own pull-back. Tanh takes a VJP besides, of ones: its
# derivative. Then phase 2. With vijp by the inverse, a step takes an evaluation for y, the inverse at y and its VJP,
# then another evaluation and the VJP by the parameters, if there are any. With vijp by a solve, a step takes an
# evaluation and a VJP for every number of y, and then the same.
def mixed(spec: Any, *, framework: str, vijp: str, **_: Any) -> dict[str, Calls]:
    """A forward and a backward pass, then phase 2 (Algorithm 1, §4.2)."""
    chain = Chain.of(spec)
    layers, unused = chain.number(), chain.unused(framework)
    evaluations, vjps = _walk(chain, framework)
    inverse = Calls()
    if vijp != "closed":
        evaluations, vjps = 2 * layers - unused, chain.parametrised
    if vijp == "inverse":
        inverse = Calls(layers - unused, 0, layers - unused)
    if vijp == "solve":
        vjps += spec.batch * sum(chain.outputs[: layers - unused])
    return {
        "layer": Calls(layers + evaluations, 0, chain.number("tanh") + vjps),
        "pull": Calls(layers),
        "inverse": inverse,
        "head": Calls(2, 0, 2),
    }


def _parameters(spec: Any) -> int:
    """P: numbers in all parameters."""
    from gradgate.references.backends import leaves

    return sum(math.prod(leaf.shape) for leaf in leaves(spec.layout()[1]))


def claims(framework: str) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claim about all counts."""

    def counted(formula: str, statement: str, source: str, **more: Any) -> tuple[Claim, ...]:
        given = {"framework": framework}
        return (claim("counts", statement, source, formula=f"{HERE}:{formula}", given=given, **more),)

    tangent = "pushes one tangent through every layer"
    return {
        "backprop": counted("plain", "evaluates and pulls back every layer once", "§3.1"),
        "forward": counted("forward", "pushes a tangent through every layer for each parameter", "§3.2"),
        "projected_forward": counted("pushed", tangent, "§3.3"),
        "reversible": counted(
            "reversible",
            "evaluates every layer, then its inverse, and pulls it back once",
            "RevBackprop",
            where={"submersive": 0},
        ),
        "moonwalk": counted(
            "moonwalk",
            "pushes a tangent through every layer for each number of x, then walks through the layers once",
            "Algorithm 1, §4.1",
        ),
        "moonwalk_mixed": counted(
            "mixed",
            "evaluates and pulls back every layer once, then walks through the layers once",
            "Algorithm 1, §4.2",
        ),
    }
