"""A headless Chromium that tests steer: PyQt6-WebEngine, by its DevTools protocol.

Source: https://chromedevtools.github.io/devtools-protocol/.  Qt lives in a process of its own
(``python -m tests._browser``): it wants the main thread, and a library of the system that it lacks
must end nothing else.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

_SETTINGS = {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",  # which does not work as root
    "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu --disable-dev-shm-usage --hide-scrollbars",
}
_LOOK_S = 0.05
_PATIENCE_S = 50.0


@contextmanager
def started():
    """Give a browser that shows nothing yet, or skip where there is none."""
    connect = pytest.importorskip("websockets.sync.client").connect
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    process = subprocess.Popen(
        [sys.executable, "-m", "tests._browser"], cwd=Path(__file__).parents[1],
        env=os.environ | _SETTINGS | {"QTWEBENGINE_REMOTE_DEBUGGING": address},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if process.stdout.readline() != "ready\n":
            why = process.stderr.read().strip().rpartition("\n")[2]
            pytest.skip(f"Chromium of PyQt6-WebEngine does not start here: {why}")
        (page,) = json.load(urlopen(f"http://{address}/json/list", timeout=_PATIENCE_S))
        with connect(page["webSocketDebuggerUrl"], max_size=None) as wire:
            yield Browser(wire)
    finally:
        process.kill()
        process.communicate()


class Browser:
    """One page of a browser that may ask nobody but the page's own host."""

    def __init__(self, wire):
        self._wire, self._number, self._home = wire, 0, None
        self.events, self.asked = [], []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Fetch.enable")

    def call(self, method, **params):
        """Send a command and return its result."""
        self._send(method, params)
        number = self._number
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url, wide=1100, tall=900):
        """Show a page, and return when its scripts have run."""
        self.events.clear()
        self.asked.clear()
        self._home = urlsplit(url)[:2]
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=wide, height=tall, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression):
        """Return the value of an expression of the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition):
        """Return when an expression of the page, which may load itself anew, is true."""
        end = monotonic() + _PATIENCE_S
        while not self.ask(f"document.readyState == 'complete' && Boolean({condition})"):
            assert monotonic() < end, self.ask("document.body.innerText")
            sleep(_LOOK_S)

    def mouse(self, kind, x, y, **more):
        """Have the mouse do something: mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        button = {} if kind in ("mouseMoved", "mouseWheel") else {"button": "left"}
        held = {"buttons": 1} if kind == "mousePressed" else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button, **held, **more)

    def click(self, x, y, times=1):
        """Click, or click twice."""
        self.mouse("mouseMoved", x, y)
        for count in range(1, times + 1):
            self.mouse("mousePressed", x, y, clickCount=count)
            self.mouse("mouseReleased", x, y, clickCount=count)

    def press(self, key):
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def faults(self):
        """Return what went wrong since the page was opened, and whom else it asked in vain."""
        self.ask("0")  # events come before the answer
        told = [(event.get("method"), event.get("params", {})) for event in self.events]
        return [
            params
            for method, params in told
            if method == "Runtime.exceptionThrown"
            or (method == "Runtime.consoleAPICalled" and params["type"] == "error")
            or params.get("entry", {}).get("level") == "error"
        ]

    def _send(self, method, params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._wire.send(json.dumps(message))

    def _next(self):
        message = json.loads(self._wire.recv(timeout=_PATIENCE_S))
        if message.get("method") == "Fetch.requestPaused":
            of = {"requestId": message["params"]["requestId"]}
            self.asked.append(message["params"]["request"]["url"])
            if urlsplit(self.asked[-1])[:2] == self._home:
                self._send("Fetch.continueRequest", of)
            else:  # tells of an error in the log
                self._send("Fetch.failRequest", of | {"errorReason": "BlockedByClient"})
        return message


def _main():
    from PyQt6.QtCore import QUrl
    from PyQt6.QtWebEngineWidgets import QWebEngineView
    from PyQt6.QtWidgets import QApplication

    application = QApplication(sys.argv[:1])
    view = QWebEngineView()
    view.load(QUrl("about:blank"))
    view.show()
    view.loadFinished.connect(lambda _: print("ready", flush=True))
    return application.exec()


if __name__ == "__main__":
    _main()
