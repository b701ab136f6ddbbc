"""A recorded command in the user's own terminal: its output, its signals and its exit code are those of the command.

It stays in our process group, so that the terminal's own keys, Ctrl-C and Ctrl-Z, reach it straight and once. What
somebody sends to us is handed on.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

HANDED_ON: Final = frozenset(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_FROM_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
"""What the terminal sends to every process of the group, where the system does not tell who sent it."""


def run_in_foreground(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; its return code, negative for a signal. OSError where it cannot be started.

    To be called from the main thread, where signals arrive.
    """
    # What the user has us ignore, as nohup does, the command ignores too.
    watched = {one for one in HANDED_ON if signal.getsignal(one) != signal.SIG_IGN} | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)

    def unmask() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        # The mask would be inherited. One thread runs here, so that code between fork and exec is safe.
        process = subprocess.Popen(words, env=environment, preexec_fn=unmask)  # noqa: PLW1509
        while process.poll() is None:
            number, is_ours_alone = _next_signal(watched)
            if number != signal.SIGCHLD and is_ours_alone and process.poll() is None:
                process.send_signal(number)
        return process.returncode
    finally:
        _forget_pending(watched)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _next_signal(watched: set[signal.Signals]) -> tuple[int, bool]:
    """Wait for a signal: its number, and whether it was sent to us rather than to the whole group by the kernel."""
    if hasattr(signal, "sigwaitinfo"):
        told = signal.sigwaitinfo(watched)
        return told.si_signo, told.si_code <= 0  # SI_USER, SI_QUEUE and SI_TKILL; those of the kernel are positive
    number = signal.sigwait(watched)
    return number, number not in _FROM_TERMINAL or not os.isatty(0)


def _forget_pending(watched: set[signal.Signals]) -> None:
    """Take what has arrived since the end away: Ctrl-C ended the command, and shall not end our last line too."""
    while signal.sigpending() & watched:
        signal.sigwait(watched)
