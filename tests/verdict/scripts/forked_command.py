"""Commands that cost a fork: `python -S forked_command.py SOCKET SCRIPT ARGUMENT...` has a server run the script.

The server has torch imported. Forks share a hash seed, so that they serve tests only.
"""

import array
import json
import os
import signal
import socket
import sys
from pathlib import Path


def ask(place: str, words: list[str]) -> int:
    """Have the server at a socket run a script as this process would; its exit code, 1 where it was killed."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(place)
        told = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(asking, [json.dumps(told).encode() + b"\n"], [1, 2])
        answer = asking.recv(1)
    return answer[0] if answer else 1


def serve(place: str) -> None:
    """Answer until this process is ended."""
    import numpy  # noqa: F401
    import torch
    import torch._dynamo

    import ckptcheck.trace.script.start  # noqa: F401

    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        print("ready", flush=True)
        while True:
            asked, _ = listening.accept()
            if not os.fork():
                listening.close()
                _run(asked)
            asked.close()


def _run(asked: socket.socket) -> None:
    import atexit
    import random
    import runpy
    import traceback

    text, files = b"", array.array("i")
    while not text.endswith(b"\n"):
        part, fds, _, _ = socket.recv_fds(asked, 1 << 16, 2)
        text, files = text + part, array.array("i", [*files, *fds])
    told = json.loads(text)
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = told["words"]
    random.seed()
    code = 1
    try:
        from ckptcheck.trace.script.start import start

        start()
        runpy.run_path(sys.argv[0], run_name="__main__")
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends below
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.send(bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
