"""In float64, torchopt computes Adam's bias corrections and Adagrad's rate in float32."""

import torch
import torchopt

found = {}
for name, ours, kind, more in (
    ("adamw", torchopt.adamw(0.1, weight_decay=0.1), torch.optim.AdamW, {"weight_decay": 0.1}),
    ("adagrad", torchopt.adagrad(0.1, lr_decay=0.1), torch.optim.Adagrad, {"lr_decay": 0.1}),
):
    w, mine = torch.zeros(3, dtype=torch.float64, requires_grad=True), torch.zeros(3, dtype=torch.float64)
    theirs, state = kind([w], lr=0.1, **more), ours.init({"w": w})
    w.grad = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    for _ in range(2):
        theirs.step()
        updates, state = ours.update({"w": w.grad.clone()}, state, params={"w": mine}, inplace=False)
        mine = mine + updates["w"]
    found[name] = float((mine - w.detach()).norm() / w.detach().norm())
print("relative error of two steps in float64:", found)
raise SystemExit(0 if min(found.values()) > 1e-10 else 1)
