"""The laws of devices catch a fault that is planted, and say which law it breaks."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.base import Lane
from actorgraph.devices.virtual import ThreadQueue, Virtual


class Rounding(Virtual):
    """Its copies lose digits."""

    def to_device(self, array):
        return np.array(array).astype("float16").astype(array.dtype)


class Leaking(Virtual):
    """Results are its own memory."""

    def __init__(self, name):
        super().__init__(name)
        self.kept = {}

    def to_host(self, array):
        return self.kept.setdefault(array.shape, array)


class Forgetful(Virtual):
    """Nothing that is brought stays."""

    def bring(self, value, node=None):
        made = super().bring(value, node)
        made.cell.failed = made.cell.failed or MemoryError("gone")
        return made


class Borrowing(Virtual):
    """What it brings is the caller's own array."""

    def to_device(self, array):
        return array


class Own(ag.devices.Device):
    """A device whose `__init__` does not call that of `Device`."""

    def __init__(self):
        self.name = "own"

    @property
    def xp(self):
        return np

    def to_device(self, array):
        return np.array(array)

    def to_host(self, array):
        return np.array(array)

    def queue(self, lane):
        return ThreadQueue(lane.name)


def test_a_device_need_not_call_the_init_of_its_base_class():
    ag.testing.check_device(Own)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (Rounding, "values gradients and tangents are those of the cpu"),
        (Leaking, "values gradients and tangents are those of the cpu"),
        (Forgetful, "values gradients and tangents are those of the cpu"),
        (Borrowing, "what is brought to it is a copy: a feed on the device"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_faulty_device_is_told_by_the_law_that_it_breaks(fault, law):
    with pytest.raises(AssertionError, match=f"broken law: {law}"):
        ag.testing.check_device(lambda: fault("faulty"))


def test_memory_that_never_comes_back_is_told(monkeypatch):
    monkeypatch.setattr(Lane, "settle", lambda self, ended=False: None)
    with pytest.raises(AssertionError, match="broken law: memory has come back"):
        ag.testing.check_device(lambda: Virtual("keeping"))
