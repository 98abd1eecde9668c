import gc
import itertools

import pytest

from gradgate.hw_profiles import torch_memory
from gradgate.references import registry
from gradgate.suites.gate import manifest
from gradgate.suites.measuring import cells

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.utils.checkpoint import checkpoint_sequential  # noqa: E402

WIDTH, BATCH, LAYERS = 32, 64, 16


def model():
    layers = (torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(LAYERS))
    return torch.nn.Sequential(*layers)


def plain(model, x):
    model.zero_grad()
    model(x).sum().backward()


def checkpointed(model, x):
    model.zero_grad()
    checkpoint_sequential(model, 4, x, use_reentrant=False).sum().backward()


def test_the_peak_is_told_by_category_and_adds_up():
    x = torch.ones(BATCH, WIDTH)
    peak = torch_memory.peak(plain, (model(), x))
    assert peak.held_bytes == LAYERS * (WIDTH * WIDTH + WIDTH) * 4 + x.nbytes
    assert peak.activation_bytes == pytest.approx(LAYERS * BATCH * WIDTH * 4, rel=0.1)
    parts = [peak.held_bytes, peak.activation_bytes, peak.temporary_bytes]
    assert sum(parts) == peak.total_bytes


def test_checkpointing_lowers_the_peak_and_both_repeat_to_the_byte():
    arguments = (model(), torch.ones(BATCH, WIDTH))
    first = [torch_memory.peak(program, arguments) for program in (plain, checkpointed)]
    again = [torch_memory.peak(program, arguments) for program in (plain, checkpointed)]
    assert first == again
    assert first[1].activation_bytes < 0.6 * first[0].activation_bytes


def freed_early(x):
    wide = x.repeat(8, 1)
    wide.untyped_storage().resize_(0)
    return x.repeat(4, 1)


def returned(x):
    wide = x.repeat(8, 1)
    return x.repeat(4, 1), wide


@pytest.mark.parametrize(("program", "copies"), [(freed_early, 8), (returned, 12)])
def test_a_storage_that_is_resized_counts_with_its_new_size(program, copies):
    x = torch.ones(BATCH, WIDTH)
    assert torch_memory.peak(program, (x,)).activation_bytes == copies * x.nbytes


def test_tensors_without_memory_are_not_counted_unless_the_whole_program_has_none():
    def shapes_alone(x):
        return torch.empty(1000, device="meta") + 1, x + 1

    x = torch.ones(BATCH, WIDTH)
    assert torch_memory.peak(shapes_alone, (x,)).activation_bytes == x.nbytes
    assert torch_memory.peak(lambda x: x + 1, (x.to("meta"),)).activation_bytes == x.nbytes


def plain_vjp(x):
    return torch.func.vjp(lambda y: y.sin().cos().sum(), x)[1](torch.ones(()))


@pytest.mark.parametrize("program", [freed_early, returned, plain_vjp])
def test_the_total_is_that_of_mem_tracker(program):
    from torch.distributed._tools.mem_tracker import MemTracker

    x = torch.ones(BATCH, WIDTH)
    tracker = MemTracker()
    tracker.track_external(x)
    with tracker:
        program(x)
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    assert torch_memory.peak(program, (x,)).total_bytes == peak["Total"]


def test_a_measurement_holds_for_any_profile_and_carries_the_work():
    small, large = (
        torch_memory.measure(plain, (model(), torch.ones(batch, WIDTH)), "nvidia-a100-40")
        for batch in (BATCH, 2 * BATCH)
    )
    assert small.status == "measured"
    assert small.fits
    assert small.argument_bytes + small.temp_bytes == small.required_bytes
    # The first layer needs no VJP to its input.
    sums = (2 * LAYERS - 1) * BATCH * WIDTH + LAYERS * WIDTH**2
    assert small.flops == (3 * LAYERS - 1) * 2 * BATCH * WIDTH**2 - sums
    assert large.temp_bytes - small.temp_bytes == pytest.approx(LAYERS * BATCH * WIDTH * 4, rel=0.2)


def test_a_program_that_raises_or_leaves_is_a_failed_measurement():
    def leave():
        raise SystemExit(3)

    assert torch_memory.measure(leave, ()).status == "failed"
    failed = torch_memory.measure(lambda x: x @ x, (torch.ones(2, 3),))
    assert failed.status == "failed"
    assert "RuntimeError" in failed.reason


def allocated(program, arguments):
    """The peak of what PyTorch's allocator gives a program beyond what was there, as its profiler saw it."""
    from torch.profiler import ProfilerActivity, profile

    gc.collect()
    gc.disable()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        program(*arguments)
    gc.enable()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def cross_entropy(w, x, hot):
    out = x @ w
    return ((out - out.max(-1, keepdim=True).values).exp().sum(-1).log() - (out * hot).sum(-1)).sum()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # from PyTorch's first jvp
def test_bytes_in_forward_mode_are_those_of_the_allocator():
    """A zero tangent has a size and no memory."""

    def program(w, x, hot):
        return torch.func.jvp(lambda w: cross_entropy(w, x, hot), (w,), (torch.ones_like(w),))

    arguments = torch.ones(16, 10), torch.ones(BATCH, 16), torch.eye(10)[torch.arange(BATCH) % 10]
    tracked = torch_memory.peak(program, arguments)
    assert tracked.total_bytes - tracked.held_bytes == allocated(program, arguments)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("method", registry.methods("invertible", framework="torch"), ids=lambda method: method.key)
def test_bytes_of_a_method_are_those_of_the_allocator(method):
    [cell] = manifest.Gated(method).cells(("cpu",))
    run, (problem,), further = cells.program(**cell.to_cell().static)
    with further["around"]:
        tracked = torch_memory.peak(run, (problem,), further["track"])
        assert tracked.total_bytes - tracked.held_bytes == allocated(run, (problem,))
