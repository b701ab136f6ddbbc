"""Every setting with its value and the line that it stands at, which only a parser can tell."""

from pathlib import Path

import pytest

from ckptcheck.cli.verify import command
from ckptcheck.config import KEYS, VERIFY, Config, load_config
from ckptcheck.errors import UsageError
from ckptcheck.verdict.settings_in_force import DEFAULTS, settings_in_force

PROJECT = '''\
[project]
name = "one"
description = """
[tool.ckptcheck]
select = ["CK7"]
"""

[tool.ckptcheck]
# select is below
select = [
  "CK1",
  "CK2",  # select
]
fail-on = "warning"
severity = {CK205 = "error", CK4 = "info"}
tolerance.param.rtol = 0.5
[tool.other]
ignore = []
[tool.ckptcheck.freeze]
"backbone.*" = "hold"
[tool.ckptcheck.verify]
steps = 30
resume-at = "auto"
[[tool.ckptcheck.accept]]
code = "CK501"
reason = "one"
until = 9999-01-31
[[tool.ckptcheck.accept]]
reason = "two"
code = "CK603"
parameter = "a.*"
until = 2020-01-31
'''
SET = {
    "select": (["CK1", "CK2"], 10), "fail-on": ("warning", 14), "severity.CK205": ("error", 15),
    "severity.CK4": ("info", 15), "tolerance.param": ({"rtol": 0.5, "atol": 0.0}, 16),
    "freeze.backbone.*": ("hold", 20), "verify.steps": (30, 22), "verify.resume-at": (["auto"], 23),
}  # fmt: skip


def told(config: Config) -> dict[str, dict]:
    return {one["key"]: one for one in settings_in_force(config).parts["settings"]}


def write(path: Path, text: str) -> Config:
    path.write_text(text, encoding="utf-8")
    return load_config(path, path.parent)


def test_every_setting_is_told_with_the_line_that_it_stands_at(tmp_path):
    rows = told(write(tmp_path / "pyproject.toml", PROJECT))
    assert {key: (one["value"], one["line"]) for key, one in rows.items() if one["source"] != "default"} == SET
    assert {one["source"] for one in rows.values()} == {"default", "pyproject.toml"}
    rest = {key for key in KEYS if key not in ("verify", "accept")} | {f"verify.{key}" for key in VERIFY}
    assert {key.partition(".")[0] for key in rows} == {key.partition(".")[0] for key in rest}


def test_acceptances_are_told_with_whether_they_are_in_force(tmp_path):
    result = settings_in_force(write(tmp_path / "pyproject.toml", PROJECT))
    assert result.parts["file"] == str(tmp_path / "pyproject.toml")
    assert result.parts["accept"] == [
        {"code": "CK501", "parameter": None, "reason": "one", "until": "9999-01-31", "in_force": True,
         "source": "pyproject.toml, accept[0]", "line": 24},
        {"code": "CK603", "parameter": "a.*", "reason": "two", "until": "2020-01-31", "in_force": False,
         "source": "pyproject.toml, accept[1]", "line": 28},
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), [
    ('fail-on = "error"', 1),
    ('"fail-on" = "error"', 1),
    ('\r\n# fail-on\r\nfail-on = "error"\r\n', 3),
    ('select = ["CK"]\nverify = {device = """cpu\nfail-on = 1"""}\n\u2028#\nfail-on = "error"', None),
    ('select = ["CK"]\nverify = {device = """cpu\nfail-on = 1"""}\n#\u2028\nfail-on = "error"', 5),
    ('"fail\\u002don" = "error"', None),
])  # fmt: skip
def test_a_line_is_where_a_parser_finds_the_value(tmp_path, text, line):
    path = tmp_path / "ckptcheck.toml"
    path.write_bytes(text.encode())
    if "\n\u2028" in text:
        with pytest.raises(UsageError, match="it is no TOML"):
            load_config(path, tmp_path)
        return
    assert told(load_config(path, tmp_path))["fail-on"]["line"] == line


def test_without_a_file_everything_is_as_by_default():
    rows = told(Config())
    assert {key: one["value"] for key, one in rows.items()} == {k: v for k, v in DEFAULTS.items() if k != "accept"}
    assert all(one["source"] == "default" and one["line"] is None for one in rows.values())
    assert settings_in_force(Config()).parts["file"] is None


def test_defaults_are_those_of_the_command_line():
    options = {one.name: one.default for one in command.params}
    told_as = {"select": tuple(options["select"]), "fail_on": options["fail_on"]}
    assert told_as == {"select": tuple(DEFAULTS["select"]), "fail_on": DEFAULTS["fail-on"]}
    for key in ("device", "repeats", "policy"):
        assert DEFAULTS[f"verify.{key}"] == options[key]


@pytest.mark.parametrize(("text", "said"), [
    ('[severity]\nCK299 = "info"', r"severity CK299: no rule has the code CK299; did you mean CK2\d\d\?"),
    ('accept = [{code = "CK699", reason = "x"}]', r"ckptcheck.toml, accept\[0\]: no rule has the code CK699"),
    ('tolerance."state:bf16".rtol = 1', "tolerance state:bf16: there is no dtype 'bf16': name one as torch does"),
    ('tolerance."state:".rtol = 1', "tolerance state:: there is no dtype ''"),
])  # fmt: skip
def test_a_code_or_dtype_that_there_is_not_is_refused(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        settings_in_force(write(tmp_path / "ckptcheck.toml", text))
