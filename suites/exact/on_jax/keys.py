"""Random keys of JAX. A key is one element of an object array, so arrays of keys are sliced like any others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Key:
    """A random key: the words that its generator keeps."""

    words: tuple[int, ...]


def from_jax(keys: Any) -> Any:
    """JAX's typed keys as the evaluator holds them."""
    if isinstance(keys, np.ndarray) and keys.dtype == object:
        return keys
    return array_of(np.asarray(jax.random.key_data(keys)))


def array_of(words: Any) -> Any:
    """An array of keys of (…, words)."""
    result = np.empty(math.prod(words.shape[:-1]), object)
    for place, row in enumerate(words.reshape(-1, words.shape[-1]).tolist()):
        result[place] = Key(tuple(row))
    return result.reshape(words.shape[:-1])
