"""Bugs of `InvertibleSequential` and `invertible_sequential`: in formulas, in recomputation, in bookkeeping."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradgate.suites.bugs.edits import Edit, edited
from gradgate.suites.bugs.entries import EntryMutant
from gradgate.suites.pairs.pair import Pair


class DeepMutant(EntryMutant):
    """The bug is in a module that the entry point imports, so all modules that import it are loaded again."""

    @property
    def framework(self) -> str:
        """``jax`` or ``torch``."""
        return self.pair.rpartition("_")[2]

    def broken(self) -> Pair:
        """The pair with the bug; its reference is unchanged."""
        pair = self.unbroken()
        edits = [Edit(self.module, old, new) for old, new in self.edits]
        function: Any = edited(str(pair.function), edits, adopt=False)
        return dataclasses.replace(pair, function=function, framework=self.framework, name=self.name.replace(".", "_"))


def _bug(
    name: str,
    story: str,
    module: str,
    *edits: str,
    pairs: str = "revnet_torch revnet_jax",
    kill: str = "gradient_exact",
) -> tuple[DeepMutant, ...]:
    """One bug in each of the pairs; in the edits, each old text is followed by the new text."""
    changes = tuple(zip(edits[::2], edits[1::2], strict=True))
    return tuple(
        DeepMutant(
            f"invertible.{pair.rpartition('_')[2]}.sequential.{name}",
            story,
            f"invertible:{pair}",
            kill,
            module,
            changes,
        )
        for pair in pairs.split()
    )


_AHEAD = "return moved(xp, found, x2), h1 - d1, h2, dp"

FORMULAS = (
    *_bug(
        "log_scale_sign",
        "in the backward pass, the cotangent of a scaled half is divided by the scale",
        "halves",
        "h2 = h2 * xp.exp(found[1])",
        "h2 = h2 * xp.exp(-found[1])",
    ),
    *_bug(
        "scale_of_the_input",
        "the log-scale's cotangent has x2 in the place of x2·e^s",
        "halves",
        "shares = (h2, h2 * (y2 - found[0]))",
        "shares = (h2, h2 * restored(xp, found, y2))",
    ),
    *_bug(
        "through_the_function",
        "the cotangent through the function is not added to the half that stays",
        "halves",
        "return x2, h1 + d1, h2, dp",
        "return x2, h1, h2, dp",
        pairs="revnet_jax",
    ),
    *_bug(
        "through_the_function",
        "the cotangent through the function is not added to the half that stays",
        "in_torch.steps",
        "h1 = h1 + d1",
        "h1 = h1 + 0 * d1",
        pairs="revnet_torch",
    ),
    *_bug(
        "through_the_first_function",
        "the cotangent through F is not added to the half that stays",
        "in_torch.steps",
        "h2 = h2 + d2",
        "h2 = h2 + 0 * d2",
        pairs="revnet_torch",
    ),
    *_bug(
        "half_of_the_layer_above",
        "a coupling reads the halves of the layer above in exchanged order",
        "in_torch.steps",
        "return first, second\n\n\ndef whole",
        "return second, first\n\n\ndef whole",
        pairs="revnet_torch",
    ),
    *_bug(
        "walk_sign",
        "the forward walk adds what it must subtract",
        "halves",
        _AHEAD,
        _AHEAD.replace("-", "+"),
    ),
    *_bug(
        "halves_exchanged",
        "the halves change places in the backward pass",
        "in_torch.steps",
        "return self._halves(x1, x2), self._halves(h1, h2)",
        "return self._halves(x2, x1), self._halves(h2, h1)",
        pairs="revnet_torch",
    ),
    *_bug(
        "halves_exchanged",
        "the halves change places in the backward pass",
        "in_jax.own_layers",
        "tied((self._join(x1, x2), self._join(h1, h2)",
        "tied((self._join(x2, x1), self._join(h2, h1)",
        pairs="revnet_jax",
    ),
)

AGAIN = (
    *_bug(
        "statistics_twice",
        "running statistics are updated once more when a layer runs again",
        "in_torch.replay",
        "copies = {name: leaf.clone() for name, leaf in self._buffers.items()}",
        "copies = dict(self.module.named_buffers())",
        pairs="normed_torch",
        kill="module_protocol",
    ),
    *_bug(
        "dropout_again",
        "a layer that runs again draws other random numbers",
        "in_torch.replay",
        "for generator, state in self._generators:\n                generator.set_state(state)\n            with",
        "with",
        pairs="normed_torch",
    ),
    *_bug(
        "drawn_in_the_order_of_the_way_back",
        "F and G share one state of the random generator",
        "in_torch.steps",
        'self.f, self.g = Call(module.f, f"F of {name}"), Call(module.g, f"G of {name}")',
        'self.f, self.g = Call(module.f, f"F of {name}"), Call(module.g, f"G of {name}")\n'
        "        self.g.again = lambda p, x: (setattr(self.g, '_generators', self.f._generators), "
        "Call.again(self.g, p, x))[1]",
        pairs="normed_torch",
    ),
    *_bug(
        "mode_of_today",
        "a layer runs again in its current mode",
        "in_torch.replay",
        "if part.training != mode]",
        "if part.training is None]",
        pairs="normed_torch",
        kill="module_protocol",
    ),
    *_bug(
        "one_key_for_both",
        "F and G get the same key",
        "in_jax.own_layers",
        "jax.random.split(key) if",
        "(key, key) if",
        pairs="noisy_jax",
        kill="outputs",
    ),
    *_bug(
        "key_of_the_way_back",
        "a layer that runs again has the key of another layer",
        "in_jax.sequential",
        "        chain = start(params, key, state)\n        if method",
        "        chain = start(params, jax.random.fold_in(key, 1), state)\n        if method",
        pairs="noisy_jax",
    ),
    *_bug(
        "weights_of_today",
        "a layer runs again with its current weights",
        "in_torch.run",
        "ctx.save_for_backward(*parameters, *kept)",
        "ctx.held = parameters\n        ctx.save_for_backward(*kept)",
        "saved = ctx.saved_tensors",
        "saved = (*ctx.held, *ctx.saved_tensors)",
        pairs="own_layers_torch",
        kill="module_protocol",
    ),
)

BOOKS = (
    *_bug(
        "last_use_alone",
        "if two layers share a parameter, the gradient of one layer is lost",
        "in_torch.run",
        "sums[place] + grad if place in sums else grad",
        "grad",
        pairs="own_layers_torch",
    ),
    *_bug(
        "output_kept",
        "the output of a kept layer is kept in place of its input",
        "in_torch.run",
        "                if step.hands_over:\n                    step.saved = x\n                x = step(None, x)\n",
        "                x = step(None, x)\n                if step.hands_over:\n                    step.saved = x\n",
        pairs="own_layers_torch",
    ),
    *_bug(
        "one_sample_for_all",
        "each JVP is computed for all samples at once, and summed over them",
        "in_torch.run",
        "return shares.sum() if self.coupled else shares.flatten(1).sum(1)",
        "return shares.sum() if self.coupled else shares.flatten(1).sum(1).mean().expand(len(shares))",
        pairs="walked_torch",
        kill="options",
    ),
    *_bug(
        "cotangent_of_the_input",
        "the VJP of a kept layer gets the cotangent of its input",
        "in_jax.own_layers",
        "tied((y, handed, pull(handed)[0]))",
        "tied((y, handed, pull(h)[0]))",
        pairs="own_layers_jax",
        kill="options",
    ),
    *_bug(
        "vijp_left_out",
        "the user's vijp is not called, and h passes unchanged",
        "in_jax.own_layers",
        'self._array(self.layer.vijp(p, x, h, **self._keywords(self.key, self.state)), "has a vijp that gives")',
        "h[:, 1:] if y.shape != x.shape else self.layer.vijp(p, x, h, **self._keywords(self.key, self.state))",
        pairs="own_layers_jax",
    ),
)

MUTANTS = (*FORMULAS, *AGAIN, *BOOKS)
