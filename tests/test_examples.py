"""The examples run, assert their results, stay short, and are what the README shows."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LONGEST = 59


def run(file):
    # The package may be importable from the root only.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_example_runs_and_says_what_it_has_shown(file):
    ended = run(file)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert 1 <= len(ended.stdout.splitlines()) <= 2


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_example_is_short_documented_and_asserts_its_result(file):
    text = file.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= LONGEST
    assert ast.get_docstring(tree)
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert checks or "np.testing.assert_" in text


def test_readme_lists_every_example():
    listed = re.findall(r"\]\(examples/(\w+\.py)\)", (ROOT / "README.md").read_text())
    assert sorted(listed) == [file.name for file in EXAMPLES]


def test_quick_start_of_the_readme_is_the_example():
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    head, line, code = (ROOT / "examples/quick_start.py").read_text().partition("import anyio\n")
    assert shown == line + code
    assert ast.get_docstring(ast.parse(head))
    assert len(ast.parse(head).body) == 1
