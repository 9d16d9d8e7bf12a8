"""Programs and tests that run in a Python of their own."""

import os
import subprocess
import sys
from functools import wraps
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]


def printed_by(code, *options, quiet=True, timeout_s=50, **environment):
    """Return the words that a program prints, which has to end well and, if quiet, without more."""
    ended = subprocess.run(
        [sys.executable, *options, "-c", dedent(code)], cwd=ROOT, env=os.environ | environment,
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert not (quiet and ended.stderr), ended.stderr
    return ended.stdout.split()


def in_a_child(test):
    """Run a test in a process of its own, without what other tests have left."""

    @wraps(test)
    def started():
        call = f"from {test.__module__} import {test.__name__} as test; test.__wrapped__()"
        assert printed_by(call) == []

    return started
