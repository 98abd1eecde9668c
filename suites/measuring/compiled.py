"""What torch.compile keeps between the forward and the backward pass, found with AOTAutograd on fake tensors.

AOTAutograd traces both passes as one graph. Inductor's partitioner cuts the graph where the fewest bytes cross. No code
is generated, no device is needed, and tensors take no memory, so this works at any size.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils import _pytree

from gradgate.hw_profiles.torch_memory import Refusal
from gradgate.suites.measuring import fakes


def saved_bytes(run: Callable[[], Any], inputs: Sequence[Any]) -> int:
    """Bytes of the storages that autograd saves in one call, as `torch.autograd.graph.saved_tensors_hooks` sees them.

    Args:
        run: the forward pass. A compiled function has to have run before, so that nothing is compiled in here.
        inputs: tensors whose storages are not counted. Storages of outputs are not counted either.
    """
    kept: dict[int, Any] = {}

    def pack(leaf: Any) -> Any:
        storage = leaf.untyped_storage()
        kept[storage._cdata] = storage  # kept alive, so that no other storage gets the same address
        return leaf

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda leaf: leaf):
        outputs = run()
    around = [leaf for leaf in _pytree.tree_leaves([outputs, list(inputs)]) if isinstance(leaf, torch.Tensor)]
    left_out = {leaf.untyped_storage()._cdata for leaf in around}
    return sum(storage.nbytes() for place, storage in kept.items() if place not in left_out)


def residual_bytes(pair: Any, spec: Any, options: Mapping[str, Any], role: str = "function") -> int:
    """Bytes that a pair's function, or its ``reference``, keeps between its passes under torch.compile.

    Cost: seconds of tracing; no memory, at any size.

    Raises:
        Refusal: the function reads a number out of a tensor, cannot be traced, or launches Triton kernels, which a
            trace does not see; says why.
    """
    with _traced(pair, spec, options, role, _as_it_is, _as_it_is) as (compiled, leaves, given):
        compiled(*leaves)
        return saved_bytes(lambda: compiled(*leaves), [*leaves, *given])


def peak_bytes(pair: Any, spec: Any, options: Mapping[str, Any], role: str = "function") -> int:
    """Inductor's estimate of a pair's peak under torch.compile: the larger one of its two passes.

    Both graphs are lowered and scheduled as for a CPU, and no code is generated. The backward pass counts what it gets
    from the forward pass; neither counts the function's inputs.

    Cost: seconds of tracing and lowering; no memory, at any size.

    Raises:
        Refusal: as `residual_bytes`, or Inductor cannot lower a graph; says why.
    """
    peaks: list[int] = []

    def lowered(graph: Any, inputs: Sequence[Any], *, is_backward: bool) -> Any:
        peaks.append(_estimate(graph, inputs, is_backward))
        return make_boxed_func(graph.forward)

    passes = (functools.partial(lowered, is_backward=backward) for backward in (False, True))
    with _traced(pair, spec, options, role, *passes) as (compiled, leaves, _):
        outputs = [leaf for leaf in _pytree.tree_leaves(compiled(*leaves)) if leaf.requires_grad]
        torch.autograd.grad(outputs, leaves, [torch.ones_like(leaf) for leaf in outputs], allow_unused=True)
    return max(peaks)


@contextlib.contextmanager
def _traced(
    pair: Any, spec: Any, options: Mapping[str, Any], role: str, forward_compiler: Any, backward_compiler: Any
) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """A function whose passes AOTAutograd gives to two compilers, its leaves, and its other tensors. All are fake.

    The function is traced when it is called. An exception raised within the scope becomes a Refusal.
    """
    with fakes.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own: under -W error they would be raised in the function
        if role == "function" and pair.devices:
            raise Refusal("a trace of AOTAutograd does not see what a Triton kernel computes")
        problem: Any = fakes.problem(spec)
        paths = list(problem.params)
        leaves = [problem.params[path].detach().requires_grad_() for path in paths]

        def forward(*given: Any) -> Any:
            params = dict(zip(paths, given, strict=True))
            found = pair.outputs(role, problem.with_params(params), params, options)
            return tuple(found.values())

        compiled = aot_function(
            forward,
            fw_compiler=forward_compiler,
            bw_compiler=backward_compiler,
            partition_fn=_cut,
            decompositions=_decompositions(),
        )
        passed_on: tuple[type[BaseException], ...] = (Refusal, *fakes.reads())
        try:
            with torch.enable_grad():
                yield compiled, leaves, list(problem.data["given"].values())
        except passed_on:
            raise
        except Exception as error:
            raise Refusal(f"AOTAutograd cannot trace it: {type(error).__name__}: {str(error).strip()[:300]}") from error


def _estimate(graph: Any, inputs: Sequence[Any], is_backward: bool) -> int:
    """Inductor's estimate of the peak of one graph, after it has fused and ordered its kernels."""
    try:
        from torch._guards import detect_fake_mode
        from torch._inductor import debug, memory
        from torch._inductor.graph import GraphLowering
        from torch._inductor.virtualized import V
        from torch.utils._ordered_set import OrderedSet

        lowering = GraphLowering(graph, example_inputs=inputs, is_backward=is_backward)
        with V.set_fake_mode(detect_fake_mode(inputs)), V.set_graph_handler(lowering), debug.DebugContext():
            lowering.run(*inputs)
            lowering.init_wrapper_code()
            lowering._update_scheduler()
            plan = lowering.scheduler
            names = OrderedSet(lowering.graph_inputs), OrderedSet(lowering.get_output_names())
            peak, *_ = memory.prepare_planning_info(plan.nodes, plan.name_to_buf, plan.name_to_fused_node, *names)
    except Exception as error:
        raise Refusal(f"Inductor cannot lower it: {type(error).__name__}: {str(error).strip()[:300]}") from error
    return int(peak)


def _as_it_is(graph: Any, _: Any) -> Any:
    return make_boxed_func(graph.forward)


def _cut(graph: Any, inputs: Any, **how: Any) -> Any:
    """The two graphs that Inductor would compile."""
    from torch._inductor.compile_fx import _recursive_joint_graph_passes

    _recursive_joint_graph_passes(graph)
    return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **how)


def _decompositions() -> Any:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()
