"""``gradgate cache``: show where measurements are kept, how many and how large they are; or remove them."""

from __future__ import annotations

import argparse

from gradgate.hw_profiles.cache import Cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate cache``."""
    parser.add_argument("--clear", action="store_true", help="remove every measurement")


def main(chosen: argparse.Namespace) -> int:
    """Print the number and the size of the measurements, or remove them; returns 0."""
    cache = Cache()
    if chosen.clear:
        print(f"removed {cache.clear()} measurements from {cache.folder}")
        return 0
    entries, size = cache.size()
    print(f"{entries} measurements, {size / 1e6:.2f} MB, in {cache.folder}; gradgate cache --clear removes them")
    return 0
