"""The launchers of trainers: which of their processes are recorded, and that nobody notices."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch

from tests.trace.injection.launching import Left, Said, environment, record

for one in ("accelerate", "lightning"):
    pytest.importorskip(one)

ACCELERATE = """
import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(6, 4), batch_size=2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
print("rank", accelerator.process_index, loss.item())
"""

LIGHTNING = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch
import lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def on_train_start(self):
        assert sys.argv[1] != "ddp" or "RANK" not in os.environ
    def on_train_end(self):
        sys.stdout.write(f"rank {self.global_rank} {self.layer.weight.sum().item()}\\n")  # in one piece
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    lightning.seed_everything(1, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=2)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=sys.argv[1], max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Model(), data)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A command that trains for three steps on one rank or two, and what each of them prints at the end."""

    command: tuple[str, ...]
    printed: tuple[float, ...]


def loss_of_accelerate() -> float:
    """The last loss of the script, without Accelerate."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, data = torch.nn.Linear(4, 2), torch.randn(6, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for batch in data.split(2):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def weight_of_lightning() -> float:
    """The sum of the weights that the script ends with, without Lightning: ranks take turns in a shuffled order."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        data, layer = torch.randn(12, 4), torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1)).tolist()
    for start in (0, 4, 8):
        optimizer.zero_grad()
        for rank in (0, 1):
            (layer(data[order[start + rank : start + 4 : 2]]).square().mean() / 2).backward()
        optimizer.step()
    return layer.weight.sum().item()


WEIGHT = weight_of_lightning()
TABLE = {
    "accelerate launch": Row(
        ("accelerate", "launch", "--cpu", "--num_processes", "1", "acc.py"), (loss_of_accelerate(),)
    ),
    "Lightning's ddp, which starts the other rank itself": Row(("python", "fit.py", "ddp"), (WEIGHT, WEIGHT)),
    "Lightning's ddp_spawn": Row(("python", "fit.py", "ddp_spawn"), (WEIGHT, WEIGHT)),
}  # fmt: skip


@pytest.fixture(scope="module")
def launched(tmp_path_factory) -> Iterator[dict[str, Future[tuple[Said, list[Left]]]]]:
    """Every row of the table, recorded, two commands at a time."""
    folder = tmp_path_factory.mktemp("launchers")
    (folder / "acc.py").write_text(ACCELERATE)
    (folder / "fit.py").write_text(LIGHTNING)
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(record, row.command, folder, folder / f"traces{number}", environment())
            for number, (name, row) in enumerate(TABLE.items())
        }


@pytest.mark.parametrize("name", TABLE)
def test_each_rank_leaves_one_trace_and_nobody_notices(launched, name):
    printed = TABLE[name].printed
    said, traces = launched[name].result()
    assert said.code == 0, said.err
    assert [line for line in said.out if line.startswith(b"rank")] == [
        f"rank {rank} {number}".encode() for rank, number in enumerate(printed)
    ]
    assert [line for line in said.out + said.err if b"ckptcheck" in line or b"Traceback" in line] == []
    assert [(one.file, one.rank, one.world, one.steps, one.clean) for one in traces] == [
        (f"rank-{rank}.trace", rank, len(printed), 3, True) for rank in range(len(printed))
    ]
