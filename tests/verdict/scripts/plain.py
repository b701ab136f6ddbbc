"""A training that saves after steps 3, 6 and 8 of 8: `plain.py OUT [CHECKPOINT]`; at SIGTERM it just ends."""

import sys
from pathlib import Path

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
first = 1
if len(sys.argv) > 2:
    saved = torch.load(sys.argv[2], weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    first = saved["step"] + 1
for step in range(first, 9):
    optimizer.zero_grad()
    model(torch.full((3, 4), float(step))).square().sum().backward()
    optimizer.step()
    if step in (3, 6, 8):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        torch.save({**state, "step": step}, Path(sys.argv[1]) / f"{step}.pt")
