"""The launchers of trainers: which of their processes are recorded, and that nobody notices."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.trace.injection.launching import environment, record, run

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
print("loss", loss.item())
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
        print("rank", self.global_rank, self.layer.weight.sum().item(), flush=True)
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

TWO = [("rank-0.trace", 0, 2, 3, True), ("rank-1.trace", 1, 2, 3, True)]
ROWS = {
    "accelerate launch": (
        ["accelerate", "launch", "--cpu", "--num_processes", "1", "acc.py"],
        [("rank-0.trace", 0, 1, 3, True)],
    ),
    "accelerate under torchrun": (
        ["torchrun", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "acc.py"],
        [("rank-0.trace", 0, 2, 2, True), ("rank-1.trace", 1, 2, 2, True)],
    ),
    "Lightning's ddp, which starts the other rank itself": (["python", "fit.py", "ddp"], TWO),
    "Lightning's ddp_spawn": (["python", "fit.py", "ddp_spawn"], TWO),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_rank_leaves_one_trace_and_nobody_notices(tmp_path, name):
    command, expected = ROWS[name]
    (tmp_path / "acc.py").write_text(ACCELERATE)
    (tmp_path / "fit.py").write_text(LIGHTNING)
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(run, command, tmp_path, environment())
        said, traces = record(command, tmp_path, tmp_path / "traces", environment())
    assert said == plain.result()
    assert said.code == 0
    assert [(one.file, one.rank, one.world, one.steps, one.clean) for one in traces] == expected
