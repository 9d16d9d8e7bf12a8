"""Whatever is done to a run, the next one is right.

Drawn attacks (oversized, failing, interrupted, abandoned) on machines, streams, split batches,
compiled steps and pipelines.  Each leaves the others that are in flight alone, and is followed by
runs whose bits are those of `LispMachine` on a graph that nothing was done to.
"""

import gc
import random
from contextlib import suppress

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import MemoryLimitError, NodeError, RunCancelled
from actorgraph.pipeline import SCHEDULES, Pipeline
from tests._soak import SOAK

ops = ag.ops
ROUNDS = 5
HUGE = 2**46  # rows of 8 bytes that no address space holds
LIMIT = 10**9  # bytes, for machines that have one
MARK = 1e100
RAISED = [ValueError, MemoryError, StopIteration, SystemExit, RecursionError]


def _op(where, **options):
    """Return an op that hands its first operand on, and raises what marks in the second say."""

    def forward(xp, value, x):
        mark = x.flat[np.abs(x).argmax()]
        if abs(mark) >= MARK and (mark > 0) == (where == "forward"):
            raise RAISED[int(abs(mark) / MARK) - 1](f"marked, {where}")
        return value

    return ops.define(
        f"attack_{where}", scheme="f[*s] -> f[*t] -> f[*s]", forward=forward, **options
    )


_mind_backward = _op("backward")
mind = _op("forward", vjp=(lambda ct, y, value, x: _mind_backward(ct, x), None))


class Model:
    """A classifier with an op that raises for marked feeds, and a feed that can ask for memory."""

    def __init__(self, early):
        rng = np.random.default_rng(0)
        g = self.graph = ag.Graph()
        x = g.input("x", ("n", 4), "float64")
        t = g.input("t", ("n",), "int64")
        pad = g.input("pad", (0, "k"), "float64")
        w = g.parameter("w", rng.normal(size=(4, 4)))
        h = np.tanh(mind(x @ w, x) if early else x @ w)
        h = h + ops.square(pad.sum(axis=0) * w[0, 0]).sum()
        for number in range(3):
            h = np.tanh(h @ w + g.parameter(f"b{number}", rng.normal(size=4)))
        h = h if early else mind(h, x)
        self.loss = ops.cross_entropy(h, t, ignore_index=3) + 0.01 * (w * w).sum()
        self.hidden = h
        self.wrt = list(g.parameters)

    def bits(self, run):
        nodes = [self.loss, self.hidden, *self.wrt]
        return [run[n].value.tobytes() for n in nodes] + [run[n].grad.tobytes() for n in self.wrt]


def feeds_of(rows, pad=3):
    rng = np.random.default_rng(rows)
    t = rng.integers(0, 4, rows)
    t[0] = 0
    return {"x": rng.normal(size=(rows, 4)), "t": t, "pad": np.zeros((0, pad))}


def marked(rng, rows):
    """Return feeds by which a run fails, forward or backward."""
    feeds = feeds_of(rows)
    mark = MARK * rng.randint(1, len(RAISED)) * 1.01
    feeds["x"][rng.randrange(rows), rng.randrange(4)] = mark * rng.choice([1, -1])
    return feeds


def oversized(rng, rows):
    """Return feeds without much memory, for which a run asks for more than there is."""
    feeds = feeds_of(rows)
    if rng.random() < 0.7:
        return feeds | {"pad": np.zeros((0, HUGE))}
    return feeds | {
        "x": np.broadcast_to(feeds["x"][:1], (HUGE, 4)),
        "t": np.broadcast_to(feeds["t"][:1], HUGE),
    }


# -- what is attacked ---------------------------------------------------------------------------


class Target:
    """Something that runs batches: `start(feeds, **how)` returns a run."""

    def __init__(self, rng):
        self.model, self.rng = Model(rng.random() < 0.5), rng
        self.least = 1
        self.options = {"backward": True}
        self.machine = self.made()

    def made(self):
        rng, model = self.rng, self.model
        kind = rng.choice([ag.ActorMachine, ag.ActorMachine, ag.TapeMachine, ag.LispMachine])
        return kind(
            [model.loss, model.hidden], wrt=model.wrt,
            workers=rng.choice([1, 2, 4]), fuse=rng.choice(["auto", "all", "none"]),
            max_in_flight=rng.choice([1, 3, 8]), seed=rng.randrange(9),
            max_bytes=rng.choice([None, None, LIMIT]),
        )  # fmt: skip

    def expected(self, feeds):
        """Return the bits of a run, on values that the parameters have now."""
        with ag.LispMachine([self.model.loss, self.model.hidden], wrt=self.model.wrt) as machine:
            return self.model.bits(machine.run_sync(feeds, backward=True))

    def start(self, feeds, **how):
        return self.machine.start(feeds, **self.options, **how)

    def right(self):
        feeds = feeds_of(self.rng.randint(self.least, 9))
        if self.rng.random() < 0.5:
            run = self.machine.run_sync(feeds, **self.options)
        else:
            run = self.start(feeds).result()
        assert self.model.bits(run) == self.expected(feeds)

    def settled(self):
        """Nothing is left of any run."""
        core = self.machine._core
        if core is not None:
            assert not core.admission.runs
            assert not core.admission.in_flight


class PipelineTarget(Target):
    def expected(self, feeds):
        model = self.model
        with Pipeline(
            model.loss, model.wrt, stages=1, microbatches=self.count, schedule="gpipe", split="n",
            outputs=[model.hidden],
        ) as pipeline:  # fmt: skip
            return model.bits(pipeline.run_sync(feeds))

    def made(self):
        rng, model = self.rng, self.model
        self.count = self.least = rng.choice([1, 2, 4])
        self.options = {}
        return Pipeline(
            model.loss, model.wrt, stages=rng.choice([1, 2, 3]), microbatches=self.count,
            schedule=rng.choice([*SCHEDULES, "dynamic"]), split="n", outputs=[model.hidden],
            workers=rng.choice([1, 2, 4]), max_in_flight=rng.choice([1, 2, 4]),
            max_bytes=rng.choice([None, None, LIMIT]),
        )  # fmt: skip


# -- attacks ------------------------------------------------------------------------------------


def ends(run):
    """Wait for the end of an attacked run, in a way that an attack may end it."""
    with suppress(NodeError, RunCancelled, TimeoutError):
        run.result()


def failing(target, rng):
    with pytest.raises(NodeError, match="marked, (for|back)ward"):
        target.start(marked(rng, rng.randint(target.least, 9))).result()


def too_large(target, rng):
    with pytest.raises((NodeError, MemoryLimitError), match="max_bytes|allocate|memory") as raised:
        target.start(oversized(rng, rng.randint(target.least, 9))).result()
    if isinstance(raised.value, NodeError):
        assert isinstance(raised.value.__cause__, MemoryError)


def cancelled(target, rng):
    run = target.start(feeds_of(9), priority=rng.choice([-1, 0]))
    run.cancel()
    ends(run)


def late(target, rng):
    ends(target.start(feeds_of(9), timeout_s=rng.choice([0, 1e-5, 1e-3])))


def abandoned(target, rng):
    target.start(rng.choice([feeds_of, lambda rows: marked(rng, rows)])(9))
    gc.collect()


def interrupted_task(target, rng):
    async def awaited():
        with anyio.move_on_after(rng.choice([0, 1e-4, 1e-3])):
            await target.machine.run(feeds_of(9), **target.options)

    anyio.run(awaited, backend=rng.choice(["asyncio", "trio"]))


def stream_with_one_that_fails(target, rng):
    rows = [rng.randint(target.least, 9) for _ in range(6)]
    bad = rng.randrange(6)
    batches = [marked(rng, n) if i == bad else feeds_of(n) for i, n in enumerate(rows)]
    options = {"max_in_flight": rng.choice([1, 3]), **target.options}
    stream = iter(target.machine.stream(batches, **options))
    for feeds in batches[:bad]:
        assert target.model.bits(next(stream)) == target.expected(feeds)
    with pytest.raises(NodeError, match="attack_"):
        next(stream)


def stream_dropped(target, rng):
    batches = (feeds_of(rng.randint(target.least, 9)) for _ in range(8))
    stream = target.machine.stream(batches, max_in_flight=4, **target.options)
    for _, run in zip(range(rng.randint(0, 3)), stream, strict=False):
        assert run.done
    del stream
    gc.collect()


def stream_of_a_source_that_raises(target, rng):
    def source():
        yield feeds_of(9)
        yield feeds_of(5)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(target.machine.stream(source(), **target.options))


def step_that_ends_early(target, rng):
    """Parameters step whole, or not at all; and the next step is that of a graph left alone."""
    if isinstance(target, PipelineTarget):
        return late(target, rng)
    before = [node.value.copy() for node in target.model.wrt]
    solver = ag.solvers.SGD(lr=0.01)
    step = target.machine.compile_step(solver)
    make = rng.choice([marked, oversized, lambda rng, rows: feeds_of(rows)])
    feeds, how = make(rng, 7), rng.choice(["called", "awaited"])

    async def awaited():
        with anyio.move_on_after(rng.choice([0, 1e-4, 1e-3])):
            await step.run(feeds)

    try:
        step(feeds) if how == "called" else anyio.run(awaited, backend="asyncio")
    except (NodeError, MemoryLimitError):
        assert [n.value.tobytes() for n in target.model.wrt] == [a.tobytes() for a in before]
    values = [node.value.tobytes() for node in target.model.wrt]
    stepped = [one != old.tobytes() for one, old in zip(values, before, strict=True)]
    assert all(stepped) or not any(stepped)
    with ag.LispMachine([target.model.loss], wrt=target.model.wrt) as machine:
        run = machine.run_sync(feeds_of(5), backward=True)
    wanted = [node.value - 0.01 * run[node].grad for node in target.model.wrt]
    step(feeds_of(5))
    for node, array in zip(target.model.wrt, wanted, strict=True):
        np.testing.assert_allclose(node.value, array, rtol=1e-12, atol=1e-15)
    return None


ATTACKS = [
    failing, too_large, cancelled, late, abandoned, interrupted_task, stream_with_one_that_fails,
    stream_dropped, stream_of_a_source_that_raises, step_that_ends_early,
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200 if SOAK else 8))
@pytest.mark.parametrize("make", [Target, PipelineTarget])
def test_a_run_after_an_attack_is_right(make, seed):
    rng = random.Random(seed)
    target = make(rng)
    with target.machine:
        for _ in range(ROUNDS):
            attack = rng.choice(ATTACKS)
            neighbours = [feeds_of(target.least + place) for place in range(rng.randint(0, 2))]
            wanted = [target.expected(feeds) for feeds in neighbours]
            steps = attack is step_that_ends_early
            runs = [] if steps else [target.start(feeds) for feeds in neighbours]
            attack(target, rng)
            for run, bits in zip(runs, wanted, strict=False):
                assert target.model.bits(run.result()) == bits
            target.right()
    target.settled()
