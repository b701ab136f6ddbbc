"""The settings of a project: where they are found, what they may say, and how a wrong one is refused."""

from datetime import date
from pathlib import Path

import pytest

from ckptcheck.config import KEYS, ROLES, VERIFY, Acceptance, Config, load_config
from ckptcheck.errors import UsageError

WHOLE = """
select = ["CK2", "CK501"]
ignore = ["CK207"]
fail-on = "warning"
require = ["CK603"]
freeze = {"backbone.*" = "hold", "head.*" = "no-grad"}
severity = {CK205 = "error", CK4 = "info"}
tolerance = {param = {rtol = 1e-5, atol = 1}, "state:bfloat16" = {atol = 0.5}}
accept = [{code = "CK501", reason = "known", parameter = "head.*", until = 2027-01-31}, {code = "CK603", reason = "b"}]
[verify]
target = "train.py:build"
steps = 30
resume-at = [10, 20]
run = "python a.py"
resume = "python b.py"
device = "cpu"
repeats = 2
policy = "state-exact"
on-inconclusive = "fail"
"""
SETTINGS = {"select": ["CK2", "CK501"], "ignore": ["CK207"], "fail-on": "warning", "require": ["CK603"]}
FREEZE = {"backbone.*": "hold", "head.*": "no-grad"}
VERIFY_SET = {"target": "train.py:build", "steps": 30, "resume-at": [10, 20], "device": "cpu", "repeats": 2,
              "policy": "state-exact", "on-inconclusive": "fail",
              "run": "python a.py", "resume": "python b.py"}  # fmt: skip
SEVERITY = {"CK205": "error", "CK4": "info"}
TOLERANCE = {"param": (1e-5, 1.0), "state:bfloat16": (0.0, 0.5)}


def accepted(name: str) -> tuple[Acceptance, ...]:
    return (
        Acceptance("CK501", "known", "head.*", date(2027, 1, 31), f"{name}, accept[0]"),
        Acceptance("CK603", "b", None, None, f"{name}, accept[1]"),
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def in_project(text: str) -> str:
    """The same keys as they stand in pyproject.toml."""
    return "[tool.ckptcheck]" + text.replace("[verify]", "[tool.ckptcheck.verify]")


@pytest.mark.parametrize(("name", "text"), [("ckptcheck.toml", WHOLE), ("pyproject.toml", in_project(WHOLE))])
def test_every_key_is_read_from_both_files(tmp_path, name, text):
    path = write(tmp_path / name, text)
    config = load_config(None, tmp_path)
    assert config == Config(path, SETTINGS, FREEZE, VERIFY_SET, SEVERITY, TOLERANCE, accepted(name))
    assert {*VERIFY_SET} == {*VERIFY}
    assert {*SETTINGS, "freeze", "verify", "severity", "tolerance", "accept"} == {*KEYS}


def test_without_a_file_nothing_is_set(tmp_path):
    assert load_config(None, tmp_path) == Config()


def test_the_nearest_file_from_the_working_directory_up_holds(tmp_path):
    write(tmp_path / "pyproject.toml", '[tool.ckptcheck]\nfail-on = "never"')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load_config(None, below).settings == {"fail-on": "never"}
    write(tmp_path / "a" / "ckptcheck.toml", 'fail-on = "warning"')
    assert load_config(None, below).settings == {"fail-on": "warning"}
    assert load_config(None, tmp_path).settings == {"fail-on": "never"}


def test_a_project_file_about_others_is_passed_over_whatever_is_in_it(tmp_path):
    write(tmp_path / "ckptcheck.toml", 'fail-on = "warning"')
    write(tmp_path / "one" / "pyproject.toml", '[project]\ndependencies = ["ckptcheck"]')
    write(tmp_path / "two" / "pyproject.toml", "this is [no TOML")
    for name in ("one", "two"):
        assert load_config(None, tmp_path / name).settings == {"fail-on": "warning"}


def test_of_two_files_in_one_folder_ckptcheck_toml_holds(tmp_path):
    write(tmp_path / "pyproject.toml", '[tool.ckptcheck]\nselect = ["CK1"]')
    path = write(tmp_path / "ckptcheck.toml", 'select = ["CK2"]')
    assert load_config(None, tmp_path) == Config(path, {"select": ["CK2"]})


def test_an_empty_file_ends_the_search(tmp_path):
    write(tmp_path / "ckptcheck.toml", 'fail-on = "warning"')
    path = write(tmp_path / "a" / "ckptcheck.toml", "")
    assert load_config(None, path.parent) == Config(path)


def test_a_file_that_is_named_wins_and_must_have_the_table(tmp_path):
    write(tmp_path / "ckptcheck.toml", 'fail-on = "warning"')
    other = write(tmp_path / "other.toml", 'fail-on = "never"')
    assert load_config(other, tmp_path).settings == {"fail-on": "never"}
    project = write(tmp_path / "x" / "pyproject.toml", "[project]\n")
    with pytest.raises(UsageError, match=r"there is no table \[tool.ckptcheck\] in it"):
        load_config(project, tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        load_config(tmp_path / "absent.toml", tmp_path)


@pytest.mark.parametrize(("written", "read"), [('"auto"', ["auto"]), ('["auto", 5]', ["auto", 5])])
def test_points_may_be_left_to_be_picked(tmp_path, written, read):
    write(tmp_path / "ckptcheck.toml", f"[verify]\nresume-at = {written}")
    assert load_config(None, tmp_path).verify == {"resume-at": read}


WRONG = [
    ('selct = ["CK2"]', "there is no key selct; did you mean select"),
    ('fail_on = "error"', "there is no key fail_on; did you mean fail-on"),
    ("verfy = {}", "there is no key verfy; did you mean verify"),
    ("zzz = 1", f"there is no key zzz; the keys are {', '.join(KEYS)}"),
    ("[verify]\nstep = 3", "there is no key verify.step; did you mean steps"),
    ('[[accept]]\ncode = "CK101"\nreson = "x"', r"there is no key accept\[0\].reson; did you mean reason"),
    ('select = "CK2"', "select must be a list of rule codes"),
    ('select = ["XY2"]', "select must be a list of rule codes"),
    ('ignore = ["CK9"]', "ignore must be a list of rule codes"),
    ('require = ["CK603", "CK999"]', r"require must be .* \(no code begins with 'CK999'\), and is"),
    ("require = [1]", "require must be a list of rule codes"),
    ('fail-on = "info"', 'fail-on must be one of "error", "warning", "never", and is \'info\''),
    ("fail-on = true", "fail-on must be one of .* and is true"),
    ("freeze = {a = \"cold\"}", "freeze must be a table of patterns with one of \"no-grad\""),
    ('freeze = "hold"', "freeze must be a table"),
    ("tolerance = {param = 1}", "tolerance must be a table of roles"),
    ("tolerance = {param = {rtol = -1}}", "tolerance.param.rtol must be a number from 0 up, and is -1"),
    ("tolerance = {param = {rtol = nan}}", "tolerance.param.rtol must be a number from 0 up, and is nan"),
    ("tolerance = {param = {atol = inf}}", "tolerance.param.atol must be a number from 0 up, and is inf"),
    ("tolerance = {param = {atol = true}}", "tolerance.param.atol must be a number from 0 up, and is true"),
    ("tolerance = {param = {rtl = 1}}", "there is no key tolerance.param.rtl; did you mean rtol"),
    ("tolerance = {parm = {rtol = 1}}", "there is no role parm in tolerance; did you mean param"),
    ("tolerance = {rng = {rtol = 1}}", f"there is no role rng in tolerance; the roles are {', '.join(ROLES)}"),
    ("[severity]\nCK205 = \"fatal\"", 'severity must be a table of rule codes or their beginnings with one of "error"'),
    ("[severity]\nCK9 = \"error\"", r"severity must be .* \(no code begins with 'CK9'\)"),
    ("[severity]\nCK205 = true", "severity must be a table of rule codes"),
    ('severity = ["CK205"]', "severity must be a table of rule codes"),
    ("verify = 3", "verify must be a table"),
    ("[verify]\nsteps = 1", "verify.steps must be a whole number from 2 up, and is 1"),
    ("[verify]\nsteps = true", "verify.steps must be a whole number from 2 up, and is true"),
    ("[verify]\nsteps = 2.0", "verify.steps must be a whole number"),
    ("[verify]\nresume-at = 10", "verify.resume-at must be a list of steps"),
    ("[verify]\nresume-at = []", "verify.resume-at must be a list of steps"),
    ("[verify]\nresume-at = [0]", "verify.resume-at must be a list of steps"),
    ("[verify]\nresume-at = \"half\"", 'verify.resume-at must be a list of steps, such as .*, or "auto"'),
    ("[verify]\nresume-at = [3, \"half\"]", "verify.resume-at must be a list of steps"),
    ("[verify]\nrepeats = 0", "verify.repeats must be a whole number from 1 up"),
    ("[verify]\ntarget = \"\"", "verify.target must be a text"),
    ("[verify]\npolicy = \"loose\"", "verify.policy must be one of"),
    ("[verify]\non-inconclusive = \"skip\"", "verify.on-inconclusive must be one of"),
    ("accept = 1", "accept must be a list of tables"),
    ('[[accept]]\ncode = "CK501"', r"accept\[0\] has no reason"),
    ('[[accept]]\nreason = "x"', r"accept\[0\] has no code"),
    ('[[accept]]\ncode = "501"\nreason = "x"', r"accept\[0\].code must be a whole rule code"),
    ('[[accept]]\ncode = "CK5"\nreason = "x"', r"accept\[0\].code must be a whole rule code"),
    ('[[accept]]\ncode = "CK501"\nreason = " "', r"accept\[0\].reason must be a text"),
    ('[[accept]]\ncode = "CK501"\nreason = "x"\nuntil = 2027-01-31T10:00:00', r"accept\[0\].until must be a date"),
    ('[[accept]]\ncode = "CK501"\nreason = "x"\n[[accept]]\ncode = "CK502"', r"accept\[1\] has no reason"),
    ('[[accept]]\ncode = "CK501"\nreason = "x"\nuntil = "soon"', r"accept\[0\].until must be a date"),
    ("select = [", "it is no TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_setting_is_refused_with_its_file_and_what_would_be_right(tmp_path, text, said):
    path = write(tmp_path / "ckptcheck.toml", text)
    with pytest.raises(UsageError, match=said) as refused:
        load_config(None, tmp_path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_that_is_none_and_text_that_is_no_utf8_are_refused(tmp_path):
    write(tmp_path / "pyproject.toml", "[tool]\nckptcheck = 3")
    with pytest.raises(UsageError, match=r"\[tool.ckptcheck\] is no table"):
        load_config(None, tmp_path)
    (tmp_path / "ckptcheck.toml").write_bytes(b'select = ["\xff"]')
    with pytest.raises(UsageError, match="it is no UTF-8 text"):
        load_config(None, tmp_path)


def test_an_empty_table_sets_nothing(tmp_path):
    path = write(tmp_path / "ckptcheck.toml", "accept = []\ntolerance = {}\nseverity = {}\nfreeze = {}\nverify = {}")
    assert load_config(None, tmp_path) == Config(path)


def test_settings_that_nest_without_end_are_refused_in_one_line(tmp_path):
    file = tmp_path / "ckptcheck.toml"
    file.write_text("select = " + "[" * 20_000)
    with pytest.raises(UsageError, match="its values nest too deep"):
        load_config(file, tmp_path)


def test_settings_are_read_from_a_regular_file_only():
    with pytest.raises(UsageError, match="it is no regular file"):
        load_config(Path("/dev/zero"), Path.cwd())
