"""Distributed checkpoints that are damaged or made to mislead: told by kind, and what is left is read."""

import os
import pickle
import pickletools

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import StorageMeta

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw, tensors_in
from ckptcheck.verbs import check
from tests.readers.dcp_folders import SAMPLES, assert_same, copied, loaded, patched


def removed(name):
    return lambda folder: (folder / name).unlink()


def cut(name, nbytes):
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - nbytes)


def changed(change):
    return lambda folder: patched(folder, change)


def replaced(old, new):
    return lambda folder: written((folder / ".metadata").read_bytes().replace(old, new))(folder)


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
    "an unknown dtype": (replaced(b"float32", b"float31"), Flaw.UNREADABLE, "no size or dtype that is known"),
    "a class that torch does not have": (
        replaced(b"ChunkStorageMetadata", b"ChunkStorageMdtadata"),
        Flaw.UNREADABLE,
        "names the class torch.distributed.checkpoint.metadata.ChunkStorageMdtadata, which torch",
    ),
    "a chunk of another kind": (
        changed(lambda m: m.state_dict_metadata[KEY].chunks.append(StorageMeta())),
        Flaw.UNREADABLE,
        "a chunk of 'model.fc.weight' is an object of .*StorageMeta, which torch",
    ),
    "an item of another kind": (
        changed(lambda m: m.state_dict_metadata.update({KEY: {"chunks": []}})),
        Flaw.UNREADABLE,
        "'model.fc.weight' is described by an object of dict, which torch",
    ),
    "an extent of another kind": (
        changed(lambda m: m.storage_data.update({index_of(m, KEY): StorageMeta()})),
        Flaw.UNREADABLE,
        "storage_data holds an object of .*StorageMeta, which torch",
    ),
    "a description without its items": (
        replaced(b"state_dict_metadata", b"state_dict_metadate"),
        Flaw.UNREADABLE,
        "state_dict_metadata is not in it",
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
    assert {one.file for one in tree.members} == {"__0_0.distcp", ".metadata"}
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

    found = [one for one in (member.verify() for member in tree.members) if one is not None]
    assert {one.flaw for one in found} == {Flaw.SHARD_SET}
    assert [one.said.partition(" at byte")[0] for one in found] == [
        "the slice of model.fc.bias[0]", "the slice of model.frozen.weight[0, 0]",
    ]  # fmt: skip
    assert {one.code for one in check(tree.path, select=("CK1",)).findings} == {"CK107"}


def test_slices_that_are_what_the_metadata_says_are_verified(tmp_path):
    tree = read_raw(SAMPLES / "dcp_fsdp2")
    assert [one.verify() for one in tree.members] == [None] * len(tree.members)
    assert check(SAMPLES / "dcp_fsdp2").verdict == "pass"


def test_two_chunks_that_are_said_to_be_one_slice_are_told_and_it_is_verified_once(tmp_path):
    def join(metadata):
        bias, frozen = index_of(metadata, "model.fc.bias"), index_of(metadata, "model.frozen.weight")
        metadata.storage_data[bias] = metadata.storage_data[frozen]

    before = len(read_raw(SAMPLES / "dcp_fsdp2").members)
    folder = patched(copied("dcp_fsdp2", tmp_path), join)
    with pytest.raises(DamagedCheckpointError, match="are both said to lie at byte") as caught:
        read_raw(folder)
    assert caught.value.flaw == Flaw.SHARD_SET
    tree = read_raw(folder, strict=False)
    assert [one.flaw for one in tree.defects] == [Flaw.SHARD_SET]
    assert len(tree.members) == before - 1


def test_a_file_left_over_from_another_save_is_told_and_stops_nothing(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    (folder / "__7_0.distcp").write_bytes((folder / "__0_0.distcp").read_bytes())
    (folder / "__8_0.distcp").write_bytes(b"")
    (folder / "__9_0.distcp").symlink_to("nowhere")
    tree = read_raw(folder)
    assert [(one.flaw, one.file) for one in tree.defects] == [(Flaw.SHARD_SET, "__7_0.distcp")]
    assert_same(tree.root, loaded(SAMPLES / "dcp_fsdp2", tmp_path / "whole.pt"))


def names_in(content):
    """Where in a pickle the names of modules and classes begin, and how long they are."""
    told = [(argument, place) for code, argument, place in pickletools.genops(content) if "UNICODE" in code.name]
    texts = [(one, content.index(one.encode(), place)) for one, place in told if one.isascii()]
    return [(begin, len(one)) for one, begin in texts if one in NAMES]


NAMES = {
    "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem", "Metadata", "MetadataIndex",
    "TensorStorageMetadata", "ChunkStorageMetadata", "BytesStorageMetadata", "TensorProperties", "_StorageInfo",
}  # fmt: skip


def test_a_letter_that_changed_in_a_name_is_told_wherever_torch_cannot_read_it(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    content = (folder / ".metadata").read_bytes()
    named = names_in(content)
    assert len(named) >= len(NAMES)
    for begin, length in named:
        for place in range(begin, begin + length, 5):
            changed_content = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
            (folder / ".metadata").write_bytes(changed_content)
            with pytest.raises((ImportError, AttributeError)):
                pickle.loads(changed_content)  # noqa: S301 - one letter of our own sample
            with pytest.raises(DamagedCheckpointError):
                read_raw(folder)


def test_a_class_of_another_package_may_say_where_bytes_lie(tmp_path):
    folder = copied("dcp_fsdp2", tmp_path)
    replaced(b"torch.distributed.checkpoint.filesystem", b"someone.elses.writer_of_their.filesyste")(folder)
    assert not read_raw(folder).defects
