"""Distributed checkpoints are read as torch reads them, and never further than somebody asks."""

import json
from pathlib import Path

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Danger, Flaw, tensors_in
from tests.readers.dcp_folders import NAMES, SAMPLES, assert_same, copied, loaded, metadata_of, patched, save

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16,
    torch.uint32, torch.uint64, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_read_as_torch_reads_it(name, tmp_path):
    tree = read_raw(SAMPLES / name)
    assert tree.container == "dcp"
    assert tree.defects == ()
    assert_same(tree.root, loaded(SAMPLES / name, tmp_path / "whole.pt"))


@pytest.mark.parametrize("name", NAMES)
def test_every_checksum_of_a_sample_holds_and_nothing_in_it_runs_code(name):
    tree = read_raw(SAMPLES / name)
    metadata = metadata_of(SAMPLES / name)
    *slices, description = tree.members
    assert len(slices) == len(metadata.storage_data)
    assert sum(one.nbytes for one in slices) == sum(one.length for one in metadata.storage_data.values())
    assert all(one.has_checksum for one in slices)
    assert (description.file, description.has_checksum) == (".metadata", False)
    assert description.nbytes == (SAMPLES / name / ".metadata").stat().st_size
    assert [one.verify() for one in tree.members] == [None] * len(tree.members)
    assert {one.danger for one in tree.globals} == {Danger.PLAIN}
    assert tree.nbytes == sum(one.stat().st_size for one in (SAMPLES / name).iterdir())


def test_every_dtype_and_odd_shape_that_torch_saves_is_read(tmp_path):
    state = {str(dtype): (torch.arange(-6, 6).to(dtype)).reshape(3, 4) for dtype in DTYPES}
    whole = torch.arange(40, dtype=torch.float32).reshape(5, 8)
    state |= {
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
        "transposed": whole.T,
        "strided": whole[::2, 1::3],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    folder = save(state, tmp_path / "saved")
    assert_same(read_raw(folder).root, {key: value.detach() for key, value in state.items()})


def test_keys_with_dots_and_nested_values_stand_where_they_stood(tmp_path):
    state = {
        "a.b": {"x": torch.ones(2), "y.z": 1},
        "a": {"b": {"z": torch.zeros(3)}, "list": [1, torch.ones(1), {"deep": (1, "two", None)}]},
        "int keys": {0: {"step": torch.tensor(3.0)}, 10: {"step": torch.tensor(4.0)}},
        "text": "snowman \u2603",
    }
    folder = save(state, tmp_path / "saved")
    root = read_raw(folder).root
    assert list(root["a.b"]) == ["x", "y.z"]
    assert root["a"]["list"][2]["deep"] == (1, "two", None)
    assert list(root["int keys"]) == ["0", "10"]
    assert_same(root, loaded(folder, tmp_path / "whole.pt"))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_files_of_several_writer_threads_are_no_defect(tmp_path, threads):
    state = {"w": torch.arange(6.0), "b": torch.ones(2), "step": 3}
    folder = save(state, tmp_path / "saved", thread_count=threads)
    tree = read_raw(folder)
    assert tree.defects == ()
    assert_same(tree.root, state)


def test_describing_opens_no_slice_of_a_tensor(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    metadata = metadata_of(folder)
    for index, info in metadata.storage_data.items():
        if index.offset is not None:
            with (folder / info.relative_path).open("r+b") as file:
                file.seek(info.offset)
                file.write(b"\xff" * info.length)
    tree = read_raw(folder)
    assert tree.root["train_state"]["tokens"] == read_raw(SAMPLES / "dcp_fsdp2").root["train_state"]["tokens"]
    for tensor in tensors_in(tree.root):
        with pytest.raises(CheckpointError):
            tensor.fetch()


def test_the_order_of_tensors_is_told_to_be_lost_where_ranks_saved_some_each():
    assert read_raw(SAMPLES / "dcp_raw_optim").facts["unordered"] == ()
    assert "app" in read_raw(SAMPLES / "dcp_plain").facts["unordered"]
    assert "model" not in read_raw(SAMPLES / "dcp_fsdp2").facts["unordered"]


def test_a_flipped_bit_is_found_in_the_slice_that_has_it(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    metadata = metadata_of(folder)
    (index, info), *_ = [
        (index, info)
        for index, info in metadata.storage_data.items()
        if index.fqn == "optimizer.state.emb.weight.exp_avg" and info.relative_path == "__1_0.distcp"
    ]
    content = bytearray((folder / info.relative_path).read_bytes())
    needle = bytes(read_raw(SAMPLES / "dcp_fsdp2").root["optimizer"]["state"]["emb.weight"]["exp_avg"].fetch())[64:]
    at = content.index(needle, info.offset, info.offset + info.length)
    content[at] ^= 1
    (folder / info.relative_path).write_bytes(content)
    defects = [(one.name, found) for one in read_raw(folder).members if (found := one.verify())]
    assert [(name, found.flaw, found.file) for name, found in defects] == [
        ("optimizer.state.emb.weight.exp_avg[4, 0]", Flaw.CHECKSUM, "__1_0.distcp")
    ]
    assert index.offset == torch.Size([4, 0])


def test_files_saved_without_checksums_say_so(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        folder = save({"w": torch.arange(6.0)}, tmp_path / "saved")
    finally:
        torch.serialization.set_crc32_options(True)
    tree = read_raw(folder)
    assert [(one.file, one.has_checksum) for one in tree.members] == [("__0_0.distcp", False), (".metadata", False)]
    assert tree.facts["checksums"] == "off"
    assert_same(tree.root, {"w": torch.arange(6.0)})


def test_old_metadata_without_paths_keeps_its_flat_keys(tmp_path):
    folder = patched(copied("dcp_raw_optim", tmp_path), lambda m: setattr(m, "planner_data", None))
    assert set(read_raw(folder).root) == set(metadata_of(folder).state_dict_metadata)


def test_lightnings_meta_file_is_read_beside_the_slices(tmp_path):
    folder = save({"model": {"w": torch.ones(2)}}, tmp_path / "saved.ckpt")
    torch.save({"epoch": 3, "global_step": 7}, folder / "meta.pt")
    tree = read_raw(folder)
    assert tree.files["meta.pt"].root == {"epoch": 3, "global_step": 7}
    assert "meta.pt" in {one.file for one in tree.members}


def test_a_distributed_checkpoint_in_a_folder_of_other_files_has_its_place_in_all_labels(tmp_path):
    save({"model": {"w": torch.ones(2)}, "step": 1}, tmp_path / "checkpoint-2" / "pytorch_model_fsdp_0")
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text(json.dumps({"global_step": 2}))
    tree = read_raw(tmp_path / "checkpoint-2")
    assert_same(tree.root["pytorch_model_fsdp_0"], {"model": {"w": torch.ones(2)}, "step": 1})
    assert {one.file for one in tree.members if one.file.endswith("distcp")} == {"pytorch_model_fsdp_0/__0_0.distcp"}
    assert {one.file for one in tree.globals} >= {"pytorch_model_fsdp_0/.metadata"}


def test_a_file_that_changes_after_it_was_described_is_told(tmp_path):
    folder = copied("dcp_plain", tmp_path)
    tree = read_raw(folder)
    tree.check_unchanged()
    Path(folder / "__0_0.distcp").write_bytes(b"new")
    with pytest.raises(DamagedCheckpointError, match="changed"):
        tree.check_unchanged()
