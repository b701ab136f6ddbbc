"""Run by the interpreter of a recorded script before its first line: waits for torch, and runs the next sitecustomize.

Imports nothing of ckptcheck, and nothing heavy, until the script has imported torch.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder


class _Waiting:
    """Finds torch as the other finders do, and has something run once when it has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Telling(spec.loader, self)
        return spec


class _Telling:
    def __init__(self, loader, waiting):
        self._loader = loader
        self._waiting = waiting

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        if self._waiting in sys.meta_path:
            sys.meta_path.remove(self._waiting)
        self._loader.exec_module(module)
        _start()


def _start():
    try:
        _import_ckptcheck()
        from ckptcheck.trace.script.start import start

        start()
    except Exception as error:
        sys.stderr.write(f"ckptcheck: this process is not recorded ({type(error).__name__}: {error})\n")


def _import_ckptcheck():
    """Make our package importable, and nothing that is installed beside it."""
    if "ckptcheck" in sys.modules:
        return
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    spec = importlib.util.spec_from_file_location(
        "ckptcheck", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["ckptcheck"] = module
    spec.loader.exec_module(module)


def _chain():
    """Run the sitecustomize that would have run without ours."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [place for place in sys.path if os.path.abspath(place or os.curdir) != here]
    sys.path[:] = rest
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("CKPTCHECK_ORDERS"):
    sys.meta_path.insert(0, _Waiting())
_chain()
