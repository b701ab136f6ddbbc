import re
from pathlib import Path

import click
import pytest

from ckptcheck.cli.kinds import FORMATS
from ckptcheck.cli.main import COMMANDS as EVERY
from ckptcheck.cli.verify import command
from ckptcheck.reports.table import REPORTS
from tests.cli.fakes import FakeVerbs
from tests.cli.refusals import assert_is_refused

VERIFY_DEFAULTS = {
    "target": "t.py", "run": None, "resume": None, "steps": None, "resume_at": (), "interrupt": None, "device": "cpu",
    "resume_device": None, "quick": False, "policy": "exact", "deterministic": False, "repeats": 1, "rtol": 0.0,
    "atol": 0.0, "freeze": {}, "timeout_s": 600.0, "seed": 0, "jobs": None, "folder": None, "share": (), "env": {},
    "online": False, "every": 1, "only": (), "grads": True, "digest": None, "select": ("CK",), "ignore": (),
    "require": (), "bisect": False, "fail_on": "error", "tolerances": {}, "severity": {}, "accept": (),
    "baseline": None, "write_baseline": None,
}  # fmt: skip
COMMANDS = {**VERIFY_DEFAULTS, "target": None, "run": "a {dir}", "resume": "b {ckpt}"}
COMMAND_OPTIONS = [
    ("", {}),
    ("--steps 9 --resume-at 4 --quick", {"steps": 9, "resume_at": (4,), "quick": True}),
    ("--interrupt TERM@7", {"interrupt": "TERM@7"}),
    ("--folder here --share data --share *.bin", {"folder": Path("here"), "share": ("data", "*.bin")}),
    ("--env A=1 --env B=x=y", {"env": {"A": "1", "B": "x=y"}}),
    ("--online --every 5 --only a.* --only b", {"online": True, "every": 5, "only": ("a.*", "b")}),
    ("--no-grads --digest linear_128", {"grads": False, "digest": "linear_128"}),
]

VERIFY_OPTIONS = [
    ("--steps 30", {"steps": 30}),
    ("--resume-at 5 --resume-at 15", {"resume_at": (5, 15)}),
    ("--resume-at auto --resume-at 5", {"resume_at": ("auto", 5)}),
    ("--device cuda --resume-device cpu", {"device": "cuda", "resume_device": "cpu"}),
    ("--quick --deterministic", {"quick": True, "deterministic": True}),
    ("--policy state-exact --repeats 3", {"policy": "state-exact", "repeats": 3}),
    ("--rtol 1e-5 --atol 1e-8", {"rtol": 1e-5, "atol": 1e-8}),
    ("--freeze backbone.*=hold --freeze a=b=no-grad", {"freeze": {"backbone.*": "hold", "a=b": "no-grad"}}),
    ("--timeout 12.5 --seed -1 --jobs 2", {"timeout_s": 12.5, "seed": -1, "jobs": 2}),
    ("--select CK2,CK601 --select CK3", {"select": ("CK2", "CK601", "CK3")}),
    ("--ignore CK614", {"ignore": ("CK614",)}),
    ("--bisect", {"bisect": True}),
    (
        "--baseline old.json --write-baseline new.json --fail-on never",
        {"baseline": Path("old.json"), "write_baseline": Path("new.json"), "fail_on": "never"},
    ),
    ("--require CK603,CK609", {"require": ("CK603", "CK609")}),
]


def test_verify_without_options_has_the_defaults_of_the_contract(ckptcheck):
    verbs = FakeVerbs()
    assert ckptcheck("verify", "t.py", verbs=verbs).exit_code == 0
    assert verbs.called == VERIFY_DEFAULTS


@pytest.mark.parametrize(("options", "changed"), VERIFY_OPTIONS)
def test_an_option_of_verify_reaches_the_verb(ckptcheck, options, changed):
    verbs = FakeVerbs()
    outcome = ckptcheck("verify", "t.py", *options.split(), verbs=verbs)
    assert outcome.exit_code == 0, outcome.output
    assert verbs.called == VERIFY_DEFAULTS | changed


@pytest.mark.parametrize(("options", "changed"), COMMAND_OPTIONS)
def test_an_option_for_commands_reaches_the_verb(ckptcheck, options, changed):
    verbs = FakeVerbs()
    outcome = ckptcheck("verify", "--run", "a {dir}", "--resume", "b {ckpt}", *options.split(), verbs=verbs)
    assert outcome.exit_code == 0, outcome.output
    assert verbs.called == COMMANDS | changed


def test_the_help_of_verify_names_every_option_once_and_in_sections(ckptcheck):
    text = ckptcheck("verify", "--help").output
    titles = [line for line in text.splitlines() if line and line.endswith(":") and not line.startswith(" ")]
    assert titles == ["The experiment:", "A script:", "A target:", "Judging:", "Output and settings:"]
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [
        one.opts[0] for one in options if len(re.findall(rf"^  (?:-\w, )?{one.opts[-1]}(?![\w-])", text, re.M)) != 1
    ] == []


def test_the_help_of_verify_begins_with_both_ways_of_calling_it(ckptcheck):
    ways = "Usage: ckptcheck verify --run CMD --resume CMD [OPTIONS]\n       ckptcheck verify TARGET [OPTIONS]\n"
    assert ckptcheck("verify", "--help").output.startswith(ways)


def test_the_help_lists_every_command_once(ckptcheck):
    assert sorted(re.findall(r"^  ([a-z]+)  ", ckptcheck("--help").output, re.M)) == sorted(EVERY)


def test_the_other_commands_hand_on_what_they_got(ckptcheck):
    verbs = FakeVerbs()
    options = ("--store", "--device", "cuda", "--digest", "linear_128")
    common = {"store": True, "device": "cuda", "digest": "linear_128", "seed": 0, "timeout_s": 600.0}
    ckptcheck("save", "t", "--steps", "5", "-o", "out", "--trace", "tr", *options, verbs=verbs)
    assert verbs.called == {"target": "t", "steps": 5, "output": Path("out"), "trace": Path("tr"), **common}
    ckptcheck("resume", "t", "ck", "--steps", "9", "-o", "tr", "--step", "4", *options, verbs=verbs)
    at = {"checkpoint": Path("ck"), "step": 4, "steps": 9}
    assert verbs.called == {"target": "t", "output": Path("tr"), **at, **common}
    ckptcheck("compare", "a", "b", "--rtol", "0.1", verbs=verbs)
    tolerance = {"rtol": 0.1, "atol": 0.0, "tolerances": {}, "select": ("CK",), "ignore": (), "fail_on": "error"}
    decided = {"severity": {}, "accept": (), "baseline": None, "write_baseline": None}
    assert verbs.called == {"left": Path("a"), "right": Path("b"), **tolerance, **decided}


WRONG = [
    ("verify", "Missing argument 'TARGET', or --run and --resume in its place"),
    ("verify t --run a --resume b", "a TARGET and --run or --resume exclude each other"),
    ("verify t --no-grads", "--no-grads is for commands: a TARGET has no use for it"),
    ("verify t --interrupt TERM@3", "--interrupt is for commands"),
    ("verify --run a --resume b --device cuda", "--device is for a TARGET: the commands say such things"),
    ("verify --run a --resume b --seed 3", "--seed is for a TARGET"),
    ("verify --run a --resume b --interrupt TERM", "'TERM' is not SIGNAL@STEP, such as TERM@7"),
    ("verify --run a --resume b --env A", "'A' is not NAME=VALUE"),
    ("verify --run a --resume b --every 0", "'--every'"),
    ("verify t --steps 0", "'--steps'"),
    ("verify t --resume-at half", "'half' is no step to resume after: give a number, or auto"),
    ("verify t --resume-at 2.5", "'2.5' is no step to resume after"),
    ("verify t --steps x", "'x' is not a valid integer range"),
    ("verify t --stesp 3", "--steps"),
    ("verify t --policy loose", "'exact', 'state-exact'"),
    ("verify t --rtol nan", "nan is not a finite number"),
    ("verify t --atol -1", "'--atol'"),
    ("verify t --timeout 0", "'--timeout'"),
    ("verify t --timeout inf", "inf is not a finite number"),
    ("verify t --freeze backbone", "'backbone' is not GLOB=CONTRACT"),
    ("verify t --freeze a=cold", "no-grad, no-update, hold, removed, reset"),
    ("verify t --select XY", "'XY' is no rule code"),
    ("verify t --ignore CK2,", "'' is no rule code"),
    ("verify t --format yaml", "no format 'yaml' in this version; choose one of text, json, junit"),
    ("verify t --report yaml=x", "no format 'yaml' in this version; choose one of text, json, junit"),
    ("verify t --report out.json", "'out.json' is not FORMAT=PATH"),
    ("verify t -q -v", "-q and -v exclude each other"),
    ("save t --steps 3 -o x --digest md5", "'xxh3_128', 'linear_128'"),
    ("resume t c --steps 3 -o x --step -1", "'--step'"),
    ("save t --steps 3 --output=", "the path is empty"),
    ("save t -o x", "Missing option '--steps'"),
    ("resume t c --steps 3", "Missing option '-o'"),
    ("compare a", "Missing argument 'RIGHT'"),
    ("verfy t", "No such command 'verfy'"),
    ("", "no command given"),
]


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_a_wrong_command_line_is_one_line_on_stderr_and_exit_2(ckptcheck, line, said):
    assert_is_refused(ckptcheck, line, said)


@pytest.mark.parametrize(("words", "said"), [
    (("verify", "python train.py"), "'python train.py' is a command and no TARGET: give it as --run, with --resume"),
    (("record", "-o", "t", "--", "python train.py"), "'python train.py' is one word: give the command without quotes"),
])  # fmt: skip
def test_a_command_where_none_belongs_or_in_one_word_is_told_how_to_be_given(ckptcheck, words, said):
    verbs = FakeVerbs()
    outcome = ckptcheck(*words, verbs=verbs)
    assert (outcome.exit_code, outcome.stderr.count("\n"), verbs.called) == (2, 1, {})
    assert said in outcome.stderr


def test_a_quiet_recording_still_says_why_there_is_none(ckptcheck, tmp_path):
    outcome = ckptcheck("record", "-q", "-o", str(tmp_path / "t"), "--", "no-such-command")
    assert outcome.exit_code == 127
    assert "there is no command 'no-such-command'" in outcome.stderr


def test_the_help_names_the_formats_there_are(ckptcheck):
    said = " ".join(ckptcheck("verify", "--help").output.split())
    assert (*REPORTS,) == FORMATS
    assert f"What goes to stdout: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}." in said


def test_no_command_shows_the_help(ckptcheck):
    assert "Commands that train:\n  demo" in ckptcheck().stdout
