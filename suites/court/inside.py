"""The program behind the wall. It imports a framework once, then forks one process for each candidate.

It is started as a script with a socket and the name of a framework. For each socket that it is sent, it forks. The
fork cuts itself off (`isolate`), says what it is cut off from, and only then runs code of a stranger. It answers
three requests: ``load`` a module from its text, run its function ``forward``, and pull cotangents ``backward``.

Nothing that this process says is believed. It knows no truth, no reference and no seed, so a stranger who takes it
over can change numbers, which are judged on the other side, and nothing else. It imports nothing of gradgate.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import linecache
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

with contextlib.suppress(ImportError):  # a system without it has no wall, and `wall.chosen` says so
    import resource


def _beside(place: str) -> Any:
    """A module of gradgate by its file, which is beside this one behind the wall; no other one is visible there."""
    if __name__ != "__main__":
        return importlib.import_module(place)
    room, name = place.split(".")[-2:]
    here = os.path.dirname(os.path.abspath(__file__))
    places = (os.path.join(here, f"{name}.py"), os.path.join(os.path.dirname(here), room, f"{name}.py"))
    spec = importlib.util.spec_from_file_location(name, next(place for place in places if os.path.exists(place)))
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


message: Any = _beside("gradgate.suites.court.message")
masks: Any = _beside("gradgate.suites.pairs.masks")
landlock: Any = _beside("gradgate.suites.workers.landlock")
HERE = [place for place in [os.path.dirname(os.path.abspath(__file__))] if os.path.isdir(f"{place}/gradgate")]
"""The folder with gradgate's evaluator, if it is beside this file."""
HIDDEN: dict[str, types.ModuleType] = {}
"""Modules of gradgate that a candidate does not see among those of its process, until its formula is evaluated."""
HELD = 64
"""Forward passes whose backward pass may still come, and calls whose answers can be asked for again."""
KEPT = 1 << 28
"""Most bytes of answers that can be asked for again; those of the last two calls always can."""
NAME = "candidate"
"""Name of the module that a candidate becomes."""
REQUEST = 1 << 26
"""Most bytes of the text of a request, which holds a candidate's text."""


# ---- cutting a process off


def isolate(limits: dict[str, Any]) -> dict[str, str]:
    """Cut this process off, as far as the system allows; returns what was done, in words: name -> how.

    Args:
        limits: ``bytes`` of memory, seconds of ``processor``, ``folders`` that may be read, a ``scratch`` folder,
            over which an empty one in memory is mounted, so nothing on a disk has to be removed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    done: dict[str, str] = {}
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: no program gains rights
    uid, gid = os.geteuid(), os.getegid()
    names = ["user", "processes", "network", "ipc", "mounts"]
    if libc.unshare(sum(landlock.CLONE[name] for name in names)) == 0:
        libc.prctl(4, 1, 0, 0, 0)  # only while the files below, which belong to root otherwise, are written
        landlock.same_user(uid, gid)
        libc.prctl(4, 0, 0, 0, 0)
        child = os.fork()  # only a child is in the new namespace of processes; when it ends, all in it end
        if child:
            os._exit(0)
        done |= dict.fromkeys(("processes", "network"), "a namespace of its own")
        libc.mount(None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
        if libc.mount(b"proc", b"/proc", b"proc", 14, None) == 0:
            done["proc"] = "a namespace of its own"
        if libc.mount(b"tmpfs", limits["scratch"].encode(), b"tmpfs", 6, b"size=134217728") == 0:
            done["scratch"] = "an empty folder of its own, in memory"
            os.chdir(limits["scratch"])
    version = landlock.restrict(libc, limits["folders"], [limits["scratch"]] if "scratch" in done else [])
    if version:
        done["files"] = "Landlock"
    if version >= landlock.SIGNALS:
        done["signals"] = "Landlock"
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none) == 0:
        done["rights"] = "none"
    for what, most in (
        (resource.RLIMIT_AS, _virtual() + limits["bytes"]),
        (resource.RLIMIT_CPU, limits["processor"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 1 << 26),
        (resource.RLIMIT_NPROC, 256),
        (resource.RLIMIT_NOFILE, 256),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    done["limits"] = "address space, processor, files, processes"
    return done


def _virtual() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


# ---- a framework: arrays in and out, forward and backward


class InTorch:
    """PyTorch behind the wall."""

    def __init__(self) -> None:
        import torch
        import torch.utils._pytree

        torch.set_num_threads(1)
        self.torch: Any = torch
        self._warm()

    def _warm(self) -> None:
        """Call once what every candidate calls, so that what PyTorch makes then is there before a fork."""
        torch = self.torch

        class Doubled(torch.autograd.Function):  # type: ignore[name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return 2 * x

            @staticmethod
            def backward(ctx: Any, dy: Any) -> Any:
                return 2 * dy

        for dtype in ("float64", "float32", "bfloat16"):
            x = self.array(
                message.Array(dtype, (2, 2), bytes(4 * (2 if dtype == "bfloat16" else int(dtype[5:]) // 8))), {}
            )
            outputs, state = self.forward(lambda x: Doubled.apply(x) @ x, [0], [x], [0], {})
            self.bytes_of(self.backward(state, [0], [torch.ones_like(outputs)])[0])

    def array(self, given: Any, layout: dict[str, Any]) -> Any:
        """A tensor with these numbers, stored with the strides and at the offset that the layout says."""
        torch = self.torch
        dtype = getattr(torch, given.dtype)
        if not given.numbers:
            return torch.empty(given.shape, dtype=dtype)
        plain = torch.frombuffer(bytearray(given.numbers), dtype=dtype).reshape(given.shape)
        offset, strides = layout.get("offset", 0), layout.get("strides")
        if strides is None:
            whole = torch.empty(plain.numel() + offset, dtype=dtype)
            return whole[offset:].view(given.shape).copy_(plain)
        span = offset + 1 + sum((n - 1) * s for n, s in zip(given.shape, strides, strict=True))
        view = torch.zeros(span, dtype=dtype).as_strided(given.shape, strides, offset)
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        view[once].copy_(plain[once])
        return view

    def bytes_of(self, leaf: Any) -> Any:
        """A tensor as it crosses the wall, copied now."""
        torch = self.torch
        if leaf is None:
            return message.NONE
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"it returned a {type(leaf).__name__}; expected a tensor")
        dtype = str(leaf.dtype).removeprefix("torch.")
        if leaf.device.type != "cpu" or leaf.layout != torch.strided or dtype not in message.CODES:
            raise TypeError(f"it returned {leaf.layout} of {dtype} on {leaf.device}; expected a strided tensor on cpu")
        with torch.no_grad():
            flat = torch.empty(leaf.numel(), dtype=leaf.dtype)
            flat.view(leaf.shape).copy_(leaf.detach())
            raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return message.Array(dtype, tuple(leaf.shape), raw)

    def forward(
        self, function: Callable[..., Any], tree: Any, leaves: list[Any], wanted: list[int], options: Any
    ) -> Any:
        """(outputs, what `backward` needs)."""
        torch = self.torch
        leaves = [leaf.requires_grad_() if place in wanted else leaf for place, leaf in enumerate(leaves)]
        with torch.set_grad_enabled(bool(wanted)):
            outputs = function(*filled(tree, leaves), **options)
        return outputs, ([leaves[place] for place in wanted], outputs)

    def exact(
        self,
        function: Callable[..., Any],
        tree: Any,
        leaves: list[Any],
        wanted: list[int],
        options: Any,
        places: list[int],
        cotangents: list[Any],
    ) -> list[Any]:
        """⟨cotangents, outputs⟩ and the gradients, as arrays of balls."""
        from gradgate.suites.exact import balls, on_torch

        def run() -> list[Any]:
            outputs, state = self.forward(function, tree, list(leaves), wanted, options)
            flat: list[Any] = []
            structure(outputs, flat)
            loss = sum((flat[place].detach() * one).sum() for place, one in zip(places, cotangents, strict=True))
            grads = self.backward(state, places, cotangents)
            if any(grad is None for grad in grads):
                raise TypeError("an input has no gradient")
            return [loss, *grads]

        found = on_torch.evaluate(run)
        if found.exits:
            raise balls.Unknown(f"it reads a number out of a tensor, {found.exits[0]}")
        return [balls.whole(leaf) for leaf in found.outputs]

    def differentiable(self, leaf: Any) -> bool:
        """Whether a gradient can be pulled through this output."""
        return bool(getattr(leaf, "requires_grad", False))

    def shared(self, outputs: list[Any], leaves: list[Any]) -> list[list[int]]:
        """[place of an output, place of an input] that have one memory."""
        at = [[leaf.untyped_storage().data_ptr() for leaf in one] for one in (outputs, leaves)]
        return [[i, j] for i, mine in enumerate(at[0]) for j, given in enumerate(at[1]) if mine and mine == given]

    def backward(self, state: Any, places: list[int], cotangents: list[Any]) -> list[Any]:
        """The gradients of the wanted leaves, or None."""
        wanted, outputs = state
        flat: list[Any] = []
        structure(outputs, flat)
        outs = [flat[place] for place in places]
        return list(self.torch.autograd.grad(outs, wanted, cotangents, allow_unused=True))


class InJax:
    """JAX behind the wall."""

    def __init__(self) -> None:
        import jax
        import jax.numpy
        import numpy

        self.jax: Any = jax
        self.numpy: Any = numpy
        self.programs: dict[Any, Any] = {}
        self.wide = False

    def _dtype(self, name: str) -> Any:
        return self.numpy.dtype(self.jax.numpy.bfloat16 if name == "bfloat16" else name)

    def array(self, given: Any, layout: dict[str, Any]) -> Any:
        """An array with these numbers."""
        plain = self.numpy.frombuffer(given.numbers, dtype=self._dtype(given.dtype)).reshape(given.shape)
        return self.jax.numpy.asarray(plain)

    def bytes_of(self, leaf: Any) -> Any:
        """An array as it crosses the wall, copied now."""
        if leaf is None:
            return message.NONE
        if not isinstance(leaf, (self.jax.Array, self.numpy.ndarray, self.numpy.generic)):
            raise TypeError(f"it returned a {type(leaf).__name__}; expected an array")
        plain = self.numpy.asarray(leaf)
        dtype = str(plain.dtype)
        if dtype not in message.CODES:
            raise TypeError(f"it returned an array of {dtype}")
        return message.Array(dtype, tuple(plain.shape), plain.tobytes())

    def forward(
        self, function: Callable[..., Any], tree: Any, leaves: list[Any], wanted: list[int], options: Any
    ) -> Any:
        """(outputs, what `backward` needs)."""
        jax = self.jax
        rest = [leaf for place, leaf in enumerate(leaves) if place not in wanted]
        shape: list[Any] = []

        def run(some: list[Any], others: list[Any]) -> Any:
            given, left = dict(zip(wanted, some, strict=True)), iter(others)
            whole = [given[place] if place in given else next(left) for place in range(len(leaves))]
            outputs = function(*filled(tree, whole), **options)
            flat: list[Any] = []
            shape[:] = [structure(outputs, flat)]
            floating = [jax.numpy.issubdtype(jax.numpy.asarray(leaf).dtype, jax.numpy.floating) for leaf in flat]
            data = [leaf for leaf, one in zip(flat, floating, strict=True) if not one]
            return [leaf for leaf, one in zip(flat, floating, strict=True) if one], (data, floating)

        def pulled(some: list[Any], others: list[Any]) -> Any:
            outs, pull, (data, floating) = jax.vjp(lambda some: run(some, others), some, has_aux=True)
            return outs, pull, data, jax.numpy.asarray(floating)

        key = (
            id(function),
            json.dumps([tree, wanted, options], sort_keys=True),
            bool(jax.config.jax_enable_x64),
            tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves),
        )
        some = [leaves[place] for place in wanted]
        if key not in self.programs:
            program = jax.jit(pulled)
            try:
                found = program(some, rest)
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # it reads numbers
                program = pulled
                found = program(some, rest)
            self.programs[key] = program, list(shape)
        else:
            found = self.programs[key][0](some, rest)
        outs, pull, data, floating = found
        floats, others = iter(outs), iter(data)
        flat = [next(floats) if one else next(others) for one in self.numpy.asarray(floating).tolist()]
        outputs = filled(self.programs[key][1][0], flat)
        jax.block_until_ready((outs, data))
        return outputs, (pull, outs, [place for place, one in enumerate(self.numpy.asarray(floating).tolist()) if one])

    def exact(
        self,
        function: Callable[..., Any],
        tree: Any,
        leaves: list[Any],
        wanted: list[int],
        options: Any,
        places: list[int],
        cotangents: list[Any],
    ) -> list[Any]:
        """⟨cotangents, outputs⟩ and the gradients, as arrays of balls."""
        from gradgate.suites.exact import balls, on_jax

        jax = self.jax

        def run(leaves: list[Any], cotangents: list[Any]) -> list[Any]:
            def pulled(some: list[Any]) -> list[Any]:
                given = dict(zip(wanted, some, strict=True))
                outputs = function(*filled(tree, [given.get(i, leaf) for i, leaf in enumerate(leaves)]), **options)
                flat: list[Any] = []
                structure(outputs, flat)
                return [flat[place] for place in places]

            outs, pull = jax.vjp(pulled, [leaves[place] for place in wanted])
            [grads] = pull(cotangents)
            return [sum((out * one).sum() for out, one in zip(outs, cotangents, strict=True)), *grads]

        program = on_jax.trace(run, leaves, cotangents)
        return [balls.whole(leaf) for leaf in program.evaluate(leaves, cotangents)]

    def differentiable(self, leaf: Any) -> bool:
        """Whether a gradient can be pulled through this output."""
        return bool(self.jax.numpy.issubdtype(leaf.dtype, self.jax.numpy.floating))

    def shared(self, outputs: list[Any], leaves: list[Any]) -> list[list[int]]:
        """As in PyTorch: nothing, because nobody can write into an array of JAX."""
        return []

    def backward(self, state: Any, places: list[int], cotangents: list[Any]) -> list[Any]:
        """The gradients of the wanted leaves."""
        pull, outs, floating = state
        given = dict(zip(places, cotangents, strict=True))
        upstream = [
            given[place].astype(out.dtype) if place in given else self.jax.numpy.zeros_like(out)
            for place, out in zip(floating, outs, strict=True)
        ]
        if "pull" not in self.programs:
            self.programs["pull"] = self.jax.jit(lambda pull, upstream: pull(upstream))
        try:
            [grads] = self.programs["pull"](pull, upstream)
        except (self.jax.errors.JAXTypeError, TypeError):
            [grads] = pull(upstream)
        return list(self.jax.block_until_ready(grads))


FRAMEWORKS: dict[str, Callable[[], Any]] = {"torch": InTorch, "jax": InJax}


PARTS = 4
"""Numbers of float64 that add up to the midpoint of a ball: 212 bits are sixty digits and more."""


def parts(leaf: Any) -> list[bytes]:
    """Balls as raw bytes of float64: `PARTS` numbers that add up to the midpoints, and bounds of the radii."""
    from gradgate.suites.exact import balls

    found = array.array("d"), array.array("d"), array.array("d"), array.array("d"), array.array("d")
    with balls.digits(100):
        for ball in leaf.ravel().tolist():
            left = ball.mid()
            for place in range(PARTS):
                one = float(left)
                left = left - one
                found[place].append(one)
            found[PARTS].append(float(ball.rad()) * (1 + 1e-9) + abs(float(left)) * 2)
    return [one.tobytes() for one in found]


def _plain(sent: Any) -> Any:
    """A value with its tuples, as `benchmarks` sends it."""
    if isinstance(sent, dict):
        return tuple(map(_plain, sent["tuple"]))
    return list(map(_plain, sent)) if isinstance(sent, list) else sent


def filled(tree: Any, leaves: Sequence[Any]) -> Any:
    """A tree as it crosses the wall, with its leaves in it: lists, tuples ``{"t": …}``, dicts ``{"d": …}``, numbers."""
    if isinstance(tree, int):
        return leaves[tree]
    if isinstance(tree, list):
        return [filled(item, leaves) for item in tree]
    if tree is None:
        return None
    if "t" in tree:
        return tuple(filled(item, leaves) for item in tree["t"])
    return {key: filled(item, leaves) for key, item in tree["d"].items()}


def structure(value: Any, leaves: list[Any]) -> Any:
    """The tree of `filled`, with every leaf of the value added to `leaves`."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {"d": {str(key): structure(item, leaves) for key, item in value.items()}}
    if isinstance(value, tuple):
        return {"t": [structure(item, leaves) for item in value]}
    if isinstance(value, list):
        return [structure(item, leaves) for item in value]
    leaves.append(value)
    return len(leaves) - 1


# ---- serving one candidate


def _importable(path: str, text: str) -> None:
    """Make a further file of a candidate importable, as ``a.b`` if its path is a/b.py."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    nothing: Any = _Text("")
    own: Any = _Text(text)
    for end in (place for place, letter in enumerate(name) if letter == "."):
        parent = name[:end]
        _Finder.specs.setdefault(parent, importlib.util.spec_from_loader(parent, nothing, is_package=True))
    spec = importlib.util.spec_from_loader(name, own, is_package=path.endswith("__init__.py"))
    _Finder.specs[name] = spec
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the further files of a candidate."""

    specs: dict[str, Any] = {}  # noqa: RUF012 - a process has one candidate

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As `importlib.abc.MetaPathFinder.find_spec`."""
        return self.specs.get(name)


class _Text:
    """Loads a module from its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def create_module(self, spec: Any) -> None:
        """As `importlib.abc.Loader.create_module`."""

    def exec_module(self, module: Any) -> None:
        """As `importlib.abc.Loader.exec_module`."""
        exec(compile(self.text, f"{module.__name__}.py", "exec"), module.__dict__)


class Served:
    """One candidate: its module and its function.

    Attributes:
        held: call -> what its backward pass needs, which may still come: state, inputs, their numbers before the call.
        returned: call -> its outputs and gradients, which may be asked for again, and how many bytes they have.
    """

    def __init__(self, framework: Any) -> None:
        self.framework = framework
        self.function: Callable[..., Any] | None = None
        self.held: dict[int, tuple[Any, list[Any], list[bytes]]] = {}
        self.returned: dict[int, tuple[list[Any], int]] = {}
        self.into: list[Any] = []

    def answer(self, request: dict[str, Any], arrays: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """The reply to one request."""
        what = {
            "load": self.load,
            "forward": self.forward,
            "backward": self.backward,
            "again": self.again,
            "exact": self.exact,
        }
        return what[request["do"]](request, arrays)

    def load(self, request: dict[str, Any], arrays: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """Run the candidate's text as a module, and find its function; ``call`` says how it is called.

        Its kind is ``module``: a class, built with ``init``, whose parameters are the first argument; or ``kernel``: a
        function of arrays and ``scalars`` in an ``order``, of arrays of these ``dtypes``, that may write its outputs.
        """
        for path, text in request.get("files", {}).items():
            _importable(path, text)
        module = types.ModuleType(NAME)
        module.__file__ = f"/{NAME}.py"
        sys.modules[NAME] = module
        text = request["text"]
        linecache.cache[f"{NAME}.py"] = (len(text), None, text.splitlines(keepends=True), f"{NAME}.py")
        exec(compile(text, f"{NAME}.py", "exec"), module.__dict__)
        name = request["name"]
        if not name:
            public = [n for n, v in vars(module).items() if isinstance(v, types.FunctionType) and v.__module__ == NAME]
            chosen = [n for n in public if not n.startswith("_")]
            name = "candidate" if hasattr(module, "candidate") else chosen[-1] if chosen else ""
        found = getattr(module, name, None) if name else None
        if not callable(found):
            raise LookupError(f"it has no function {name or 'at all'}")
        call = request.get("call") or {}
        if call.get("kind") == "module":
            found = self._module(found, call)
        elif call.get("kind") == "kernel":
            found = self._kernel(found, call)
        self.function = found
        return {"name": name}, []

    def _module(self, made: Any, call: dict[str, Any]) -> Callable[..., Any]:
        """A class of modules as a function of parameters and inputs.

        Raises:
            LookupError: what it makes has other parameters than the task's.
        """
        torch = self.framework.torch
        torch.manual_seed(0)
        module = made(*map(_plain, call["init"]))
        own = [name for name, leaf in module.named_parameters() if leaf.requires_grad]
        shapes = dict(call["parameters"])
        parts = dict(module.named_parameters())
        # parameters of other names are taken in order, as KernelBench's own check takes them
        names = dict(zip(shapes, shapes if set(own) == set(shapes) else own, strict=False))
        if len(own) != len(shapes) or any(list(parts[names[name]].shape) != shapes[name] for name in shapes):
            has = ", ".join(f"{name} {list(parts[name].shape)}" for name in own)
            wanted = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise LookupError(f"its parameters are {has or 'none'}; the task's are {wanted or 'none'}")

        def run(*arguments: Any) -> Any:
            given, rest = (arguments[0], arguments[1:]) if shapes else ({}, arguments)
            like = next(one for one in (*given.values(), *rest) if one.is_floating_point())
            held = {
                name: (leaf.to(like.dtype) if leaf.is_floating_point() else leaf).clone()
                for name, leaf in (*module.named_buffers(), *parts.items())
                if name not in names.values()
            }
            parameters = {names[name]: leaf for name, leaf in given.items()}
            return torch.func.functional_call(module, {**parameters, **held}, rest)

        return run

    def _kernel(self, function: Callable[..., Any], call: dict[str, Any]) -> Callable[..., Any]:
        """A function of arrays and numbers in some order; it returns its outputs, or writes into arrays after them."""
        torch = self.framework.torch

        def run(*arrays: Any, **values: Any) -> Any:
            cast = (
                one if one.is_floating_point() else one.to(getattr(torch, dtype))
                for one, dtype in zip(arrays, call["dtypes"], strict=True)
            )
            given = [values[name] if name in call["scalars"] else next(cast) for name in call["order"]]
            outs = []
            for shape, dtype in self.into:
                whole = torch.empty(shape, dtype=getattr(torch, dtype))
                outs.append(whole.fill_(float("nan") if whole.is_floating_point() else 1))
            found = function(*given, *outs)
            found = outs if outs else list(found.values()) if isinstance(found, dict) else found
            listed = list(found) if isinstance(found, (list, tuple)) else [found]
            return listed[0] if len(listed) == 1 else tuple(listed)

        return run

    def _placed(self, arrays: list[Any], layouts: list[Any]) -> list[Any]:
        return [self.framework.array(one, layout) for one, layout in zip(arrays, layouts, strict=True)]

    def _scope(self, request: dict[str, Any]) -> Any:
        """The scope of a call: the width of JAX's numbers, and random numbers as the reference draws them."""
        scope = contextlib.ExitStack()
        if isinstance(self.framework, InJax):
            scope.enter_context(self.framework.jax.enable_x64(request["wide"]))
            if request.get("alike"):
                scope.enter_context(masks.alike())
        elif request.get("seed") is not None:
            random = self.framework.torch.random
            scope.enter_context(random.fork_rng(devices=[]))
            random.default_generator.manual_seed(request["seed"])
        return scope

    def forward(self, request: dict[str, Any], arrays: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """Run the function on new arrays."""
        assert self.function is not None
        self.into = request.get("into", [])
        with self._scope(request):
            leaves = self._placed(arrays, request["layouts"])
            before = self._numbers(leaves)
            outputs, state = self.framework.forward(
                self.function, request["tree"], list(leaves), request["wanted"], request["options"]
            )
            flat: list[Any] = []
            tree = structure(outputs, flat)
            sent = [self.framework.bytes_of(leaf) for leaf in flat]
            can = [self.framework.differentiable(leaf) for leaf in flat]
        if request["wanted"]:
            self.held[request["id"]] = state, leaves, before
        if len(self.held) > HELD:
            del self.held[next(iter(self.held))]
        self._keep(request["id"], flat, sent)
        changed, shared = self._changed(leaves, before), self.framework.shared(flat, leaves)
        return {"tree": tree, "differentiable": can, "changed": changed, "shared": shared}, sent

    def _keep(self, call: int, returned: list[Any], sent: list[Any]) -> None:
        """Keep what a call has returned, and forget the oldest calls if that is too much."""
        before, size = self.returned.pop(call, ([], 0))
        self.returned[call] = before + returned, size + sum(len(one.numbers) for one in sent)
        while len(self.returned) > 2 and (
            len(self.returned) > HELD or sum(size for _, size in self.returned.values()) > KEPT
        ):
            del self.returned[next(iter(self.returned))]

    def backward(self, request: dict[str, Any], arrays: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """Pull cotangents, which were not known before, through an earlier call."""
        state, leaves, before = self.held.pop(request["id"])
        with self._scope(request):
            cotangents = self._placed(arrays, request["layouts"])
            grads = self.framework.backward(state, request["places"], cotangents)
            sent = [self.framework.bytes_of(grad) for grad in grads]
        self._keep(request["id"], grads, sent)
        spoilt = self._changed(cotangents, [one.numbers for one in arrays])
        return {"changed": self._changed(leaves, before), "cotangents": spoilt}, sent

    def _numbers(self, leaves: list[Any]) -> list[bytes]:
        return [self.framework.bytes_of(leaf).numbers for leaf in leaves]

    def _changed(self, leaves: list[Any], before: list[bytes]) -> list[int]:
        """The places of the arrays whose numbers are not what they were."""
        return [i for i, (now, then) in enumerate(zip(self._numbers(leaves), before, strict=True)) if now != then]

    def exact(self, request: dict[str, Any], arrays: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """⟨cotangents, outputs⟩ and the gradients in sixty digits, each as `parts` and a radius.

        Raises:
            Unknown, Undecided: as the evaluator says.
        """
        assert self.function is not None
        sys.modules.update(HIDDEN)
        sys.path += HERE
        count = len(request["layouts"])
        with self._scope(request):
            leaves = self._placed(arrays[:count], request["layouts"])
            cotangents = self._placed(arrays[count:], [{} for _ in arrays[count:]])
            found = self.framework.exact(
                self.function,
                request["tree"],
                leaves,
                request["wanted"],
                request["options"],
                request["places"],
                cotangents,
            )
        sent = []
        for leaf in found:
            shape = tuple(leaf.shape)
            sent += [message.Array("float64", shape, part) for part in parts(leaf)]
        return {}, sent

    def again(self, request: dict[str, Any], arrays: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        """The outputs and gradients of an earlier call as they are now, or that it is forgotten."""
        if request["id"] not in self.returned:
            return {"forgotten": True}, []
        return {}, [self.framework.bytes_of(leaf) for leaf in self.returned[request["id"]][0]]


def _end_with_court(connection: int) -> None:
    """Wait until the other side is gone, and end: a court that was killed cannot stop a call that hangs."""
    poll = select.poll()
    poll.register(connection, 0)
    poll.poll()
    os._exit(0)


def serve(connection: socket.socket, framework: Any, limits: dict[str, Any]) -> None:
    """Answer requests until the other side closes."""
    threading.Thread(target=_end_with_court, args=(connection.fileno(),), daemon=True).start()

    def read(count: int, _: float) -> bytes:
        return connection.recv(count)

    served, done = Served(framework), {"wall": limits["done"], "pid": os.getpid()}
    connection.sendmsg([message.packed(message.ANSWER, json.dumps(done))])
    while True:
        try:
            _, text, arrays = message.received(read, time.monotonic() + 1e9, 1 << 40, REQUEST)
        except message.Closed:
            os._exit(0)
        try:
            reply, sent = served.answer(json.loads(text), arrays)
            frame = message.packed(message.ANSWER, json.dumps(reply), sent)
        except BaseException as error:  # whatever a stranger raises is said, and the next request is answered
            frame = message.packed(message.RAISED, _words(error))
        connection.sendall(frame)


def _words(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0][:300] if lines else '(no message)'}"
    except BaseException as another:
        said = f"{type(error).__name__}: (its message raises {type(another).__name__})"
    with contextlib.suppress(BaseException):
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == f"{NAME}.py"]
        if frames:
            said += f" · {NAME}.py:{frames[-1].lineno} in {frames[-1].name}"
    return said


def _hide() -> None:
    """Take away what would tell a candidate that it is judged, so that it is right outside, too.

    These are the command line, the modules of gradgate, and this program as the main module.
    """
    for name in list(sys.modules):
        if name in ("__main__", "message", "masks", "landlock") or name.partition(".")[0] == "gradgate":
            HIDDEN[name] = sys.modules.pop(name)
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv[:] = sys.orig_argv[:] = [""]
    sys.path[:] = [place for place in sys.path if place not in HERE]


def main(arguments: Sequence[str]) -> None:
    """Import the framework, say so, and fork a process for each socket that arrives."""
    control = socket.socket(fileno=int(arguments[0]))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: it ends with the court
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: a process that a stranger leaves behind stays below this one
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: no process of a stranger may read or trace this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the forks
    framework = FRAMEWORKS[arguments[1]]()
    sys.path += HERE
    with contextlib.suppress(ImportError):  # then a candidate is not evaluated in sixty digits, and is told why
        importlib.import_module(f"gradgate.suites.exact.on_{arguments[1]}")
    _hide()
    gc.collect()
    gc.freeze()
    control.sendall(b"r")
    while True:
        text, sent, _, _ = control.recvmsg(1 << 16, socket.CMSG_SPACE(4))
        if not text:
            os._exit(0)
        numbers = array.array("i")
        for level, kind, data in sent:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers.frombytes(data[: len(data) - len(data) % 4])
        if os.fork():
            for number in numbers:
                os.close(number)
            continue
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(BaseException):
            limits = json.loads(text)
            limits["done"] = isolate(limits)
            serve(socket.socket(fileno=numbers[0]), framework, limits)
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
