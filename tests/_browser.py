"""Headless Chromium, by PyQt6-WebEngine: ``python -m tests._browser URL CONDITION [PICTURE.png]``.

It opens a page, and again and again looks whether a condition in JavaScript is true.  Nothing but
the page's own host is asked.  Qt lives in a process of its own: it wants the main thread, and a
library of the system that it lacks must end nothing else.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_SETTINGS = {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",  # which does not work as root
    "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu --disable-dev-shm-usage",
}
_LOOK_MS = 50
_PATIENCE_S = 50


@dataclass
class Seen:
    """What a page was like when its condition was true: errors, and who else was asked."""

    errors: list
    elsewhere: list
    text: str


def seen(url, condition="true", picture=None):
    """Return what was seen of a page, or skip where there is no Chromium."""
    command = [sys.executable, "-c", "import PyQt6.QtWebEngineWidgets"]
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ | _SETTINGS)
    if found.returncode:
        why = found.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"Chromium of PyQt6-WebEngine does not start here: {why}")
    command = [sys.executable, "-m", "tests._browser", url, condition, *filter(None, [picture])]
    found = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | _SETTINGS, timeout=_PATIENCE_S,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return Seen(**json.loads(found.stdout))


def _main(url, condition, picture=None):
    from PyQt6.QtCore import QTimer, QUrl
    from PyQt6.QtWebEngineCore import QWebEnginePage, QWebEngineUrlRequestInterceptor
    from PyQt6.QtWebEngineWidgets import QWebEngineView
    from PyQt6.QtWidgets import QApplication

    errors, elsewhere = [], []

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(self, level, message, line, source):
            errors.append(f"{source}:{line}: {message}")

    class Home(QWebEngineUrlRequestInterceptor):
        def interceptRequest(self, asked):
            if asked.requestUrl().authority() != QUrl(url).authority():
                elsewhere.append(asked.requestUrl().toString())
                asked.block(True)

    application, home = QApplication(sys.argv[:1]), Home()
    view = QWebEngineView()
    page = Page(view)
    page.profile().setUrlRequestInterceptor(home)
    view.setPage(page)
    view.resize(1200, 900)
    view.show()

    ready = "document.readyState == 'complete' && location.href != 'about:blank'"

    def look():
        page.runJavaScript(f"{ready} && ({condition}) ? document.body.innerText : null", told)

    def told(text):
        if text is None:
            QTimer.singleShot(_LOOK_MS, look)
            return
        if picture is not None:
            view.grab().save(picture)
        print(json.dumps({"errors": errors, "elsewhere": elsewhere, "text": text}), flush=True)
        os._exit(0)  # Qt takes its time, and complains of the order in which things end

    look()
    page.load(QUrl(url))
    return application.exec()


if __name__ == "__main__":
    _main(*sys.argv[1:])
