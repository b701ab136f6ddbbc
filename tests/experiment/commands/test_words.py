import shlex

import pytest

from ckptcheck.errors import UsageError
from ckptcheck.experiment.commands.offline import TRACKERS, check_pushes_nothing, offline
from ckptcheck.experiment.commands.words import filled, placeholders, split

KNOWN = ("dir", "ckpt")
SPLIT = {
    "python train.py": ("python", "train.py"),
    "python 'my script.py' --name \"a b\"": ("python", "my script.py", "--name", "a b"),
    r"python my\ script.py": ("python", "my script.py"),
    "bash -c 'cd src && python train.py > log; echo $HOME'": (
        "bash",
        "-c",
        "cd src && python train.py > log; echo $HOME",
    ),
    "python -c 'print(1); print(2)'": ("python", "-c", "print(1); print(2)"),
    "python train.py --only '*.bias' lr=1e-3": ("python", "train.py", "--only", "*.bias", "lr=1e-3"),
    r"python train.py --price \$5": ("python", "train.py", "--price", "$5"),
    "python train.py --cost 5$": ("python", "train.py", "--cost", "5$"),
    "python train.py --home a~b": ("python", "train.py", "--home", "a~b"),
    "python train.py ''": ("python", "train.py", ""),
}
REFUSED = {
    "cd src && python train.py": "'&&'",
    "python train.py | tee log": "'|'",
    "python train.py > log": "'>'",
    "python train.py; echo done": "';'",
    "python train.py &": "'&'",
    "$PYTHON train.py": "$PYTHON",
    "python $SCRIPT": "$SCRIPT",
    'python "${SCRIPT}"': "${SCRIPT}",
    "python $(which train.py)": "$(which",
    "python `which train.py`": "'`'",
    "python ~/train.py": "'~'",
    "SEED=1 python train.py": "SEED=1",
    "python 'train.py": "closing quotation",
    "": "is empty",
    "   ": "is empty",
    "''": "is empty",
    "python train.py {out}": "{out}",
}
FILLED = {
    "--out={dir}": "--out=/runs/1",
    "{dir}/last.pt:{ckpt}": "/runs/1/last.pt:/runs/1/step 5",
    "{{dir}}": "{dir}",
    '{"a": {"b": 1}}': '{"a": {"b": 1}}',
    "bash ${dir} $dir": "bash ${dir} $dir",
    "{}": "{}",
    "plain": "plain",
}


@pytest.mark.parametrize("text", SPLIT)
def test_a_command_is_split_as_a_shell_splits_it(text):
    assert split(text, "--run", KNOWN) == SPLIT[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_only_a_shell_understands_is_refused_and_says_so(text):
    with pytest.raises(UsageError) as refused:
        split(text, "--run", KNOWN)
    said = str(refused.value)
    assert REFUSED[text] in said
    assert said.startswith("--run ")
    assert "\n" not in said


def test_a_refused_command_is_accepted_where_a_shell_is_asked_to_run_it():
    for text, reason in REFUSED.items():
        if reason.startswith("'") or "$" in reason:
            assert split(shlex.join(["bash", "-c", text]), "--run", KNOWN) == ("bash", "-c", text)


@pytest.mark.parametrize("word", FILLED)
def test_placeholders_are_filled_in_and_other_braces_stay(word):
    assert filled((word,), {"dir": "/runs/1", "ckpt": "/runs/1/step 5"}) == (FILLED[word],)


def test_placeholders_are_found_in_all_words_but_where_they_are_doubled():
    assert placeholders(("a{dir}", "{{ckpt}}", "${dir}")) == {"dir"}
    assert placeholders(("{ckpt}{dir}",)) == {"ckpt", "dir"}
    assert placeholders(("{{dir}}",)) == set()


def test_trackers_are_put_offline_but_where_the_user_has_said_otherwise():
    assert offline({})["WANDB_MODE"] == "offline"
    assert len(offline({})) == len(TRACKERS)
    assert "WANDB_MODE" not in offline({"WANDB_MODE": "online"})
    assert len(offline({"WANDB_MODE": "online"})) == len(TRACKERS) - 1


def test_a_command_that_pushes_to_the_hub_is_refused():
    for words in (("--push_to_hub",), ("--push-to-hub",), ("--push_to_hub=true",), ("trainer.push_to_hub=1",)):
        with pytest.raises(UsageError, match="--online"):
            check_pushes_nothing(("python", "train.py", *words), "--run")
    for words in (("--push_to_hub=False",), ("--push_to_hub", "False"), ("--push_to_hub_model_id", "x"), ("push",)):
        check_pushes_nothing(("python", "train.py", *words), "--run")
