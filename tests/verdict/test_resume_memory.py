"""What a load takes, counted by hand from tensors that torch itself made."""

import zipfile
from copy import deepcopy
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ckptcheck import verbs
from tests.check_cases.changing import put, trained
from tests.check_cases.training import Mlp
from tests.samples import CHECKPOINTS


def nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(nbytes, value.values())) if isinstance(value, dict) else 0


def memory(path: Any) -> dict[str, Any]:
    return verbs.check(path).parts["memory"]


def test_one_file_is_loaded_whole_beside_the_built_model(tmp_path):
    state = trained()
    weights, optimizer = nbytes(state["model"]), nbytes(state["optimizer"]["state"])
    whole = weights + optimizer + nbytes(state["rng"])
    told = memory(put(tmp_path, state))
    assert told == {
        "weights_bytes": weights,
        "optimizer_bytes": optimizer,
        "fresh_bytes": weights + optimizer,
        "loaded_bytes": whole,
        "peak_bytes": weights + whole,
        "extra_bytes": weights + nbytes(state["rng"]),
        "duplicates": [],
        "devices": {"cpu": whole},
    }


def test_an_average_and_a_storage_that_is_kept_for_a_view_are_duplicates(tmp_path):
    state = trained()
    table = torch.zeros(1000)
    state |= {"ema": deepcopy(state["model"]), "row": table[:10]}
    told = memory(put(tmp_path, state))
    assert told["duplicates"] == [
        {"what": "averaged weights", "bytes": nbytes(state["model"])},
        {"what": "other tensors", "bytes": 40},
        {"what": "unused by any tensor", "bytes": 3960},
    ]
    plain = memory(put(tmp_path, trained()))
    assert told["extra_bytes"] - plain["extra_bytes"] == nbytes(state["model"]) + 4000


def test_an_average_that_shares_the_models_bytes_takes_none(tmp_path):
    state = trained()
    assert memory(put(tmp_path, state | {"ema": dict(state["model"])}))["duplicates"] == []


def test_state_of_the_same_parameters_in_two_places_is_told(tmp_path):
    state = trained()
    again = deepcopy(state["optimizer"])
    told = memory(put(tmp_path, state | {"optimizer_last": again}))
    assert told["duplicates"] == [
        {"what": "a second state of the same parameters", "bytes": nbytes(again["state"])}
    ]  # fmt: skip


def test_files_of_a_folder_are_loaded_one_after_the_other():
    path = CHECKPOINTS / "04_hf_trainer" / "checkpoint-2"
    optimizer = torch.load(path / "optimizer.pt", weights_only=True)
    told = memory(path)
    assert told["loaded_bytes"] == nbytes(optimizer["state"])
    assert (told["peak_bytes"], told["extra_bytes"]) == (told["weights_bytes"] + told["loaded_bytes"], 0)


@pytest.mark.parametrize("sample", ["15_safetensors_sharded/sharded", "08_dcp/dcp_fsdp2"])
def test_what_is_read_tensor_by_tensor_takes_no_more_than_a_fresh_run(sample):
    told = memory(CHECKPOINTS / sample)
    assert (told["loaded_bytes"], told["extra_bytes"]) == (0, 0)
    assert told["peak_bytes"] == told["fresh_bytes"] > 0


def test_a_release_takes_its_weights(tmp_path):
    model = Mlp()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    assert memory(tmp_path / "model.safetensors")["peak_bytes"] == nbytes(model.state_dict())


def test_the_float32_copies_of_mixed_precision_are_told():
    folder = CHECKPOINTS / "10_deepspeed" / "z1_bf16"
    (file,) = folder.rglob("*model_states.pt")
    shapes = torch.load(file, weights_only=False)["param_shapes"]
    elements = sum(shape.numel() for group in shapes for shape in group.values())
    copies = [one["bytes"] for one in memory(folder)["duplicates"] if one["what"] == "float32 copies of the weights"]
    assert copies == [4 * elements]


def test_tensors_saved_from_a_gpu_are_put_there_again(tmp_path):
    """The device's name stands in the pickle, before the number of elements; it has as many letters as "cuda:0"."""
    path = put(tmp_path, {"weight": torch.zeros(25, device="cpu")})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    target = tmp_path / "gpu.pt"
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            old, new = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"
            archive.writestr(name, content.replace(old, new) if name.endswith("data.pkl") else content)
    assert memory(target)["devices"] == {"cuda:0": 100}
