"""``gradgate profiles``: the hardware profiles, and what installs the compilers that are missing."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradgate.hw_profiles import profile as hardware
from gradgate.hw_profiles.profile import Profile
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate profiles``."""
    arguments.add_json_flag(parser)


def main(chosen: argparse.Namespace) -> int:
    """Print the profiles as a table or as JSON; returns 0."""
    rows = [_row(profile) for profile in hardware.load_all()]
    if chosen.json:
        print(json.dumps({"schema": SCHEMA, "profiles": rows}, indent=1))
    else:
        terminal.profiles(rows)
    return 0


def _row(profile: Profile) -> dict[str, Any]:
    available, extra, reason = hardware.availability(profile)
    return {
        "name": profile.name,
        "kind": profile.kind,
        "memory_bytes": profile.memory_bytes,
        "bandwidth": profile.bandwidth,
        "compiler": profile.compiler,
        "available": available,
        "extra": extra,
        "reason": reason,
    }
