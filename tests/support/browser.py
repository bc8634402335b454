"""A real browser without a window, Debian's Chromium: pages of a width, in a color scheme, and their console.

It speaks the DevTools protocol (https://chromedevtools.github.io/devtools-protocol) by two pipes: no driver is needed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# As root, and in most containers, it does not start with its sandbox; it opens our own files only.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


class Page:
    """A tab. The protocol's commands are methods of `call`."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command, and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']['message']}"
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        message = bytearray()
        while not message.endswith(b"\0"):
            byte = self._answers.read(1)
            assert byte, "the browser has ended"
            message += byte
        return json.loads(message[:-1])

    def show(self, url: str, width: int, scheme: str = "light") -> None:
        """Load a page that is so many pixels wide, and wait until it is there."""
        self._events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """Errors and warnings in the console since `show`."""
        self.evaluate("0")
        return [
            event["params"]
            for event in self._events
            if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
            or (
                event.get("method") == "Runtime.consoleAPICalled"
                and event["params"]["type"] in ("error", "warning")
            )
        ]

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for since `show`."""
        wanted = [
            event["params"] for event in self._events if event.get("method") == "Network.requestWillBeSent"
        ]
        return [one["request"]["url"] for one in wanted]

    def save(self, path: Path, **area: Any) -> None:
        """A picture of the whole page, or of an area of it, as PNG."""
        clip = {"clip": {"scale": 1, **area}} if area else {}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, **clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium() -> Iterator[Page]:
    """A page of a browser that ends with the block. Without a browser, the test is skipped."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("Chromium is not installed (on Debian: apt-get install chromium-headless-shell)")
    with ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        (commands_out, commands), (answers, answers_in) = os.pipe(), os.pipe()
        theirs = (commands_out, answers_in)
        # It reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{commands_out} 4>&{answers_in}'
        command = [
            "/bin/bash",
            "-c",
            script,
            "sh",
            program,
            *OPTIONS,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        browser = subprocess.Popen(
            command,
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(browser.wait)
        stack.callback(browser.kill)
        for fd in theirs:
            os.close(fd)
        ends = (
            stack.enter_context(os.fdopen(commands, "wb", buffering=0)),
            stack.enter_context(os.fdopen(answers, "rb")),
        )
        page = Page(*ends)
        yield page
        with suppress(AssertionError, OSError):
            page.call("Browser.close")
            browser.wait(10)
