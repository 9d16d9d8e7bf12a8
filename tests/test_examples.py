"""The examples run, assert their results, stay short, and are what the README lists."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests._each import each
from tests._soak import SOAK

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LONGEST = 59
SLOW = {
    "train_characters_gpt.py",
    "train_characters_lstm.py",
    "train_digits.py",
    "train_sentiment.py",
}
"""What takes 12 to 40 s of one core."""

NEWCOMERS = 40
NEEDS = {
    "serve_fastapi.py": "fastapi",
    "serve_hypercorn.py": "hypercorn",
    "serve_litestar.py": "litestar",
    "serve_starlette.py": "starlette",
}
"""What is not installed with the project; the example is skipped without."""


def run(file):
    # The package may be importable from the root only.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
        check=False,
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_example_runs_and_says_what_it_has_shown(file):
    if file.name in SLOW and not SOAK:
        pytest.skip("a training of half a minute, which runs in the soak")
    if "history.plot(" in file.read_text():
        pytest.importorskip("matplotlib")
    pytest.importorskip(NEEDS.get(file.name, "actorgraph"))
    ended = run(file)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert 1 <= len(ended.stdout.splitlines()) <= 2


@each("file", EXAMPLES)
def test_example_is_short_documented_and_asserts_its_result(file):
    text = file.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= LONGEST
    assert ast.get_docstring(tree)
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert checks or "np.testing.assert_" in text


def test_a_newcomers_network_is_short():
    assert len((ROOT / "examples/train_digits.py").read_text().splitlines()) <= NEWCOMERS


def test_readme_lists_every_example():
    listed = re.findall(r"\]\(examples/(\w+\.py)\)", (ROOT / "README.md").read_text())
    assert sorted(listed) == [file.name for file in EXAMPLES]
