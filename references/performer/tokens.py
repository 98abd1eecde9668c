"""Inputs and targets of the three tasks, and text files as sequences of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError, unknown

TASKS = ("next_token", "copying", "window")


def alphabet(task: str, vocabulary: int) -> int:
    """How many different tokens are drawn; the copying task's words do not contain 0."""
    return vocabulary - 1 if task == "copying" else vocabulary


def counted(task: str, length: int) -> int:
    """The number of tokens with a target in a sequence of L tokens, at least 1. The loss is divided by it."""
    return max(1, {"next_token": length - 1, "copying": length // 2 - 1, "window": length}[task])


def arrange(task: str, drawn: Any, following: Any) -> dict[str, Any]:
    """Tokens and targets (L, batch) int32 of a task, from tokens drawn at random; a target of −1 means none.

    Args:
        drawn: (L, batch).
        following: (L, batch); ``window`` takes from it the token that follows the last one.

    ``copying`` is 0ω0ω with ω from the L/2 − 1 tokens first drawn; l has a target if l + 1 lies in the second ω.
    """
    import numpy as np

    if task == "copying":
        word, zero = drawn[: len(drawn) // 2 - 1] + 1, np.zeros_like(drawn[:1])
        drawn = np.concatenate([zero, word, zero, word])
    last = following[:1] if task == "window" else np.full_like(drawn[:1], -1)
    targets = np.concatenate([drawn[1:], last])
    if task == "copying":
        targets[: len(drawn) // 2] = -1
    return {"tokens": drawn.astype(np.int32), "targets": targets.astype(np.int32)}


def penn_treebank(folder: Path, split: str = "train") -> Any:
    """Characters of the Penn Treebank as int32 tokens (n,), from a copy that you have.

    Args:
        folder: holds ``ptb.char.train.txt``, ``ptb.char.valid.txt`` and ``ptb.char.test.txt`` (Mikolov's preparation):
            characters separated by blanks, a blank written ``_``.
        split: train, valid or test.

    Raises:
        UsageError: the file is missing, empty or has another form; the message says which file is expected.
    """
    if split not in ("train", "valid", "test"):
        raise unknown("split", split, ("train", "valid", "test"))
    path = Path(folder) / f"ptb.char.{split}.txt"
    text = _read(path, "the Penn Treebank by characters, in Mikolov's preparation (simple-examples.tgz)").decode(
        "ascii"
    )
    lines = [line.split() for line in text.splitlines()]
    if any(len(character) != 1 for line in lines for character in line):
        raise UsageError(f"{path} is not one character after another, separated by blanks")
    return _bytes("\n".join("".join(line).replace("_", " ") for line in lines).encode("ascii"))


def enwik8(folder: Path, split: str = "train") -> Any:
    """Bytes of enwik8 as int32 tokens (n,), from a copy that you have: 90, 5 and 5 million.

    Args:
        folder: holds the file ``enwik8``, 100,000,000 bytes (the Large Text Compression Benchmark's enwik8.zip).
        split: train, valid or test.

    Raises:
        UsageError: the file is missing or has another size; the message says which file is expected.
    """
    spans = {"train": (0, 90), "valid": (90, 95), "test": (95, 100)}
    if split not in spans:
        raise unknown("split", split, spans)
    path = Path(folder) / "enwik8"
    raw = _read(path, "enwik8, unpacked from enwik8.zip of the Large Text Compression Benchmark")
    if len(raw) != 10**8:
        raise UsageError(f"{path} has {len(raw):,} bytes; enwik8 has 100,000,000")
    low, high = spans[split]
    return _bytes(raw[low * 10**6 : high * 10**6])


def python_topics() -> Any:
    """The help texts that Python ships, `pydoc_data.topics`, as int32 tokens (n,): bytes, those beyond ASCII as 127.

    English prose with some code, about 600,000 bytes; the same on every machine with the same version of Python.
    """
    from pydoc_data import topics

    import numpy as np

    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    return np.minimum(_bytes(text.encode()), 127)


def _read(path: Path, what: str) -> bytes:
    try:
        found = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}): expected is {what}") from None
    if not found:
        raise UsageError(f"{path} is empty; expected is {what}")
    return found


def _bytes(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, dtype=np.uint8).astype(np.int32)
