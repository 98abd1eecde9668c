"""Where a pair's function runs: eagerly on the CPU, in Triton's interpreter, or on a CUDA device."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import UsageError, unknown
from gradgate.suites.judging.subject import Inapplicable
from gradgate.suites.pairs.device_names import DEVICES, ENVIRONMENT, INTERPRETER, VARIABLE


class Elsewhere(Inapplicable):
    """A function cannot run in this process; it can run in a process that was started for its device.

    Attributes:
        device: the device.
    """

    def __init__(self, device: str) -> None:
        value = ENVIRONMENT[device][VARIABLE]
        super().__init__(
            f"Triton reads {VARIABLE} when a kernel is declared: start this process with "
            f"{VARIABLE}={value}, or use gradgate verify, whose workers have it"
        )
        self.device = device


def check(who: str, devices: Any) -> None:
    """Check the devices that a pair declares.

    Raises:
        UsageError: names the wrong device and lists the legal ones.
    """
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise UsageError(f"{who}: devices is a tuple such as ('interpreter',), not {devices!r}")
    for name in devices:
        if name not in DEVICES:
            raise unknown(f"device of {who}", str(name), DEVICES)


def missing(device: str) -> str:
    """Why no function can run on a device of this machine; "" if functions can."""
    if device == INTERPRETER:
        absent = importlib.util.find_spec("triton") is None
        return "triton is not installed: pip install 'gradgate[triton]'" if absent else ""
    import torch

    return "" if torch.cuda.is_available() else f"torch {torch.__version__} sees no CUDA device on this machine"


def device_of(devices: Sequence[str]) -> str:
    """The first of the devices that this machine has; "" if there are none, or the machine has none of them."""
    return next((device for device in devices if not missing(device)), "")


def elsewhere(function: Any) -> str:
    """The device for which another process must be started to run a pair's function; "" if this process can run it.

    Args:
        function: a pair, or any other method.
    """
    device = device_of(getattr(function, "devices", ()))
    return device if device and _interpreting() != (device == INTERPRETER) else ""


@contextlib.contextmanager
def running(devices: Sequence[str]) -> Iterator[str]:
    """The scope of a call of a pair's function; gives the device that it runs on, "" for the CPU.

    Raises:
        Inapplicable: this machine has none of the devices; the message says why. Elsewhere: another process must run
            the function.
    """
    if not devices or _skipped():
        yield ""
        return
    device = device_of(devices)
    if not device:
        raise Inapplicable("; ".join(missing(name) for name in devices))
    if _interpreting() != (device == INTERPRETER):
        raise Elsewhere(device)
    yield device


def loaded(given: Any, devices: Sequence[str]) -> Any:
    """A pair's function, loaded after Triton is prepared; if Triton is missing, a function that says so when called.

    Args:
        given: the function's target, as text; anything else is returned as it is.
        devices: the pair's devices.

    Raises:
        UsageError, ImportError: the function cannot be found, although Triton is installed.
    """
    why = missing(INTERPRETER) if devices else ""
    if devices and not why:
        from gradgate.suites.pairs import triton_interpreter

        triton_interpreter.prepare()
    if not isinstance(given, str):
        return given
    try:
        return registry.load(given)
    except (UsageError, ImportError):
        if not why:
            raise
        return functools.partial(_absent, why)


def _interpreting() -> bool:
    """Whether this process interprets Triton's kernels. Only pairs that declare devices need the interpreter."""
    from gradgate.suites.pairs import triton_interpreter

    return triton_interpreter.interpreting()


def _skipped() -> bool:
    from gradgate.suites.measuring import launches

    return launches.skipped()


def _absent(why: str, *_: Any, **__: Any) -> Any:
    raise Inapplicable(why)


def call(device: str, function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """What a function returns on a device that `running` gives, with all tensors on the CPU."""
    if not device or device == INTERPRETER:
        return function(*arguments, **keywords)
    from gradgate.suites.pairs import transfer

    return transfer.call(device, function, arguments, keywords)
