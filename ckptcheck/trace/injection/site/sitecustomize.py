"""Run by the interpreter of a recorded script before its first line: waits for torch, then runs the next sitecustomize.

Any Python may run it, also one that is too old to record, which is then said: so types are comments, and texts are
added. It imports nothing that an interpreter has not imported by itself, and nothing of ours until torch has been.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments

_HERE = os.path.dirname(os.path.abspath(__file__))
_IMPORTLIB = "<frozen importlib._bootstrap_external>"


class _Waiting:
    """Finds torch as the other finders do, and has the recording start when it has been imported."""

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name != "torch" or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            if not hasattr(finder, "find_spec"):
                return None
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _tell(spec.loader, self)
                return spec
        return None


def _tell(loader, waiting):
    # type: (Any, _Waiting) -> None
    """Have the loader start the recording once it has run torch; it is otherwise the same, and is so again then."""
    run = loader.exec_module

    def exec_module(module):
        # type: (Any) -> None
        vars(loader).pop("exec_module", None)
        run(module)
        if waiting in sys.meta_path:
            sys.meta_path.remove(waiting)
        _start()

    if sys.version_info >= (3, 11):
        # The traceback of a torch that cannot be imported leaves out what importlib did, and this with it.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORTLIB)
    loader.exec_module = exec_module


def _start():
    # type: () -> None
    if sys.version_info < (3, 11):
        _say("its Python is " + sys.version.split()[0] + ", and 3.11 or newer is needed")
        return
    if "_ckptcheck_recorder" in sys.modules:
        return
    try:
        import importlib.util

        place = os.path.join(os.path.dirname(_HERE), "importing.py")
        spec = importlib.util.spec_from_file_location("_ckptcheck_importing", place)
        assert spec is not None and spec.loader is not None
        importing = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(importing)
        importing.ours("ckptcheck.trace.script.start").start()
    except Exception as error:  # noqa: BLE001 - nothing of ours may break a training
        _say(" ".join((type(error).__name__ + ": " + str(error)).split()))


def _say(reason):
    # type: (str) -> None
    try:  # noqa: SIM105 - contextlib may not be imported here
        sys.stderr.write("ckptcheck: this process is not recorded (" + reason + ")\n")
    except (AttributeError, OSError, ValueError):
        pass  # stderr is closed, or there is none


def _wait():
    # type: () -> None
    if not os.environ.get("CKPTCHECK_ORDERS") or sys.version_info < (3, 4):
        return
    if "torch" in sys.modules:
        _start()
    elif not any(type(finder).__name__ == _Waiting.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def _take_away():
    # type: () -> None
    """Take our folder off the path.

    A separator at its end in PYTHONPATH says that there was none before. Where a shell has then added to it, as in
    `PYTHONPATH=$PYTHONPATH:src`, an empty entry would stand in the place of our folder: the working folder.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    empty = len(given) > 1 and _HERE + os.sep in given
    kept = []  # type: list[str]
    for place in sys.path:
        meant = os.getcwd() if empty and place == _HERE else place
        if meant != _HERE and meant not in kept:
            kept.append(meant)
    sys.path[:] = kept
    sys.path_importer_cache.pop(_HERE, None)


_wait()
if __name__ == "sitecustomize":
    _take_away()
    # Imported as without us: whatever it raises is handled by who imports this, also that there is none.
    _this = sys.modules.pop("sitecustomize")
    __import__("sitecustomize")
