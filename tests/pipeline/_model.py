"""The model that pipelines are tested on, and what its gradients have to be."""

from contextlib import nullcontext
from functools import reduce

import numpy as np

import actorgraph as ag
from actorgraph.pipeline import Pipeline, Schedule

ROWS, WIDTH = 11, 4


class Model:
    """x -> tanh(x W0 + b0) -> ... -> loss, with a skip over all stages and a tied weight."""

    def __init__(self, layers=8, dtype="float64", placed=0, between=None, decay=False):
        rng = np.random.default_rng(0)
        self.graph = g = ag.Graph()
        x = g.input("x", shape=("batch", WIDTH), dtype=dtype)
        tied = g.parameter("tied", rng.normal(size=(WIDTH, WIDTH)).astype(dtype))
        h = first = np.tanh(x @ tied)
        for number in range(layers):
            with g.stage(number * placed // layers) if placed else nullcontext():
                W = g.parameter(f"W{number}", rng.normal(size=(WIDTH, WIDTH)).astype(dtype))
                b = g.parameter(f"b{number}", rng.normal(size=WIDTH).astype(dtype))
                h = np.tanh(h @ W + b)
                if between is not None and number == layers // 2:
                    h = self.called = between(h)
        self.hidden = h
        h = h @ tied.T + first
        self.loss = (h * h).mean()
        if decay:
            self.loss = self.loss + 0.1 * (tied * tied).sum()
        self.wrt = list(g.parameters)
        self.feeds = {"x": rng.normal(size=(ROWS, WIDTH)).astype(dtype)}

    def pipeline(self, schedule="1f1b", stages=2, microbatches=4, **options):
        if isinstance(schedule, Schedule):
            stages = microbatches = None
        return Pipeline(
            self.loss, self.wrt, stages=stages, schedule=schedule, microbatches=microbatches,
            **options,
        )  # fmt: skip


def one_after_another(model, pipeline):
    """Return the gradients of the same microbatches on the machine that defines the answer."""
    with ag.LispMachine(terms_of(pipeline), wrt=model.wrt) as machine:
        runs = [
            machine.run_sync(part.feeds, backward=seeds_of(pipeline, part))
            for part in microbatches_of(pipeline, model.feeds)
        ]
    return [reduce(np.add, [run[node].grad for run in runs]) for node in model.wrt]


def terms_of(pipeline):
    """Return what microbatches compute for the loss."""
    return list(pipeline.batching.terms(pipeline.loss).values())


def microbatches_of(pipeline, feeds):
    by_node = {pipeline.graph.node(name): array for name, array in feeds.items()}
    return pipeline.batching.cut(*pipeline.batching.bind(by_node), pipeline.schedule.microbatches)


def seeds_of(pipeline, part):
    return pipeline.batching.seeds({pipeline.loss: np.ones((), pipeline.loss.dtype)}, part)


def assert_same_bits(model, pipeline, run):
    expected = one_after_another(model, pipeline)
    for node, gradient in zip(model.wrt, expected, strict=True):
        assert run[node].grad.tobytes() == gradient.tobytes(), node


def recorded(pipeline, feeds):
    """Return the recording of a run that is not the first one."""
    pipeline.run_sync(feeds)
    with ag.trace.record() as trace:
        pipeline.run_sync(feeds)
    return trace


def actions_of(trace, lane, pipeline):
    """Return what a lane did, as actions of stages; B and W of one stage together are BW."""
    stage_of = {
        frozenset(node.name for node in nodes): stage
        for stage, nodes in enumerate(pipeline.stages())
    }
    names = {"forward": "F", "backward": "B", "weights": "W"}
    found = []
    for part in trace.slices:
        if part.lane == lane and part.actor is not None:
            nodes = set(trace.actors[part.actor].nodes)
            stages = [stage for held, stage in stage_of.items() if nodes <= held]
            if stages:
                found.append((stages[0], names[part.kind], part.microbatch))
    return found
