"""A headless Chromium that tests steer by its DevTools protocol, through a pair of pipes.

Source: https://chromedevtools.github.io/devtools-protocol/; with ``--remote-debugging-pipe`` the
browser reads commands from descriptor 3 and writes answers and events to 4, each ended by a zero.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from time import monotonic

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--host-rules=MAP * ^NOTFOUND", "--remote-debugging-pipe",
)  # fmt: skip

_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found():
    """Return the path of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser without network; close it."""

    def __init__(self, profile, timeout_s=30.0):
        self.timeout_s = timeout_s
        self.events = []
        self._number = 0
        self._received = b""
        self._session = {}
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self._in, self._out = ours_in, ours_out
        command = [found(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        starter = [sys.executable, "-c", _START, str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            [*starter, *command], pass_fds=(theirs_in, theirs_out), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, page, wide=1100, tall=900):
        """Show a file, and return when its scripts have run."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=wide, height=tall, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression):
        """Return the value of an expression of the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

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
        """Return what went wrong since the page was opened, and what it asked the network for."""
        self.ask("0")  # events come before the answer
        told = [event for event in self.events if "method" in event]
        faults = [
            event
            for event in told
            if event["method"] == "Runtime.exceptionThrown"
            or event["params"].get("entry", {}).get("level") == "error"
        ]
        asked = [
            event["params"]["request"]["url"]
            for event in told
            if event["method"] == "Network.requestWillBeSent"
        ]
        return faults + asked[1:]  # the first is the page itself

    def close(self):
        """End the browser."""
        for end in (self._in, self._out):
            os.close(end)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _next(self):
        until = monotonic() + self.timeout_s
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError(f"the browser did not answer in {self.timeout_s} s, or ended")
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)
