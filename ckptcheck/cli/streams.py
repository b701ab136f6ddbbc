"""Where results go: standard output, whose reader may leave, and files, which appear whole or not at all."""

import os
import sys
from pathlib import Path

from ckptcheck.errors import OutputError


def write_out(text: str) -> None:
    """Write to standard output; a reader that has left is no error. OutputError where it cannot be written."""
    stream = sys.stdout
    if stream is None:  # started with standard output closed
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        abandon_stdout()
    except OSError as error:
        abandon_stdout()
        raise OutputError(f"cannot write to standard output: {error.strerror or error}") from error


def abandon_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def check_writable(path: Path) -> None:
    """Refuse early, before any training, what surely cannot be written. OutputError says why."""
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise OutputError(f"cannot write {path}: permission denied")


def write_file(path: Path, text: str) -> None:
    """Write a whole file or leave what was there; a device or pipe is written straight. OutputError if it fails."""
    path = path.resolve()  # a link stays, what it leads to is replaced
    straight = path.exists() and not path.is_file()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if straight:
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            _write_and_replace(temporary, path, text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _write_and_replace(temporary: Path, path: Path, text: str) -> None:
    try:
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
