"""What the project's own files promise each other."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "pip install -e '.[demo]' && actorgraph demo",
    "pip install -e '.[dev]' && pytest",
)


def extras():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_commands_are_what_the_check_runs(command):
    assert command in (ROOT / "README.md").read_text().splitlines()
    assert f'as_written "{command}"' in (ROOT / ".ci/run").read_text().splitlines()


def test_readme_lists_every_extra():
    readme = (ROOT / "README.md").read_text()
    assert {name for name in extras() if f"`{name}`" not in readme} == set()


def test_dev_extra_stays_light():
    heavy = {"torch", "jax", "autograd", "ray", "dask", "cupy"}
    assert not {name for line in extras()["dev"] for name in heavy if line.startswith(name)}


def test_check_script_is_executable():
    assert os.access(ROOT / ".ci/run", os.X_OK)


IMPORTS = """
import importlib, pkgutil, benchmarks

for one in pkgutil.iter_modules(benchmarks.__path__, "benchmarks."):
    try:
        importlib.import_module(one.name)
    except ModuleNotFoundError as error:  # a peer
        assert error.name.partition(".")[0] not in ("actorgraph", "benchmarks"), error
"""


def test_benchmarks_name_what_is_there():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
