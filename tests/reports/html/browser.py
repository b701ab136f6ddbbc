"""A real browser without a window: Chromium over its own pipe (DevTools protocol), with nothing in between.

https://chromedevtools.github.io/devtools-protocol/; messages are JSON, each ended by a NUL.
"""

import base64
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
FLAGS = ("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
         "--force-color-profile=srgb", "--hide-scrollbars")  # fmt: skip


def chromium() -> str | None:
    """Where Chromium or Chrome is."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One browser with one tab. `events` are what the tab told since the last `open`."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.mkdtemp(prefix="browser-")
        (read_orders, orders), (answers, write_answers) = os.pipe(), os.pipe()
        argv = [program, *FLAGS, f"--user-data-dir={self._home}", "about:blank"]
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2),
                   (os.POSIX_SPAWN_DUP2, read_orders, 3), (os.POSIX_SPAWN_DUP2, write_answers, 4)]  # fmt: skip
        # In a group of its own: it starts helpers, which end with it.
        self._process = os.posix_spawn(program, argv, os.environ, file_actions=actions, setpgroup=0)
        for one in (read_orders, write_answers, quiet):
            os.close(one)
        self._orders, self._answers, self._rest = orders, answers, b""
        self._number, self._session = 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Give an order and return its answer; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._orders, json.dumps(message).encode() + b"\0")
        while True:
            got = self._read()
            if got.get("id") == self._number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._answers, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Open a file and wait until it has drawn itself."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        self.frames(3)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{script}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression holds; TimeoutError where it never does."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.01)

    def frames(self, number: int) -> None:
        """Let so many frames be drawn."""
        self.run(f"new Promise(done => {{ let left = {number}; const next = () => left-- ? "
                 "requestAnimationFrame(next) : done(true); next(); })")  # fmt: skip

    def press(self, key: str, text: str = "") -> None:
        """Press a key as a person does; `text` is what it types."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        named = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        text = "\r" if key == "Enter" else text
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text: str) -> None:
        """Type a text, letter by letter."""
        for letter in text:
            self.press(letter, letter)

    def picture(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """The page as PDF, as it would be printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def troubles(self) -> list[str]:
        """Errors and warnings of the console, and exceptions that nobody caught."""
        self.run("1")
        found = []
        for one in self.events:
            params = one.get("params", {})
            if one.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("exception", {}).get("description")))
            elif one.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
                found.append(params["entry"]["text"])
            elif one.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error", "assert"):
                found.append(str(params["args"]))
        return found

    def requests(self) -> list[str]:
        """The addresses of everything that was asked for since the last `open`."""
        self.run("1")
        return [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        """End the browser and what it has started, and delete what it wrote."""
        os.close(self._orders)
        os.close(self._answers)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        shutil.rmtree(self._home, ignore_errors=True)
