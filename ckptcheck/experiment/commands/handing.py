"""A recorded command in the user's own terminal: its output, its signals and its exit code are those of the command.

It stays in our process group, so that the terminal's own keys, Ctrl-C and Ctrl-Z, reach it straight and once. What
somebody sends to us is handed on.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Final

_OURS: Final = frozenset(
    getattr(signal, name)
    for name in ("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGTSTP", "SIGTTIN", "SIGTTOU")
    if hasattr(signal, name)
)
"""What nobody can catch, what tells us of the command's end, and what stops us as the terminal's keys stop it."""
HANDED_ON: Final = frozenset(signal.valid_signals()) - _OURS
_IGNORED_BY_PYTHON: Final = frozenset(getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name))
"""What the interpreter itself ignores, so that nothing tells whether the user did: the command does not ignore it."""
_TIMERS: Final = frozenset(
    getattr(signal, name) for name in ("SIGALRM", "SIGVTALRM", "SIGPROF") if hasattr(signal, name)
)
"""Alarms are kept when a program becomes another, and not by its children: what was set before us is the command's."""
_FROM_TERMINAL: Final = frozenset(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGWINCH", "SIGCONT", "SIGINFO")
    if hasattr(signal, name)
)
"""What the terminal sends to every process of the group, where the system does not tell who sent it."""
_LOOK_S: Final = 1.0
"""How often the command is looked at, should no signal tell of its end."""


def run_in_foreground(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; its return code, negative for a signal. OSError where it cannot be started.

    To be called from the main thread, where signals arrive.
    """
    # What the user has us ignore, as nohup does, the command ignores too.
    handed = {one for one in HANDED_ON if one in _IGNORED_BY_PYTHON or signal.getsignal(one) != signal.SIG_IGN}
    watched: Set[int] = handed | {signal.SIGCHLD}
    # Where it is ignored, nothing tells of the command's end, and the system forgets its exit code.
    ignores_children = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)

    def as_before() -> None:
        if ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        if ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The mask would be inherited. One thread runs here, so that code between fork and exec is safe.
        process = subprocess.Popen(words, env=environment, preexec_fn=as_before)  # noqa: PLW1509
        while process.poll() is None:
            number = _next_to_hand_on(watched)
            if number is not None and process.poll() is None:
                with suppress(PermissionError):  # it runs as somebody else
                    process.send_signal(number)
        return process.returncode
    finally:
        _forget_pending(watched)
        as_before()


def _next_to_hand_on(watched: Set[int]) -> int | None:
    """Wait for a signal; None for one that the command gets without us, and after a while without any."""
    if not hasattr(signal, "sigtimedwait"):
        number = signal.sigwait(watched)
        is_known = number == signal.SIGCHLD or (number in _FROM_TERMINAL and os.isatty(0))
        return None if is_known else number
    told = signal.sigtimedwait(watched, _LOOK_S)
    if told is None or told.si_signo == signal.SIGCHLD:
        return None
    # SI_USER, SI_QUEUE and SI_TKILL are 0 and below. Those of the kernel are positive: a key, sent to the whole group.
    if told.si_code > 0 and told.si_signo not in _TIMERS:
        return None
    if told.si_signo == signal.SIGCONT and _is_from_our_shell(told.si_pid):
        return None
    return told.si_signo


def _is_from_our_shell(sender: int) -> bool:
    """Whether it comes from the shell that made us a job of its own: its `fg` and `bg` tell the whole group."""
    try:
        same_session = os.getsid(sender) == os.getsid(0)
        return sender == os.getppid() and same_session and os.getpgid(sender) != os.getpgrp()
    except OSError:  # it has gone
        return False


def _forget_pending(watched: Set[int]) -> None:
    """Take what has arrived since the end away: Ctrl-C ended the command, and shall not end our last line too."""
    while signal.sigpending() & watched:
        signal.sigwait(watched)
