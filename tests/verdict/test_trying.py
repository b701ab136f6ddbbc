"""A dry-run through the public door: a process of its own, a copy for the target's load, and what the result says.

The first test starts a fresh interpreter, the others fork.
"""

import hashlib
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.errors import TargetError
from ckptcheck.finding import Result, Verdict
from tests.catalogue.running import forked_workers
from tests.check_cases.training import Mlp
from tests.rules.loads.live import adamw, file_of, named

ROOT = Path(__file__).parents[2]

TARGET = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
import torch
import ckptcheck
from tests.check_cases.training import Mlp


def build(ctx):
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def load(path):
        held = torch.load(path, weights_only=False)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        Path(path).write_bytes(b"spoiled")
        (Path(path).parent / "beside").write_text(str(path))

    def step(s):
        raise AssertionError("a dry-run makes no step")

    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=lambda path: None, load=load)


def build_torch(ctx):
    run = build(ctx)
    run.save = run.load = None
    return run


def build_raising(ctx):
    raise RuntimeError("no data here")


def build_dying(ctx):
    run = build(ctx)

    def load(path):
        import os
        print("about to die")
        os._exit(7)

    run.load = load
    return run
"""


@pytest.fixture
def forks():
    with forked_workers():
        yield


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target.py").write_text(TARGET.format(root=str(ROOT)))
    return str(tmp_path / "target.py")


def part(result: Result) -> dict[str, object]:
    found = result.parts["target"]
    assert isinstance(found, dict)
    return found


def test_the_targets_own_load_gets_a_copy_and_the_file_stays_as_it_is(target, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    path = file_of(folder)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    result = verbs.check(path, target=target)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [one.name for one in folder.iterdir()] == ["state.pt"]
    judged = part(result).pop("judged")
    assert isinstance(judged, list) and {"CK202", "CK309"} <= {*judged} and not {"CK301", "CK302"} & {*judged}
    assert part(result) == {
        "target": target, "how": "the target's own load", "loaded": True, "raised": None, "not_loaded": None,
        "parameters": 8, "parameters_not_loaded": [], "optimizers": 1, "left_out": [],
        "pairs": [{"optimizer": 0, "class": "AdamW", "file": 0, "named": False}],
    }  # fmt: skip
    assert [one.message for one in result.findings if one.severity.value == "error"] == []
    assert result.verdict is Verdict.PASS


@pytest.mark.usefixtures("forks")
def test_torch_loads_where_the_target_has_no_load_and_says_what_it_leaves_out(target, tmp_path):
    path = file_of(tmp_path)
    before = torch.get_rng_state()
    result = verbs.check(path, target=f"{target}:build_torch")
    assert torch.equal(torch.get_rng_state(), before)
    assert part(result)["how"] == "torch's load_state_dict"
    assert part(result)["left_out"] == ["random generators"]
    assert result.verdict is Verdict.PASS


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(("optimizer", "told"), [(named, [(True, 8)]), (adamw, [])])
def test_groups_stand_side_by_side_where_the_file_names_their_members(optimizer, told, target, tmp_path):
    result = verbs.check(file_of(tmp_path, optimizer=optimizer), target=target)
    rows = result.parts["membership"]
    assert isinstance(rows, list)
    assert [(one["same_order"], one["left"][0]["size"]) for one in rows] == told


@pytest.mark.usefixtures("forks")
def test_a_load_that_kills_the_process_is_a_finding(target, tmp_path):
    result = verbs.check(file_of(tmp_path), target=f"{target}:build_dying")
    assert part(result)["raised"] == "left with exit code 7"
    assert part(result)["loaded"] is False
    assert [one.message for one in result.findings if one.code == "CK601"] == [
        "the target's own load raised: left with exit code 7"
    ]
    assert result.verdict is Verdict.FAIL


class Runs:
    """What a pickle makes a process do that loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return exec, (f"open({str(self.path)!r}, 'w')",)


@pytest.mark.usefixtures("forks")
def test_a_file_that_can_run_code_is_not_handed_to_the_targets_load(target, tmp_path):
    path = file_of(tmp_path, change=lambda state: state.update(extra=Runs(tmp_path / "ran")))
    result = verbs.check(path, target=target)
    assert not (tmp_path / "ran").exists()
    assert part(result)["loaded"] is False
    assert "can run code" in str(part(result)["not_loaded"])
    assert {one.code for one in result.not_judged} >= {"CK504", "CK505"}


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.py", "does not exist"),
        ("{target}:nothing", "has no factory 'nothing'"),
        ("{target}:build_raising", "RuntimeError: no data here"),
    ],
)
def test_a_target_that_cannot_be_built_is_refused_in_one_line(name, said, target, tmp_path):
    with pytest.raises(TargetError, match=said) as caught:
        verbs.check(file_of(tmp_path), target=name.format(target=target))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("forks")
def test_what_the_target_lacks_weights_for_is_listed(target, tmp_path):
    model = Mlp()
    path = file_of(tmp_path, model, adamw, change=lambda state: state["model"].pop("head.bias"))
    result = verbs.check(path, target=f"{target}:build_torch")
    assert part(result)["parameters_not_loaded"] == ["head.bias"]
    assert "Missing key(s)" in str(part(result)["raised"])
    assert ("CK309", "head.bias") in {(one.code, one.where.parameter) for one in result.findings}
