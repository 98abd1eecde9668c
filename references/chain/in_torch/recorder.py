"""Records a model's forward pass as a list of calls (`graph`), by running it once on the example.

The model runs as it is, on real tensors, so its Python code may look at shapes, build masks and choose branches. Calls
of PyTorch's functions are seen through a torch function mode. Modules of PyTorch itself are called as a whole. So are
modules with hooks, modules that change their buffers, and modules that draw from another generator than PyTorch's, so
that the executor finds what it has to put back. All other modules are recorded call by call. No graph of autograd is
built meanwhile: only the tensors that the code itself holds are in memory.

What Python code does besides calling PyTorch is done once, during recording. Therefore `fingerprint` detects a change
of any attribute that the code could have read. A branch that depends on a tensor's numbers is decided again in every
step, or refused (`Call.decides`).
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gradgate.references.chain.in_torch.graph import Call, Constant, Graph, Read, State, Tensor
from gradgate.references.chain.in_torch.replay import Surroundings
from gradgate.references.contract import UsageError

# fmt: off
ABOUT = frozenset((
    "shape", "dtype", "device", "ndim", "layout", "itemsize", "nbytes", "names", "is_leaf", "is_cuda", "is_cpu",
    "is_meta", "is_mps", "is_xpu", "is_sparse", "is_quantized", "is_nested", "is_mkldnn", "is_sparse_csr",
    "is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_inference", "is_conj", "is_neg",
    "is_same_size", "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
    "get_device", "__len__", "__hash__", "dim_order", "result_type", "can_cast", "promote_types", "is_tensor",
    "is_storage", "_version", "grad", "grad_fn", "output_nr", "retains_grad", "has_names", "is_shared", "is_pinned",
    "__dir__", "__repr__", "__format__", "broadcast_shapes",
))
# fmt: on
"""Functions whose results say nothing about a tensor's numbers."""
CUT_OFF = frozenset(("detach", "detach_", "data"))
"""Functions whose result needs no gradient though what they read does."""
CONTAINERS = ("torch.nn.modules.container", "torch.nn.modules.transformer")
LEGAL = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_LOCK = threading.RLock()


def record_model(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device) -> Graph:
    """The calls of ``model(*args, **kwargs)``.

    Raises:
        UsageError: an argument or result that is neither tensor nor plain value; a tensor of unknown origin; a function
            that gives many of a tensor's numbers to Python; a model whose own forward changes a buffer or draws from a
            generator other than PyTorch's.
    """
    closed: set[str] = set()
    while True:
        recorder = _Recorder(model, device, frozenset(closed))
        recorder.take(args, kwargs)
        with _LOCK, _patched(recorder), recorder:
            output = model(*args, **kwargs)
        if recorder.closed <= closed:
            return recorder.finish(output)
        if "" in recorder.closed:
            raise UsageError(
                f"the model's own forward {recorder.why}: put that into a module of its own, which is then called as a "
                "whole, so that it can be run again with the same result"
            )
        closed |= recorder.closed


def whole(module: nn.Module) -> bool:
    """Whether a module is called as a whole: one of PyTorch's own, or one with hooks."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    place = type(module).__module__
    return any(hooks) or (place.startswith("torch.") and place not in CONTAINERS)


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module, device: torch.device, whole: frozenset[str]) -> None:
        """`whole`: names of modules that are called as a whole besides those for which `whole` is true."""
        super().__init__()
        self.whole, self.closed, self.why = whole, set[str](), ""
        self.graph = Graph(device=device)
        self.model = model
        self.names = {id(m): name for name, m in reversed(list(model.named_modules(remove_duplicate=False)))}
        self.path: list[str] = []
        self._python = _python_random()
        self.inside = 0
        self.ambient = Surroundings.now(device)
        self._states = {id(t): (name, t) for name, t in _states(model)}
        self._attributes = {id(t): t for m in model.modules() for t in _tensors_in(vars(m))}
        self._numbers: dict[int, tuple[Any, int]] = {}
        self._constants: dict[int, int] = {}
        self._storages: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._serial = itertools.count()

    # What is known of tensors

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model's arguments."""
        for path, leaf in pytree.tree_flatten_with_path((args, kwargs))[0]:
            name = "input " + pytree.keystr(path[1:])
            if isinstance(leaf, torch.Tensor):
                if id(leaf) not in self._numbers:
                    self._number(leaf, name, leaf.requires_grad, given=True)
            elif not isinstance(leaf, LEGAL):
                raise UsageError(
                    f"{name} is a {type(leaf).__name__}; legal are tensors, numbers, strings, None, and tuples, lists "
                    "and dicts of them"
                )

    def _number(self, tensor: torch.Tensor, name: str, needs: bool, given: bool = False) -> int:
        number = len(self.graph.tensors)
        numbers = tensor.is_floating_point() or tensor.is_complex()
        size = tensor.untyped_storage().nbytes()
        self.graph.tensors.append(Tensor(name, size, self._storage(tensor), needs and numbers, given))
        key = id(tensor)

        def gone(_: Any) -> None:
            if self._numbers.get(key, (None, -1))[1] == number:
                del self._numbers[key]

        self._numbers[key] = weakref.ref(tensor, gone), number
        return number

    def _storage(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        if storage not in self._storages:
            self._storages[storage] = next(self._serial)
        return self._storages[storage]

    def _leaf(self, tensor: torch.Tensor, where: str) -> Any:
        """The `Read`, `State` or `Constant` that stands for a tensor."""
        key = id(tensor)
        if key in self._numbers:
            return Read(self._numbers[key][1])
        if key in self._states:
            return State(self._states[key][0])
        if key not in self._attributes:
            raise UsageError(
                f"{where} reads a tensor of shape {tuple(tensor.shape)} that is neither an input, a parameter, a "
                "buffer nor an attribute of a module, nor made by a function of PyTorch that can be seen: register it "
                "as a buffer, or give it as an input"
            )
        if key not in self._constants:
            self._constants[key] = len(self.graph.constants)
            self.graph.constants.append(tensor)
        return Constant(self._constants[key])

    def needs(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor needs a gradient in the recorded pass."""
        if id(tensor) in self._numbers:
            return self.graph.tensors[self._numbers[id(tensor)][1]].needs
        return tensor.requires_grad

    # Calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, _name(func)
        if self.inside:
            return func(*args, **kwargs)
        if name == "requires_grad" and len(args) == 1:
            return self.needs(args[0])
        if name in ABOUT:
            return func(*args, **kwargs)
        return self._recorded(func, name, None, args, kwargs)

    def call_module(self, module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """In place of `nn.Module.__call__`."""
        name = self.names.get(id(module))
        if self.inside or name is None:
            return original(module, *args, **kwargs)
        if name and (whole(module) or name in self.whole):
            return self._recorded(lambda *a, **k: original(module, *a, **k), "", module, args, kwargs)
        self._see_python()
        self.path.append(name)
        try:
            return original(module, *args, **kwargs)
        finally:
            self._see_python()
            self.path.pop()

    def _see_python(self) -> None:
        """Close the module that is recorded now if it has drawn from Python's or NumPy's generators."""
        now = _python_random()
        if now != self._python:
            self._close("draws from Python's or NumPy's generator")
            self._python = now

    def _close(self, why: str) -> None:
        """The module that is recorded now is called as a whole the next time."""
        self.closed.add(self.path[-1] if self.path else "")
        self.why = why

    def _recorded(self, function: Any, name: str, module: nn.Module | None, args: Any, kwargs: Any) -> Any:
        self.inside += 1
        try:
            return self._record(function, name, module, args, kwargs)
        finally:
            self.inside -= 1

    def _record(self, function: Any, name: str, module: nn.Module | None, args: Any, kwargs: Any) -> Any:
        inside = (self.path and self.path[-1]) or "the model"
        where = self.names[id(module)] if module is not None else f"{inside}: {name}"
        flat, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
        grad, around = torch.is_grad_enabled(), Surroundings.now(self.graph.device)
        self._see_python()
        before, state, python = [t._version for t in tensors], self._random(), self._python
        with torch.no_grad() if tensors or module is not None else contextlib.nullcontext():
            result = function(*args, **kwargs)  # what reads no tensor may be a setting, such as no_grad itself
        found = pytree.tree_leaves(result)
        if not tensors and not any(isinstance(leaf, torch.Tensor) for leaf in found):
            return result  # a setting, or a question that is not about a tensor
        if found and all(isinstance(leaf, (str, torch.dtype, torch.device, torch.layout)) for leaf in found):
            return result
        changes = [t for t, version in zip(tensors, before, strict=True) if t._version != version]
        decides = self._decides(where, name, found, bool(changes))
        leaves = tuple(self._leaf(x, where) if isinstance(x, torch.Tensor) else _plain(x, where) for x in flat)
        needs = grad and name not in CUT_OFF and not name.endswith("_like") and not name.startswith("new_")
        needs = needs and any(map(self.needs, [*tensors, *(module.parameters() if module is not None else ())]))
        written = frozenset(map(self._storage, changes))
        if module is None and any(isinstance(leaf, torch.Generator) for leaf in flat):
            self._close("draws from a generator of its own")
        if module is None and any(id(t) in self._states or id(t) in self._attributes for t in changes):
            self._close("changes a parameter, a buffer or a tensor that it keeps")
        self._python = _python_random()
        drawn = self._python != python or not torch.equal(state, self._random())
        for tensor in self.graph.tensors if needs else ():  # tensors that view it get a graph too
            tensor.needs |= tensor.storage in written
        self.graph.calls.append(
            Call(
                where,
                None if module is not None else function,
                where if module is not None else None,
                leaves,
                spec,
                tuple(self._given(leaf, where, needs) for leaf in found),
                grad,
                around if around != self.ambient else None,
                drawn,
                written,
                decides,
                result if decides else None,
                tuple(leaf.name.rpartition(".")[0] for leaf in leaves if isinstance(leaf, State)),
            )
        )
        return result

    def _given(self, leaf: Any, where: str, needs: bool) -> int | None:
        """The number of a result; a tensor that existed before keeps its number, as after an operation in place."""
        if not isinstance(leaf, torch.Tensor):
            return None
        if id(leaf) in self._numbers:
            return self._numbers[id(leaf)][1]
        if id(leaf) in self._states:
            return None
        return self._number(leaf, where, needs)

    def _decides(self, where: str, name: str, found: list[Any], changes: bool) -> bool:
        if any(isinstance(leaf, torch.Tensor) for leaf in found) or not [x for x in found if x is not None]:
            if name == "__set__":
                raise UsageError(f"{where} assigns to an attribute of a tensor, which cannot be recorded")
            return False
        if changes or not all(isinstance(leaf, (bool, int, float, complex)) for leaf in found):
            raise UsageError(f"{where} hands the numbers of a tensor to Python, which cannot be recorded")
        return True

    def _random(self) -> torch.Tensor:
        kind = self.graph.device.type
        if kind in ("cpu", "meta"):
            return torch.get_rng_state()
        return torch.cat([torch.get_rng_state(), torch.get_device_module(kind).get_rng_state(self.graph.device)])

    def finish(self, output: Any) -> Graph:
        """The graph, with what the model gives."""
        leaves, self.graph.spec = pytree.tree_flatten(output)
        for leaf in leaves:
            if not isinstance(leaf, (torch.Tensor, *LEGAL)):
                raise UsageError(
                    f"the model gives a {type(leaf).__name__}, which would be the same object in every step; let it "
                    "give tensors, such as with use_cache=False"
                )
            self.graph.outputs.append(self._leaf(leaf, "the output") if isinstance(leaf, torch.Tensor) else leaf)
        return self.graph


def _python_random() -> Any:
    """The states of Python's and NumPy's generators."""
    return random.getstate(), pickle.dumps(np.random.get_state(legacy=False))


def _name(func: Any) -> str:
    """A function's name; of a property's getter or setter the property's."""
    name = getattr(func, "__name__", "") or type(func).__name__
    if name == "__get__":
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return str(name)


def _plain(leaf: Any, where: str) -> Any:
    if isinstance(leaf, slice) and any(isinstance(x, torch.Tensor) for x in (leaf.start, leaf.stop, leaf.step)):
        raise UsageError(f"{where} slices by a tensor's number, which cannot be recorded; slice by an integer")
    return leaf


def _states(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _tensors_in(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for each in value.values():
            yield from _tensors_in(each, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_in(each, depth - 1)


@contextlib.contextmanager
def _patched(recorder: _Recorder) -> Iterator[None]:
    """A scope in which calls of modules and of autograd functions reach the recorder; of this thread's alone."""
    thread, call, apply = threading.get_ident(), nn.Module.__call__, torch.autograd.Function.__dict__["apply"]

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return call(module, *args, **kwargs)
        return recorder.call_module(module, call, args, kwargs)

    def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
        function = apply.__get__(None, cls)
        if threading.get_ident() != thread or recorder.inside:
            return function(*args, **kwargs)
        return recorder._recorded(function, cls.__name__, None, args, kwargs)

    nn.Module.__call__ = called  # type: ignore[method-assign]
    torch.autograd.Function.apply = classmethod(applied)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.__call__ = call  # type: ignore[method-assign]
        torch.autograd.Function.apply = apply  # type: ignore[method-assign]
