"""fla-core 0.6.0: the second derivative of the delta rule is wrong, without an error."""
import os
import sys
from importlib.util import find_spec
from types import ModuleType

os.environ["TRITON_INTERPRET"] = "1"
bare = ModuleType("fla")  # its own __init__ imports models besides the kernels
bare.__path__, bare.__version__ = list(find_spec("fla").submodule_search_locations), "0.6.0"
sys.modules["fla"] = bare
import torch
from fla.ops.delta_rule import fused_recurrent_delta_rule as delta

(q, v), k, beta = torch.randn(2, 1, 1, 1, 16), torch.randn(1, 1, 1, 16).requires_grad_(), torch.full((1, 1, 1), 0.5)
unit = lambda: torch.nn.functional.normalize(k, dim=-1)
outs = [delta(q, unit(), v, beta, scale=1.0)[0], (q * unit()).sum(-1, keepdim=True) * 0.5 * v]  # one token
first = [torch.autograd.grad((out**2).sum(), k, create_graph=True)[0] for out in outs]
second = [torch.autograd.grad((one**2).sum(), k)[0] for one in first]
print("second derivative", second[0].flatten()[:3].tolist(), "plain", second[1].flatten()[:3].tolist())
sys.exit(0 if (second[0] / second[1] - 1).abs().max() > 1e-2 else 1)
