"""`split_batch=n`: slices of a batch run at once, and their results are those of the batch."""

import gc
import os
import random

import anyio
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.errors import (
    FeedError,
    GraphTypeError,
    MemoryLimitError,
    NodeError,
    RunCancelled,
    ShapeError,
)
from tests.machines._faults import nobody_reads

ops = ag.ops
KINDS = [ag.ActorMachine, ag.TapeMachine, ag.LispMachine]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
HOUR_S = 3600.0
SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"
every_machine = pytest.mark.parametrize("kind", KINDS)


def mlp(dtype="float64", width=6, decay=True):
    """Return loss, hidden layer, wrt and inputs of a classifier with weight decay."""
    rng = np.random.default_rng(0)
    g = ag.Graph()
    x = g.input("x", ("n", 4), dtype)
    t = g.input("t", ("n",), "int64")
    w = g.parameter("w", rng.normal(size=(4, width)).astype(dtype))
    v = g.parameter("v", rng.normal(size=(width, 3)).astype(dtype))
    h = ops.tanh(x @ w).named("h")
    loss = ops.cross_entropy(h @ v, t)
    if decay:
        loss = loss + (w * w).sum() * 0.1
    return loss.named("loss"), h, [w, v], x


def batch(rows, dtype="float64"):
    rng = np.random.default_rng(rows)
    return {"x": rng.normal(size=(rows, 4)).astype(dtype), "t": rng.integers(0, 3, rows)}


def parts_of(run, nodes):
    """Return everything that can be read of nodes, as bytes."""
    found = []
    for node in nodes:
        dual = run[node]
        arrays = (dual.value, dual.grad, dual.tangent)
        found += [None if array is None else array.tobytes() for array in arrays]
    return found


def check_close(split, whole, nodes, tolerance):
    for node in nodes:
        for what in ("value", "grad", "tangent"):
            got, wanted = getattr(split[node], what), getattr(whole[node], what)
            assert (got is None) == (wanted is None)
            if got is not None:
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
                scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
                np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale)


# -- the run of a batch -----------------------------------------------------------------------

ROW_BY_ROW = {
    "tanh": ops.tanh,
    "sin": ops.sin,
    "square": lambda a: ops.square(ops.tanh(a)),
    "softmax": lambda a: ops.softmax(a, axis=-1),
    "layer_norm": lambda a: ops.layer_norm(a, (4,)),
    "negative": lambda a: -a,
    "double": lambda a: a * 2 + 1,
}
ENDS = {
    "mean": lambda a, w: a.mean(),
    "sum": lambda a, w: a.sum(),
    "mean of sums": lambda a, w: a.sum(axis=1).mean(),
    "sum of means": lambda a, w: a.mean(axis=-1).sum(),
    "row of means": lambda a, w: (a.mean(axis=0) * 3).sum(),
    "scaled": lambda a, w: a.mean() * ops.tanh(w).sum() / 2,
    "mean and decay": lambda a, w: a.mean() + (w * w).sum(),
    "sum less decay": lambda a, w: (a.sum() - (w * w).sum()) * 2,
    "decay and sum": lambda a, w: (w * w).sum() - a.sum(),
}


@st.composite
def models(draw):
    """Draw loss, other outputs, wrt, feeds and tangents of a graph whose rows do not mix."""
    dtype = draw(st.sampled_from(["float32", "float64"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    g = ag.Graph("drawn")
    x = g.input("x", ("n", 4), dtype)
    scale = g.input("scale", (4,), dtype)
    w = g.parameter("w", (rng.normal(size=(4, 4)) / 2).astype(dtype))
    pool = [x, x @ w, x * scale]
    for _ in range(draw(st.integers(0, 5))):
        a, b = (pool[draw(st.integers(0, len(pool) - 1))] for _ in range(2))
        name = draw(st.sampled_from([*ROW_BY_ROW, "add", "multiply", "matmul"]))
        if name in ROW_BY_ROW:
            pool.append(ROW_BY_ROW[name](a))
        elif name == "matmul":
            pool.append(ops.tanh(a @ w))
        else:
            pool.append(getattr(ops, name)(ops.tanh(a), b))
    last = ops.tanh(pool[-1])
    ends = draw(st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=2, unique=True))
    outputs = [ENDS[name](last, w) for name in ends]
    outputs += [last, (w * 2).named("same")][: draw(st.integers(0, 2))]
    wrt = [w, scale, x, pool[-1]][: draw(st.integers(1, 4))]
    rows = draw(st.integers(1, 9))
    feeds = {
        "x": rng.normal(size=(rows, 4)).astype(dtype),
        "scale": rng.normal(size=4).astype(dtype),
    }
    tangents = {"x": feeds["x"] * 2, "w": np.ones((4, 4), dtype)}
    return outputs, list(dict.fromkeys(wrt)), feeds, tangents, dtype


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(models(), st.integers(1, 5))
def test_slices_together_are_the_batch(model, count):
    outputs, wrt, feeds, tangents, dtype = model
    nodes = [*outputs, *wrt]
    seeds = {
        node: np.ones([feeds["x"].shape[0] if d == "n" else d for d in node.shape], dtype)
        for node in outputs
    }
    modes = [{}, {"backward": True}, {"backward": seeds}, {"tangents": tangents}]
    wanted = None
    with ag.LispMachine(outputs, wrt=wrt) as machine:
        whole = [machine.run_sync(feeds, **mode) for mode in modes]
    for kind, workers in ((ag.LispMachine, 1), (ag.TapeMachine, 2), *[(ag.ActorMachine, 3)] * 2):
        with kind(outputs, wrt=wrt, split_batch=count, workers=workers) as machine:
            runs = [machine.run_sync(feeds, **mode) for mode in modes]
            for split, unsplit in zip(runs, whole, strict=True):
                check_close(split, unsplit, nodes, TOLERANCE[dtype])
            bits = [parts_of(run, nodes) for run in runs]
            assert wanted is None or bits == wanted
            wanted = bits


@every_machine
@pytest.mark.parametrize("fuse", ["none", "auto", "all"])
def test_bits_depend_on_the_number_of_slices_only(kind, fuse, every_turn_is_worth_a_worker):
    loss, h, wrt, x = mlp(width=64)
    nodes = [loss, h, *wrt, x]
    found = set()
    for workers in (1, 2, 4):
        with kind(
            [loss, h], wrt=[*wrt, x], split_batch=4, workers=workers, fuse=fuse, max_in_flight=2
        ) as machine:
            runs = [machine.start(batch(11), backward=True) for _ in range(5)]
            found |= {tuple(parts_of(run.result(), nodes)) for run in runs}
    with ag.LispMachine([loss, h], wrt=[*wrt, x], split_batch=4) as machine:
        found.add(tuple(parts_of(machine.run_sync(batch(11), backward=True), nodes)))
    assert len(found) == 1


@every_machine
def test_gradients_are_summed_in_the_order_of_slices(kind):
    loss, _, (w, v), _ = mlp(decay=False)
    feeds = batch(7)
    total = None
    with kind([loss], wrt=[w, v]) as machine:
        for start, end in ((0, 3), (3, 5), (5, 7)):
            part = {name: array[start:end] for name, array in feeds.items()}
            run = machine.run_sync(part, backward={loss: (end - start) / 7})
            total = run[w].grad if total is None else total + run[w].grad
    with kind([loss], wrt=[w, v], split_batch=3) as machine:
        np.testing.assert_array_equal(machine.run_sync(feeds, backward=True)[w].grad, total)


@every_machine
def test_a_batch_may_have_fewer_rows_than_slices_or_none(kind):
    loss, h, wrt, _ = mlp()
    with kind([loss, h], split_batch=4) as machine, kind([loss, h]) as other:
        for rows in (1, 2, 3):
            split, whole = (m.run_sync(batch(rows), backward=True) for m in (machine, other))
            check_close(split, whole, [loss, h, *wrt], 1e-12)
        with np.errstate(all="ignore"):
            empty = machine.run_sync(batch(0), backward=True)
        assert empty[h].value.shape == (0, 6)
        assert np.isnan(empty[loss].value)
        np.testing.assert_allclose(empty[wrt[0]].grad, wrt[0].value * 0.2)


def test_what_an_op_does_not_show_is_said_by_the_user():
    g = ag.Graph()
    x = g.input("x", ("n", 2), "float64")
    w = g.parameter("w", np.ones(2))
    loss = own_sum(x * w) * 2.0
    with pytest.raises(GraphTypeError, match="say split_reduce='mean' or 'sum'"):
        ag.ActorMachine([loss], split_batch=2)
    feeds = {"x": np.arange(10.0).reshape(5, 2)}
    with (
        ag.ActorMachine([loss], split_batch=2, split_reduce="sum") as machine,
        ag.ActorMachine([loss]) as other,
    ):
        split, whole = (m.run_sync(feeds, backward=True) for m in (machine, other))
        check_close(split, whole, [loss, w], 1e-12)


own_sum = ops.define(
    "split_own_sum", scheme="x[*s] -> x[]", forward=lambda xp, a: a.sum(),
    vjp=(lambda ct, y, x: ops.broadcast_like(ct, x),),
)  # fmt: skip


# -- training ---------------------------------------------------------------------------------


@every_machine
@pytest.mark.parametrize("make", [lambda: ag.solvers.SGD(lr=0.1), lambda: ag.solvers.Adam(lr=0.01)])
def test_a_compiled_step_is_a_run_and_a_step_of_the_solver(kind, make):
    def trained(compiled):
        loss, _, wrt, _ = mlp()
        solver = make()
        with kind([loss], wrt=wrt, split_batch=3, workers=2) as machine:
            step = machine.compile_step(solver)
            for rows in (5, 8, 2):
                if compiled:
                    step(batch(rows))
                else:
                    run = machine.run_sync(batch(rows), backward=True)
                    solver.step([run[node] for node in wrt])
        return [node.value.tobytes() for node in wrt]

    assert trained(compiled=True) == trained(compiled=False)


def _fail_at_one(xp, a):
    if (a == 1).any():
        raise ValueError("a one")
    return a


fails_at_one = ops.define(
    "split_fails_at_one", scheme="x[*s] -> x[*s]", forward=_fail_at_one,
    vjp=(lambda ct, y, x: ct,),
)  # fmt: skip


@every_machine
def test_a_slice_that_fails_ends_the_run_names_itself_and_changes_nothing(kind):
    g = ag.Graph()
    x = g.input("x", ("n",), "float64")
    w = g.parameter("w", np.ones(()))
    count = g.buffer("count", np.zeros((), "int64"))
    loss = (fails_at_one(x) * w).mean()
    g.assign(count, count + 1, on=loss)
    with kind([loss], split_batch=3, workers=2) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.1))
        with pytest.raises(NodeError, match="a one") as raised:
            step({"x": np.array([0.0, 0, 0, 0, 1, 0])})
        assert "in part 2 of 3 of the batch" in raised.value.__notes__
        assert (w.value, count.value) == (1.0, 0)
        step({"x": np.zeros(6)})
        assert count.value == 1


# -- random numbers and buffers -----------------------------------------------------------------


@every_machine
def test_dropout_repeats_by_run_number_and_differs_between_slices(kind):
    g = ag.Graph(seed=3)
    x = g.input("x", ("n", 50), "float64")
    y = ops.dropout(x, 0.5)
    feeds = {"x": np.ones((4, 50))}
    with kind([y], split_batch=2) as machine:
        first, second = (machine.run_sync(feeds)[y].value for _ in range(2))
        again = machine.run_sync(feeds, run_number=0)[y].value
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[:2], first[2:])


@every_machine
def test_a_float_buffer_gets_the_mean_over_slices_once_a_run(kind):
    g = ag.Graph()
    x = g.input("x", ("n",), "float64")
    mean = g.buffer("mean", np.zeros(()))
    count = g.buffer("count", np.zeros((), "int64"))
    loss = (x * 2).mean()
    g.assign(mean, mean * 0.5 + x.mean() * 0.5, on=loss)
    g.assign(count, count + 1, on=loss)
    with kind([loss], split_batch=3, workers=2) as machine:
        for number in range(3):
            machine.run_sync({"x": np.arange(7.0)})
            assert count.value == number + 1
        assert mean.value == pytest.approx(3.0 * (1 - 0.5**3), rel=1e-12)


# -- as any other run -----------------------------------------------------------------------------


@pytest.mark.anyio
async def test_awaited_runs_and_streams_on_both_event_loops(anyio_backend):
    loss, h, _, _ = mlp()
    async with ag.LispMachine([loss, h], split_batch=3) as machine:
        wanted = [(await machine.run(batch(rows)))[h].value for rows in range(1, 9)]
    async with ag.ActorMachine([loss, h], split_batch=3, workers=2, fuse="none") as machine:
        run = await machine.run(batch(8), backward=True)
        np.testing.assert_array_equal(run[h].value, wanted[7])
        stream = machine.stream((batch(rows) for rows in range(1, 9)), max_in_flight=3)
        got = [run[h].value async for run in stream]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


async def _parked(xp, a):
    parked_now.append(a)
    await anyio.sleep_forever()
    return a


parked_now: list[object] = []
parked = ops.define("split_parked", scheme="x[*s] -> x[*s]", forward=_parked)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["cancel", "timeout", "scope"])
async def test_a_run_that_is_cancelled_or_late_ends_all_its_slices(how, clock, anyio_backend):
    g = ag.Graph()
    x = g.input("x", ("n",), "float64")
    y = parked(x)
    parked_now.clear()

    async def one_is_parked():
        while not parked_now:
            await anyio.lowlevel.checkpoint()

    async with ag.ActorMachine([y], split_batch=3, workers=2) as machine:
        if how == "scope":
            async with anyio.create_task_group() as group:
                group.start_soon(machine.run, {"x": np.zeros(6)})
                await one_is_parked()
                group.cancel_scope.cancel()
        else:
            run = machine.start({"x": np.zeros(6)}, timeout_s=HOUR_S if how == "timeout" else None)
            await one_is_parked()
            assert len(machine._core.admission.in_flight) == 3
            if how == "cancel":
                assert run.cancel()
            else:
                clock.move_on(HOUR_S)
            with pytest.raises(RunCancelled if how == "cancel" else TimeoutError, match="run 0"):
                await run
        assert not machine._core.admission.in_flight


def test_as_many_runs_are_in_flight_as_the_machine_allows():
    loss, _, _, _ = mlp(width=400)
    with ag.ActorMachine([loss], split_batch=3, workers=1, max_in_flight=2) as machine:
        machine.run_sync(batch(6))
        core = machine._core
        slot = core.scheduler.acquire()  # nobody can work
        runs = [machine.start(batch(6)) for _ in range(3)]
        assert (len(core.admission.in_flight), len(core.admission.queued)) == (6, 1)
        core.scheduler.free.append(slot)
        assert [run.number for run in runs] == [1, 2, 3]
        for run in runs:
            run.result()


@pytest.mark.parametrize("limit", [100_000, 1_000_000])
def test_slices_fit_into_the_bytes_of_the_machine_together(limit):
    loss, _, wrt, _ = mlp(width=200)
    with ag.ActorMachine([loss], split_batch=3, workers=2, max_bytes=limit) as machine:
        if limit == 100_000:
            with pytest.raises(MemoryLimitError, match="max_bytes is 100_000"):
                machine.run_sync(batch(60), backward=True)
        bits = parts_of(machine.run_sync(batch(6), backward=True), [loss, *wrt])
    with ag.LispMachine([loss], split_batch=3) as machine:
        assert parts_of(machine.run_sync(batch(6), backward=True), [loss, *wrt]) == bits


def test_neighbours_of_runs_that_are_cancelled_or_late_have_the_right_bits():
    loss, h, wrt, _ = mlp(width=100)
    nodes, rng = [loss, h, *wrt], random.Random(1)
    with ag.LispMachine([loss, h], split_batch=3) as machine:
        wanted = {
            rows: parts_of(machine.run_sync(batch(rows), backward=True), nodes)
            for rows in range(1, 9)
        }
    with ag.ActorMachine(
        [loss, h], split_batch=3, workers=2, max_in_flight=3, fuse="none"
    ) as machine:
        for _ in range(2000 if SOAK else 40):
            runs = {}
            for _ in range(8):
                late = {"timeout_s": rng.random() * 0.004} if rng.random() < 0.2 else {}
                rows = rng.randint(1, 8)
                run = machine.start(batch(rows), backward=True, priority=rng.randint(0, 1), **late)
                runs[run] = rows
                if rng.random() < 0.3:
                    rng.choice(list(runs)).cancel()
            for run, rows in runs.items():
                try:
                    assert parts_of(run.result(), nodes) == wanted[rows]
                except (RunCancelled, TimeoutError):
                    assert run.dead is not None
        core = machine._core
        assert not core.admission.runs
        assert not core.assigning
    del run, runs
    gc.collect()
    assert all(map(nobody_reads, wrt))


# -- what cannot be split -----------------------------------------------------------------------


def test_options_that_do_not_fit_are_told_when_the_machine_is_made():
    loss, h, (w, _), _ = mlp()
    g = loss.graph
    with pytest.raises(ValueError, match="split_batch must be an int of at least 1, got 0"):
        ag.ActorMachine([loss], split_batch=0)
    with pytest.raises(ValueError, match="say split_batch=n too"):
        ag.ActorMachine([loss], split_dim="n")
    with pytest.raises(ValueError, match="split_reduce must be one of 'mean', 'sum'"):
        ag.ActorMachine([loss], split_batch=2, split_reduce="max")
    with pytest.raises(ShapeError, match="no input has the dim 'm'"):
        ag.ActorMachine([loss], split_batch=2, split_dim="m")
    with pytest.raises(GraphTypeError, match="depends on 'n' without having that dim, so slices"):
        ag.ActorMachine([loss], wrt=[w, h.mean()], split_batch=2)
    with pytest.raises(GraphTypeError, match="the op 'exp' built at .* is not linear in them"):
        ag.ActorMachine([ops.exp(h.mean())], split_batch=2, split_reduce="mean")
    with pytest.raises(GraphTypeError, match="has no mean of int64; convert it"):
        ag.ActorMachine([loss, h[:, 0].argmax()], split_batch=2, split_reduce="mean")
    other = g.input("other", ("m", 2), "float64")
    with pytest.raises(ShapeError, match="there are several: 'm', 'n'; say split_dim="):
        ag.ActorMachine([loss, other * 2], split_batch=2)
    fixed = ag.Graph().input("fixed", (4, 2), "float64")
    with pytest.raises(ShapeError, match="there are none; say split_dim="):
        ag.ActorMachine([fixed.sum()], split_batch=2)


@every_machine
def test_feeds_seeds_and_tangents_are_checked_before_anything_starts(kind):
    loss, h, _, _ = mlp()
    feeds = batch(5)
    with kind([loss, h], split_batch=2) as machine:
        with pytest.raises(FeedError, match="missing feed 't'"):
            machine.run_sync({"x": feeds["x"]})
        with pytest.raises(FeedError, match="n = 4, but 'x' has n = 5"):
            machine.run_sync({**feeds, "t": feeds["t"][:4]})
        with pytest.raises(FeedError, match="seed 'h' should be .*another shape"):
            machine.run_sync(feeds, backward={"h": np.ones((2, 6))})
        with pytest.raises(GraphTypeError, match="the tangent of .* cannot be given to slices"):
            machine.run_sync(feeds, tangents={loss: 1.0})
        assert machine._core is None
    with (
        kind([h, loss], split_batch=2) as machine,
        pytest.raises(ShapeError, match="which must be a scalar"),
    ):
        machine.run_sync(feeds, backward=True)
