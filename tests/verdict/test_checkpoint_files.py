"""`diff`, `check` and `inspect` as library calls on real files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ckptcheck
from ckptcheck.errors import CheckpointError, DamagedCheckpointError, UsageError
from ckptcheck.finding import Verdict
from ckptcheck.reports.json import document
from tests.reports.contract import breaches

SAMPLES = Path(__file__).parents[2] / "fixtures" / "checkpoints"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A checkpoint of two steps of AdamW with two param groups, names in the file."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    named = dict(model.named_parameters())
    groups = [{"params": [(name, one) for name, one in named.items() if name.endswith(end)], "weight_decay": decay}
              for end, decay in (("weight", 0.1), ("bias", 0.0))]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    for _ in range(2):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    path = tmp_path / "trained.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, path)
    return path


def changed(path: Path, change) -> Path:
    """The checkpoint with something changed, beside it."""
    state = torch.load(path)
    change(state)
    other = path.with_name("changed.pt")
    torch.save(state, other)
    return other


def rows(result):
    return [(one["section"], one["parameter"], one["key"], one["kind"]) for one in result.parts["differences"]]


def test_a_checkpoint_is_the_same_as_itself_and_the_result_keeps_the_contract(trained):
    result = ckptcheck.diff(trained, trained)
    assert result.verdict is Verdict.PASS
    assert breaches(json.loads(json.dumps(document(result)))) == []
    assert (result.compared.parameters, result.compared.state_tensors) == (4, 12)


def test_one_ulp_in_one_moment_is_named_exactly(trained):
    def change(state):
        moment = state["optimizer"]["state"][1]["exp_avg"]
        moment[1, 2] = torch.nextafter(moment[1, 2], torch.tensor(9.0))

    result = ckptcheck.diff(trained, changed(trained, change))
    assert result.verdict is Verdict.FAIL
    (row,) = result.parts["differences"]
    assert (row["section"], row["parameter"], row["key"], row["group"]) == ("optimizer", "1.weight", "exp_avg", 0)
    assert (row["differing"], row["numel"], row["first_at"], row["max_ulp"]) == (1, 6, [1, 2], 1)
    state = [
        torch.load(one)["optimizer"]["state"][1]["exp_avg"].double()
        for one in (trained, trained.with_name("changed.pt"))
    ]
    assert row["max_abs"] == (state[1] - state[0]).abs().max().item()
    assert row["rel_l2"] == pytest.approx(((state[1] - state[0]).norm() / state[0].norm()).item(), rel=1e-12)


def test_a_hyperparameter_is_told_by_group_with_both_values(trained):
    def change(state):
        state["optimizer"]["param_groups"][1]["lr"] = 0.02

    (row,) = ckptcheck.diff(trained, changed(trained, change)).parts["differences"]
    assert (row["key"], row["group"], row["left"], row["right"]) == ("lr", 1, 0.01, 0.02)


def test_the_same_weights_in_another_container_are_the_same_content(trained, tmp_path):
    save_file(torch.load(trained)["model"], tmp_path / "model.safetensors")
    result = ckptcheck.diff(trained, tmp_path / "model.safetensors", only=["model"])
    assert result.verdict is Verdict.PASS
    assert result.parts["identical_content_different_container"] is True
    assert result.parts["not_compared"] != []


def test_what_no_pattern_chooses_is_inconclusive(trained):
    assert ckptcheck.diff(trained, trained, only=["nothing/*"]).verdict is Verdict.INCONCLUSIVE


def test_a_tolerance_passes_and_says_so(trained):
    def change(state):
        state["optimizer"]["state"][0]["exp_avg"] *= 1.0001

    other = changed(trained, change)
    result = ckptcheck.diff(trained, other, tolerances={"state": (1e-3, 0.0)})
    assert (result.verdict, result.parts["identical_content"]) == (Verdict.PASS, False)
    assert ckptcheck.diff(trained, other, tolerances={"param": (1e-3, 0.0)}).verdict is Verdict.FAIL


def test_progress_is_told_in_mebibytes(tmp_path):
    torch.save({"w": torch.zeros(3 << 18)}, tmp_path / "w.pt")
    told = []

    class Told:
        def update(self, run, phase, step, steps):
            told.append((phase, step, steps))

    ckptcheck.diff(tmp_path / "w.pt", tmp_path / "w.pt", progress=Told())
    torch.save({"w": torch.ones(3 << 18)}, tmp_path / "v.pt")
    ckptcheck.diff(tmp_path / "w.pt", tmp_path / "v.pt", progress=Told())
    assert told[-1] == ("measure, MiB", 3, 3)


def test_where_findings_gate_a_broken_checksum_fails_and_is_placed():
    left, right = SAMPLES / "02_torch_edge" / "le.pt", SAMPLES / "02_torch_edge" / "bitflip.pt"
    result = ckptcheck.diff(left, right, gate="findings")
    assert result.verdict is Verdict.FAIL
    assert [(one.code, one.where.path) for one in result.findings] == [("CK102", str(right))]
    assert ckptcheck.diff(left, right, gate="findings", ignore=["CK102"]).verdict is Verdict.PASS


def test_where_content_gates_findings_are_not_looked_for():
    flipped = SAMPLES / "02_torch_edge" / "bitflip.pt"
    result = ckptcheck.diff(flipped, flipped)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


@pytest.mark.parametrize(("sample", "code"), [
    ("02_torch_edge/bitflip.pt", "CK102"), ("02_torch_edge/trunc.pt", "CK101"),
    ("02_torch_edge/failed_save.pt", "CK103"),
])  # fmt: skip
def test_a_damaged_sample_is_a_finding_of_check_and_refused_by_the_others(sample, code):
    result = ckptcheck.check(SAMPLES / sample)
    assert result.verdict is Verdict.FAIL
    assert code in {one.code for one in result.findings}
    if code != "CK102":
        with pytest.raises(DamagedCheckpointError):
            ckptcheck.inspect(SAMPLES / sample)
        with pytest.raises(DamagedCheckpointError):
            ckptcheck.diff(SAMPLES / sample, SAMPLES / sample)


def test_of_a_folder_with_a_damaged_file_the_rest_is_still_judged(tmp_path):
    for file in (SAMPLES / "04_hf_trainer" / "checkpoint-2").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    optimizer = tmp_path / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:-100])
    result = ckptcheck.check(tmp_path)
    assert [(one.code, one.where.path) for one in result.findings] == [("CK101", "optimizer.pt")]
    assert {one.code: one.reason for one in result.not_judged}["CK201"].startswith("optimizer.pt cannot be read")
    assert result.parts["layout"]["container"] == "folder"
    assert result.compared.bytes > 0
    with pytest.raises(DamagedCheckpointError):
        ckptcheck.inspect(tmp_path)


class Growing:
    """Watches progress, and makes the file longer meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def update(self, *told) -> None:
        with self.path.open("ab") as file:
            file.write(b"more")


@pytest.mark.parametrize("call", [
    lambda path: ckptcheck.check(path, progress=Growing(path)),
    lambda path: ckptcheck.inspect(path, digests=True, progress=Growing(path)),
])  # fmt: skip
def test_a_file_that_changes_while_it_is_read_is_refused(trained, call):
    with pytest.raises(DamagedCheckpointError, match="changed while it was read"):
        call(trained)


def test_checksums_that_are_off_are_not_judged():
    result = ckptcheck.check(SAMPLES / "02_torch_edge" / "nocrc.pt")
    assert result.verdict is Verdict.PASS
    assert "CK102" in {one.code for one in result.not_judged}
    assert (result.parts["verified_bytes"], result.parts["files"][0]["checksums"]) == (0, "off")


def test_all_bytes_of_a_zip_are_verified():
    path = SAMPLES / "02_torch_edge" / "le.pt"
    verified = ckptcheck.check(path).parts["verified_bytes"]
    assert 50 <= verified < path.stat().st_size


@pytest.mark.parametrize("what", ["inspect", "check"])
def test_what_is_no_checkpoint_is_refused(tmp_path, what):
    with pytest.raises(CheckpointError):
        getattr(ckptcheck, what)(tmp_path / "absent.pt")


def test_an_inspection_names_every_tensor_as_torch_has_it(trained):
    result = ckptcheck.inspect(trained)
    assert breaches(json.loads(json.dumps(document(result)))) == []
    told = {(one["name"], one["key"]): one for one in result.parts["tensors"]}
    state = torch.load(trained)
    names = [name for group in state["optimizer"]["param_groups"] for name in group["param_names"]]
    wanted = {(name, None): one for name, one in state["model"].items()}
    wanted |= {
        (names[index], key): one for index, kept in state["optimizer"]["state"].items() for key, one in kept.items()
    }
    assert set(told) == set(wanted)
    for place, tensor in wanted.items():
        assert told[place]["shape"] == list(tensor.shape)
        assert told[place]["bytes"] == tensor.nbytes
    assert [one["parameters"] for one in result.parts["groups"]] == [["0.weight", "1.weight"], ["0.bias", "1.bias"]]
    assert result.parts["optimizers"][0]["class"] == "AdamW"
    assert result.parts["optimizers"][0]["steps"] == [{"step": 2, "parameters": 4}]


def test_digests_are_those_of_the_bytes_that_torch_has(trained):
    import xxhash

    told = {
        one["name"]: one["digest"]
        for one in ckptcheck.inspect(trained, digests=True).parts["tensors"]
        if not one["key"]
    }
    for name, tensor in torch.load(trained)["model"].items():
        expected = xxhash.xxh3_128_hexdigest(np.ascontiguousarray(tensor.numpy()).tobytes())[:16]
        assert told[name] == f"xxh3_128:{expected}"


def test_names_that_the_user_gives_name_the_numbered(tmp_path):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"optimizer": optimizer.state_dict()}, tmp_path / "o.pt")
    (tmp_path / "names.txt").write_text("w\nb\n")
    assert ckptcheck.inspect(tmp_path / "o.pt").parts["groups"][0]["parameters"] == ["#0", "#1"]
    result = ckptcheck.inspect(tmp_path / "o.pt", names=tmp_path / "names.txt")
    assert result.parts["groups"][0]["parameters"] == ["w", "b"]
    assert result.parts["optimizers"][0]["naming"]["source"] == "user"
    with pytest.raises(UsageError):
        ckptcheck.inspect(tmp_path / "o.pt", names=["only one"])


def test_a_view_that_keeps_its_whole_storage_is_bloat():
    (row,) = ckptcheck.inspect(SAMPLES / "02_torch_edge" / "view_bloat.pt").parts["storage_bloat"]
    assert (row["bytes"], row["used_bytes"]) == (10_000, 200)


def model_folder(folder: Path, config: dict[str, object] | None) -> Path:
    folder.mkdir()
    save_file({"w": torch.arange(6.0)}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_description_of_the_model_is_not_held_against_weights_without_one(tmp_path):
    described, bare = model_folder(tmp_path / "described", {"layers": 2}), model_folder(tmp_path / "bare", None)
    for sides in ((described, bare), (bare, described)):
        found = ckptcheck.diff(*sides)
        assert found.verdict is Verdict.PASS
        assert any("only one side has config" in str(note) for note in found.parts["notes"])


def test_two_descriptions_of_the_model_are_compared(tmp_path):
    found = ckptcheck.diff(*(model_folder(tmp_path / str(layers), {"layers": layers}) for layers in (2, 3)))
    assert found.verdict is Verdict.FAIL
    assert [row["key"] for row in found.parts["differences"]] == ["config.layers"]


@pytest.mark.parametrize(("sample", "layout", "verified"), [
    ("15_safetensors_sharded/sharded", {"container": "safetensors-sharded", "convention": "plain"}, False),
    ("04_hf_trainer/checkpoint-2", {"container": "folder", "convention": "hf-trainer"}, True),
])  # fmt: skip
def test_check_says_layout_and_writer(sample, layout, verified):
    found = ckptcheck.check(SAMPLES / sample)
    assert found.parts["layout"] == layout
    assert (found.parts["verified_bytes"] > 0) == verified


def test_a_hyperparameter_that_is_none_is_null_in_the_result(trained):
    (first, *_) = document(ckptcheck.inspect(trained))["groups"]
    assert first["hyperparameters"]["foreach"] is None
    assert first["hyperparameters"]["lr"] == 0.01


def test_a_member_of_an_archive_that_nothing_else_reads_is_held_against_its_checksum(tmp_path):
    content = (SAMPLES / "13_sb3" / "sb3_ppo.zip").read_bytes()
    assert content.count(b"- OS: Linux") == 1
    (tmp_path / "flipped.zip").write_bytes(content.replace(b"- OS: Linux", b"- OS: Minux"))
    (finding,) = ckptcheck.check(tmp_path / "flipped.zip", select=("CK1",)).findings
    assert (finding.code, "system_info.txt" in finding.message) == ("CK102", True)
