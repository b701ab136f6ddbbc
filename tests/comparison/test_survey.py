"""What tensors hold, counted while the files are verified, against what torch counts on the same tensors."""

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from ckptcheck.comparison.survey import Content, Survey, Underflow
from ckptcheck.comparison.survey_plan import plan_of
from ckptcheck.comparison.surveying import DAMAGED, Surveyor
from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from ckptcheck.readers.source import FilePool
from ckptcheck.state.raw import RawTensor, Stretch
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import Item
from ckptcheck.verdict.reading_through import read_through
from tests.comparison.held import checkpoint, of_bytes, optimizer, raw_tensor
from tests.samples import CHECKPOINTS

NAN, INF = float("nan"), float("inf")
ODD = [0.0, -0.0, 1.5, -2.0, INF, -INF, NAN, -NAN, 0.0, 3.0]
WIDE = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def expected(tensor: torch.Tensor) -> Content:
    """The same by torch, in float64, in the order of the tensor's indices."""
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    values = parts.to(torch.float64)
    finite = torch.isfinite(values)

    def first(where: torch.Tensor) -> tuple[int, ...] | None:
        found = where.nonzero()
        return tuple(found[0].tolist()[: tensor.ndim]) if len(found) else None

    return Content(
        numel=values.numel(),
        nan=int(values.isnan().sum()),
        inf=int((values == INF).sum()),
        minus_inf=int((values == -INF).sum()),
        negative=int((values < 0).sum()),
        zeros=int((values == 0).sum()),
        first_at=first(~finite),
        first_negative_at=first(values < 0),
        largest=float(values[finite].abs().max()) if finite.any() else 0.0,
    )


def survey(path: Path) -> Survey:
    raw = read_raw(path, strict=False)
    _, found = read_through(raw, explain(raw))
    assert found is not None
    return found


def surveyed(**tensors: Any) -> Survey:
    """Of tensors that are in no file."""
    return Surveyor(plan_of(checkpoint(tensors).state)).finish("memory")


def odd(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random elements with zeros, and a few that are not finite."""
    made = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=made, dtype=torch.float64) * 100
    flat = values.view(-1)
    for value in (0.0, -0.0, NAN, INF, -INF) if len(flat) else ():
        flat[torch.randint(0, len(flat), (3,), generator=made)] = value
    return values.to(dtype)


@pytest.mark.parametrize("dtype", WIDE + NARROW, ids=str)
@pytest.mark.parametrize("values", [ODD, ODD[:4], [1.0, 2.0], [-1.0, -4.0], [0.0], [-0.0], [NAN], [-INF, -1.0], []],
                         ids=str)  # fmt: skip
def test_every_kind_of_element_is_counted_in_every_dtype(values, dtype):
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    assert surveyed(w=raw_tensor(tensor)).contents[Item("param", "w")] == expected(tensor)


def test_a_scale_of_powers_of_two_is_counted_too():
    tensor = torch.tensor([0, 127, 254, 255], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    found = surveyed(w=raw_tensor(tensor)).contents[Item("param", "w")]
    assert (found.numel, found.nan, found.zeros, found.largest) == (4, 1, 0, 2.0**127)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("shape", [(70_000,), (3, 70_001), (1,), (), (0, 4), (300_000, 2)])
def test_blocks_of_a_large_tensor_add_up(shape, dtype):
    tensor = odd(*shape, dtype=dtype)
    assert surveyed(w=raw_tensor(tensor)).contents[Item("param", "w")] == expected(tensor)


@pytest.mark.parametrize("place", [0, 1, 65_535, 65_536, 131_071, 262_144, 299_999])
@pytest.mark.parametrize("value", [NAN, INF, -INF, -1.0, 0.0])
def test_one_odd_element_is_found_wherever_it_is(place, value):
    tensor = torch.ones(300_000)
    tensor[place] = value
    assert surveyed(w=raw_tensor(tensor)).contents[Item("param", "w")] == expected(tensor)


def test_real_and_imaginary_parts_are_counted_on_their_own():
    tensor = torch.complex(odd(40, 3, seed=1), odd(40, 3, seed=2))
    assert surveyed(w=raw_tensor(tensor)).contents[Item("param", "w")] == expected(tensor)


@pytest.mark.parametrize("tensor", [torch.arange(4), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.int8)])
def test_integers_are_neither_surveyed_nor_missed(tensor):
    assert surveyed(w=raw_tensor(tensor)) == Survey()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_wherever_blocks_cut_a_tensor_the_counts_are_the_same(data):
    dtype = data.draw(st.sampled_from(WIDE))
    tensor = odd(data.draw(st.integers(1, 60)), dtype=dtype, seed=data.draw(st.integers(0, 9)))
    content = tensor.view(torch.uint8).numpy().tobytes()
    begin = data.draw(st.integers(0, 9))
    cut = data.draw(st.integers(0, len(content) // tensor.element_size())) * tensor.element_size()

    class Apart:
        """The tensor's two halves lie in two homes, the second one first."""

        def __call__(self, start: int, buffer: memoryview) -> None:
            assert len(buffer) == tensor.element_size()  # nothing but an element that a block cut is fetched
            buffer[:] = content[start : start + len(buffer)]

        def stretches(self, start: int, nbytes: int) -> tuple[Stretch, ...]:
            assert (start, nbytes) == (0, len(content))
            halves = Stretch("b", begin, 0, cut), Stretch("a", 3, cut, nbytes - cut)
            return tuple(one for one in halves if one.nbytes)

    spec = TensorSpec(str(dtype).removeprefix("torch."), tuple(tensor.shape))
    surveyor = Surveyor(plan_of(checkpoint({"w": RawTensor(spec, Apart())}).state))
    for home, held in (("a", b"..." + content[cut:] + b"?"), ("b", bytes(begin) + content[:cut] + b"?????")):
        sight = surveyor.begin()
        at = 0
        while at < len(held):
            step = data.draw(st.integers(1, 40))
            sight(home, at, memoryview(held)[at : at + step])
            at += step
        surveyor.end(sight, None)
    assert surveyor.finish("memory").contents[Item("param", "w")] == expected(tensor)


def model(**tensors: torch.Tensor) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": tensors}


TENSORS = {
    "large": odd(400, 1000), "small": odd(7), "half": odd(50, 3, dtype=torch.float16), "count": torch.arange(3.0),
    "double": odd(9, 9, dtype=torch.float64), "brain": odd(1001, dtype=torch.bfloat16), "one": torch.tensor(-2.5),
    "complex": torch.complex(odd(30, seed=3), odd(30, seed=4)), "none": torch.empty(0, 3),
}  # fmt: skip


def as_zip(path: Path) -> None:
    torch.save(model(**TENSORS), path)


def as_legacy(path: Path) -> None:
    torch.save(model(**TENSORS), path, _use_new_zipfile_serialization=False)


def as_deflated(path: Path) -> None:
    stored = io.BytesIO()
    torch.save(model(**TENSORS), stored)
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))


def as_safetensors(path: Path) -> None:
    save_file(TENSORS, path)


def as_safetensors_out_of_step(path: Path) -> None:
    """The data begins at an odd byte: blocks cut elements."""
    save_file(TENSORS, path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].rstrip() + b" "
    header += b" " * (1 - len(header) % 2)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])


@pytest.mark.parametrize("write", [as_zip, as_legacy, as_deflated, as_safetensors, as_safetensors_out_of_step])
def test_every_container_gives_the_same_counts(write, tmp_path):
    write(tmp_path / "model.safetensors")
    found = survey(tmp_path / "model.safetensors")
    assert found.contents == {Item("param", name): expected(value) for name, value in TENSORS.items()}
    assert found.unread == {}
    assert found.nbytes == sum(value.nbytes for value in TENSORS.values())


@pytest.mark.parametrize("write", [as_zip, as_legacy, as_deflated, as_safetensors, as_safetensors_out_of_step])
def test_bytes_that_were_verified_are_not_read_a_second_time(write, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    write(path)
    raw = read_raw(path)
    understood = explain(raw)
    read: list[int] = []
    really = FilePool.read_into

    def counting(pool: FilePool, where: Path, position: int, buffer: memoryview) -> int:
        read.append(len(buffer))
        return really(pool, where, position, buffer)

    monkeypatch.setattr(FilePool, "read_into", counting)
    read_through(raw, understood)
    headers = 2 * 30 * len(raw.members)
    assert sum(read) <= path.stat().st_size + headers


SAMPLES = ("04_hf_trainer/checkpoint-2", "07_lightning/pl.ckpt", "08_dcp/dcp_fsdp2", "08_dcp/dcp_hf_sharded",
           "10_deepspeed/z2_bf16", "10_deepspeed/z3_bf16", "10_deepspeed/universal_z1",
           "06_accelerate_safe/checkpoint_1", "15_safetensors_sharded/sharded")  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_real_checkpoints_are_surveyed_from_the_bytes_that_are_verified(sample):
    raw = read_raw(CHECKPOINTS / sample)
    surveyor = Surveyor(plan_of(explain(raw).state))
    for member in raw.members:
        sight = surveyor.begin()
        surveyor.end(sight, member.verify(sight))
    seen = {place for place, count in surveyor._counts.items() if count.numel == surveyor.numels[place]}
    assert len(seen) == len(surveyor.plan.refs) > 4
    found = surveyor.finish("sample")
    assert found.unread == {}
    for ref, items in zip(surveyor.plan.refs, surveyor.plan.items, strict=True):
        tensor = torch.frombuffer(bytearray(ref.fetch()), dtype=getattr(torch, ref.spec.dtype)).reshape(ref.spec.shape)
        assert found.contents[items[0]] == expected(tensor)


def test_a_tie_is_counted_once_and_told_under_each_name(tmp_path):
    shared = odd(40, 10)
    torch.save({"model": {"a": shared}, "ema": {"a": shared.view(40, 10)}}, tmp_path / "model.pt")
    found = survey(tmp_path / "model.pt")
    assert found.contents == dict.fromkeys((Item("param", "a"), Item("ema", "a")), expected(shared))
    assert found.nbytes == shared.nbytes


VIEWS = {
    "transposed": lambda whole: whole.t(),
    "permuted": lambda whole: whole.view(20, 3, 200).permute(2, 0, 1),
    "columns": lambda whole: whole[:, 3:9],
    "every other": lambda whole: whole[::2, ::3],
    "rows": lambda whole: whole[5:9],
    "transposed columns": lambda whole: whole.t()[3:50],
    "expanded": lambda whole: whole[:1].expand(3, -1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_counted_as_its_elements_are(view, tmp_path):
    whole = odd(60, 200)
    whole[::4, ::5] = NAN
    tensor = VIEWS[view](whole)
    torch.save(model(w=tensor), tmp_path / "model.pt")
    found = survey(tmp_path / "model.pt").contents[Item("param", "w")]
    told = expected(tensor)
    for content in (found, told):  # which one is the first depends on the order in which they lie
        assert content.first_at is not None and not torch.isfinite(tensor[content.first_at])
        assert content.first_negative_at is not None and tensor[content.first_negative_at] < 0
    same = {"first_at": None, "first_negative_at": None}
    assert Content(**{**_fields(found), **same}) == Content(**{**_fields(told), **same})


def _fields(content: Content) -> dict[str, Any]:
    return {name: getattr(content, name) for name in Content.__slots__}


def test_a_conjugate_is_counted_with_its_signs_turned(tmp_path):
    tensor = torch.complex(torch.ones(5), torch.tensor([1.0, -1, 0, 2, 3])).conj()
    torch.save(model(w=tensor), tmp_path / "model.pt")
    assert survey(tmp_path / "model.pt").contents[Item("param", "w")] == expected(tensor)


def test_a_large_transposed_tensor_is_read_from_front_to_back(tmp_path, monkeypatch):
    torch.save(model(w=torch.ones(1500, 2000).t()), tmp_path / "model.pt")
    raw = read_raw(tmp_path / "model.pt")
    understood = explain(raw)
    read: list[int] = []
    really = FilePool.read_into
    monkeypatch.setattr(FilePool, "read_into", lambda *given: read.append(len(given[3])) or really(*given))
    read_through(raw, understood)
    assert sum(read) <= (tmp_path / "model.pt").stat().st_size + 60 * len(raw.members)


def test_a_view_that_repeats_its_bytes_a_thousand_times_is_not_read(tmp_path):
    torch.save(model(w=torch.ones(1, 1000).expand(10_000, -1), fine=torch.ones(3)), tmp_path / "model.pt")
    found = survey(tmp_path / "model.pt")
    assert [*found.contents] == [Item("param", "fine")]
    assert "repeats 4000 stored bytes until they are 40000000" in found.unread[Item("param", "w")]


def flip(path: Path, wanted: bytes) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(wanted)
    content[at] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("write", [as_zip, as_deflated])
def test_a_tensor_whose_checksum_does_not_hold_is_not_judged(write, tmp_path):
    path = tmp_path / "model.pt"
    write(path)
    if write is as_zip:
        flip(path, TENSORS["small"].numpy().tobytes())
    else:
        with zipfile.ZipFile(path) as archive:
            (member,) = [one for one in archive.infolist() if one.file_size == TENSORS["small"].nbytes]
        flip(path, member.CRC.to_bytes(4, "little"))
        content = path.read_bytes()
        path.write_bytes(content.replace(member.CRC.to_bytes(4, "little"), b"\1\2\3\4"))
    found = survey(path)
    assert found.unread == {Item("param", "small"): DAMAGED}
    assert {item.name for item in found.contents} == TENSORS.keys() - {"small"}


def test_a_tensor_whose_file_is_cut_short_is_not_judged():
    def cut(start: int, buffer: memoryview) -> None:
        from ckptcheck.errors import DamagedCheckpointError

        raise DamagedCheckpointError("model.pt: 9 bytes are missing")

    found = surveyed(w=RawTensor(TensorSpec("float32", (4,)), cut), v=raw_tensor(torch.ones(2)))
    assert found.unread == {Item("param", "w"): "model.pt: 9 bytes are missing"}
    assert [*found.contents] == [Item("param", "v")]


def test_tensors_stand_under_the_place_where_they_are():
    moment = torch.ones(2)
    found = Surveyor(plan_of(checkpoint(
        {"w": moment}, optimizer([["w"]], {"w": {"step": torch.tensor(1.0), "exp_avg": moment}}),
        optimizer([["w"]], {"w": {"momentum_buffer": moment}}), buffers={"mean": moment}, gradients={"w": moment},
        ema={"w": moment}, extra={"d.w": moment, "note": "text"},
    ).state)).finish("memory")  # fmt: skip
    assert set(found.contents) == {
        Item("param", "w"), Item("grad", "w"), Item("buffer", "mean"), Item("ema", "w"), Item("extra", "d.w"),
        Item("state", "w", "step", 0), Item("state", "w", "exp_avg", 0), Item("state", "w", "momentum_buffer", 1),
    }  # fmt: skip


def lost(second: torch.Tensor, first: torch.Tensor, *, keys=("exp_avg_sq", "exp_avg")) -> dict[Item, Underflow]:
    state = {"w": dict(zip(keys, (second, first), strict=True))}
    return dict(Surveyor(plan_of(checkpoint({}, optimizer([["w"]], state)).state)).finish("memory").underflows)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_zeros_beside_first_moments_are_counted_as_torch_counts_them(dtype):
    made = torch.Generator().manual_seed(0)
    first = torch.randn(30, 9_001, generator=made).to(dtype)
    second = torch.rand(30, 9_001, generator=made).to(dtype)
    first[torch.rand(first.shape, generator=made) < 0.5] = 0
    second[torch.rand(first.shape, generator=made) < 0.001] = 0
    where = (second == 0) & (first != 0)
    told = Underflow(int(where.sum()), 270_030, tuple(where.nonzero()[0].tolist()),
                     float(first[where].double().abs().max()))  # fmt: skip
    assert lost(second, first) == {Item("state", "w", "exp_avg_sq", 0): told}


@pytest.mark.parametrize(("second", "first"), [
    (torch.zeros(9), torch.zeros(9)),
    (torch.ones(9), torch.ones(9)),
    (torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0])),
    (torch.zeros(9), torch.ones(3)),
    (torch.zeros(9, dtype=torch.uint8), torch.ones(9)),
])  # fmt: skip
def test_nothing_is_lost_where_both_are_zero_or_none_can_be_compared(second, first):
    assert lost(second, first) == {}


def test_the_zeros_of_one_block_alone_are_looked_at_twice():
    reads: list[int] = []
    second = torch.ones(1 << 20)
    second[700_000] = 0
    first = raw_tensor(torch.ones(1 << 20), "first", reads)
    state = {"w": {"exp_avg_sq": raw_tensor(second), "exp_avg": first}}
    found = Surveyor(plan_of(checkpoint({}, optimizer([["w"]], state)).state)).finish("memory")
    assert found.underflows[Item("state", "w", "exp_avg_sq", 0)] == Underflow(1, 1 << 20, (700_000,), 1.0)
    assert sum(reads) == (4 << 20) + (1 << 18)


def test_memory_does_not_grow_with_the_tensor(tmp_path):
    torch.save({"model": {"w": torch.randn(3000, 5000), "t": torch.randn(2000, 3000).t()}}, tmp_path / "model.pt")
    raw = read_raw(tmp_path / "model.pt")
    understood = explain(raw)
    tracemalloc.start()
    try:
        read_through(raw, understood)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_many_equal_small_tensors_are_counted_once_and_stand_apart():
    tensors = {f"w{place}": of_bytes(torch.tensor([place % 3 - 1.0]).numpy().tobytes(), TensorSpec("float32", (1,)))
               for place in range(9)}  # fmt: skip
    found = surveyed(**tensors)
    assert [found.contents[Item("param", f"w{place}")].negative for place in range(9)] == [1, 0, 0] * 3
    assert [found.contents[Item("param", f"w{place}")].zeros for place in range(9)] == [0, 1, 0] * 3
