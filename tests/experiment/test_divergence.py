"""The divergence of everything over all compared steps: against what torch itself computes on the same training."""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptcheck.comparison.curve import REASONS, UNREPEATED
from ckptcheck.finding import Verdict
from ckptcheck.reports import json as json_report
from ckptcheck.reports.page import Page
from tests.reports.contract import breaches

BODY = """
import os

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.outer = nn.Linear(4, 1)
        self.apart = nn.Parameter(torch.zeros(3))
        self.still = nn.Parameter(torch.ones(2), requires_grad=False)
    def forward(self, x):
        return self.outer(torch.tanh(self.norm(self.inner(x))))

def made():
    torch.manual_seed(3)
    model = Net()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)

def advance(model, optimizer, s):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 5, generator=torch.Generator().manual_seed(s))).square().sum()
    loss.backward()
    optimizer.step()
    return loss

def build(ctx):
    model, optimizer = made()
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict()], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        {after}
    return ckptcheck.Run(
        model=model, optimizer=optimizer, step=lambda s: advance(model, optimizer, s), save=save, load=load
    )
"""
NUMBERS = ("max_abs", "rel_l2", "max_ulp", "differing")
FORGETS = "model.apart.data[1] = 2.0; model.apart.data[2] = float('inf')"
"""The moments are not loaded; what no step touches differs at the load and stays apart from zero."""


def body(after: str) -> str:
    return BODY.replace("{after}", after)


def trained(
    steps: int, forget_after: int | None = None
) -> Iterator[dict[tuple[str, str | None, str | None], torch.Tensor]]:
    """Everything after each step of the same training by hand, under section, parameter and key of the result."""
    space: dict = {"torch": torch, "nn": nn}
    exec(body("pass"), space)
    model, optimizer = space["made"]()
    for step in range(1, steps + 1):
        space["advance"](model, optimizer, step)
        named = dict(model.named_parameters())
        held = {("param", name, None): one.detach().clone() for name, one in named.items()}
        held |= {("grad", name, None): one.grad.clone() for name, one in named.items() if one.grad is not None}
        held |= {("buffer", None, name): one.clone() for name, one in model.named_buffers()}
        held |= {("state", name, key): value.clone() for name, one in named.items()
                 for key, value in optimizer.state.get(one, {}).items()}  # fmt: skip
        yield held
        if step == forget_after:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            model.apart.data[1], model.apart.data[2] = 2.0, torch.inf


def ulp(left: torch.Tensor, right: torch.Tensor) -> int:
    """The greatest distance of two float32 tensors on the ordered integers of their bits."""
    sides = [one.view(torch.int32).long() for one in (left, right)]
    ordered = [torch.where(one < 0, -(one + 2**31), one) for one in sides]
    return int((ordered[1] - ordered[0]).abs().max())


def expected(left: torch.Tensor, right: torch.Tensor) -> list:
    """The four numbers, by torch in float64."""
    gap, size = (right.double() - left.double()).abs(), left.double().norm().item()
    relative = gap.norm().item() / size if size else None
    if torch.equal(left, right):
        relative = 0.0
    return [gap.max().item(), relative, ulp(left, right) if left.is_floating_point() else None,
            int((left != right).sum())]  # fmt: skip


def columns(run: dict) -> dict:
    return {(one["section"], one["parameter"], one["key"]): one for one in run["tensors"]}


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_every_tensor_is_measured_exactly_at_every_step(target: Callable[[str], str], check: Callable) -> None:
    result = check(target(body(FORGETS)), steps=9, resume_at=[3])
    assert result.verdict is Verdict.FAIL
    (run,) = result.parts["divergence"]
    assert (run["run"], run["step"], run["steps"]) == ("resumed@3", 3, [4, 5, 6, 7, 8, 9])
    assert (run["left_out"], run["reason"]) == (None, None)
    with one_thread(), torch.random.fork_rng():
        sides = [list(trained(9))[3:], list(trained(9, forget_after=3))[3:]]
    found = columns(run)
    differing = {key for left, right in zip(*sides, strict=True) for key in left
                 if not torch.equal(left[key], right[key])}  # fmt: skip
    assert found.keys() == differing
    assert {section for section, _, _ in differing} == {"param", "state", "grad", "buffer"}
    for key, column in found.items():
        pairs = [(left[key], right[key]) for left, right in zip(*sides, strict=True)]
        unlike = [place for place, (left, right) in enumerate(pairs) if not torch.equal(left, right)]
        assert (column["first"], column["differs_at"]) == (4 + unlike[0], len(unlike)), key
        assert (column["numel"], column["steps"], column["not_measured"]) == (pairs[0][0].numel(), None, [])
        for place, pair in enumerate(pairs):
            most, relative, *counts = expected(*pair)
            assert column["max_abs"][place] == most
            assert column["rel_l2"][place] == (relative if relative is None else pytest.approx(relative, rel=1e-12))
            assert [column["max_ulp"][place], column["differing"][place]] == counts
    assert found["param", "apart", None]["rel_l2"] == [None] * 6, "the left side is zero"
    assert found["param", "apart", None]["load"]["differing"] == 2
    assert found["param", "inner.weight", None]["load"] is None, "it was loaded as it was saved"
    document = json.loads(json_report.render(result, Page()))
    assert not [one for one in breaches(document) if one.startswith("divergence")]
    assert columns(document["divergence"][0])["param", "apart", None]["max_abs"] == ["inf"] * 6
    assert len(document["divergence"][0]["tensors"]) == len(found)


def test_what_does_not_repeat_itself_says_so_and_the_rest_is_measured(
    target: Callable[[str], str], check: Callable
) -> None:
    drawn = "model.apart.data.uniform_(generator=torch.Generator().manual_seed(int.from_bytes(os.urandom(4), 'big')))"
    result = check(target(body(drawn)), steps=6, resume_at=[3])
    found = columns(result.parts["divergence"][0])
    unrepeated = found.pop(("param", "apart", None))
    assert unrepeated["not_measured"] == [{"reason": REASONS[UNREPEATED], "steps": [4, 5, 6]}]
    assert [unrepeated[name] for name in NUMBERS] == [[None] * 3] * 4
    assert unrepeated["load"] is None
    assert (unrepeated["first"], unrepeated["differs_at"]) == (4, 3)
    assert not any(one["not_measured"] for one in found.values())
    assert None not in found["param", "inner.weight", None]["max_abs"]


def test_a_second_resume_in_a_row_is_measured_against_the_run_before_it_where_that_had_diverged(
    target: Callable[[str], str], check: Callable
) -> None:
    result = check(target(body("pass")), steps=6, resume_at=[2, 4])
    runs = {one["run"]: one for one in result.parts["divergence"]}
    assert list(runs) == ["resumed@2", "resumed@4", "resumed@2@4"]
    for name, steps in (("resumed@2", 4), ("resumed@4", 2)):
        assert None not in columns(runs[name])["param", "inner.weight", None]["max_abs"]
        assert len(runs[name]["steps"]) == steps
    chained = columns(runs["resumed@2@4"])["param", "inner.weight", None]
    assert chained["differing"] == [20, 20]
    assert chained["not_measured"] == []


MANY = """
import torch

COUNT, SIZE = {count}, {size}

def made():
    torch.manual_seed(3)
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(SIZE)) for _ in range(COUNT)])
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

def advance(model, optimizer, s):
    optimizer.zero_grad()
    for place, one in enumerate(model):
        one.grad = torch.full((SIZE,), 1.0 / (s + place))
    optimizer.step()

def build(ctx):
    model, optimizer = made()
    def save(path):
        torch.save(model.state_dict(), path)
    def load(path):
        model.load_state_dict(torch.load(path))
    return ckptcheck.Run(
        model=model, optimizer=optimizer, step=lambda s: advance(model, optimizer, s), save=save, load=load
    )
"""


def test_a_thousand_tensors_over_eight_steps_are_complete(target: Callable[[str], str], check: Callable) -> None:
    source = MANY.replace("{count}", "500").replace("{size}", "2")
    result = check(target(source), steps=10, resume_at=[2], quick=True)
    (run,) = result.parts["divergence"]
    assert (len(run["steps"]), len(run["tensors"]), run["left_out"]) == (8, 1000, None)
    found = columns(run)
    space: dict = {}
    exec(source, space)
    with one_thread(), torch.random.fork_rng():
        sides = [space["made"]() for _ in range(2)]
        for step in range(1, 11):
            for model, optimizer in sides:
                space["advance"](model, optimizer, step)
            left, right = (torch.stack([*model]).detach().double() for model, _ in sides)
            if step == 2:
                sides[1] = sides[1][0], torch.optim.SGD(sides[1][0].parameters(), lr=0.01, momentum=0.9)
            if step > 2:
                gaps = (right - left).abs().amax(dim=1).tolist()
                ratios = ((right - left).norm(dim=1) / left.norm(dim=1)).tolist()
                told = [found["param", str(place), None] for place in range(500)]
                assert [one["max_abs"][step - 3] for one in told] == gaps
                assert [one["rel_l2"][step - 3] for one in told] == pytest.approx(ratios, rel=1e-12)
    assert all(None not in one["max_ulp"] and min(one["differing"]) > 0 for one in found.values())


def test_two_moments_are_on_disk_at_most(
    target: Callable[[str], str], check: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    seen, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            sizes = []
            for one in scratch.glob("ckptcheck-*/*/capture/*.bin"):
                try:
                    sizes.append(one.stat().st_size)
                except FileNotFoundError:
                    continue
            seen.append(sum(sizes))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        source = MANY.replace("{count}", "8").replace("{size}", str(1 << 16))
        result = check(target(source), steps=22, resume_at=[2], quick=True)
    finally:
        done.set()
        watcher.join()
    model_bytes = 8 * 4 << 16
    (run,) = result.parts["divergence"]
    assert len(run["tensors"]) == 16
    assert not any(None in one["max_abs"] for one in run["tensors"])
    assert 0 < max(seen) <= 2 * 2 * model_bytes, "parameters and momentum of both sides, of 20 steps"
