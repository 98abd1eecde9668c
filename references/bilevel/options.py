"""The options that the frameworks share."""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import IllegalOption, UsageError, check_integer


def check_flag(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        IllegalOption: it is neither.
    """
    if not isinstance(value, bool):
        raise IllegalOption(f"{name} must be True or False, not {value!r}")
    return value


def check_devices(spec: Any, value: Any) -> int:
    """`value` if it is a number of devices that the batch of `spec` can be divided among equally.

    Raises:
        IllegalOption: it is not an integer of at least 1, or does not divide the batch.
    """
    devices = check_integer("devices", value, 1, spec.batch)
    if spec.batch % devices:
        raise IllegalOption(f"devices must divide the batch of {spec.batch}, which {devices} does not")
    return devices


def reads_eta(spec: Any) -> bool:
    """Whether the inner loss reads η: in maml and learning_lr it does not; of a user's own model it is not known."""
    return getattr(spec, "task", "") not in ("maml", "learning_lr")


def chosen_arguments(argnums: Any, given: int) -> list[int]:
    """The indices that `argnums` names among `given` positional arguments.

    Raises:
        UsageError: it is neither an integer nor a sequence of different ones, or names an argument that is not given.
    """
    listed = list(argnums) if isinstance(argnums, (tuple, list)) else [argnums]
    if not listed or not all(isinstance(place, int) and not isinstance(place, bool) for place in listed):
        raise UsageError(f"argnums is an integer or a tuple of integers, such as 0 or (0, 1), not {argnums!r}")
    if not all(-given <= place < given for place in listed):
        raise UsageError(
            f"argnums={argnums!r} names an argument that is not given: {given} are given by position; "
            "pass what the gradient is by as a positional argument"
        )
    places = [place % given for place in listed]
    if len(set(places)) < len(places):
        raise UsageError(f"argnums={argnums!r} names an argument twice")
    return places
