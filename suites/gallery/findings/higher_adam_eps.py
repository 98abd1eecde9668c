"""higher's Adam adds eps to the root of the moment before its bias correction; torch.optim.Adam adds it afterwards."""

import higher
import torch

g = torch.tensor([1e-3, -2e-3], dtype=torch.float64)
w = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
plain = torch.optim.Adam([w], lr=1.0, eps=1e-3)
[theirs] = higher.get_diff_optim(plain, [w]).step((g * w).sum(), params=[w])
w.grad = g.clone()
plain.step()
error = float((theirs - w).detach().norm() / w.detach().norm())
print("higher:", theirs.detach(), "torch.optim:", w.detach(), "relative error:", error)
raise SystemExit(0 if error > 0.1 else 1)
