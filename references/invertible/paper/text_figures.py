"""What the paper says of its curves, each as one number from figures that are measured already."""

from __future__ import annotations

from gradgate.references.published import (
    Published,
    at_least,
    at_most,
    equal,
    less_than,
    more_than,
    refuted,
    unexplained,
    upheld,
)

VALUE, QUOTIENT = "gradgate.references.derived:value", "gradgate.references.derived:quotient"
GROWTH = "gradgate.references.derived:growth"
PARTS, SIZES = "gradgate.references.invertible.paper.parts", "gradgate.references.invertible.paper.sizes"
DIGITS = "Fig. 4, 5, digits / mean, spread, error, drift and overflow over 20 starts"
HALF = "Fig. 4, 5, digits, scale 0.5 / mean, spread, error, drift and overflow over 6 starts"
EPOCHS = "§6.6, 35 epochs of the digits"
GENERATED = "Fig. 4, 5 / training with tanh on the outputs / scale 0.3, spread 0.5"
UNSAID = "The paper does not say which weights it starts from"
PROCESS = "the paper compares what nvidia-smi shows of processes, and programs alone settle nothing of that"
HEAVY_GRADIENTS = 4_263_936
"""Bytes of the gradients of the network of one step (`steps.heavy`), its head's left out."""


def _over(over: str, under: str, take: str = "last") -> dict[str, str]:
    return {"over": over, "under": under, "take": take}


def _memory() -> tuple[Published, ...]:
    return (
        Published(
            "Abstract, memory",
            "moonwalk / forward",
            "8 channels, 10 layers per block",
            "times",
            QUOTIENT,
            _over("Fig. 1 / 8 channels, moonwalk / 10", "Fig. 1 / 8 channels, forward / 10"),
            None,
            f"Moonwalk holds h of the batch, as large as x, 16.8 MB here, which forward does not; {PROCESS}",
        ),
        Published(
            "§6.3, one layer",
            "moonwalk / backprop",
            "8 channels, 1 layer per block",
            "times",
            QUOTIENT,
            _over("Fig. 1 / 8 channels, moonwalk / 1", "Fig. 1 / 8 channels, backprop / 1"),
            None,
            PROCESS,
        ),
        *(
            Published(
                "§6.3, expanded disparity",
                f"bytes of backprop less those of {method}",
                "18 channels / 8 channels",
                "times",
                f"{SIZES}:disparity_growth",
                {"method": method},
                1.0,
                "a difference of bytes: what a process holds besides, which nvidia-smi counts, falls out of it. The "
                "share of backprop's bytes stays the same to 8% (Fig. 1, share; Fig. 2, share)",
                expects=upheld(more_than('"an expanded disparity between Backprop and forward methods"')),
            )
            for method in ("moonwalk", "projected_forward", "forward")
        ),
        Published(
            "§6.3, Forward and the size of layers",
            "forward",
            "18 channels / 8 channels",
            "times",
            QUOTIENT,
            _over("Fig. 2 / 18 channels, forward / 10", "Fig. 1 / 8 channels, forward / 10"),
            1.0,
            "forward keeps the activations of one layer and a tangent of them, which grow with the channels",
            expects=refuted(at_most('"confined solely to the number of layers"'), instead=18 / 8, spread=0.25),
        ),
        Published(
            "§6.5, alternative methods",
            "moonwalk_mixed / moonwalk",
            "8 channels, 10 layers per block",
            "times",
            QUOTIENT,
            _over("Fig. 1 / 8 channels, moonwalk_mixed / 10", "Fig. 1 / 8 channels, moonwalk / 10"),
            None,
            f"mixed keeps what VJPs by x need of every layer, and Moonwalk only of one; {PROCESS}",
        ),
        Published(
            "§6.5, increase over Forward",
            "moonwalk_mixed / forward",
            "18 channels, 10 layers per block",
            "times",
            QUOTIENT,
            _over("Fig. 2 / 18 channels, moonwalk_mixed / 10", "Fig. 2 / 18 channels, forward / 10"),
            1.0,
            expects=upheld(more_than('"a noticeable increase in memory usage over Forward"')),
        ),
    )


def _steps() -> tuple[Published, ...]:
    descent, adam = ("Beyond the paper, one step of gradient descent", "Beyond the paper, one step of Adam")
    part = less_than('"can be applied … and immediately dropped": less than with all of them, of 32 units')
    return (
        Published(
            "§4.2, gradients stored",
            "backprop",
            "one step of gradient descent",
            "B",
            VALUE,
            {"of": f"{descent} / all, then applied / backprop", "take": "last"},
            float(HEAVY_GRADIENTS),
            expects=upheld(equal(0.15, '"store all gradients before applying any": they are nearly all')),
        ),
        *(
            Published(
                "Algorithm 1, apply and drop",
                "moonwalk_mixed, handed out / all, then applied",
                name,
                "times",
                QUOTIENT,
                _over(f"{place} / handed out / moonwalk_mixed", f"{place} / all, then applied / moonwalk_mixed"),
                1.0,
                expects=upheld(part),
            )
            for name, place in (("gradient descent", descent), ("Adam", adam))
        ),
    )


def _training() -> tuple[Published, ...]:
    perfect = equal(0.0, '"both Backprop and Mixed achieve perfect accuracy"')
    return tuple(
        Published(
            "Fig. 4, generated images",
            "train accuracy on the last batch",
            method,
            "",
            VALUE,
            {"of": f"{GENERATED} / accuracy_{method}", "take": "last"},
            1.0,
            expects=upheld(perfect),
        )
        for method in ("backprop", "moonwalk_mixed")
    )


def _parts() -> tuple[Published, ...]:
    few, many = ("§6.2, bytes of forward / tangents together / 1", "§6.2, bytes of forward / tangents together / 256")
    return (
        Published(
            "§4.1, phase 1 alone",
            "by JVPs",
            "256 layers / 16 layers",
            "times",
            f"{PARTS}:phase_one",
            {},
            1.0,
            expects=upheld(equal(0.05, '"we avoid storing activations": 5% for what the compiler aligns')),
        ),
        Published(
            "§4.2, phase 1 alone",
            "by reverse mode",
            "64 to 256 layers / 16 to 64 layers",
            "times",
            f"{PARTS}:phase_one_reverse",
            {},
            4.0,
            expects=upheld(equal(0.05, '"Mx L": by reverse mode each layer adds as much; 5% for what is aligned')),
        ),
        Published(
            "§6.3, dominated by Mx L",
            "moonwalk_mixed",
            "18 channels, 10 layers per block",
            "%",
            f"{PARTS}:kept_by_mixed",
            {},
            50.0,
            expects=upheld(more_than('"mostly dominated by Mx L": more than half')),
        ),
        *(
            Published(
                "§6.2, bytes of forward",
                "tangents together",
                tangents,
                "B of temporaries",
                f"{PARTS}:forward_bytes",
                {"tangents": tangents},
            )
            for tangents in (1, 16, 64, 256)
        ),
        Published(
            "§6.2, more memory",
            "forward, 256 tangents together / one",
            "16 layers",
            "times",
            QUOTIENT,
            _over(many, few),
            1.0,
            expects=upheld(more_than('"at the cost of an increased overall memory footprint"')),
        ),
    )


def _digits() -> tuple[Published, ...]:
    below = less_than('"RevBackprop fails to converge when an activation function is added": it ends below Backprop')
    others = equal(0.01, '"both Backprop and Mixed achieve perfect accuracy": one image in a hundred is left')
    first = at_most('"attributed to the error accumulating with each update": before the first, 1 start of 20 at most')
    return (
        *(
            Published(
                "§6.6, fails to converge",
                "digits, scale 0.5",
                f"accuracy of {method} at the end",
                "",
                VALUE,
                {"of": f"{HALF} / {method} / accuracy", "take": "last"},
                printed,
                expects=upheld(said),
            )
            for method, printed, said in (
                ("backprop", 1.0, others),
                ("moonwalk_mixed", 1.0, others),
            )
        ),
        Published(
            "§6.6, fails to converge",
            "digits, scale 0.5",
            "accuracy of reversible at the end / backprop",
            "times",
            QUOTIENT,
            _over(f"{HALF} / reversible / accuracy", f"{HALF} / backprop / accuracy"),
            1.0,
            expects=upheld(below),
        ),
        Published(
            "§6.6, error accumulating",
            "digits, scale 1",
            "starts whose first gradient is not finite",
            "starts",
            VALUE,
            {"of": f"{DIGITS}, scale 1 / reversible / overflowed", "take": "first"},
            1.0,
            "outputs of tanh are rounded to 1, whose inverse is infinite, before the first update. At a scale of 0.3 "
            f"the error does grow with the steps (listed below), and no start of ten is lost in 35 epochs. {UNSAID}",
            expects=unexplained(first, instead=20.0, spread=0.05),
        ),
    )


def _epochs() -> tuple[Published, ...]:
    error = f"{EPOCHS} / mean, spread, error, drift and overflow over 10 starts / reversible / error"
    place = f"{EPOCHS}, in words"
    noticeable = at_least('"becomes noticeable after 30 epochs": a tenth of the gradient')
    grows = more_than('"the accumulating error": what does not accumulate has an exponent of 0')
    return (
        Published(
            place,
            "largest error of reversible after 30 epochs",
            "steps 842 to 1000",
            "relative",
            VALUE,
            {"of": error, "take": "largest", "between": [842, 1000]},
            0.1,
            "its error grew from 7e-6 to 9e-5; one start of ten is lost at step 900, in epoch 32. In an earlier run it "
            "grew to 1.5e-4, and none was lost. At a scale of 1 all starts are lost at step 0 (listed above). "
            f"{UNSAID}, and 30 epochs of CIFAR-10 are 2,930 steps",
            expects=unexplained(noticeable, instead=1.2e-4, spread=0.5),
        ),
        Published(
            place,
            "growth of the error of reversible",
            "exponent of the steps",
            "",
            GROWTH,
            {"of": error, "between": [25, 1000]},
            0.0,
            expects=upheld(grows),
        ),
    )


SAID = (*_memory(), *_steps(), *_training(), *_parts(), *_digits(), *_epochs())
