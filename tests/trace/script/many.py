"""Many scripts, each in a process of its own that ends as scripts end, at the price of one import of torch."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptcheck.trace.script.orders import Orders

_RUNNER = """
import atexit, gc, json, os, runpy, sys
import numpy, torch, torch._dynamo, ckptcheck.trace.script.start
torch.set_num_threads(1)
cases = json.loads(sys.stdin.read())
for name in sorted({name for case in cases for name in case["imports"]}):
    __import__(name)
# Without this each child goes through all that torch has made when it ends, and copies it: a second for each.
gc.collect()
gc.freeze()
for case in cases:
    child = os.fork()
    if child:
        with open(case["code"], "w") as file:
            file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
        continue
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(case[name], os.O_WRONLY | os.O_CREAT), number)
    os.chdir(case["folder"])
    sys.argv = ["script.py"]
    if case["orders"]:
        os.environ["CKPTCHECK_ORDERS"] = case["orders"]
        from ckptcheck.trace.script.start import start
        start()
    runpy.run_path("script.py", run_name="__main__")
    if case["hurried"]:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)
    sys.exit()
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One script, in a folder of its own; `orders` is None where it is not recorded.

    `imports` are imported once for all cases. One that is hurried does at its end what is registered with atexit, and
    leaves out the rest of what the interpreter does then, which takes longest.
    """

    folder: Path
    code: str
    orders: dict[str, Any] | None = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    hurried: bool = False

    @property
    def traces(self) -> Path:
        """Where its traces are, unless the orders say otherwise."""
        return self.folder / "traces"

    def read(self, name: str) -> str:
        """What it left in `out`, `err` or `code`, the exit code (-9 for signal 9)."""
        return (self.folder / name).read_text()


def run(cases: list[Case]) -> None:
    """Run them one after the other."""
    told = []
    for case in cases:
        case.folder.mkdir(parents=True)
        (case.folder / "script.py").write_text(case.code)
        orders = ""
        if case.orders is not None:
            (case.folder / "orders").write_text(Orders(**({"traces": case.traces} | case.orders)).to_json())
            orders = str(case.folder / "orders")
        places = {name: str(case.folder / name) for name in ("out", "err", "code")}
        more = {"imports": case.imports, "hurried": case.hurried}
        told.append({"folder": str(case.folder), "orders": orders, **places, **more})
    subprocess.run([sys.executable, "-c", _RUNNER], input=json.dumps(told), text=True, check=True, timeout=240)
