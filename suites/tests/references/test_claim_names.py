"""Every claim can be found by a text search: its name is in the source of the references, in quotation marks."""

from __future__ import annotations

from pathlib import Path

import gradgate.references
from gradgate.references import registry

TEXT = "\n".join(
    path.read_text(encoding="utf-8") for place in gradgate.references.__path__ for path in Path(place).rglob("*.py")
)


def is_named(name: str) -> bool:
    return f'"{name}"' in TEXT


def test_the_name_of_every_claim_is_found() -> None:
    names = {claim.name for method in registry.methods() for claim in method.claims}
    assert {name for name in names if not is_named(name)} == set()


def test_a_name_that_is_no_claim_is_not_found() -> None:
    assert not is_named("gradient_float16")
    assert not is_named("printed_value")
