"""CK1 on the files of real trainers: what is wrong is told, and of what is sound nothing is said."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.finding import Finding, NotJudged, Severity
from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.files import judge_files

CHECKPOINTS = Path(__file__).parents[2] / "fixtures" / "checkpoints"


def judged(path: Path) -> tuple[tuple[Finding, ...], tuple[NotJudged, ...]]:
    """What the rules say of a file or folder, its checksums verified."""
    try:
        raw = read_raw(path, strict=False)
    except DamagedCheckpointError as trouble:
        return judge_files(None, trouble, ())
    return judge_files(raw, None, [found for one in raw.members if (found := one.verify()) is not None])


WRONG = {
    "02_torch_edge/bitflip.pt": ("CK102", Severity.ERROR, ("data/0", "CRC-32")),
    "02_torch_edge/skip_data.pt": ("CK102", Severity.ERROR, ("data/0",)),
    "02_torch_edge/failed_save.pt": ("CK103", Severity.ERROR, ("data.pkl",)),
    "02_torch_edge/trunc.pt": ("CK101", Severity.ERROR, ("cut short",)),
    "02_torch_edge/view_bloat.pt": ("CK105", Severity.WARNING, ("9800 bytes", "200 of 10000")),
    "01_torch_save/zip_whole_module.pt": ("CK104", Severity.WARNING, ("container.Sequential", "whole")),
    "01_torch_save/zip_subclass.pt": ("CK104", Severity.WARNING, ("__main__.Sub",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_real_file_is_told(name: str):
    code, severity, says = WRONG[name]
    (found,), _ = judged(CHECKPOINTS / name)
    assert (found.code, found.severity) == (code, severity)
    assert all(words in found.message for words in says), found.message


FOLDERS = (
    "04_hf_trainer/checkpoint-2",
    "04_hf_trainer/checkpoint-4",
    "05_hf_trainer_peft/checkpoint-2",
    "06_accelerate_bin/checkpoint_1",
    "06_accelerate_safe/checkpoint_1",
    *(f"08_dcp/{one.name}" for one in sorted((CHECKPOINTS / "08_dcp").iterdir())),
    *(f"10_deepspeed/{one.name}" for one in sorted((CHECKPOINTS / "10_deepspeed").iterdir()) if one.is_dir()),
    "12_fvcore/fvcore",
    "15_safetensors_sharded/sharded",
)
FILES = tuple(
    one.relative_to(CHECKPOINTS).as_posix()
    for family in ("01_torch_save", "02_torch_edge", "07_lightning", "09_fsdp_ddp", "11_nanogpt", "13_sb3",
                   "14_lowbit_optim")
    for one in sorted((CHECKPOINTS / family).iterdir())
)  # fmt: skip


REFUSED = {
    "01_torch_save/legacy_full.pt": ("numpy.ndarray", "numpy.dtype"),
    "01_torch_save/zip_full.pt": ("numpy.ndarray", "numpy.dtype"),
    "01_torch_save/zip_proto5.pt": ("numpy._core.numeric._frombuffer", "numpy.dtype"),
    "01_torch_save/zip_misc.pt": ("argparse.Namespace", "collections.defaultdict"),
    "04_hf_trainer/checkpoint-2/rng_state.pth": ("numpy.ndarray",),
    "06_accelerate_safe/checkpoint_1/random_states_0.pkl": ("numpy.ndarray",),
    "16_timm/last.pth.tar": ("argparse.Namespace",),
    "17_mmengine/run/iter_6.pth": ("numpy._core.multiarray.scalar",),
}
"""Files that a strict load refuses, and some of what it does not let them name."""


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 5:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_a_strict_load_refuses_is_an_info_as_torch_does(name: str):
    (found,), _ = judged(CHECKPOINTS / name)
    assert (found.code, found.severity) == ("CK104", Severity.INFO)
    assert {*REFUSED[name]} <= {*found.evidence["refused"]}
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(CHECKPOINTS / name, weights_only=True)


@pytest.mark.parametrize("name", sorted({*FOLDERS, *FILES} - {*WRONG, *REFUSED}))
def test_of_what_a_trainer_wrote_whole_nothing_is_said(name: str):
    findings, not_judged = judged(CHECKPOINTS / name)
    assert findings == ()
    assert {one.code for one in not_judged} <= {"CK102"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("02_torch_edge/nocrc.pt", "no checksum"),
        ("01_torch_save/legacy_full.pt", "no checksum"),
        ("04_hf_trainer/checkpoint-4/model.safetensors", "no checksum"),
        ("04_hf_trainer/checkpoint-4", "model.safetensors"),
    ],
)
def test_bytes_without_checksums_are_not_judged(name: str, reason: str):
    findings, (one,) = judged(CHECKPOINTS / name)
    assert {found.severity for found in findings} <= {Severity.INFO}
    assert one.code == "CK102"
    assert reason in one.reason


def test_checksums_of_a_whole_archive_are_judged():
    assert judged(CHECKPOINTS / "07_lightning/pl.ckpt") == ((), ())


def cut(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])


BROKEN: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "a shard is gone": ("15_safetensors_sharded/sharded",
     lambda folder: (folder / "model-00002-of-00004.safetensors").unlink(), "CK103", "model-00002-of-00004"),
    "a shard too many": ("15_safetensors_sharded/sharded",
     lambda folder: shutil.copy(folder / "model-00002-of-00004.safetensors",
                                folder / "model-00005-of-00005.safetensors"), "CK107", "model-00005-of-00005"),
    "a shard of another place": ("15_safetensors_sharded/sharded",
     lambda folder: shutil.copy(folder / "model-00001-of-00004.safetensors",
                                folder / "model-00002-of-00004.safetensors"), "CK107", "model-00002-of-00004"),
    "a shard cut short": ("15_safetensors_sharded/sharded",
     lambda folder: cut(folder, "model-00002-of-00004.safetensors"), "CK101", "cut short"),
    "no .metadata": ("08_dcp/dcp_fsdp2", lambda folder: (folder / ".metadata").unlink(), "CK103", ".metadata"),
    "a rank's file is gone": ("08_dcp/dcp_fsdp2", lambda folder: (folder / "__1_0.distcp").unlink(), "CK103",
     "__1_0.distcp"),
    "the tracker names what is not there": ("10_deepspeed/z1_fp32",
     lambda folder: (folder / "latest").write_text("global_step9"), "CK103", "global_step9"),
    "one rank's optimizer is gone": ("10_deepspeed/z1_fp32",
     lambda folder: (folder / "global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(), "CK103", "rank"),
    "trainer_state.json was not reached": ("04_hf_trainer/checkpoint-4",
     lambda folder: (folder / "trainer_state.json").unlink(), "CK103", "trainer_state.json"),
    "optimizer.pt cut short": ("04_hf_trainer/checkpoint-4", lambda folder: cut(folder, "optimizer.pt"), "CK101",
     "optimizer.pt"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_broke_in_a_real_folder_is_told(what: str, tmp_path: Path):
    name, spoil, code, says = BROKEN[what]
    folder = tmp_path / Path(name).name
    shutil.copytree(CHECKPOINTS / name, folder)
    spoil(folder)
    findings, _ = judged(folder)
    assert code in {one.code for one in findings}
    assert any(says in one.message for one in findings if one.code == code), findings
