"""Why our byte counts differ from the paper's, each reason tested on the device of its rows."""

from __future__ import annotations

from typing import Any

SIZE: dict[Any, str] = {
    "GPU": "with B = 3 and S = 4096 nine of the 16 figures of the GPU come out. Without block rematerialisation, and "
    "without mixed mode, a layer keeps 11 arrays of scores here, by the printed bytes 8; not because of the softmax "
    "(jax.nn.softmax: the same bytes) nor the scan (44M with layers unrolled: 58.7 GiB; both tested, listed below)",
    "TPU": "with B = 3 and S = 4096, which fit the GPU, one of the 16 figures of the TPU comes out: -++ of 44M by "
    "Listings 1 and 3 with layers in a Python loop, 34.9 GiB. So written -+- is 6% above the printed, +-- 18% "
    "above, +-+ 25% below. With layers in a scan -++ and -+- are 7% to 12% above, +-- and +-+ a third, and ++- "
    "and +++ 20% to 26% below. At B = 4, +++ of 44M takes 13.0 GiB in a scan, as printed, but then -+- takes "
    "48.3. The paper names neither B nor S, nor how layers run",
    ("GPU", "++-"): "layers run in a scan here, in which a compiler cannot see that the gradient of the step and that "
    "inside the product are one. By Listings 1 and 3 with layers in a Python loop saving gradients matters as printed: "
    "34.5 GiB without at 44M and 13.4 with, printed are 45.2 and 16.4 (tested, listed below)",
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
