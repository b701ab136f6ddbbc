"""Which missing state is lost and which was never made; which keys a class must keep; who the writers are."""

import pytest
import torch
from torch import nn

from ckptcheck import verbs
from ckptcheck.conventions.table import CONVENTIONS
from ckptcheck.finding import Result, Severity
from ckptcheck.optimizers.table import OPTIMIZERS
from ckptcheck.rules.stored.expected_state import base_keys, keeps_nothing, missing_keys, required
from ckptcheck.rules.stored.missing_state import Idle, Lost, runs_of, told_apart
from ckptcheck.rules.stored.writers import LEAVES_FROZEN_OUT, WRITERS
from ckptcheck.rules.table import BY_CODE
from ckptcheck.state.training_state import Entry
from tests.check_cases.changing import put, trained, without_entry
from tests.check_cases.training import Mlp, saved, train

ROWS = {row.name: row for row in OPTIMIZERS}
BLOCK = ["attn.qkv.weight", "attn.qkv.bias", "norm.scale"]
LAYERS = [f"layers.{number}.{name}" for number in range(3) for name in BLOCK]
ALL = ["embed.weight", *LAYERS, "head.weight", "head.bias"]


def apart(*missing: str, names: list[str] = ALL) -> tuple[list[Lost], list[Idle]]:
    return told_apart(missing, [name for name in names if name not in missing])


LOST = [
    (("head.bias",), "head.weight"),
    (("layers.1.attn.qkv.weight",), "layers.1.attn.qkv.bias"),
    (("layers.1.norm.scale",), "layers.0.norm.scale"),
]


@pytest.mark.parametrize(("missing", "beside"), LOST)
def test_state_that_is_missing_beside_what_is_trained_with_it_is_lost(missing, beside):
    assert apart(*missing) == ([Lost(missing[0], beside)], [])


IDLE = [
    (("embed.weight",), "embed.weight", True),
    (("head.weight", "head.bias"), "head", False),
    (tuple(one for one in LAYERS if one.startswith("layers.0")), "layers.0", False),
    (tuple(one for one in LAYERS if "attn" in one and ".2." in one), "layers.2.attn", False),
    (tuple(LAYERS), "layers", False),
]


@pytest.mark.parametrize(("missing", "unit", "is_lone"), IDLE)
def test_a_whole_module_without_state_may_never_have_been_trained(missing, unit, is_lone):
    assert apart(*missing) == ([], [Idle(missing, unit, is_lone)])


def test_what_is_gone_from_every_module_of_a_kind_was_frozen_by_kind():
    biases = tuple(one for one in ALL if one.endswith("bias"))
    lost, idle = apart(*biases)
    assert (lost, idle) == ([], [Idle(biases, "every bias of modules of a kind", False)])


def test_what_is_gone_from_some_modules_of_a_kind_is_lost():
    missing = ("layers.0.attn.qkv.bias", "layers.2.attn.qkv.bias")
    assert [one.name for one in apart(*missing)[0]] == [*missing]


def test_tokens_at_the_root_are_not_trained_together():
    names = ["cls_token", "mask_token", "head.weight", "head.bias"]
    assert apart("mask_token", names=names) == ([], [Idle(("mask_token",), "mask_token", True)])


def test_adapters_do_not_make_a_frozen_weight_a_lost_one():
    names = [f"{place}.{leaf}" for place in ("q", "v") for leaf in ("weight", "lora_A", "lora_B")]
    lost, idle = apart("q.weight", "v.weight", names=names)
    assert lost == []
    assert {one.what for one in idle} == {"q.weight", "v.weight"}


def test_runs_are_of_neighbouring_indices():
    assert [*runs_of([5, 1, 2, 9])] == [(1, 2), (5,), (9,)]
    assert [*runs_of([])] == []


def hyper(**values: object) -> dict[str, Entry]:
    return {key: Entry(None, None, value=value) for key, value in values.items()}


REQUIRED = [
    (("Adam",), {"amsgrad": False}, {"step", "exp_avg", "exp_avg_sq"}),
    (("Adam",), {"amsgrad": True}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    (("SGD",), {"momentum": 0}, set()),
    (("SGD",), {"momentum": 0.9}, {"momentum_buffer"}),
    (("SGD",), {}, set()),
    (("RMSprop",), {"momentum": 0.9, "centered": True}, {"step", "square_avg", "momentum_buffer", "grad_avg"}),
    (("transformers.Adafactor",), {"beta1": "None"}, {"step", "RMS"}),
    (("transformers.Adafactor",), {"beta1": 0.9}, {"step", "RMS", "exp_avg"}),
    (("Adam", "apex.FusedAdam"), {}, {"exp_avg", "exp_avg_sq"}),
    (("Adam",), {"step": 4}, {"exp_avg", "exp_avg_sq"}),
    ((), {}, set()),
]


@pytest.mark.parametrize(("classes", "given", "keys"), REQUIRED)
def test_the_keys_that_a_class_must_keep_follow_from_its_hyperparameters(classes, given, keys):
    assert required([ROWS[one] for one in classes], hyper(**given)) == keys


def test_an_optimizer_that_can_be_of_a_class_without_state_keeps_nothing_for_sure():
    assert keeps_nothing([ROWS["SGD"]], hyper(momentum=0))
    assert keeps_nothing([ROWS["Adam"], ROWS["SGD"]], hyper(momentum=0))
    assert not keeps_nothing([ROWS["SGD"]], hyper(momentum=0.9))
    assert not keeps_nothing([], {})


MISSING = [
    (("Adafactor",), {"step", "row_var", "col_var"}, []),
    (("Adafactor",), {"step", "variance"}, []),
    (("Adafactor",), {"step", "row_var"}, ["col_var"]),
    (("Adafactor",), {"step"}, ["col_var", "row_var"]),
    (("Adam",), {"step", "exp_avg"}, ["exp_avg_sq"]),
    ((), {"anything"}, []),
]


@pytest.mark.parametrize(("classes", "keys", "missing"), MISSING)
def test_what_a_state_lacks_is_told_by_its_class(classes, keys, missing):
    assert missing_keys(frozenset(keys), [ROWS[one] for one in classes], {}, {}) == missing


FULL = frozenset({"step", "state1", "state2"})


@pytest.mark.parametrize(("classes", "alike", "missing"), [
    (("bitsandbytes.AdamW",), {FULL: 2}, ["state2"]),
    ((), {FULL: 2}, ["state2"]),
    ((), {FULL: 1}, []),
    ((), {FULL: 2, frozenset({"step", "state1"}): 1}, []),
    ((), {FULL: 2, frozenset({"step"}): 0}, ["state2"]),
    (("RMSprop",), {FULL | {"square_avg"}: 5}, ["square_avg"]),
])  # fmt: skip
def test_where_the_class_does_not_say_it_others_of_the_group_do(classes, alike, missing):
    assert missing_keys(frozenset({"step", "state1"}), [ROWS[one] for one in classes], {}, alike) == missing


def test_parts_of_a_moment_are_the_moment_and_master_weights_are_none():
    kept = ("step", "exp_avg.codes", "exp_avg.scale", "__bnb_optimizer_quant_state__.state1", "fp32_param", "d[0]",
            "exp_avg.<class>")  # fmt: skip
    assert base_keys(dict.fromkeys(kept, Entry(None, None))) == {"step", "exp_avg", "state1", "d"}


def test_the_writers_are_conventions_and_their_codes_are_rules():
    names = {one.name for one in CONVENTIONS}
    assert {*WRITERS, *LEAVES_FROZEN_OUT} <= names
    assert {code for one in WRITERS.values() for code in one} <= set(BY_CODE)


def findings(result: Result, code: str) -> list[tuple[str | None, str]]:
    return [(one.where.parameter, str(one.severity)) for one in result.findings if one.code == code]


def test_a_parameter_that_the_file_calls_frozen_misses_nothing(tmp_path):
    model = Mlp()
    model.head.bias.requires_grad_(False)
    optimizer = torch.optim.AdamW(list(model.named_parameters()))
    train(model, optimizer)
    state = saved(model, optimizer)
    path = put(tmp_path, state)
    assert findings(verbs.check(path), "CK202") == [("head.bias", "error")]
    path = put(tmp_path, state | {"model": dict(model.named_parameters())})
    assert findings(verbs.check(path), "CK202") == []


def test_a_parameter_whose_state_is_in_another_optimizer_misses_nothing(tmp_path):
    model = Mlp()
    first = torch.optim.AdamW(list(model.named_parameters()))
    second = torch.optim.AdamW([("head.bias", model.head.bias)])
    train(model, first)
    model.head.bias.grad = torch.ones(3)
    second.step()
    state = saved(model, first)
    without_entry("head.bias")(state)
    assert findings(verbs.check(put(tmp_path, state)), "CK202") == [("head.bias", "error")]
    state |= {"optimizer_2": second.state_dict()}
    assert findings(verbs.check(put(tmp_path, state)), "CK202") == []


def test_the_place_of_what_is_lost_is_its_group(tmp_path):
    model = Mlp()
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": named[:4]}, {"params": named[4:]}])
    train(model, optimizer)
    state = saved(model, optimizer)
    del state["optimizer"]["state"][5]
    (found,) = [one for one in verbs.check(put(tmp_path, state)).findings if one.code == "CK202"]
    assert (found.where.parameter, found.where.optimizer, found.where.group) == ("norm.bias", 0, 1)
    assert found.evidence["beside"] == "norm.weight"


class Lookahead(torch.optim.Optimizer):
    """An optimizer that no table knows: slow weights for every parameter."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "alpha_slow": 0.5})

    @torch.no_grad()
    def step(self, closure):
        with torch.enable_grad():
            closure()
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one].setdefault("slow_buffer", one.clone())
                self.state[one]["fast_count"] = self.state[one].get("fast_count", 0) + 1
                one.sub_(one.grad, alpha=group["lr"])


def test_of_a_class_that_is_not_known_the_other_parameters_tell_what_is_kept(tmp_path):
    state = trained(Lookahead)
    assert findings(verbs.check(put(tmp_path, state)), "CK203") == []
    del state["optimizer"]["state"][2]["slow_buffer"]
    assert findings(verbs.check(put(tmp_path, state)), "CK203") == [("layers.1.weight", "warning")]


def test_of_a_class_that_is_not_known_an_empty_state_is_not_judged(tmp_path):
    state = trained(Lookahead)
    state["optimizer"]["state"] = {}
    result = verbs.check(put(tmp_path, state))
    assert findings(result, "CK201") == []
    assert any(one.code == "CK201" and "may keep none" in one.reason for one in result.not_judged)


def test_generators_that_are_partly_there_weigh_less(tmp_path):
    state = trained()
    weights = [one.severity for one in verbs.check(put(tmp_path, state)).findings if one.code == "CK205"]
    state["rng"] = {"python": (3, tuple(range(625)), None)}
    others = [one for one in verbs.check(put(tmp_path, state)).findings if one.code == "CK205"]
    assert weights == [Severity.INFO]
    assert [(one.severity, one.evidence["missing"]) for one in others] == [(Severity.WARNING, ["torch", "numpy"])]


def test_a_part_of_a_checkpoint_is_not_asked_for_the_rest(tmp_path):
    table = nn.Embedding(3, 2)
    optimizer = torch.optim.AdamW(table.parameters())
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    result = verbs.check(put(tmp_path, optimizer.state_dict(), "optimizer.pt"))
    assert {one.code for one in result.findings} & {"CK204", "CK205", "CK206", "CK207"} == set()
    assert {one.code for one in result.not_judged} >= {"CK204", "CK205", "CK206", "CK207"}


def test_of_several_parameters_that_the_model_lacks_the_first_is_the_place(tmp_path):
    state = trained()
    for name in ("layers.0.bias", "head.bias"):
        del state["model"][name]
    (found,) = [one for one in verbs.check(put(tmp_path, state)).findings if one.code == "CK209"]
    assert (found.where.parameter, found.evidence["parameters"]) == ("layers.0.bias", ["layers.0.bias", "head.bias"])


@pytest.mark.parametrize(("tag", "rng", "missing"), [
    ("cpu", {}, []), ("cuda:0", {}, ["cuda"]), ("cuda:0", {"cuda": torch.zeros(16, dtype=torch.uint8)}, []),
    ("cpu", {"cuda": torch.zeros(16, dtype=torch.uint8)}, []),
])  # fmt: skip
def test_the_generator_of_a_gpu_is_missed_where_the_weights_were_on_one(tmp_path, monkeypatch, tag, rng, missing):
    state = trained()
    state["rng"] = {
        "torch": torch.get_rng_state(), "numpy": ("MT19937", [1] * 624, 1, 0, 0.0), "python": (3, (1,) * 625, None),
    } | rng  # fmt: skip
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: tag)
    found = [one for one in verbs.check(put(tmp_path, state)).findings if one.code == "CK205"]
    assert [name for one in found for name in one.evidence["missing"]] == missing
