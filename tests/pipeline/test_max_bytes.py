"""Pipelines with `max_bytes`: a batch never holds more than it claims, and waits till that fits."""

import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import MemoryLimitError
from actorgraph.pipeline import SCHEDULES, Pipeline, Schedule, schedule
from tests.pipeline import _model as small

SIDE = 192
BLOCK = SIDE * SIDE * 8
"""Bytes of a weight, and of a value of one microbatch."""

OVERHEAD = 300_000
"""Bytes for runs, messages and programs, which are not arrays."""


class Model:
    """x -> tanh(x W) six times -> loss; the first and the last weight may be one."""

    def __init__(self, tied=False):
        rng = np.random.default_rng(0)
        g = ag.Graph()
        h = x = g.input("x", shape=("batch", SIDE), dtype="float64")
        first = None
        for number in range(6):
            if not (tied and number == 5):
                W = g.parameter(f"W{number}", rng.normal(size=(SIDE, SIDE)) / 14)
                first = W if first is None else first
            h = np.tanh(h @ (first if tied and number == 5 else W))
        self.graph, self.x, self.hidden, self.loss = g, x, h, (h * h).mean()

    def feeds(self, microbatches):
        return {"x": np.random.default_rng(1).normal(size=(microbatches * SIDE, SIDE))}

    def gradients(self, run):
        return [run[W].grad.tobytes() for W in self.graph.parameters]


def claim(run):
    return sum(run.claim.alone(run.core.scheduler.workers).values())


def peak_of(function):
    """Return the most bytes above those at the start while a function ran."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def last_in_first_out():
    made = schedule("gpipe", stages=3, microbatches=4)
    return Schedule([lane[:4] + lane[:3:-1] for lane in made.lanes])


@pytest.mark.parametrize(
    ("name", "tied", "devices"),
    [
        ("1f1b", False, ["cpu"]),
        *((n, True, ["cpu"]) for n in (*SCHEDULES, "dynamic", "last in, first out")),
        ("1f1b", True, ["virtual:0"]),
        ("gpipe", True, ["virtual:0", "virtual:1", "cpu"]),
    ],
)
def test_a_batch_never_holds_more_than_it_claims(name, tied, devices):
    model = Model(tied)
    made = last_in_first_out() if name == "last in, first out" else name
    given = {} if isinstance(made, Schedule) else {"stages": 3, "microbatches": 4}
    given["devices"] = devices
    feeds = model.feeds(4)
    with Pipeline(
        model.loss, outputs=[model.hidden], schedule=made, max_bytes=1000 * BLOCK, **given
    ) as pipeline:
        pipeline.run_sync(feeds)
        for _ in range(2):
            claims = []

            def run(claims=claims):
                started = pipeline.start(feeds)
                claims.append(claim(started))
                started.result()

            assert peak_of(run) < claims[0] + OVERHEAD


@pytest.mark.parametrize(("name", "factor"), [("1f1b", 1.5), ("zb-h1", 1.5), ("gpipe", 1.6)])
def test_the_claim_is_close_to_what_a_batch_holds(name, factor):
    model = Model()
    feeds = model.feeds(8)
    with Pipeline(
        model.loss, stages=2, schedule=name, microbatches=8, max_bytes=1000 * BLOCK
    ) as pipeline:
        pipeline.run_sync(feeds)
        peak = max(peak_of(lambda: pipeline.run_sync(feeds)) for _ in range(5))
        run = pipeline.start(feeds)
        assert claim(run.result()) < factor * peak


def test_a_schedule_that_holds_fewer_microbatches_claims_less():
    model = Model()
    claims = {}
    for name in ("gpipe", "1f1b"):
        with Pipeline(
            model.loss, stages=3, schedule=name, microbatches=12, max_bytes=1000 * BLOCK
        ) as pipeline:
            claims[name] = claim(pipeline.start(model.feeds(12)).result())
    assert claims["1f1b"] < 0.5 * claims["gpipe"]


@pytest.mark.parametrize("name", ["gpipe", "zb-h1", "zb-v", "dynamic"])
def test_what_does_not_fit_goes_one_microbatch_after_another_with_the_same_bits(name):
    model = Model(tied=True)
    feeds = model.feeds(6)
    options = {"stages": 2, "schedule": name, "microbatches": 6}
    with Pipeline(model.loss, max_bytes=1000 * BLOCK, **options) as pipeline:
        run = pipeline.run_sync(feeds)
        expected, usual = model.gradients(run), run.plan
        sequence = usual.one_by_one()
        least = sequence.bind({"batch": SIDE})
        pipeline_least = _alone(sequence, least, pipeline.workers)
    assert pipeline_least < claim(run)
    with Pipeline(model.loss, max_bytes=pipeline_least, **options) as pipeline:
        for _ in range(2):
            run = pipeline.run_sync(feeds)
            assert run.plan.schedule.name.endswith(", in sequence")
            assert run.plan.schedule.peak_activations[0] <= 1
            assert model.gradients(run) == expected
        assert peak_of(lambda: pipeline.run_sync(feeds)) < pipeline_least + OVERHEAD
        assert len(pipeline.stage_costs()) == pipeline.schedule.stages


def _alone(plan, binding, workers):
    from actorgraph.pipeline.claims import claim_of

    return claim_of(plan, binding, True).alone(workers)["cpu"]


def test_a_batch_that_never_fits_is_refused_before_it_starts():
    model = Model()
    with Pipeline(
        model.loss, stages=2, schedule="1f1b", microbatches=4, max_bytes=16 * BLOCK
    ) as pipeline:
        match = (
            r"needs [\d_]+ bytes even one microbatch after another \(batch = 192\), but max_bytes "
            r"is 4_718_592; the largest values, by node: "
        )
        with pytest.raises(MemoryLimitError, match=match):
            pipeline.run_sync(model.feeds(4))
        assert not pipeline._core.admission.runs
        assert pipeline.run_sync({"x": np.ones((4, SIDE))})[model.loss].value > 0
    with pytest.raises(ValueError, match="max_bytes must be an int of at least 1, got 0"):
        Pipeline(model.loss, stages=2, microbatches=4, max_bytes=0)


def test_batches_of_a_stream_wait_until_they_fit_and_keep_their_order():
    model = Model()
    batches = [{"x": model.feeds(4)["x"][: rows * 4]} for rows in (192, 100, 150, 192, 64, 192)]
    options = {"stages": 2, "schedule": "1f1b", "microbatches": 4, "max_in_flight": 4}
    with Pipeline(model.loss, **options) as pipeline:
        expected = [model.gradients(run) for run in pipeline.stream(batches)]
    with Pipeline(model.loss, max_bytes=1000 * BLOCK, **options) as pipeline:
        one = claim(pipeline.start(batches[0]).result())
    with Pipeline(model.loss, max_bytes=one, **options) as pipeline:
        runs = [pipeline.start(feeds) for feeds in batches]
        assert [model.gradients(run.result()) for run in runs] == expected
        # What the runs have left for their caller: a gradient for each weight.
        left = len(batches) * 6 * BLOCK
        assert peak_of(lambda: list(pipeline.stream(batches))) < one + left + OVERHEAD


def test_a_loss_of_several_terms_has_a_claim():
    model = small.Model(decay=True)
    with model.pipeline(max_bytes=10**9) as pipeline:
        small.assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
