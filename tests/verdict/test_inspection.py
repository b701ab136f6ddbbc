"""What `inspect` says of checkpoints made by hand, and how little it reads for that."""

import hashlib
from dataclasses import replace

import pytest
import xxhash

from ckptcheck.errors import UsageError
from ckptcheck.finding import Verdict
from ckptcheck.reports import json
from ckptcheck.state.raw import Danger, Global, RawTensor
from ckptcheck.state.training_state import Group, Optimizer, Parameter
from ckptcheck.verdict import digests
from ckptcheck.verdict.inspection import MAX_FETCHED, MAX_TEXT, described, names_in
from tests.verdict.made import CHECKPOINT, STATE, TREE, entry, floats, like, plain, reads_of, tensor


def part(checkpoint, name, **options):
    return described(checkpoint, **options).parts[name]


def row(rows, **wanted):
    found = [one for one in rows if all(one[key] == value for key, value in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def test_it_passes_and_can_be_written_as_json():
    result = described(CHECKPOINT)
    assert result.verdict is Verdict.PASS
    assert json.document(result)["layout"] == {"container": "torch-zip", "convention": "plain"}


def test_sections_are_counted_in_the_order_of_reports():
    told = {one.pop("section"): one for one in part(CHECKPOINT, "sections")}
    assert list(told) == ["model", "optimizer", "scheduler", "rng", "progress", "other"]
    assert told["model"] == {"tensors": 3, "values": 0, "bytes": 40, "dtypes": {"float32": 3}}
    assert told["optimizer"] == {"tensors": 2, "values": 4, "bytes": 20, "dtypes": {"float32": 2}}
    assert told["rng"]["dtypes"] == {"uint8": 1}
    assert told["progress"] == {"tensors": 0, "values": 1, "bytes": 0, "dtypes": {}}


def test_a_tensor_is_told_with_its_place_and_its_ties():
    tensors = part(CHECKPOINT, "tensors")
    weight = row(tensors, name="fc.weight", key=None)
    assert weight == {
        "section": "model", "name": "fc.weight", "key": None, "dtype": "float32", "shape": [2, 2], "bytes": 16,
        "device": "cuda:0", "requires_grad": True, "optimizer": None, "group": None, "tied": ["head.weight"],
        "storage": {"file": "", "key": "0", "offset": 0}, "value": None,
    }  # fmt: skip
    bias = row(tensors, name="fc.bias")
    assert (bias["tied"], bias["requires_grad"], bias["device"]) == (["head.bias"], False, None)
    moment = row(tensors, key="exp_avg")
    assert (moment["optimizer"], moment["group"], moment["tied"]) == (0, 0, [])


def test_views_of_one_storage_that_are_not_the_same_elements_are_no_ties():
    second = tensor(floats(1.0, 2.0), (2,), storage=TREE.root["model"]["fc.bias"].storage, offset=2)
    assert row(part(like(buffers={"other": entry(second)}), "tensors"), name="other")["tied"] == []


def test_groups_have_members_by_name_and_all_hyperparameters():
    assert part(CHECKPOINT, "groups") == [
        {"optimizer": 0, "group": 0, "parameters": ["fc.weight"],
         "hyperparameters": {"lr": 0.001, "betas[0]": 0.9, "betas[1]": 0.999}},
        {"optimizer": 0, "group": 1, "parameters": ["fc.bias", None], "hyperparameters": {"lr": 0.01}},
    ]  # fmt: skip


def test_an_optimizer_is_told_with_what_it_keeps_and_where_the_names_come_from():
    told = part(CHECKPOINT, "optimizers")[0]
    assert told["state_keys"] == {"exp_avg": 1, "step": 1}
    assert (told["parameters"], told["with_state"], told["groups"]) == (2, 1, 2)
    assert told["steps"] == [{"step": 10, "parameters": 1}]
    assert told["naming"] == {"source": "model-order", "certain": False, "reason": "the order of the model fits"}


def test_a_class_that_the_file_names_is_certain():
    named = like(optimizers=(replace(STATE.optimizers[0], class_name="Lion"),))
    told = part(named, "optimizers")[0]
    assert (told["class"], told["classes"], told["class_certain"]) == ("Lion", ["Lion"], True)


def test_a_class_is_guessed_from_the_keys():
    hyper = dict.fromkeys(("lr", "momentum", "dampening", "weight_decay"), plain(0.0)) | {"nesterov": plain(False)}
    state = {"w": {"momentum_buffer": entry(tensor(floats(1.0), (1,)))}}
    told = part(like(optimizers=(Optimizer(None, (Group(("w",), hyper),), state),)), "optimizers")[0]
    assert told["class"] == "SGD"


def fresh_counters(count):
    state = {f"p{place}": {"step": entry(tensor(floats(float(place % 2)), ()))} for place in range(count)}
    moments = {name: one | {"exp_avg": entry(tensor(floats(1.0), ()))} for name, one in state.items()}
    return Optimizer(None, (Group(tuple(state), {}),), moments)


def test_only_the_first_step_counters_are_read_and_nothing_else():
    optimizer = fresh_counters(MAX_FETCHED + 10)
    weight = tensor(floats(1.0), ())
    checkpoint = like(optimizers=(optimizer,), parameters={"w": Parameter("w", entry(weight))}, buffers={}, rng={})
    told = part(checkpoint, "optimizers")[0]
    assert told["steps"] == [{"step": 0, "parameters": 32}, {"step": 1, "parameters": 32}]
    read = [reads_of(state["step"].ref) for state in optimizer.state.values()]
    assert read == [4] * MAX_FETCHED + [0] * 10
    assert reads_of(weight) == 0
    assert {reads_of(state["exp_avg"].ref) for state in optimizer.state.values()} == {0}


def test_a_value_that_the_convention_has_read_is_not_read_again():
    counter = tensor(floats(7.0), ())
    known = replace(entry(counter), value=7.0)
    told = part(like(optimizers=(Optimizer(None, (), {"w": {"step": known}}),)), "optimizers")[0]
    assert (told["steps"], reads_of(counter)) == ([{"step": 7, "parameters": 1}], 0)


def test_what_several_optimizers_keep_is_told_apart():
    optimizers = (STATE.optimizers[0], STATE.optimizers[0])
    keys = {(one["optimizer"], one["key"]) for one in part(like(optimizers=optimizers), "tensors") if one["key"]}
    assert {(0, "exp_avg"), (1, "exp_avg"), (0, "step"), (1, "step")} <= keys


def test_a_parameter_in_two_groups_is_told_with_the_first():
    optimizer = replace(STATE.optimizers[0], groups=(Group(("fc.weight",)), Group(("fc.weight",))))
    assert row(part(like(optimizers=(optimizer,)), "tensors"), key="exp_avg")["group"] == 0


def test_a_gradient_that_was_saved_stands_among_other_things():
    weight = replace(STATE.parameters["fc.weight"], grad=entry(tensor(floats(1.0), (1,))))
    told = row(part(like(parameters={"fc.weight": weight}), "tensors"), section="other")
    assert (told["name"], told["key"]) == ("fc.weight", "grad")


def test_a_learning_rate_that_is_a_tensor_is_read():
    group = Group(("w",), {"lr": entry(tensor(floats(0.5), ()))})
    told = part(like(optimizers=(Optimizer(None, (group,), {}),)), "groups")
    assert told[0]["hyperparameters"] == {"lr": 0.5}


def test_a_parameter_without_state_is_not_counted_as_one_with():
    state = {"fc.weight": STATE.optimizers[0].state["fc.weight"], "fc.bias": {}}
    told = part(like(optimizers=(replace(STATE.optimizers[0], state=state),)), "optimizers")[0]
    assert told["with_state"] == 1


def test_storage_that_no_tensor_uses_is_told():
    assert part(CHECKPOINT, "storage_bloat") == [{"file": "", "key": "0", "bytes": 64, "used_bytes": 16}]


def test_globals_are_told_unless_they_are_plain():
    named = [Global("a.pt", "os.system", Danger.RUNS_CODE), Global("a.pt", "torch.FloatStorage", Danger.PLAIN, 9),
             Global("b.pt", "my.Config", Danger.UNKNOWN, 2)]  # fmt: skip
    raw = replace(TREE, globals=tuple(named))
    assert part(replace(CHECKPOINT, raw=raw), "globals") == [
        {"file": "a.pt", "name": "os.system", "danger": "runs-code", "count": 1},
        {"file": "b.pt", "name": "my.Config", "danger": "unknown", "count": 2},
    ]


def test_a_long_value_is_cut_and_has_a_digest():
    text = "x" * (MAX_TEXT + 1)
    told = row(part(like(sections={"extra": {"text": plain(text)}}), "values"), key="text")
    assert len(told["value"]) == MAX_TEXT
    expected = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()[:16]
    assert told["digest"] == f"blake2b_128:{expected}"


HALF = {"w": Parameter("w", entry(tensor(b"\0\0", (1,), "float16")))}


@pytest.mark.parametrize(("changes", "said"), [
    ({}, ["position in the data", "generator state of numpy, python"]),
    ({"rng": {}}, ["position in the data", "generator states"]),
    ({"rng": dict.fromkeys(("rank 0/torch", "rank 0/numpy", "rank 0/python"), plain(1))}, ["position in the data"]),
    ({"sections": {}},
     ["scheduler state", "position in the data", "step or epoch", "generator state of numpy, python"]),
    ({"optimizers": (), "parameters": {}},
     ["weights", "optimizer state", "position in the data", "generator state of numpy, python"]),
    ({"parameters": HALF}, ["position in the data", "gradient scaler state (weights are float16)",
                            "generator state of numpy, python"]),
    ({"parameters": HALF, "sections": STATE.sections | {"scaler": {"scale": plain(2.0)}}},
     ["position in the data", "generator state of numpy, python"]),
])  # fmt: skip
def test_what_is_not_in_the_file_is_a_fact_and_no_guess(changes, said):
    assert part(like(**changes), "lacks") == said


def test_what_is_there_is_counted():
    assert part(CHECKPOINT, "holds") == [
        "2 parameters, 1 buffer", "state of 1 of 3 parameters in optimizer 0", "scheduler state", "step or epoch",
        "generators torch",
    ]  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 24])
def test_a_digest_is_that_of_all_bytes_whatever_the_chunks(size):
    content = bytes(range(size))
    told = digests.content_digest(tensor(content, (size,), "uint8"), bytearray(8))
    assert told == f"xxh3_128:{xxhash.xxh3_128_hexdigest(content)[:16]}"


def test_without_xxhash_another_digest_is_taken_and_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    told = digests.content_digest(tensor(b"abc", (3,), "uint8"), bytearray(2))
    assert told == f"blake2b_128:{hashlib.blake2b(b'abc', digest_size=16).hexdigest()[:16]}"


def test_digests_are_told_of_every_tensor_when_asked_for():
    calls = []

    class Told:
        def update(self, *told):
            calls.append(told)

    tensors = part(CHECKPOINT, "tensors", digests=True, progress=Told())
    assert (
        len({one["digest"] for one in tensors if one["name"] in ("fc.weight", "head.weight") and not one["key"]}) == 1
    )
    assert len({one["digest"] for one in tensors}) == 5
    assert calls[-1] == ("run/step_10.pt", "MiB read", 0, 0)


@pytest.mark.parametrize(("dtype", "content", "value"), [
    ("float32", floats(10.0), 10.0), ("int64", (-3).to_bytes(8, "little", signed=True), -3), ("bool", b"\1", True),
    ("bfloat16", b"\x80\x3f", 1.0), ("float16", b"\x00\x3c", 1.0), ("complex64", bytes(8), None),
])  # fmt: skip
def test_a_step_counter_of_any_dtype_is_read(dtype, content, value):
    counter = entry(tensor(content, (), dtype))
    checkpoint = like(optimizers=(Optimizer(None, (), {"w": {"step": counter}}),))
    assert row(part(checkpoint, "tensors"), key="step")["value"] == value


def test_names_come_one_a_line(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("# in order\nfc.weight\n\n  fc.bias  \n")
    assert names_in(file) == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize(("content", "said"), [
    (b"a\nb\na\n", "names 'a' twice"), (b"\n#x\n", "holds no name"), (b"\xff\xfe", "is no UTF-8 text"),
])  # fmt: skip
def test_a_file_that_holds_no_names_is_refused(tmp_path, content, said):
    file = tmp_path / "names.txt"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        names_in(file)


def test_a_file_of_names_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        names_in(tmp_path / "missing")


def test_a_reference_that_is_no_raw_tensor_has_no_storage():
    class Joined:
        spec = CHECKPOINT.state.buffers["head.weight"].spec

    told = row(part(like(buffers={"w": replace(STATE.buffers["head.weight"], ref=Joined())}), "tensors"), name="w")
    assert (told["storage"], told["device"]) == (None, None)
    assert not isinstance(Joined(), RawTensor)
