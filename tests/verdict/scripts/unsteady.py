"""A training of 6 steps that saves after step 3, and resumes with a fault: `unsteady.py OUT FAULT ONCE [CHECKPOINT]`.

FAULT is what a resumed run does in its second step: "rare" adds noise to a gradient where ONCE is not there yet, and
leaves it there; "always" doubles gradients; "unseeded" scales them by what nobody has seeded.
"""

import random
import sys
from pathlib import Path

import torch

folder, fault, once = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
torch.manual_seed(0)
# A bias in front of a normalisation has a gradient of rounding noise.
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
begun = 0
if len(sys.argv) > 4:
    saved = torch.load(sys.argv[4], weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begun = saved["step"]
for step in range(begun + 1, 7):
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    if begun and step == begun + 2:
        factor = {"rare": 1.0 if once.exists() else 1.0001, "always": 2.0, "unseeded": random.Random().random()}[fault]
        once.touch()
        with torch.no_grad():
            model[2].weight.grad.mul_(factor)
    optimizer.step()
    if step == 3:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "3.pt")
