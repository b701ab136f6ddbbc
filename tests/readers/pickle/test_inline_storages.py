"""Tensors in a plain pickle, by pickle.dump and not by torch.save, are tensors like others."""

import io
import pickle
from typing import Any

import pytest
import torch

from ckptcheck.state.raw import Danger, Foreign
from tests.readers.live_values import bytes_of
from tests.readers.torch_files import unpickled

NAME = "torch.storage._load_from_bytes"


def _graded(data: bytes) -> dict[str, Danger]:
    return {one.name: one.danger for one in unpickled(data).globals}


@pytest.mark.parametrize("protocol", range(6))
def test_tensors_are_read_with_their_bytes(protocol: int) -> None:
    values = {"w": torch.arange(6.0).reshape(2, 3), "turned": torch.arange(6).reshape(2, 3).t(), "none": torch.empty(0),
              "bf16": torch.randn(5).bfloat16(), "p": torch.nn.Parameter(torch.ones(2))}  # fmt: skip
    data = pickle.dumps(values, protocol)
    found = unpickled(data).value
    for name, live in values.items():
        assert f"torch.{found[name].spec.dtype}" == str(live.dtype)
        assert bytes(found[name].fetch()) == bytes_of(live), name
    assert found["p"].is_parameter is True
    assert found["w"].place != found["turned"].place
    assert _graded(data)[NAME] is Danger.PLAIN


def test_two_saves_of_one_tensor_are_described_the_same() -> None:
    first, second = (unpickled(pickle.dumps([torch.ones(3), torch.zeros(2)])).value for _ in range(2))
    assert [one.place for one in first] == [one.place for one in second]


def _calling(content: bytes) -> bytes:
    return b"\x80\x04ctorch.storage\n_load_from_bytes\nB" + len(content).to_bytes(4, "little") + content + b"\x85R."


def _stream(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def _changed(old: bytes, new: bytes) -> bytes:
    content = _stream(torch.ones(4).untyped_storage())
    assert content.count(old) == 1
    return content.replace(old, new)


RUN = b"cposix\nsystem\nX\x02\x00\x00\x00ls\x85R0"
HARMFUL = {
    "a command beside the storage": _changed(b"\x80\x02(X", b"\x80\x02" + RUN + b"(X"),
    "a command beside its keys": _changed(b"\x80\x02]", b"\x80\x02" + RUN + b"]"),
    "a command beside the version": _changed(
        b"\x80\x02M\xe9\x03.\x80\x02}", b"\x80\x02" + RUN + b"M\xe9\x03.\x80\x02}"
    ),
    "a class of another package": _changed(b"ctorch.storage\nUntypedStorage", b"cmine\nUntypedStorage"),
    "a function of torch": _changed(b"\x80\x02]", b"\x80\x02ctorch\nload\n0]"),
    "other keys": _changed(b"\x80\x02]", b"\x80\x02]Na"),
    "no keys": _changed(b"\x80\x02]q\x00", b"\x80\x02].\x80\x02]"),
    "a pickle of a command": pickle.dumps(print),
    "no pickle": b"abc",
    "a stream of more than a storage": _stream({"w": torch.ones(2)}),
    "cut short": _stream(torch.ones(4).untyped_storage())[:-3],
    "longer than it says": _stream(torch.ones(4).untyped_storage()) + b"x",
}


@pytest.mark.parametrize("content", HARMFUL.values(), ids=HARMFUL.keys())
def test_what_is_no_storage_stays_bytes_and_is_a_danger(content: bytes) -> None:
    data = _calling(content)
    found = unpickled(data).value
    assert isinstance(found, Foreign)
    assert (found.class_name, found.arguments) == (NAME, (content,))
    assert _graded(data)[NAME] is Danger.RUNS_CODE


def test_a_storage_alone_is_a_tensor_of_one_dimension() -> None:
    found = unpickled(_calling(_stream(torch.arange(3).untyped_storage()))).value
    assert str(found.spec) == "uint8[24]"
    assert bytes(found.fetch()) == bytes_of(torch.arange(3))
