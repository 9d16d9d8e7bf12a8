"""The garbage collector pauses while a graph is compiled, and no garbage stays for good."""

import gc
import sys
import weakref

import pytest

from actorgraph.lower.asking import Asking
from actorgraph.lower.collector import paused
from tests._child import in_a_child

nobody_freezes = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="this Python freezes its immortal objects itself"
)


def collections():
    """Return the list that shows the generations that are gone through from now on."""
    found = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: phase == "start" and found.append(info["generation"]))
    return found


@nobody_freezes
@in_a_child
def test_what_is_made_meanwhile_grows_old_without_being_gone_through():
    collected = collections()
    few = max(10_001, len(gc.get_objects()) // 8)
    with paused():
        kept = [[] for _ in range(few)]
        collected.clear()
    assert collected == []
    assert gc.isenabled()
    assert not any(one is kept[0] for young in (0, 1) for one in gc.get_objects(young))
    assert any(one is kept[0] for one in gc.get_objects(2))


class Cycle:
    def __init__(self):
        self.own = self


@nobody_freezes
@in_a_child
def test_garbage_that_has_grown_old_is_found_when_there_is_a_quarter_of_it():
    collected = collections()
    most = max(len(gc.get_objects()), 80_000)  # some are made before anything is counted
    made, first = 0, None
    while first is None or first() is not None:
        with paused():
            others = [Cycle() for _ in range(10_001)]
            first = first or weakref.ref(others[0])
        made += len(others)
        assert made < most
    assert 2 in collected


@in_a_child
def test_what_somebody_has_frozen_stays_frozen():
    collected = collections()
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused():
        kept = [[] for _ in range(10_001)]
    assert gc.get_freeze_count() == frozen
    assert collected == [1]
    assert len(kept) == 10_001


def test_nothing_is_collected_while_machine_code_is_written():
    pytest.importorskip("llvmlite", reason="the extra native is not installed")
    asking = Asking(gc.isenabled, 0, wait=True)
    asking.count()
    assert asking.made is False
    assert gc.isenabled()
