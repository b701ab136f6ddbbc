"""The scripts of the launcher table. Each training process makes three steps, and prints its last loss."""

from pathlib import Path

STEPS = 3

LOOP = """
import sys
import torch

def train(seed=0, *loaders):
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batches in loaders or [(torch.randn(3, 4) for _ in range(3))]:
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
    print("loss", loss.item(), flush=True)

def main():
    train()
    print("note", file=sys.stderr)
    return 5
"""

PLAIN = LOOP + "\nif __name__ == '__main__':\n    sys.exit(main())\n"

PROCESSES = """
import multiprocessing, sys
import torch, loop

def idle(number):
    (torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum()).backward()  # a gradient, and no update

def loaded(method, data):
    return torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context=method)

if __name__ == "__main__":
    for method, target, seed in (
        ("fork", loop.train, 1), ("fork", loop.train, 2), ("fork", idle, 0), ("spawn", loop.train, 3),
    ):
        one = multiprocessing.get_context(method).Process(target=target, args=(seed,))
        one.start()
        one.join()
        assert one.exitcode == 0
    rows = [torch.full((4,), float(number)) for number in range(6)]
    loop.train(0, loaded("fork", rows[:4]), loaded("spawn", rows[4:]))
"""

RANKS = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
del os.environ["RANK"], os.environ["WORLD_SIZE"]  # as Lightning's ddp leaves them
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.full((3, 4), float(rank + step))).square().mean()
    loss.backward()
    optimizer.step()
sys.stdout.write(f"rank {rank} {loss.item()}\\n")  # in one piece: the other rank writes too
dist.destroy_process_group()
"""

STRANGER = """
import sys
import ckptcheck, loop

loop.train()
print(ckptcheck.MINE, sorted(name for name in sys.modules if name.startswith("ckptcheck")), "numpy" in sys.modules)
"""

CONSOLE = """#!/usr/bin/env python
import re
import sys
from loop import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
"""As pip writes them."""

WITHOUT_TORCH = """
try:
    import torch
except ImportError:
    print("no torch")
"""

WAITS = """
import sys
print([type(one).__name__ for one in sys.meta_path], sys.path)
"""
"""Says whether something waits for torch."""

BLOCKED = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in ("numpy", "xxhash") else found(name, *rest)
"""


def written(folder: Path) -> Path:
    """A folder with all of them: files, a package with a main, a console script, a shell script, two sitecustomize."""
    files = {
        "plain.py": PLAIN, "loop.py": LOOP, "processes.py": PROCESSES, "ranks.py": RANKS, "waits.py": WAITS,
        "without_torch.py": WITHOUT_TORCH, "blocked/sitecustomize.py": BLOCKED, "other/here.txt": "",
        "stranger.py": STRANGER,
        "mine/ckptcheck/__init__.py": "MINE = 1\n", "pkg/__init__.py": "", "pkg/__main__.py": PLAIN,
        "all.sh": "python stranger.py; python -m pkg; exec ./console", "console": CONSOLE,
    }  # fmt: skip
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "console").chmod(0o755)
    return folder
