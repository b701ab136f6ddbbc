"""Across devices: exact at the load, and one digest that is the same everywhere."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ckptcheck.experiment.plan import Settings
from ckptcheck.finding import Verdict
from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.verbs import compare, resume, save

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
PAIRS = [("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")]


def test_one_digest_for_all_runs_follows_the_devices() -> None:
    digests = {
        pair: Settings("t.py", 2, (1,), device=pair[0], resume_device=pair[1]).digest
        for pair in [*PAIRS, ("cpu", "cpu")]
    }
    assert digests == {**dict.fromkeys(PAIRS, LINEAR_128), ("cpu", "cpu"): XXH3_128}


def test_the_digest_of_gpus_finds_the_same(check: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "digest", property(lambda self: LINEAR_128))
    assert check("fixtures/char_gpt.py", steps=6).verdict is Verdict.PASS
    result = check("fixtures/char_gpt_faults.py:build_parameter_state_missing", steps=6)
    assert result.environment["digest"] == LINEAR_128
    assert result.cause is not None
    assert (result.cause.code, result.findings[0].where.parameter) == ("CK202", "tokens.weight")


def test_a_digest_of_gpus_can_be_asked_for(forked: None, tmp_path: Path) -> None:
    save("fixtures/char_gpt.py", steps=6, output=tmp_path / "whole", trace=tmp_path / "left", digest=LINEAR_128)
    save("fixtures/char_gpt.py", steps=3, output=tmp_path / "half")
    resume("fixtures/char_gpt.py", tmp_path / "half", steps=6, output=tmp_path / "right", digest=LINEAR_128)
    assert compare(tmp_path / "left", tmp_path / "right").verdict is Verdict.PASS


@needs_cuda
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("target", ["fixtures/char_gpt.py", "fixtures/store_mlp.py"])
def test_a_resume_on_another_device_is_exact_at_the_load(pair: tuple[str, str], target: str, check: Callable) -> None:
    result = check(target, steps=8, device=pair[0], resume_device=pair[1], policy="state-exact")
    assert result.verdict is Verdict.PASS
    assert result.compared.parameters > 0


@needs_cuda
@pytest.mark.parametrize("pair", PAIRS)
def test_a_fault_of_the_load_is_found_across_devices(pair: tuple[str, str], check: Callable) -> None:
    broken = "fixtures/char_gpt_faults.py:build_optimizer_not_loaded"
    result = check(broken, steps=8, device=pair[0], resume_device=pair[1], policy="state-exact")
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == "CK201"
