"""The options that the frameworks share."""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import IllegalOption, check_integer


def check_flag(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        IllegalOption: it is something else.
    """
    if not isinstance(value, bool):
        raise IllegalOption(f"{name} must be True or False, not {value!r}")
    return value


def check_devices(spec: Any, value: Any) -> int:
    """`value` if it is a number of devices that the batch of `spec` can be shared out to equally.

    Raises:
        IllegalOption: it is no integer of at least 1, or does not divide the batch.
    """
    devices = check_integer("devices", value, 1, spec.batch)
    if spec.batch % devices:
        raise IllegalOption(f"devices must divide the batch of {spec.batch}, which {devices} does not")
    return devices
