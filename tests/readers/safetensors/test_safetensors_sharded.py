"""Sets of shards: equal to their library's reading of each file, and every way a set can be half there is told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw, RawTree
from tests.readers.live_values import assert_same_tensors
from tests.samples import CHECKPOINTS

SAMPLE = CHECKPOINTS / "15_safetensors_sharded/sharded"
DCP = CHECKPOINTS / "08_dcp"
INDEX = "model.safetensors.index.json"


def own_reading(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        found.update(safetensors.torch.load_file(path))
    return found


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """The sample's shards and index alone."""
    folder = tmp_path / "weights"
    folder.mkdir()
    for path in SAMPLE.glob("model*"):
        shutil.copy(path, folder)
    return folder


def index_of(folder: Path) -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = json.loads((folder / INDEX).read_text())
    return content


def test_a_folder_of_shards_is_one_dict_in_the_order_of_the_index(weights: Path) -> None:
    tree = read_raw(weights)
    assert tree.container == "safetensors-sharded"
    assert_same_tensors(tree.root, own_reading(SAMPLE))
    assert list(tree.root) == list(index_of(weights)["weight_map"])
    assert {one.storage.file for one in tree.root.values()} == {
        f"model-0000{n}-of-00004.safetensors" for n in range(1, 5)
    }
    assert tree.nbytes == sum(path.stat().st_size for path in weights.iterdir())
    assert len(tree.members) == len(tree.root)


def test_the_index_alone_names_the_whole_set() -> None:
    tree = read_raw(SAMPLE / INDEX)
    assert tree.container == "safetensors-sharded"
    assert_same_tensors(tree.root, own_reading(SAMPLE))


def test_with_a_configuration_beside_it_the_set_is_one_file_of_a_folder() -> None:
    tree = read_raw(SAMPLE)
    assert tree.container == "folder"
    assert list(tree.root) == ["config.json", "generation_config.json", "model.safetensors"]
    assert_same_tensors(tree.root["model.safetensors"], own_reading(SAMPLE))
    assert tree.files["model.safetensors"].container == "safetensors-sharded"


def _remove_shard(folder: Path) -> None:
    (folder / "model-00003-of-00004.safetensors").unlink()


def _surplus_shard(folder: Path) -> None:
    shutil.copy(folder / "model-00001-of-00004.safetensors", folder / "model-00001-of-00009.safetensors")


def _other_shard(folder: Path) -> None:
    shutil.copy(folder / "model-00001-of-00004.safetensors", folder / "model-00002-of-00004.safetensors")


def _surplus_name(folder: Path) -> None:
    path = folder / "model-00003-of-00004.safetensors"
    safetensors.torch.save_file({**safetensors.torch.load_file(path), "left.over": torch.zeros(1)}, path)


def _smaller_total(folder: Path) -> None:
    content = index_of(folder)
    content["metadata"]["total_size"] = 4
    (folder / INDEX).write_text(json.dumps(content))


def _cut_shard(folder: Path) -> None:
    path = folder / "model-00003-of-00004.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE: dict[str, tuple[Callable[[Path], None], Flaw, str]] = {
    "a shard is missing": (_remove_shard, Flaw.INCOMPLETE, "the index places 2 tensors in it"),
    "a shard of another count": (_surplus_shard, Flaw.SHARD_SET, "the index places no tensor in this shard"),
    "a shard lacks its tensors": (_other_shard, Flaw.INCOMPLETE, "tensors that the index places there"),
    "a shard holds more": (_surplus_name, Flaw.SHARD_SET, "1 tensors that the index does not place"),
    "the sum is too small": (_smaller_total, Flaw.SHARD_SET, "promises 4 bytes of tensors, the shards"),
    "a shard is cut": (_cut_shard, Flaw.UNREADABLE, "cut short"),
}  # fmt: skip


@pytest.mark.parametrize(("break_it", "flaw", "said"), DAMAGE.values(), ids=DAMAGE)
def test_a_set_that_does_not_fit_is_told(
    weights: Path, break_it: Callable[[Path], None], flaw: Flaw, said: str
) -> None:
    break_it(weights)
    for path in (weights, weights / INDEX):
        with pytest.raises(DamagedCheckpointError, match=said) as caught:
            read_raw(path)
        assert caught.value.flaw == flaw
        told = [(one.flaw, said in one.said) for one in read_raw(path, strict=False).defects]
        assert (flaw, True) in told


def test_the_rest_of_a_damaged_set_is_still_read(weights: Path) -> None:
    _remove_shard(weights)
    tree = read_raw(weights, strict=False)
    lost = safetensors.torch.load_file(SAMPLE / "model-00003-of-00004.safetensors")
    assert_same_tensors(tree.root, {name: one for name, one in own_reading(SAMPLE).items() if name not in lost})
    assert [(one.flaw, one.file) for one in tree.defects] == [(Flaw.INCOMPLETE, "model-00003-of-00004.safetensors")]


def test_a_sum_that_counts_ties_twice_is_no_damage(weights: Path) -> None:
    content = index_of(weights)
    content["metadata"]["total_size"] = 10**9
    (weights / INDEX).write_text(json.dumps(content))
    assert read_raw(weights).facts["index_metadata"]["total_size"] == 10**9


@pytest.mark.parametrize("total", [None, "12", [], True, float("nan"), float("inf"), -1.5])
def test_a_sum_that_is_no_count_ends_in_one_line_or_is_passed_over(weights: Path, total: object) -> None:
    content = index_of(weights)
    content["metadata"]["total_size"] = total
    (weights / INDEX).write_text(json.dumps(content))
    tree = read_raw(weights, strict=False)
    assert len(tree.root) == len(content["weight_map"])


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "a\0b", "a\\b", "", "sub/../../outside.safetensors"]
)
def test_an_index_never_leads_out_of_its_folder(weights: Path, name: str) -> None:
    shutil.copy(SAMPLE / "model-00001-of-00004.safetensors", weights.parent / "outside.safetensors")
    content = index_of(weights)
    content["weight_map"] = dict.fromkeys(content["weight_map"], name)
    (weights / INDEX).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"not followed|is not there"):
        read_raw(weights)


def test_a_shard_that_is_a_link_out_of_the_folder_is_not_followed(weights: Path) -> None:
    shard = weights / "model-00001-of-00004.safetensors"
    shard.rename(weights.parent / "elsewhere.safetensors")
    shard.symlink_to("../elsewhere.safetensors")
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        read_raw(weights)


@pytest.mark.parametrize("content", ['{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map"'])
def test_an_index_of_another_form_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    for path in (tmp_path, tmp_path / INDEX):
        with pytest.raises(DamagedCheckpointError, match=r"weight_map|no valid JSON"):
            read_raw(path)


def test_shards_of_torch_files_are_read_by_their_index(tmp_path: Path) -> None:
    parts = [{"a": torch.arange(3.0)}, {"b": torch.ones(2, 2), "c": torch.tensor(1)}]
    files = {}
    for number, part in enumerate(parts, 1):
        torch.save(part, tmp_path / f"pytorch_model-0000{number}-of-00002.bin")
        files.update(dict.fromkeys(part, f"pytorch_model-0000{number}-of-00002.bin"))
    index = {"metadata": {"total_size": 12 + 16 + 8}, "weight_map": files}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    tree = read_raw(tmp_path)
    assert tree.container == "torch-sharded"
    assert_same_tensors(tree.root, {**parts[0], **parts[1]})
    assert any(member.has_checksum for member in tree.members)


def full_dcp_weights() -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(DCP / "dcp_hf_consol/model-00001-of-00001.safetensors")


@pytest.mark.parametrize("folder", ["dcp_hf_sharded", "dcp_hf_consol/sharded", "dcp_hf_consol"])
def test_the_ranks_pieces_are_joined_to_what_torch_consolidates(folder: str) -> None:
    tree: RawTree = read_raw(DCP / folder)
    assert tree.container == "safetensors-sharded"
    assert_same_tensors(tree.root, full_dcp_weights())


def test_pieces_of_a_rank_that_is_missing_are_told(tmp_path: Path) -> None:
    name = "shard-00002-model-00001-of-00001.safetensors"
    shutil.copy(DCP / "dcp_hf_sharded" / name, tmp_path)
    with pytest.raises(DamagedCheckpointError, match="shard 1 of 2 are not there") as caught:
        read_raw(tmp_path)
    assert caught.value.flaw == Flaw.INCOMPLETE
    flaws = {one.flaw for one in read_raw(tmp_path, strict=False).defects}
    assert flaws == {Flaw.INCOMPLETE, Flaw.SHARD_SET}


INFO = {
    "overlapping pieces": ('{"a": {"saved_offsets": [1]}}', "do not tile"),
    "a hole between pieces": ('{"a": {"saved_offsets": [3]}}', "do not tile"),
    "a negative place": ('{"a": {"saved_offsets": [-1]}}', "do not place a piece"),
    "a place of two dimensions": ('{"a": {"saved_offsets": [0, 0]}}', "do not place a piece"),
    "no place": ("{}", "do not place a piece"),
    "no object": ("[]", "is no JSON object"),
    "no JSON": ("{", "no valid JSON"),
}


@pytest.mark.parametrize(("info", "said"), INFO.values(), ids=INFO)
def test_pieces_that_do_not_fit_are_told(tmp_path: Path, info: str, said: str) -> None:
    for number, text in ((1, '{"a": {"saved_offsets": [0]}}'), (2, info)):
        path = tmp_path / f"shard-0000{number}-model-00001-of-00001.safetensors"
        safetensors.torch.save_file({"a": torch.ones(2)}, path, {"DCP_SHARDING_INFO": text})
    with pytest.raises(DamagedCheckpointError, match=said):
        read_raw(tmp_path)
