"""Whatever number stands where a counter, a rate or a schedule's position should, it is judged and never raises."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.finding import Verdict
from ckptcheck.verbs import check, diff

ODD = {
    "nan": torch.tensor(float("nan")),
    "inf": torch.tensor(float("inf")),
    "longer than a float": 2**5000,
}


def training() -> dict[str, Any]:
    """A checkpoint with every kind of counter, after four steps."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
    parts = [torch.optim.lr_scheduler.LinearLR(optimizer), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [2])
    for _ in range(4):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": schedule.state_dict(),
        "ema": {**model.state_dict(), "updates": 3}, "global_step": 4, "epoch": 1, "micro_step": 2,
        "gradient_accumulation_steps": 4,
    }  # fmt: skip


def places(held: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything but a weight stands; of two parameters' state that of the first."""
    if path[:1] == ("model",) or path[:3] == ("optimizer", "state", 1):
        return
    inner = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else None
    if inner is None:
        yield path
        return
    for key, value in inner:
        yield from places(value, (*path, key))


def with_value(held: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = deepcopy(held)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_anywhere_ends_in_a_verdict(odd: str, tmp_path: Path) -> None:
    whole = training()
    torch.save(whole, tmp_path / "whole.pt")
    seen = list(places(whole))
    assert ("optimizer", "state", 0, "step") in seen and ("scheduler", "last_epoch") in seen
    for path in seen:
        torch.save(with_value(whole, path, ODD[odd]), tmp_path / "odd.pt")
        assert check(tmp_path / "odd.pt", purpose="resume").verdict is not Verdict.ERROR
        for left, right in (("odd.pt", "whole.pt"), ("whole.pt", "odd.pt")):
            found = diff(tmp_path / left, tmp_path / right, gate="findings", freeze={"*": "hold"})
            assert found.verdict is not Verdict.ERROR


@pytest.mark.parametrize("odd", ["nan", "inf"])
def test_a_counter_that_is_no_number_is_told(odd: str, tmp_path: Path) -> None:
    path = ("optimizer", "state", 0, "step")
    torch.save(with_value(training(), path, ODD[odd]), tmp_path / "odd.pt")
    codes = [(one.code, one.where.parameter) for one in check(tmp_path / "odd.pt", purpose="resume").findings]
    assert ("CK505", "weight") in codes
