"""The package as a library: its names, where they come from, and results that an assertion can ask."""

import ast
from pathlib import Path

import pytest

import ckptcheck
from ckptcheck import verbs
from ckptcheck.finding import Result, Verdict

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "fixtures" / "checkpoints"


def test_every_name_is_there_and_type_checkers_are_told_the_same():
    tree = ast.parse((ROOT / "ckptcheck" / "__init__.py").read_text(encoding="utf-8"))
    told = {
        name.name: one.module
        for block in tree.body
        if isinstance(block, ast.If)
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for name in one.names
    }
    assert {*told, "__version__"} == set(ckptcheck.__all__) <= set(dir(ckptcheck))
    for name, module in told.items():
        found = getattr(ckptcheck, name)
        assert (found.__name__, found.__module__) == (name, module)


@pytest.mark.parametrize("name", ["verify", "diff", "check", "compare", "inspect", "probe", "record", "resume"])
def test_the_calls_are_the_verbs_that_the_commands_make(name):
    assert getattr(ckptcheck, name) is getattr(verbs, name)


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ckptcheck' has no attribute 'verifi'"):
        ckptcheck.verifi  # noqa: B018


def test_an_assertion_on_a_result_holds_where_it_passed_and_only_there():
    left, right = (SAMPLES / "04_hf_trainer" / f"checkpoint-{step}" for step in (2, 4))
    assert ckptcheck.diff(left, left)
    assert ckptcheck.check(right)
    for result in (ckptcheck.diff(left, right), ckptcheck.check(SAMPLES / "02_torch_edge" / "bitflip.pt")):
        assert not result
        assert not result.passed
        assert result.verdict == "fail"
    assert ckptcheck.explain("CK402").passed


@pytest.mark.parametrize("verdict", Verdict)
def test_nothing_but_a_pass_is_true(verdict):
    result = Result("verify", verdict)
    assert bool(result) is result.passed is (verdict is Verdict.PASS)


def test_what_is_refused_is_an_error_of_one_tree():
    with pytest.raises(ckptcheck.CkptcheckError, match="no such file"):
        ckptcheck.check("absent.pt")
