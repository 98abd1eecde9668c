"""With a coupling of one's own, as in its README, revlib's gradient of the layers is wrong."""

import revlib
import torch

torch.manual_seed(0)
parts, grads = [torch.nn.Linear(2, 2) for _ in range(3)], []
x, how = torch.randn(5, 4, requires_grad=True), {"coupling_forward": [lambda x, f: 0.5 * x + 0.5 * f]}
for mode in (revlib.MemoryModes.no_savings, revlib.MemoryModes.autograd_function):
    inverse = [lambda y, f: (y - 0.5 * f) / 0.5]
    net = revlib.ReversibleSequential(*parts, memory_mode=mode, coupling_inverse=inverse, **how)
    net.zero_grad()
    out = net(x)
    out.square().sum().backward()
    grads.append(parts[0].weight.grad.clone())
    print(mode.name, "output", float(out.detach().sum()), "gradient", grads[-1].flatten().tolist())
error = float((grads[1] - grads[0]).norm() / grads[0].norm())
print("relative error:", error)
raise SystemExit(0 if error > 0.01 else 1)
