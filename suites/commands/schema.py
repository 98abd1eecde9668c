"""``gradgate schema``: print the JSON schema of a document or of the settings, or list their names."""

from __future__ import annotations

import argparse
import json

import msgspec

from gradgate.references.errors import unknown
from gradgate.suites.gate.allow import Allowances
from gradgate.suites.schemas.documents import DOCUMENTS
from gradgate.suites.settings import Settings

SCHEMAS: dict[str, type[msgspec.Struct]] = {**DOCUMENTS, "settings": Settings, "allow": Allowances}
"""Name -> type: the documents, the table ``[tool.gradgate]``, and the file of allowed rises."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate schema``."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the document (default: list all names)")


def main(chosen: argparse.Namespace) -> int:
    """Print one schema, or a line for each name; returns 0.

    Raises:
        UsageError: there is no such name; lists what is legal.
    """
    if not chosen.name:
        for name, kind in SCHEMAS.items():
            print(f"{name:12}{str(kind.__doc__).partition(chr(10))[0].replace('``', '')}")
        return 0
    if chosen.name not in SCHEMAS:
        raise unknown("schema", chosen.name, SCHEMAS)
    print(text(chosen.name), end="")
    return 0


def text(name: str) -> str:
    """The JSON schema of a name in `SCHEMAS`, draft 2020-12."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(SCHEMAS[name])}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
