"""Copies of the repository: nothing is ever mutated in the working tree."""

import compileall
import os
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

PACKAGE = "ckptcheck"
LEFT_OUT = shutil.ignore_patterns(".git", ".*_cache", ".hypothesis", ".benchmarks", "__pycache__", "*.egg-info")


def copy(source: Path, to: Path) -> None:
    """Copy the repository, its tests and fixtures, without caches and history."""
    shutil.copytree(source, to, ignore=LEFT_OUT, symlinks=True)
    compile_package(to)


def compile_package(root: Path) -> None:
    """Compile the package once; a file is known by its content, so that a mutant is never taken for the original."""
    folder = root / PACKAGE
    compileall.compile_dir(folder, quiet=2, force=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def environment(root: Path, *, writing: bool) -> dict[str, str]:
    """That of processes in a copy, where the copy is what is imported."""
    ours = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, "HF_HUB_OFFLINE": "1"}
    if not writing:
        ours["PYTHONDONTWRITEBYTECODE"] = "1"
    return {**os.environ, **ours}
