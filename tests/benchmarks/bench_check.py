"""What `check` costs, against reading the same bytes once and against `cmp`, on files that torch itself writes.

    python -m tests.benchmarks.bench_check [--megabytes N] [--turns N]

Makes 0.8 GB of model and Adam state in a temporary folder: one file of torch, and a folder with the weights as
safetensors beside an optimizer.pt; then 20,000 tensors of one file, in one param group and in a group for every
parameter. Every figure is the whole process, start included,
the best of some turns taken one after the other; peak memory is the process's own. The peers are one pass through the
page cache (`cat` to nothing) and `cmp` of the file with a copy, in the same run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_diff import Cost, ckptcheck, cost, make, show

MAKE = """
import sys, torch
from safetensors.torch import save_file
folder, megabytes = sys.argv[1], int(sys.argv[2])
width, layers = 2048, max(1, megabytes * 1_000_000 // 3 // (2048 * 2049 * 4))
torch.manual_seed(0)
model = torch.nn.ModuleDict({f"l{i}": torch.nn.Linear(width, width) for i in range(layers)})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for parameter in model.parameters():
    parameter.grad = torch.randn_like(parameter)
optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, f"{folder}/whole.pt")
save_file(model.state_dict(), f"{folder}/parts/model.safetensors")
torch.save(optimizer.state_dict(), f"{folder}/parts/optimizer.pt")
"""
MAKE_MANY = """
import sys, torch
model = torch.nn.ModuleDict({f"l{i}": torch.nn.Linear(8, 8) for i in range(2_500)})
groups = [{"params": [one]} for one in model.parameters()] if sys.argv[2] == "each" else model.parameters()
optimizer = torch.optim.AdamW(groups, lr=1e-3)
for parameter in model.parameters():
    parameter.grad = torch.randn_like(parameter)
optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, sys.argv[1])
"""


def read_once(*paths: Path) -> list[str]:
    """The command line that reads files from end to end."""
    return [sys.executable, "-c", _READ_SCRIPT, *map(str, paths)]


_READ_SCRIPT = """
import sys
buffer = memoryview(bytearray(1 << 20))
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
"""


def show_check(name: str, target: Path, files: list[Path], turns: int, *, goal: bool = True) -> None:
    """Reading, comparing with a copy, and checking of what lies at `target`; the goal is for files of 0.8 GB."""
    nbytes = sum(one.stat().st_size for one in files)
    print(f"\n{name}: {nbytes / 1e9:.2f} GB; best of {turns}; ratios to one read")
    peer = cost(read_once(*files), turns)
    show("read once", peer, peer)
    copies = [one.with_suffix(".copy") for one in files]
    for one, copy in zip(files, copies, strict=True):
        subprocess.run(["cp", str(one), str(copy)], check=True)
    compared = [cost(["cmp", str(one), str(copy)], turns) for one, copy in zip(files, copies, strict=True)]
    show("cmp with a copy", Cost(sum(one.wall_s for one in compared), compared[0].peak_mb), peer)
    for copy in copies:
        copy.unlink()
    found = cost(ckptcheck("check", target), turns)
    show("check", found, peer, peer.wall_s + 1.0 if goal else None, 400)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=800)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    show("ckptcheck --version", cost([sys.executable, "-m", "ckptcheck", "--version"], options.turns))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "parts").mkdir()
        make(MAKE, folder, options.megabytes)
        show_check("one file of torch", folder / "whole.pt", [folder / "whole.pt"], options.turns)
        parts = sorted((folder / "parts").iterdir())
        show_check("safetensors beside optimizer.pt", folder / "parts", parts, options.turns)
        for groups, said in (("one", "20,000 tensors"), ("each", "20,000 tensors, a group for every parameter")):
            many = folder / f"{groups}.pt"
            make(MAKE_MANY, many, groups)
            show_check(said, many, [many], options.turns, goal=False)


if __name__ == "__main__":
    main()
