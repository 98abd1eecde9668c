"""Why our byte counts differ from the paper's, each reason tested on the device of its rows."""

from __future__ import annotations

from typing import Any

SIZE: dict[Any, str] = {
    "GPU": "with B = 3 and S = 4096 nine of the 16 figures of the GPU come out. Without block rematerialisation, and "
    "without mixed mode, a layer keeps 11 arrays of scores here, by the printed bytes 8; not because of the softmax "
    "(jax.nn.softmax: the same bytes) nor the scan (44M with layers unrolled: 58.7 GiB; both tested, listed below)",
    "TPU": "with B = 3 and S = 4096, which fit the GPU, -++ and -+- take 7% to 12% more than printed, +-- and +-+ a "
    "third more, mixed mode with rematerialisation 20% to 26% less. Layers unrolled do not explain it: +++ of 44M then "
    "takes 34.2 GiB (tested, listed below). Of B = 2 and 3 at 4096, and of 4 at 2048 and 3072, none fits both",
    ("GPU", "++-"): "layers run in a scan here, in which a compiler cannot see that the gradient of the step and that "
    "inside the product are one. With layers unrolled saving gradients matters as printed: 57.4 GiB without at 44M, "
    "printed are 45.2 (tested, listed below)",
    ("GPU", "+++"): "at 44M it comes out (16.35 GiB, printed 16.4); at 489M 11.7 GiB are missing, 6 arrays like θ. Two "
    "steps more would keep 14.6 GiB more, but then -++ is 7% above the printed (by the static bytes of T = 4)",
}
"""Device, or device and signs -> why ours of Tables 2 and 3 differs."""
TOY = (
    "Listing 4 rematerialises no inner step, though §4 says that all benchmarks do; without that the default keeps the "
    "activations of all steps, and mixed mode saves 80% (tested, listed below)"
)
LISTING = {
    False: "not M: of 4096 transformations it saves 80% too (tested, listed below); what is left was not found",
    True: "Listing 4 as printed rematerialises no inner step, and then saves 80% (tested, listed above)",
}
"""Inner steps rematerialised or not -> why ours of Fig. 1 by Listing 4 differs."""
KEPT = (
    "from 8 layers on dynamic bytes are 7.9 GiB + 1.36 GiB·L by default and 5.2 GiB + 31 MiB·L in mixed mode (by the "
    "programs of this sweep): the constants keep the exponent below 1. The paper names neither batch nor context; ours "
    "are 4 and 2048. Where scores outweigh all else the gain is linear (claim gain_linear_in_layers)"
)
