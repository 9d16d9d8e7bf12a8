"""A plugin of pytest: machines that are given no device run on `virtual:2` under the checker.

``pytest -p tests.devices._elsewhere tests/machines``; a finding fails the test that made it.
"""

import functools
import signal

import pytest

import actorgraph as ag
from actorgraph.machines.base import Machine
from tests.machines import _faults

LIMIT_S = 20.0
checked = ag.devices.check("virtual:2")


def elsewhere(init, **given):
    @functools.wraps(init)
    def made(self, *args, **options):
        own = isinstance(self, ag.pipeline.Pipeline) is (init is not machine_init)
        told = {"device", "devices", "jit", "native"} & {*options}
        auto = "auto" in [one for one in options.values() if isinstance(one, str)]
        if own and not told and not auto:
            options |= given
        init(self, *args, **options)

    return made


# The copy of a parameter on a device is kept for the next run, and shows its array.
_faults.nobody_reads = lambda variable: True

machine_init, pipeline_init = Machine.__init__, ag.pipeline.Pipeline.__init__
Machine.__init__ = elsewhere(machine_init, device=checked)
ag.pipeline.Pipeline.__init__ = elsewhere(pipeline_init, devices=[checked])


def give_up(*_):
    raise TimeoutError("the test waits for what does not come")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = len(checked.report())
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 1.0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        assert checked.report()[before:] == []
