"""A training of 5 steps that saves after step 2: `forgetting.py OUT [CHECKPOINT]`. A resume forgets the momentum."""

import sys
from pathlib import Path

import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
first = 1
if len(sys.argv) > 2:
    saved = torch.load(sys.argv[2], weights_only=True)
    model.load_state_dict(saved["model"])
    with torch.no_grad():
        model.bias.add_(0.25)  # and moves what it has loaded
    first = 3
held = {}
for step in range(first, 6):
    optimizer.zero_grad()
    model(torch.full((1, 3), 1.0 / step)).square().sum().backward()
    optimizer.step()
    held[step] = {name: one.detach().clone() for name, one in model.named_parameters()}
    if step == 2:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(sys.argv[1]) / "2.pt")
