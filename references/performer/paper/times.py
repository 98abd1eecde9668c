"""Times as ratios on one thread of a CPU: processor seconds, which other programs on the machine do not change much.

The sides of a ratio alternate, and the median is taken. Problems of one layer stand for those of three, because both
sides grow alike with the number of layers.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from gradgate.references.performer.problem import PerformerSpec
from gradgate.references.published import Published, equal, less_than, upheld

HERE = "gradgate.references.performer.paper.times"
ONE_LAYER = "seconds of three layers on a P100, which are not measurable here"
TWICE = (
    "Ours are of one layer on a thread of a CPU: all slices but the last run forward twice, 3.5 and 3.67 passes for 3, "
    "which is 1.17 and 1.22 by FLOPs and what a CPU takes"
)
OTHER = "the paper's are seconds on a P100, ours processor seconds on a thread of a CPU"


def seconds(run: Callable[[], Any]) -> float:
    """Processor seconds of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def ratio(over: Callable[[], Any], under: Callable[[], Any], repeats: int) -> float:
    """The median of the quotients of processor seconds; the two alternate, after a run of each that does not count."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if repeats > 1:
            over(), under()
        return statistics.median(seconds(over) / seconds(under) for _ in range(repeats))
    finally:
        torch.set_num_threads(threads)


def _slim(spec: PerformerSpec, chunk: int, prefix_sum: str) -> Callable[[], Any]:
    from gradgate.references.performer.in_torch import methods

    problem: Any = spec.build("torch")
    return lambda: methods.slim(problem, chunk=chunk, prefix_sum=prefix_sum)


def _full(spec: PerformerSpec, prefix_sum: str) -> Callable[[], Any]:
    from gradgate.references.performer.in_torch import methods

    problem: Any = spec.build("torch")
    return lambda: methods.full_iterative(problem, prefix_sum=prefix_sum)


def over_full(name: str, chunk: int, prefix_sum: str = "block", repeats: int = 1) -> float:
    """Algorithm 1 over the full algorithm, on one layer of a configuration, in PyTorch."""
    from gradgate.references.performer.paper.measured import configuration

    spec = configuration(name, layers=1)
    return ratio(_slim(spec, chunk, prefix_sum), _full(spec, prefix_sum), repeats)


def iterative_over_explicit(chunk: int = 256, repeats: int = 5) -> float:
    """Algorithm 1 with blocks over the same with explicit prefix sums, one layer of configuration I, in PyTorch."""
    from gradgate.references.performer.paper.measured import configuration

    spec = configuration("I", layers=1)
    return ratio(_slim(spec, chunk, "block"), _slim(spec, chunk, "explicit"), repeats)


def four_times_as_long(chunk: int = 256, repeats: int = 3) -> float:
    """Algorithm 1 at L = 4096 over L = 1024 at equal C and d_model: what IV takes of III, at a quarter of both."""
    from gradgate.references.performer.paper.measured import configuration

    short, long = (configuration("I", layers=1, length=length) for length in (1024, 4096))
    return ratio(_slim(long, chunk, "block"), _slim(short, chunk, "block"), repeats)


def at_chunk(framework: str, chunk: int, length: int = 128, repeats: int = 5) -> float:
    """Algorithm 1 at C over the same at C = L, where a slice is too small to keep a device busy."""
    spec = PerformerSpec(dtype="float32", length=length, layers=1, heads=1, head_width=8, expansion=2)
    if framework == "torch":
        return ratio(_slim(spec, chunk, "matrix"), _slim(spec, length, "matrix"), repeats)
    return ratio(_jitted(spec, chunk), _jitted(spec, length), repeats)


def _jitted(spec: PerformerSpec, chunk: int) -> Callable[[], Any]:
    import jax

    from gradgate.references.performer.in_jax import methods

    problem = spec.build("jax")
    program = jax.jit(functools.partial(methods.slim, chunk=chunk, prefix_sum="matrix"))
    jax.block_until_ready(program(problem))
    return lambda: [jax.block_until_ready(program(problem)) for _ in range(20)]


def one_by_one_over_blocks(length: int = 1024, width: int = 64, repeats: int = 3) -> float:
    """Attention alone and its gradient, one by one over blocks of 32, in PyTorch with M = d = width."""
    one, blocks = (_attention(name, length, width) for name in ("iterative", "block"))
    return ratio(one, blocks, repeats)


def _attention(prefix_sum: str, length: int, width: int) -> Callable[[], Any]:
    import torch

    from gradgate.references.performer.in_torch.attention import attention

    generator = torch.Generator().manual_seed(0)
    q, k = (torch.rand((length, 1, 1, width), generator=generator) for _ in range(2))
    v = torch.rand((length, 1, 1, width + 1), generator=generator)
    zero = torch.zeros((1, 1, width + 1, width))

    def run() -> Any:
        out, after, pull = attention(prefix_sum)(q, k, v, zero)
        return pull(out, torch.zeros_like(after))

    return run


def parallel_sum(x: Any) -> Any:
    """Prefix sums over axis 0 in ⌈log₂ n⌉ steps: each adds the sums that end 1, 2, 4, … places before."""
    import torch

    reach = 1
    while reach < len(x):
        x = torch.cat([x[:reach], x[reach:] + x[:-reach]])
        reach *= 2
    return x


def cumsum_over_own(what: str, length: int = 1024, numbers: int = 4096, repeats: int = 5) -> float:
    """`torch.cumsum` over `parallel_sum`: ``seconds``, or ``bytes`` of the peak of a run."""
    import torch

    x = torch.rand((length, numbers), generator=torch.Generator().manual_seed(0))
    if what == "seconds":
        return ratio(lambda: torch.cumsum(x, 0), lambda: parallel_sum(x), repeats)
    from gradgate.hw_profiles.torch_memory import peak

    native, own = (peak(run, (x,)).total_bytes for run in (lambda x: torch.cumsum(x, 0), parallel_sum))
    return native / own


def _time(
    place: str,
    series: str,
    x: Any,
    name: str,
    told: dict[str, Any],
    printed: float | None,
    agreement: Any,
    unlike: str = OTHER,
) -> Published:
    where = "gradgate.references.derived" if name == "growth" else HERE
    drawn = printed is None
    return Published(
        place,
        series,
        x,
        "times",
        f"{where}:{name}",
        told,
        printed,
        expects=None if drawn else upheld(agreement),
        unlike="" if drawn else unlike,
        drawn=drawn,
    )


SMALL = "Fig. 2, time at small C"
WORDS = "the paper speaks of seconds on a P100, in words alone; ours are processor seconds on a thread of a CPU"
COMPILED = (
    "the paper's program is PyTorch's. Here the loop over slices is compiled, and on a CPU no kernel is started for "
    "each operation, which is what makes small slices slow in PyTorch"
)
ROWS = (
    *(
        Published(
            "Table 2",
            "time over full, one layer, PyTorch, CPU",
            f"Enwik8 4096, {chunk}",
            "times",
            f"{HERE}:over_full",
            {"name": "III", "chunk": chunk},
            None,
            f"printed are {printed / 0.4598:.2f} times, of {ONE_LAYER}. {TWICE}",
        )
        for chunk, printed in ((2048, 0.7922), (1366, 0.8654))
    ),
    *(
        _time(
            "Fig. 2, time",
            f"{name}, {label}, one layer",
            chunk,
            "over_full",
            {"name": name, "chunk": chunk, "prefix_sum": kind},
            None,
            None,
        )
        for name, label, kind, chunk in (
            ("II", "PS", "explicit", 256),
            ("II", "PS", "explicit", 64),
        )
    ),
    _time(
        "Fig. 2, time",
        "L = 4096 over L = 1024",
        "C = 256",
        "four_times_as_long",
        {},
        4.0,
        equal(0.25, "the paper's III and IV differ in L alone: four times the slices"),
    ),
    *(
        _time(SMALL, framework, chunk, "at_chunk", {"framework": framework, "chunk": chunk}, None, None)
        for framework in ("torch", "jax")
        for chunk in (1, 2, 4, 8)
    ),
    _time(
        SMALL,
        "torch",
        "exponent of C",
        "growth",
        {"of": f"{SMALL} / torch"},
        -1.0,
        equal(0.25, "the dotted line is proportional to 1/C; a slice's own tokens take some time too"),
    ),
    Published(
        SMALL,
        "jax",
        "exponent of C",
        "times",
        "gradgate.references.derived:growth",
        {"of": f"{SMALL} / jax"},
        None,
        COMPILED,
    ),
    Published(
        "§4.1",
        "cumsum over our parallel prefix sum",
        "seconds",
        "times",
        f"{HERE}:cumsum_over_own",
        {"what": "seconds"},
        None,
        WORDS,
    ),
    Published(
        "§4.1",
        "cumsum over our parallel prefix sum",
        "bytes",
        "times",
        f"{HERE}:cumsum_over_own",
        {"what": "bytes"},
        1.0,
        "bytes of tensors, which are the same on every device",
        expects=upheld(less_than('"consumes less memory"')),
    ),
    Published(
        "§4.1",
        "attention in blocks over explicit sums",
        "C = 256",
        "times",
        f"{HERE}:iterative_over_explicit",
        {},
        None,
        WORDS,
    ),
    Published(
        "App. B",
        "attention one by one over blocks of 32",
        "seconds",
        "times",
        f"{HERE}:one_by_one_over_blocks",
        {},
        None,
        WORDS,
    ),
)
