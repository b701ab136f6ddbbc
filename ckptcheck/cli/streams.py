"""Where results go: standard output, whose reader may leave, and files, which appear whole or not at all."""

import fcntl
import os
import stat
import sys
from pathlib import Path
from typing import TextIO

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
    _abandon(sys.stdout)


def abandon_stderr() -> None:
    """The same for what cannot be said on stderr."""
    _abandon(sys.stderr)


def _abandon(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def in_mid_line() -> bool:
    """Whether what stands last in stderr is an unfinished line; False where that cannot be known."""
    try:
        number = sys.stderr.fileno()
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return False
        end = os.fstat(number).st_size if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND else (
            os.lseek(number, 0, os.SEEK_CUR)
        )  # fmt: skip
        with Path(f"/dev/fd/{number}").open("rb") as file:
            file.seek(end - 1)
            return file.read(1) not in (b"\n", b"")
    except (OSError, ValueError, AttributeError):  # closed, of another kind, or at its beginning
        return False


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
