"""A process that judges pairs of Triton kernels: it takes requests as lines of JSON, and answers each by a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradgate

ANSWER = "answer: "


class Judge:
    """The other end: a process with Triton's interpreter. `close` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRITON_INTERPRET": "1"},
        )

    def judge(self, path: Path, claims: Sequence[str], names: Sequence[str] = (), examples: int = 4) -> dict[str, Any]:
        """``pair claim`` -> (verdict, reason), of the pairs in a file; of all if `names` is empty."""
        return {name: tuple(found[:2]) for name, found in self._asked(path, claims, names, examples).items()}

    def decisions(self, path: Path, name: str, examples: int = 6) -> dict[str, Any]:
        """What the verdict on the formula of one pair says about its decisions."""
        [(verdict, reason, decisions)] = self._asked(path, ("gradient_exact",), (name,), examples).values()
        assert verdict == "upheld", reason
        return dict(decisions)

    def _asked(self, path: Path, claims: Sequence[str], names: Sequence[str], examples: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"path": str(path), "claims": list(claims), "names": list(names), "examples": examples}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return dict(json.loads(line.removeprefix(ANSWER)))
        raise AssertionError(f"the process ended with the status {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _answer(path: str, claims: Sequence[str], names: Sequence[str], examples: int) -> dict[str, Any]:
    import importlib.util

    from gradgate.suites.tests.pairs.verdicts import judged

    spec = importlib.util.spec_from_file_location(f"kernels_{len(sys.modules)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    pairs = {name: value for name, value in vars(module).items() if isinstance(value, gradgate.Pair)}
    return {
        f"{name} {claim}": (verdict.verdict, verdict.reason, verdict.decisions)
        for name in names or pairs
        for claim, verdict in judged(pairs[name], tuple(claims), examples).items()
    }


def _main() -> None:
    from gradgate.suites.pairs import triton_interpreter

    triton_interpreter.prepare()
    for line in sys.stdin:
        print(ANSWER + json.dumps(_answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    _main()
