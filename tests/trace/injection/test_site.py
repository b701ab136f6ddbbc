"""What an interpreter runs at its start is the same with our folder before it on the path, up to the first torch."""

import ast
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ckptcheck.trace.injection.environment import SITE, recorded
from ckptcheck.trace.script.orders import Orders
from tests.trace.injection.launching import environment, run

INTERPRETER = str(Path(sysconfig.get_config_var("BINDIR")) / f"python{sys.version_info[0]}.{sys.version_info[1]}")
"""The one below our environment: it has a folder of the user's, so it looks for usercustomize too."""

TELL = """
import sys
names = dict(vars())
print(sys.argv, sys.path, sorted(sys.modules), sorted(names), sys.flags, hash("a") if sys.argv[1] == "seeded" else 0)
print(len(sys.path_hooks), sorted(sys.path_importer_cache), sys.warnoptions, names["__name__"])
import warnings; print(warnings.filters)
try:
    import sitecustomize; print(sitecustomize.__file__, sitecustomize.__spec__.loader.__class__, sitecustomize.__name__)
except Exception as error:
    print(type(error), error)
"""
LOOK = """
import importlib, importlib.metadata, importlib.util, pkgutil, sys
spec = importlib.util.find_spec("torch")
print(type(spec.loader), spec.loader.path, spec.origin, spec.submodule_search_locations)
print(spec.loader.get_code("torch").co_filename)
print(importlib.metadata.version("torch"), [one.name for one in pkgutil.iter_modules([sys.argv[1]])])
"""
TRY = """
import sys
try:
    import torch
except Exception as error:
    print(repr(error), "torch" in sys.modules)
import torch
"""
OWN = "print('own', __name__, __file__)\n"
CHAINING = """
import os, sys
print("first")
here = os.path.dirname(__file__)
sys.path.remove(here)
del sys.modules["sitecustomize"]
import sitecustomize
sys.path.insert(0, here)
"""
METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: 9.8.7\n"


@dataclass(frozen=True, slots=True)
class Row:
    """Files, and how a command finds them: by PYTHONPATH (None for unset), in the folder that holds the files."""

    files: dict[str, str] = field(default_factory=dict)
    path: str | None = "a"
    script: str = TELL
    shell: str = ""
    python: tuple[str, ...] = (INTERPRETER,)
    arguments: tuple[str, ...] = ("a", "b")


ROWS = {
    "no sitecustomize, no PYTHONPATH": Row(path=None),
    "an empty PYTHONPATH": Row(path=""),
    "no sitecustomize, a PYTHONPATH with the working folder": Row(path=":a:"),
    "a shell adds to the end of none": Row(path=None, shell="PYTHONPATH=$PYTHONPATH:$PWD/a"),
    "a shell adds to the begin of none": Row(path=None, shell="PYTHONPATH=$PWD/a:$PYTHONPATH"),
    "a shell adds to what there is": Row(shell="PYTHONPATH=$PYTHONPATH:$PWD/b"),
    "one of the script's own": Row({"a/sitecustomize.py": OWN}),
    "two of its own": Row({"a/sitecustomize.py": OWN, "b/sitecustomize.py": OWN}, "a:b"),
    "one that is a package": Row({"a/sitecustomize/__init__.py": OWN}),
    "one that goes on to the next": Row({"a/sitecustomize.py": CHAINING, "b/sitecustomize.py": OWN}, "a:b"),
    "one that goes on, before ours": Row(
        {"a/sitecustomize.py": CHAINING, "b/sitecustomize.py": OWN}, "b", shell="PYTHONPATH=$PWD/a:$PYTHONPATH"
    ),
    "one that raises": Row({"a/sitecustomize.py": OWN + "raise ValueError('two\\nlines')"}),
    "one that lacks a module": Row({"a/sitecustomize.py": OWN + "import no_such_module"}),
    "one that cannot be read": Row({"a/sitecustomize.py": "def"}),
    "a usercustomize beside it": Row({"a/sitecustomize.py": OWN, "a/usercustomize.py": OWN}),
    "a usercustomize alone": Row({"a/usercustomize.py": OWN}),
    "who looks for torch and does not import it": Row(
        {"a/torch/__init__.py": "1/0", "a/torch-9.8.7.dist-info/METADATA": METADATA}, script=LOOK
    ),
    "no torch": Row(script=TRY),
    "a torch that raises": Row({"a/torch/__init__.py": "1 / 0"}, script=TRY),
    "a torch that lacks a module": Row({"a/torch/__init__.py": "import torch.no_such_module"}, script=TRY),
    "a torch that cannot be read": Row({"a/torch/__init__.py": "def"}, script=TRY),
    "a torch that ends the process": Row({"a/torch/__init__.py": "raise SystemExit(7)"}, script=TRY),
    "hash seed, optimisation and warnings": Row(
        shell="PYTHONHASHSEED=5", python=(INTERPRETER, "-OWerror"), arguments=("seeded",)
    ),
    "python -E": Row({"a/sitecustomize.py": OWN}, python=(INTERPRETER, "-E")),
    "python -S": Row({"a/sitecustomize.py": OWN}, script="print(1)", python=(INTERPRETER, "-S")),
}


SAID = "ckptcheck: this process is not recorded ("
UNRECORDED = {
    "a Python that is too old": ("import sys; sys.version_info = (3, 10, 9)", f"{SAID}its Python is "),
    "orders that are gone": ("import os; os.environ['CKPTCHECK_ORDERS'] = '/no/such'", SAID),
    "a stderr that is closed": ("import sys; sys.stderr.close()", ""),
    "no stderr": ("import sys; sys.stderr = None", ""),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_interpreter_starts_as_without_us(tmp_path, name):
    row = ROWS[name]
    for place, text in {"a/x": "", "b/x": "", "script.py": row.script, **row.files}.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    given = environment() | ({"PYTHONPATH": row.path} if row.path is not None else {})
    command = ["env", *row.python, "script.py", *row.arguments]
    if row.shell:
        command = ["sh", "-c", f'export {row.shell}; exec "$@"', "sh", *command]
    unrecorded = run(command, tmp_path, given)
    orders = recorded(Orders(traces=tmp_path / "traces"), tmp_path / "orders.json", given)
    assert run(command, tmp_path, orders) == unrecorded
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize("name", UNRECORDED)
def test_what_cannot_be_recorded_goes_on_and_says_so_in_one_line(tmp_path, name):
    before, line = UNRECORDED[name]
    (tmp_path / "torch.py").write_text("nn = 1\n")  # no torch at all: nothing of ours can run in it
    (tmp_path / "script.py").write_text(f"{before}\nimport torch\nprint(torch.nn, torch.__spec__.origin)\nexit(3)\n")
    given = recorded(Orders(traces=tmp_path / "traces"), tmp_path / "orders.json", environment())
    said = run([INTERPRETER, "script.py"], tmp_path, given)
    assert (said.code, said.out) == (3, [f"1 {tmp_path / 'torch.py'}".encode()])
    assert [one.decode().startswith(line) for one in said.err] == ([True] if line else [])


def test_any_python_3_can_read_what_stands_on_the_path():
    (file,) = SITE.glob("*.py")
    tree = ast.parse(file.read_text(), feature_version=(3, 4))
    assert {type(one) for one in ast.walk(tree)}.isdisjoint({ast.JoinedStr, ast.NamedExpr, ast.AnnAssign})
    assert [one.names[0].name for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)] == ["os", "sys"]
