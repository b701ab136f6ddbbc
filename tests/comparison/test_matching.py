"""What the user chooses to compare: patterns, mapped names, one set of weights of each side."""

import pytest
import torch

from ckptcheck.errors import UsageError
from tests.comparison.held import GROUPS, checkpoint, diff, moments, raw_tensor, told, trained, weights


@pytest.mark.parametrize(
    ("options", "sections"),
    [
        ({"only": ("model",)}, {"model": 3}),
        ({"only": ("fc.*",)}, {"model": 2, "optimizer": 6}),
        ({"only": ("optimizer/*/exp_avg",)}, {"optimizer": 3}),
        ({"only": ("exp_avg*",)}, {"optimizer": 6}),
        ({"only": ("optimizer",), "ignored": ("optimizer/*/step", "optimizer/group*")}, {"optimizer": 6}),
        ({"only": ("optimizer/group 1/lr",)}, {"optimizer": 1}),
        ({"ignored": ("optimizer", "scheduler")}, {"model": 3}),
        ({"ignored": ("fc.weight", "scheduler/*")}, {"model": 2, "optimizer": 8}),
    ],
)
def test_patterns_choose_by_place_section_parameter_or_key(options, sections):
    one = trained(schedule={"last_epoch": 5})
    found = diff(one, one, **options)
    assert {each.section: each.tensors + each.values for each in found.summaries} == sections
    (said,) = found.not_compared
    assert said.startswith(f"{3 + 9 + 2 + 1 - sum(sections.values())} tensors and values")


def test_a_pattern_that_fits_nothing_is_told_and_nothing_is_compared():
    found = diff(trained(), trained(), only=("modle",))
    assert found.summaries == ()
    assert found.compared.bytes == 0
    assert any("--only 'modle'" in said for said in found.not_compared)
    assert found.notes == ("nothing is called as --only 'modle' says",)


def test_an_ignore_that_fits_nothing_is_a_note_and_all_was_compared():
    found = diff(trained(), trained(), ignored=("nosuch",))
    assert found.not_compared == ()
    assert found.notes == ("nothing is called as --ignore 'nosuch' says",)


def test_a_pattern_that_only_memberships_fit_is_not_idle():
    right = trained(groups=[("fc.weight",), ("out.weight", "fc.bias")])
    assert diff(trained(), right, ignored=("optimizer/*/group",)).notes == ()


def test_memberships_are_left_out_with_their_parameters():
    right = trained(groups=[("fc.weight",), ("out.weight", "fc.bias")])
    assert diff(trained(), right, ignored=("fc.bias",)).regrouped == ()
    assert diff(trained(), right, only=("model",)).same_content


def test_names_of_the_left_are_mapped_everywhere():
    def rename(values):
        return {f"net.{name}": value for name, value in values.items()}

    groups = [tuple(f"net.{name}" for name in group) for group in GROUPS]
    found = diff(
        trained(), trained(rename(moments()), model=rename(weights()), groups=groups), renames=((r"^", "net."),)
    )
    assert found.same_content
    assert found.compared.state_tensors == 9


@pytest.mark.parametrize(("pattern", "replacement", "name"), [
    ("(.*)", r"x.\1", "x.a.b.a"), ("a", "c", "c.b.a"), (r"\.a$", ".c", "a.b.c"), ("a$", "", "a.b."),
])  # fmt: skip
def test_the_first_match_of_a_name_is_replaced(pattern, replacement, name):
    found = diff(
        checkpoint({"a.b.a": torch.ones(2)}), checkpoint({name: torch.ones(2)}), renames=((pattern, replacement),)
    )
    assert found.same_content
    assert found.notes == (f"--map '{pattern}={replacement}' changed 1 name of the left",)


@pytest.mark.parametrize("renames", [((r"fc\.\w+", "x"),), ((r"(", "x"),), ((r"fc", r"\3"),)])
def test_a_map_that_joins_names_or_is_no_pattern_is_refused(renames):
    with pytest.raises(UsageError, match="--map"):
        diff(trained(), trained(), renames=renames)


def raw(values, prefix=""):
    return {f"{prefix}{name}": raw_tensor(value) for name, value in values.items()}


@pytest.mark.parametrize("prefix", ["module.", "shadow.", "state.ema.", "_orig_mod."])
def test_a_release_is_held_against_the_average_of_a_checkpoint(prefix):
    average = raw(weights(), prefix) | {"n_averaged": raw_tensor(torch.tensor(7))}
    full = trained(model={name: value + 1 for name, value in weights().items()}, models={"ema": average})
    release = checkpoint(weights())
    for found in (diff(full, release, left_section="ema"), diff(release, full, right_section="ema")):
        assert found.same_content
        assert found.compared.parameters == 3
        assert any("anything but" in said for said in found.not_compared)
    assert not diff(full, release).same_content


def test_an_average_in_the_ema_section_can_be_chosen_too():
    held = {f"shadow.{name}": value for name, value in weights().items()}
    full = checkpoint({"fc.weight": torch.zeros(30, 40)}, ema={"decay": 0.999, **held})
    assert diff(full, checkpoint(weights()), left_section="ema", right_section="model").same_content


def test_a_section_that_a_side_lacks_is_refused_with_those_it_has():
    full = checkpoint(weights(), models={"ema": raw(weights())})
    with pytest.raises(UsageError, match="it has model, ema"):
        diff(full, full, right_section="emma")


def test_names_that_agree_already_keep_what_stands_before_them():
    average = raw({"w": torch.ones(2), "inner.w": torch.zeros(2)})
    found = diff(
        checkpoint({"w": torch.ones(2)}, models={"ema": average}), checkpoint({"w": torch.ones(2)}), left_section="ema"
    )
    assert told(found) == [("model/inner.w", "removed")]
