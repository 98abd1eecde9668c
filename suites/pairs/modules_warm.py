"""Initial values of running statistics: the values that training calls of the reference leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradgate.references.backends import to_numpy
from gradgate.suites.pairs.modules_bound import Bound


def warmed(where: str, plain: Bound, calls: Sequence[Sequence[Any]], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> state of a module after training calls with its initial parameters, NumPy.

    If the module refuses to train on such inputs, as batch norm does with one number for each channel, it is the
    initial state.

    Args:
        calls: positional arguments of each call, trees of NumPy arrays.
        keywords: of every call.
    """
    try:
        return _in_torch(plain, calls, keywords) if where == "torch" else _in_jax(plain, calls, keywords)
    except Exception:  # a foreign module may refuse in any way; what it does then is judged when it is called
        return dict(plain.state)


def _in_torch(plain: Bound, calls: Sequence[Sequence[Any]], keywords: Mapping[str, Any]) -> dict[str, Any]:
    import torch
    from torch.utils import _pytree

    def given(tree: Any) -> Any:
        return _pytree.tree_map(lambda leaf: torch.from_numpy(np.array(leaf)), tree)

    parameters = {name: torch.from_numpy(np.array(leaf)).float() for name, leaf in plain.parameters.items()}
    state: dict[str, Any] = {}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for arguments in calls:
            _, state = plain.call(parameters, state, [given(each) for each in arguments], keywords, True, None)
    return {name: to_numpy(leaf) for name, leaf in state.items()}


def _in_jax(plain: Any, calls: Sequence[Sequence[Any]], keywords: Mapping[str, Any]) -> dict[str, Any]:
    from gradgate.suites.pairs.modules_jax import building

    state = dict(plain.state)
    with building():
        for arguments in calls:
            found = plain.after(arguments, state, keywords)
            state |= {name: np.asarray(leaf) for name, leaf in found.items()}
    return state
