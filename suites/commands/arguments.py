"""What the commands check of their arguments alike."""

from __future__ import annotations

import json
from typing import Any

from gradgate.references.contract import UsageError


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """The JSON object given to the option `name`; None where it was not given.

    Raises:
        UsageError: it is not JSON, or not an object.
    """
    if not text:
        return None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{name} is a JSON object; {text!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{name} is a JSON object, not {text!r}")
    return found


def need_report() -> None:
    """Check that the report can be written, before anything long is run.

    Raises:
        UsageError: a package of the extra `report` is missing.
    """
    try:
        import gradgate.suites.report  # noqa: F401
    except ImportError as error:
        raise UsageError(f"--report needs {error.name}: pip install 'gradgate[report]', or use --json FILE") from None
