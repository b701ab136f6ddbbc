"""Our own store as a raw tree: its tensors, its digests verified, and every way to be damaged is told."""

import json
import os
import shutil
from pathlib import Path

import pytest

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders.store_folder import OPEN_STORE
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw
from ckptcheck.store.read import OpenStore, read_state

KEPT = Path("tests/store/kept/v1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT, tmp_path / "store"))


def test_every_tensor_is_what_the_store_itself_reads() -> None:
    tree = read_raw(KEPT)
    state = read_state(KEPT)
    assert tree.container == "store"
    assert set(tree.root) == {"model", "optimizer", "gradients", "sections"}
    for name, parameter in state.parameters.items():
        assert tree.root["model"][name].spec == parameter.entry.spec
        assert parameter.entry.ref is not None
        assert tree.root["model"][name].fetch() == parameter.entry.ref.fetch()
    assert isinstance(tree.facts[OPEN_STORE], OpenStore)
    assert tree.facts["step"] == 3
    assert tree.nbytes == sum(path.stat().st_size for path in KEPT.iterdir())


def test_every_digest_is_verified() -> None:
    members = read_raw(KEPT).members
    assert len(members) > 20
    assert all(one.has_checksum for one in members)
    assert [one.verify() for one in members] == [None] * len(members)


def test_one_bit_is_told_by_the_digest(store: Path) -> None:
    (path,) = store.glob("model-*")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    defects = [defect for one in read_raw(store).members if (defect := one.verify())]
    assert [(one.flaw, one.file) for one in defects] == [(Flaw.CHECKSUM, path.name)]


def test_a_payload_that_is_missing_is_a_half_save(store: Path) -> None:
    next(store.glob("optimizer-*")).unlink()
    with pytest.raises(DamagedCheckpointError, match="missing, though the manifest names it") as caught:
        read_raw(store)
    assert caught.value.flaw == Flaw.INCOMPLETE


def test_payloads_without_a_manifest_are_a_half_save(store: Path) -> None:
    (store / "training_state.json").unlink()
    with pytest.raises(DamagedCheckpointError) as caught:
        read_raw(store)
    assert caught.value.flaw == Flaw.INCOMPLETE


def test_a_damaged_manifest_is_told(store: Path) -> None:
    path = store / "training_state.json"
    path.write_text(path.read_text().replace('"step":3', '"step":4'))
    with pytest.raises(DamagedCheckpointError, match="digest") as caught:
        read_raw(store)
    assert caught.value.flaw == Flaw.UNREADABLE


def test_a_newer_format_is_refused_and_not_called_damaged(store: Path) -> None:
    path = store / "training_state.json"
    path.write_text(path.read_text().replace('"version":1', '"version":99', 1))
    with pytest.raises(CheckpointError, match="install a newer one") as caught:
        read_raw(store)
    assert not isinstance(caught.value, DamagedCheckpointError)


def test_a_link_or_a_pipe_in_place_of_a_file_is_refused(store: Path) -> None:
    (path,) = store.glob("model-*")
    path.rename(store.parent / "elsewhere")
    path.symlink_to("../elsewhere")
    with pytest.raises(CheckpointError, match="plain file"):
        read_raw(store)
    (store / "training_state.json").unlink()
    os.mkfifo(store / "training_state.json")
    with pytest.raises(CheckpointError):
        read_raw(store)


def test_a_file_of_the_manifests_name_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "training_state.json").write_text(json.dumps({"step": 3}))
    tree = read_raw(tmp_path)
    assert (tree.container, tree.root) == ("folder", {"training_state.json": {"step": 3}})
