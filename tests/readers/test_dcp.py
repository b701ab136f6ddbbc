"""Distributed checkpoints are read as torch reads them, and never further than somebody asks."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo

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
    assert len(tree.members) == len(metadata.storage_data)
    assert sum(one.nbytes for one in tree.members) == sum(one.length for one in metadata.storage_data.values())
    assert all(one.has_checksum for one in tree.members)
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
    assert [one.has_checksum for one in tree.members] == [False]
    assert tree.facts["checksums"] == "off"
    assert_same(tree.root, {"w": torch.arange(6.0)})


def removed(name):
    return lambda folder: (folder / name).unlink()


def cut(name, nbytes):
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - nbytes)


def changed(change):
    return lambda folder: patched(folder, change)


def written(content):
    return lambda folder: (folder / ".metadata").write_bytes(content)


def index_of(metadata, key):
    return next(index for index in metadata.storage_data if index.fqn == key)


def moved(metadata, key, **parts):
    index = index_of(metadata, key)
    info = metadata.storage_data[index]
    values = {"relative_path": info.relative_path, "offset": info.offset, "length": info.length, **parts}
    metadata.storage_data[index] = _StorageInfo(**values)


def reshaped(metadata, key, size):
    metadata.state_dict_metadata[key].size = torch.Size(size)


KEY = "model.fc.weight"
DAMAGE = {
    "no metadata": (removed(".metadata"), Flaw.INCOMPLETE, "interrupted"),
    "a file missing": (removed("__1_0.distcp"), Flaw.INCOMPLETE, "__1_0.distcp.*not there"),
    "a file cut short": (cut("__1_0.distcp", 10), Flaw.UNREADABLE, "cut short"),
    "an extent beyond the end": (changed(lambda m: moved(m, KEY, length=10**6)), Flaw.UNREADABLE, "cut short"),
    "chunks with a hole": (changed(lambda m: reshaped(m, KEY, (4, 4))), Flaw.SHARD_SET, "do not tile"),
    "chunks beyond the size": (changed(lambda m: reshaped(m, KEY, (2, 4))), Flaw.SHARD_SET, "reaches beyond"),
    "chunks of other dimensions": (changed(lambda m: reshaped(m, KEY, (12,))), Flaw.SHARD_SET, "reaches beyond"),
    "no extent of a chunk": (
        changed(lambda m: m.storage_data.pop(index_of(m, KEY))),
        Flaw.UNREADABLE,
        "does not say where the chunk",
    ),
    "no extent of a value": (
        changed(lambda m: m.storage_data.pop(index_of(m, "train_state.tokens"))),
        Flaw.UNREADABLE,
        "does not say where",
    ),
    "a negative offset": (changed(lambda m: moved(m, KEY, offset=-1)), Flaw.UNREADABLE, "no extent"),
    "paths that clash": (
        changed(lambda m: m.planner_data.update({KEY: ("model",)})),
        Flaw.UNREADABLE,
        "do not fit each other",
    ),
    "a path of floats": (changed(lambda m: m.planner_data.update({KEY: (1.5,)})), Flaw.UNREADABLE, "path"),
    "cut metadata": (cut(".metadata", 100), Flaw.UNREADABLE, "metadata"),
    "empty metadata": (written(b""), Flaw.UNREADABLE, "pickle"),
    "metadata that is text": (written(b'{"a": 1}'), Flaw.UNREADABLE, "pickle"),
    "a value that begins elsewhere": (
        changed(lambda m: moved(m, "train_state.tokens", offset=1)),
        Flaw.UNREADABLE,
        "train_state.tokens|directory",
    ),
}


@pytest.mark.parametrize(("harm", "flaw", "said"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_told_by_its_kind(tmp_path, harm, flaw, said):
    folder = copied("dcp_fsdp2", tmp_path)
    harm(folder)
    with pytest.raises(DamagedCheckpointError, match=said) as caught:
        read_raw(folder)
    assert caught.value.flaw == flaw
    assert "\n" not in str(caught.value)


REFUSED = {
    "a pickle of something else": (written(pickle.dumps({"a": 1}, 4)), "is no metadata"),
    "a file outside of the folder": (changed(lambda m: moved(m, KEY, relative_path="../x")), "not inside"),
    "an absolute path": (changed(lambda m: moved(m, KEY, relative_path="/etc/passwd")), "not inside"),
    "compressed slices": (
        changed(lambda m: moved(m, KEY, transform_descriptors=["zstd"])),
        "stored through .*zstd",
    ),
    "a path without end": (changed(lambda m: m.planner_data.update({KEY: ("x",) * 70})), "70 levels deep"),
}


@pytest.mark.parametrize(("harm", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_made_to_mislead_is_refused(tmp_path, harm, said):
    folder = copied("dcp_fsdp2", tmp_path)
    harm(folder)
    with pytest.raises(CheckpointError, match=said):
        read_raw(folder)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    (folder / "__1_0.distcp").rename(tmp_path / "elsewhere")
    (folder / "__1_0.distcp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="leads out"):
        read_raw(folder)


def test_what_is_not_damaged_is_read_where_damage_need_not_stop_it(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    (folder / "__1_0.distcp").unlink()
    tree = read_raw(folder, strict=False)
    assert {(one.flaw, one.file) for one in tree.defects} == {(Flaw.INCOMPLETE, "__1_0.distcp")}
    assert tree.root["model"]["emb.weight"].spec.shape == (7, 4)
    with pytest.raises(DamagedCheckpointError, match="missing"):
        tree.root["model"]["emb.weight"].fetch()
    assert {one.file for one in tree.members} == {"__0_0.distcp"}
    assert all(one.verify() is None for one in tree.members)


def test_a_file_cut_short_is_told_once_and_what_is_left_of_it_is_read(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    os.truncate(folder / "__1_0.distcp", 60_000)
    tree = read_raw(folder, strict=False)
    assert [(one.flaw, one.file) for one in tree.defects] == [(Flaw.UNREADABLE, "__1_0.distcp")]
    assert "more" in tree.defects[0].said
    assert all(one.verify() is None for one in tree.members)
    assert 0 < sum(one.file == "__1_0.distcp" for one in tree.members) < 48
    with pytest.raises(DamagedCheckpointError, match="cut short"):
        [tensor.fetch() for tensor in tensors_in(tree.root)]


def test_a_tensor_whose_chunks_do_not_fit_is_never_read_as_if_they_did(tmp_path):
    folder = patched(copied("dcp_fsdp2", tmp_path), lambda m: reshaped(m, KEY, (4, 4)))
    tree = read_raw(folder, strict=False)
    assert [one.flaw for one in tree.defects] == [Flaw.SHARD_SET]
    with pytest.raises(DamagedCheckpointError, match="do not tile"):
        tree.root["model"]["fc.weight"].fetch()


def test_a_slice_of_another_save_is_told_when_it_is_read(tmp_path):
    def swap(metadata):
        bias, frozen = index_of(metadata, "model.fc.bias"), index_of(metadata, "model.frozen.weight")
        metadata.storage_data[bias], metadata.storage_data[frozen] = (
            metadata.storage_data[frozen],
            metadata.storage_data[bias],
        )

    tree = read_raw(patched(copied("dcp_fsdp2", tmp_path), swap))
    with pytest.raises(DamagedCheckpointError, match=r"holds float32\[2, 3\], .metadata says float32\[2\]") as caught:
        tree.root["model"]["fc.bias"].fetch()
    assert caught.value.flaw == Flaw.SHARD_SET


def test_a_file_left_over_from_another_save_is_told_and_stops_nothing(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    (folder / "__7_0.distcp").write_bytes((folder / "__0_0.distcp").read_bytes())
    (folder / "__8_0.distcp").write_bytes(b"")
    (folder / "__9_0.distcp").symlink_to("nowhere")
    tree = read_raw(folder)
    assert [(one.flaw, one.file) for one in tree.defects] == [(Flaw.SHARD_SET, "__7_0.distcp")]
    assert_same(tree.root, loaded(SAMPLES / "dcp_fsdp2", tmp_path / "whole.pt"))


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
