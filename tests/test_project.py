"""What the project's own files promise each other."""

import os
import re
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import _grid_ops, _harness, metg
from tests._child import printed_by

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


def test_tests_wait_for_events_and_never_for_time():
    sleeps = re.compile(r"\bsleep" + r"\((?!0\))")
    assert [str(path) for path in (ROOT / "tests").rglob("*.py")
            if sleeps.search(path.read_text())] == []  # fmt: skip


def test_waiting_on_an_event_loop_ends_by_itself():
    """A timeout of pytest stops trio without ending its loop: `tests._until.until` is before it."""
    endless = re.compile(
        r"(?<!fail_after\(30\):\n)^ *while (?!True).*:\n *await anyio.lowlevel.checkpoint\(\)$",
        re.MULTILINE,
    )
    assert [str(path) for path in (ROOT / "tests").rglob("*.py")
            if endless.search(path.read_text())] == []  # fmt: skip


IMPORTS = """
import importlib, pkgutil, benchmarks

for one in pkgutil.iter_modules(benchmarks.__path__, "benchmarks."):
    try:
        importlib.import_module(one.name)
    except ModuleNotFoundError as error:  # a peer
        assert error.name.partition(".")[0] not in ("actorgraph", "benchmarks"), error
"""


@pytest.mark.parametrize("pattern", metg.PATTERNS)
def test_each_system_of_the_grid_of_ops_has_the_bits_of_numpy(pattern):
    for peer in metg.own_case(metg.OpsGrid(pattern, 5)).peers:
        with ExitStack() as scope:
            peer.build(scope).run()  # whoever waits for neighbours is compared when it is built


def test_the_last_call_of_a_system_of_the_grid_is_compared_too():
    grid = metg.OpsGrid("stencil", 5)
    right = _grid_ops.one_thread(grid, ExitStack()).run()
    found = iter([right, [column + 1 for column in right]])
    with ExitStack() as scope:
        _grid_ops._compared(grid, _harness.Trial(lambda: next(found)), scope)
        with pytest.raises(AssertionError, match="Arrays are not equal"):
            scope.close()


def test_a_part_of_the_grid_measures_calls_where_a_system_is_asked_for(monkeypatch):
    def figures(case, peers, effort):
        return [metg.Figure(case.name, one.system, one.ours, seconds=1e-6) for one in peers]

    def systems(only):
        return {one.system for one in metg.measure_own("stencil", None, only, (4,))[0]}

    monkeypatch.setattr(_harness, "_measure_group", figures)
    assert systems("executor") == {metg.NUMPY, metg.CALLS, "ThreadPoolExecutor"}
    assert systems("Ray") == {metg.NUMPY}


def test_the_smallest_task_is_where_half_of_the_ideal_is_reached():
    def sized(*seconds):
        names = metg.NUMPY, metg.DEFAULT
        pairs = zip(names, seconds, strict=True)
        return [metg.Figure("case", name, seconds=one) for name, one in pairs]

    grid = [sized(1e-6, 4e-6), sized(4e-6, 4e-6), sized(8e-6, 4e-6)]
    [grain] = metg.grains("case", grid, {0: 1e-6, 1: 4e-6, 2: 8e-6})
    assert grain.us == pytest.approx(4.0)
    [grain] = metg.grains("case", grid[1:], {0: 4e-6, 1: 8e-6})
    assert grain.bound == "< "
    [grain] = metg.grains("case", grid[:2], {0: 0.1e-6, 1: 3e-6})
    assert grain.bound == "> "


def test_benchmarks_name_what_is_there():
    printed_by(IMPORTS)
