"""A plugin of pytest: fails where a line of `devices/cuda.py` has not run, in whatever thread."""

import sys
import threading

from actorgraph.devices import cuda

ran = set()


def called(frame, event, argument):
    if frame.f_code.co_filename == cuda.__file__:
        ran.add(frame.f_lineno)
        return at_line
    return None


def at_line(frame, event, argument):
    ran.add(frame.f_lineno)
    return at_line


def lines_of(code):
    """Return the lines of the functions in a code object, without those of its own level."""
    found = set()
    for inner in code.co_consts:
        if hasattr(inner, "co_lines"):
            own = {line for _, _, line in inner.co_lines() if line}
            found |= lines_of(inner) | (own if inner.co_flags & 2 else set())  # no class's body
    return found


def pytest_sessionstart(session):
    threading.settrace(called)
    sys.settrace(called)


def pytest_sessionfinish(session):
    sys.settrace(None)
    threading.settrace(None)
    with open(cuda.__file__, encoding="utf-8") as text:
        left = lines_of(compile(text.read(), cuda.__file__, "exec")) - ran
    if left:
        print(f"\nlines of devices/cuda.py that no test has run: {sorted(left)}")
        session.exitstatus = 1
