"""Records which ops and functions the tests marked ``oracle`` compare with PyTorch.

Run ``python docs/compared.py``: it runs these tests and writes ``docs/compared.txt``, from which
`generate.py` takes a column of ops.md.  With ``--check``, as CI runs them, it fails where that file
is stale instead.  A name of the registry or of ``ag.ops`` is listed if a test that passed and that
called PyTorch ran it or applied it; gradients and functions built of others count what they are
made of.
"""

import inspect
import sys
from pathlib import Path

import pytest
from torch.overrides import TorchFunctionMode

import actorgraph as ag
from actorgraph.graph import Graph
from actorgraph.op import REGISTRY

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).parent / "compared.txt"


class _Calls(TorchFunctionMode):
    """Notes whether anything of PyTorch is called."""

    any = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.any = True
        return function(*args, **(kwargs or {}))


class Recorder:
    """A plugin that notes in `names` what the tests run with PyTorch."""

    def __init__(self):
        self.names = set()
        # Functions that one factory makes share their code, and differ in what they close over.
        self.codes = {}
        for name in ag.ops.__all__:
            function = getattr(getattr(ag.ops, name), "__wrapped__", None)  # behind `ops._foreign`
            if inspect.isfunction(function):
                held = inspect.getclosurevars(function).nonlocals
                self.codes.setdefault(function.__code__, []).append((name, held))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Note what a test runs, if it calls PyTorch and passes."""
        if item.get_closest_marker("oracle") is None:
            return (yield)
        found, apply = set(), Graph.apply

        def noted(graph, op, *args, **kwargs):
            found.add(op.name)
            return apply(graph, op, *args, **kwargs)

        def profile(frame, event, _):
            if event == "call":
                for name, held in self.codes.get(frame.f_code, ()):
                    if all(frame.f_locals[key] is value for key, value in held.items()):
                        found.add(name)

        Graph.apply = noted
        sys.setprofile(profile)
        try:
            with _Calls() as calls:
                result = yield
        finally:
            sys.setprofile(None)
            Graph.apply = apply
        if calls.any:  # and it passed
            self.names |= found
        return result

    def pytest_sessionfinish(self, session):
        """Hand the names to the process that has started this one."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["compared"] = sorted(self.names)

    def pytest_testnodedown(self, node):
        """Take the names of a process that has ended."""
        self.names.update(node.workeroutput["compared"])


def pytest_configure(config):
    """Record in each process that runs tests: pytest imports this file there as a plugin."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def record():
    """Run the tests; return what passed ones compare, or raise where one fails."""
    recorder = Recorder()
    # The library is imported already, so pytest cannot rewrite the assertions of its plugins.
    status = pytest.main(
        ["-q", "-p", "compared", "--assert=plain", "-m", "oracle", str(ROOT / "tests")],
        plugins=[recorder],
    )
    if status:
        raise SystemExit(int(status))
    return sorted(recorder.names & {*REGISTRY, *ag.ops.__all__})


def check(names):
    """Raise where the recorded list differs from `names`."""
    listed = set(LIST.read_text().split())
    added, gone = sorted(set(names) - listed), sorted(listed - set(names))
    if added or gone:
        raise SystemExit(
            f"docs/compared.txt is stale: tests compare {added or 'nothing'} beside what it lists, "
            f"and {gone or 'nothing'} of that no more; run: python docs/compared.py"
        )


if __name__ == "__main__":
    found = record()
    if sys.argv[1:] == ["--check"]:
        check(found)
    else:
        LIST.write_text("".join(f"{name}\n" for name in found))
