"""betty's conjugate gradients use the old residual for the next direction, so they do not solve a 2 x 2 system."""

from types import SimpleNamespace

import torch
from betty.hypergradient.cg import cg

a, b = torch.tensor([[2.0, 1.0], [1.0, 3.0]]), torch.tensor([1.0, -2.0], requires_grad=True)
w, upstream = torch.zeros(2, requires_grad=True), torch.tensor([1.0, 1.0])
right = torch.linalg.solve(a, upstream)
for steps in (2, 4):
    lower = SimpleNamespace(paths=(), cur_batch=None, config=SimpleNamespace(cg_iterations=steps, cg_alpha=1.0))
    lower.training_step_exec = lambda _: 0.5 * w @ a @ w - b @ w
    lower.parameters = lower.trainable_parameters = lambda: [w]
    [found] = cg([upstream], lower, SimpleNamespace(trainable_parameters=lambda: [b]))
    print(steps, "steps:", found.tolist(), "solution:", right.tolist())
raise SystemExit(0 if (found - right).norm() > 0.01 * right.norm() else 1)
