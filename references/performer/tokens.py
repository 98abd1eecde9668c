"""Inputs and targets of the three tasks, and text files as sequences of tokens."""

from __future__ import annotations

from typing import Any

TASKS = ("next_token", "copying", "window")


def alphabet(task: str, vocabulary: int) -> int:
    """How many different tokens are drawn: the copying task's words are without the 0."""
    return vocabulary - 1 if task == "copying" else vocabulary


def counted(task: str, length: int) -> int:
    """Tokens with a target in a sequence of L tokens, at least 1: what the loss is divided by."""
    return max(1, {"next_token": length - 1, "copying": length // 2 - 1, "window": length}[task])


def arrange(task: str, drawn: Any, following: Any) -> dict[str, Any]:
    """Tokens and targets (L, batch) int32 of a task, from tokens drawn at random; a target of −1 means none.

    Args:
        drawn: (L, batch).
        following: (L, batch); of it ``window`` takes the token that follows the last.

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
