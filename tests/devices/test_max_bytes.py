"""`max_bytes` on devices: what runs hold on each is counted by itself, and waits or is refused."""

import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests.machines.test_max_bytes import BLOCK, OVERHEAD, SIDE, feeds, wide
from tests.pipeline._model import Model, assert_same_bits

DEVICES = {
    "at once": lambda: {"device": ag.devices.check("cpu"), "lanes": 2},
    "threads": lambda: {"device": "virtual:0", "lanes": 3, "fuse": "none"},
    "two": lambda: {"devices": ["virtual:0", "virtual:1"], "lanes": 2, "fuse": "none"},
}
every_device = pytest.mark.parametrize("options", DEVICES.values(), ids=DEVICES)


@every_device
@each("backward", [False, True])
def test_a_run_never_holds_more_than_it_claims_on_all_devices(options, backward):
    loss, feed, limit = wide(), next(feeds(1)), 500 * BLOCK
    with ag.ActorMachine(loss, wrt=[loss.graph["x"]], max_bytes=limit, **options()) as machine:
        for _ in range(3):
            tracemalloc.start()
            run = machine.start(feed, backward=backward)
            claimed = run.claim.alone(machine._core.scheduler.workers)
            run.result()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < sum(claimed.values()) + OVERHEAD
    assert {one.root.name for one in machine._placing.used} - {"cpu"} <= {*claimed}


def needed(loss, **options):
    """Return what a run claims on each device."""
    with ag.ActorMachine(loss, max_bytes=10**12, **options) as machine:
        run = machine.start(next(feeds(1)))
        run.result()
        return dict(run.claim.on)


def test_a_copy_of_a_feed_is_claimed_once_for_all_lanes_and_one_of_a_parameter_never():
    """Beside the copy there are exp, sin, and three scalars."""
    for feed, blocks in ((True, 3), (False, 2)):
        g = ag.Graph()
        array = np.ones((SIDE, SIDE))
        x = g.input("x", array.shape, "float64") if feed else g.parameter("w", array)
        loss = np.exp(x).sum() + np.sin(x).sum()
        with ag.ActorMachine(
            loss, device="virtual:0", lanes=2, fuse="none", max_bytes=10**12
        ) as machine:
            run = machine.start({"x": array} if feed else {})
            run.result()
            assert run.claim.on == {"virtual:0": blocks * BLOCK + 3 * 8}


@pytest.mark.parametrize("options", [DEVICES["threads"], DEVICES["two"]])
def test_runs_wait_until_they_fit_on_the_device(options):
    loss, items = wide(), list(feeds(12))
    with ag.LispMachine(loss) as machine:
        wanted = [run[loss].value for run in machine.stream(items)]
    claims = needed(loss, **options())
    seen = []
    with ag.ActorMachine(loss, max_bytes=claims, max_in_flight=8, **options()) as machine:
        for run, value in zip(machine.stream(items, max_in_flight=8), wanted, strict=True):
            seen.append(len(machine._core.admission.in_flight))
            assert run[loss].value == value
    assert max(seen) <= 1


def test_a_run_that_never_fits_is_refused_with_the_device_and_both_numbers():
    loss = wide()
    ((device, size),) = needed(loss, device="virtual:0").items()
    text = rf"needs {size:_} bytes on virtual:0 even in sequential order.*max_bytes is {size - 1:_}"
    for limit in (size - 1, {"virtual:0": size - 1}):
        with (
            ag.TapeMachine(loss, device=device, max_bytes=limit) as machine,
            pytest.raises(ag.errors.MemoryLimitError, match=text),
        ):
            machine.run_sync(next(feeds(1)))
        assert machine.transfers["feeds"] == 0
    limits = {"virtual:0": size, "cpu": 10**5}
    with ag.TapeMachine(loss, device=device, max_bytes=limits) as machine:
        machine.run_sync(next(feeds(1)))


def test_a_device_that_is_not_named_has_no_limit_and_names_are_checked():
    loss = wide()
    with ag.TapeMachine(loss, device="virtual:0", max_bytes={"virtual:1": 1}) as machine:
        machine.run_sync(next(feeds(1)))
    with pytest.raises(ag.GraphError, match="unknown device 'gpu'"):
        ag.TapeMachine(loss, max_bytes={"gpu": 1})
    with pytest.raises(ValueError, match="max_bytes must be an int of at least 1, got 0"):
        ag.TapeMachine(loss, max_bytes={"cpu": 0})
    with pytest.raises(ag.errors.MemoryLimitError, match=r"needs [\d_]+ bytes even .* is 10;"):
        ag.TapeMachine(loss, max_bytes={"cpu": 10}).run_sync(next(feeds(1)))


def test_a_pipeline_counts_what_its_stages_hold_on_their_devices():
    model = Model()
    names = ["virtual:0", "virtual:1"]
    with model.pipeline(devices=names, max_bytes=10**9) as pipeline:
        run = pipeline.start(model.feeds)
        run.result()
        claims = dict(run.claim.on)
    assert {*claims} == {*names}
    with model.pipeline(devices=names, max_bytes=claims) as pipeline:
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
    with (
        model.pipeline(devices=names, max_bytes={"virtual:1": 100}) as pipeline,
        pytest.raises(ag.errors.MemoryLimitError, match="on virtual:1 even one microbatch after"),
    ):
        pipeline.run_sync(model.feeds)
