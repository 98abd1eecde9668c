"""fla-core 0.6.0: the second derivative of the delta rule is wrong, without an error."""

import os
import sys
from importlib.util import find_spec
from types import ModuleType

os.environ["TRITON_INTERPRET"] = "1"
bare = ModuleType("fla")  # its own __init__ imports models besides the kernels
bare.__path__, bare.__version__ = list(find_spec("fla").submodule_search_locations), "0.6.0"
sys.modules["fla"] = bare
import torch  # noqa: E402
from fla.ops.delta_rule import fused_recurrent_delta_rule as delta  # noqa: E402

q, k, v = torch.randn(3, 1, 1, 1, 16, generator=torch.manual_seed(0)).requires_grad_().unbind()  # one token
outs = [delta(q, k / k.norm(), v, torch.full((1, 1, 1), 0.5), scale=1.0)[0], (q * k).sum() / k.norm() * 0.5 * v]
first = [torch.autograd.grad((out**2).sum(), k, create_graph=True)[0] for out in outs]
second = [torch.autograd.grad((one**2).sum(), k)[0] for one in first]
print("second derivative", second[0].flatten()[:3].tolist(), "plain", second[1].flatten()[:3].tolist())
sys.exit(0 if (second[0] - second[1]).abs().max() > 1e-2 * second[1].abs().max() else 1)
