"""`save`, `resume` and `compare`: a run in two pieces has the steps of the run in one."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from ckptcheck.errors import CkptcheckError, OutputError, RunFailedError, TraceError, UsageError
from ckptcheck.finding import Verdict
from ckptcheck.verbs import compare, resume, save


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


@pytest.mark.parametrize("target", ["fixtures/char_gpt.py", "fixtures/store_mlp.py", "fixtures/two_models.py"])
@pytest.mark.parametrize("store", [False, True])
def test_a_run_in_two_pieces_has_the_steps_of_one(target: str, store: bool, forked: None, tmp_path: Path) -> None:
    save(target, steps=12, output=tmp_path / "whole", trace=tmp_path / "whole_trace", store=store)
    save(target, steps=5, output=tmp_path / "half", store=store)
    done = resume(target, tmp_path / "half", steps=12, output=tmp_path / "rest", store=store)
    assert done.parts["step"] == 5
    result = compare(tmp_path / "whole_trace", tmp_path / "rest")
    assert (result.verdict, result.cause) == (Verdict.PASS, None)
    assert result.compared.steps == 7
    assert result.compared.parameters > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half", "rest", "whole", "whole_trace"]


def test_a_resume_that_forgets_is_found_by_compare_alone(forked: None, tmp_path: Path) -> None:
    broken = "fixtures/char_gpt_faults.py:build_optimizer_not_loaded"
    save("fixtures/char_gpt.py", steps=8, output=tmp_path / "whole", trace=tmp_path / "whole_trace")
    save("fixtures/char_gpt.py", steps=4, output=tmp_path / "half")
    resume(broken, tmp_path / "half", steps=8, output=tmp_path / "rest")
    result = compare(tmp_path / "whole_trace", tmp_path / "rest")
    assert result.verdict is Verdict.FAIL
    assert result.first_divergence is not None
    assert result.cause is not None
    assert result.cause.code == "CK201"
    assert (result.first_divergence.step, result.first_divergence.stage) == (4, "load")
    assert result.parts["trajectory"][0]["max_abs"] is None  # type: ignore[index, call-overload]
    assert any("no values" in row["reason"] for row in result.parts["trajectory"])  # type: ignore[index, call-overload, operator]


def test_a_users_own_file_needs_to_be_told_its_step(forked: None, tmp_path: Path) -> None:
    save("fixtures/char_gpt.py", steps=4, output=tmp_path / "half")
    shutil.copy(tmp_path / "half" / "state", tmp_path / "mine.pt")
    with pytest.raises(UsageError, match="give --step K"):
        resume("fixtures/char_gpt.py", tmp_path / "mine.pt", steps=6, output=tmp_path / "rest")
    resume("fixtures/char_gpt.py", tmp_path / "mine.pt", steps=6, output=tmp_path / "rest", step=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half", "mine.pt", "rest"]


def test_what_exists_is_never_written_over(forked: None, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(OutputError, match="never written over"):
        save("fixtures/store_mlp.py", steps=2, output=tmp_path / "taken")
    with pytest.raises(OutputError, match="never written over"):
        save("fixtures/store_mlp.py", steps=2, output=tmp_path / "new", trace=tmp_path / "taken")
    with pytest.raises(OutputError, match="one inside the other"):
        save("fixtures/store_mlp.py", steps=2, output=tmp_path / "new", trace=tmp_path / "new")
    with pytest.raises(OutputError, match="one inside the other"):
        save("fixtures/store_mlp.py", steps=2, output=tmp_path / "new", trace=tmp_path / "new" / "trace")
    with pytest.raises(OutputError, match="cannot be written"):
        save("fixtures/store_mlp.py", steps=2, output=tmp_path / "new", trace=Path("/proc/trace"))
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_run_that_fails_leaves_nothing_that_looks_whole(forked: None, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="step 7"):
        save("fixtures/broken/raises.py", steps=9, output=tmp_path / "out", trace=tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["file/below", "/proc/no/such/place"])
def test_an_output_that_cannot_be_is_one_line(output: str, forked: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        save("fixtures/store_mlp.py", steps=2, output=tmp_path / output)


def test_what_is_no_trace_is_refused(forked: None, tmp_path: Path) -> None:
    save("fixtures/store_mlp.py", steps=2, output=tmp_path / "whole", trace=tmp_path / "good")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.trace").write_text("not a database, but long enough to be looked at " * 40)
    sqlite3.connect(tmp_path / "other.trace").execute("CREATE TABLE t (a)").connection.close()
    newer = tmp_path / "newer.trace"
    shutil.copy(next((tmp_path / "good").iterdir()), newer)
    with sqlite3.connect(newer) as base:
        base.execute("PRAGMA user_version = 99")
    for name, said in {"empty": "no trace in", "text.trace": "cannot be read", "other.trace": "no trace",
                       "newer.trace": "newer ckptcheck", "missing": "no trace at"}.items():  # fmt: skip
        with pytest.raises(TraceError, match=said):
            compare(tmp_path / "good", tmp_path / name)


def test_traces_without_a_common_step_are_no_pass(forked: None, tmp_path: Path) -> None:
    save("fixtures/store_mlp.py", steps=2, output=tmp_path / "a", trace=tmp_path / "first")
    resume("fixtures/store_mlp.py", tmp_path / "a", steps=4, output=tmp_path / "rest")
    with pytest.raises(TraceError, match="no step in common"):
        compare(tmp_path / "first", tmp_path / "rest")


def test_unlike_digests_are_never_compared(forked: None, tmp_path: Path) -> None:
    for digest in ("xxh3_128", "linear_128"):
        save(
            "fixtures/store_mlp.py",
            steps=2,
            output=tmp_path / digest,
            trace=tmp_path / f"{digest}_trace",
            digest=digest,
        )
    with pytest.raises(TraceError, match="--digest"):
        compare(tmp_path / "xxh3_128_trace", tmp_path / "linear_128_trace")


def test_a_damaged_sidecar_is_one_line(forked: None, tmp_path: Path) -> None:
    save("fixtures/char_gpt.py", steps=2, output=tmp_path / "half")
    (tmp_path / "half" / "ckptcheck.json").write_text(json.dumps([1]))
    with pytest.raises(CkptcheckError, match="give --step K"):
        resume("fixtures/char_gpt.py", tmp_path / "half", steps=4, output=tmp_path / "rest")
