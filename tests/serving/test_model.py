"""Served models in process: admission, batches, deadlines, cancellation, the end."""

import threading
from functools import partial
from math import inf

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.serving import (
    DeadlineExceeded,
    InvalidInput,
    ModelNotFound,
    NotReady,
    Overloaded,
    PayloadTooLarge,
)
from tests._each import each
from tests._until import until
from tests.serving._models import (
    Asked,
    asking,
    entered,
    expected,
    gated,
    new_gate,
    outputs,
    rows,
    served,
)

on_both_loops = pytest.mark.anyio


def ask(tasks, model, *values, **options):
    return Asked(tasks, partial(model.infer, rows(*values), **options))


async def stands(gate, tasks, model, value=0.0, **options):
    """Return a request whose run stands at the gate."""
    asked = ask(tasks, model, value, **options)
    await entered(gate)
    return asked


# -- answers ------------------------------------------------------------------------------------


@on_both_loops
async def test_an_answer_has_the_outputs_by_name(gate):
    gate.open()
    async with served() as (model, _):
        answer = await model.infer(rows(1, 2), deadline_s=20.0)
    assert list(answer) == ["y"]
    np.testing.assert_array_equal(answer["y"], expected(1, 2))


def test_a_plain_thread_is_answered_too(gate):
    gate.open()
    with ag.serving.Server() as server:
        answer = server.add("double", outputs()).infer_sync(rows(3))
    np.testing.assert_array_equal(answer["y"], expected(3))


@on_both_loops
async def test_a_machine_of_the_users_is_served_and_stays_open(gate):
    gate.open(2)
    async with ag.TapeMachine(outputs()) as machine:
        async with ag.serving.Server() as server:
            model = server.add("tape", machine)
            np.testing.assert_array_equal((await model.infer(rows(1)))["y"], expected(1))
        assert (await machine.run(rows(1)))["y"].value[0, 0] == 3


@on_both_loops
async def test_inputs_bear_the_names_they_are_given(gate):
    gate.open()
    made = outputs()
    (x,) = made["y"].graph.inputs
    async with ag.serving.Server() as server:
        model = server.add("double", made, inputs={"image": x})
        np.testing.assert_array_equal(
            (await model.infer({"image": rows(1)["x"]}))["y"], expected(1)
        )


@on_both_loops
@pytest.mark.parametrize(
    ("inputs", "options", "error", "says"),
    [
        ({}, {}, InvalidInput, "missing feed 'x'"),
        ({"x": np.ones((1, 3))}, {}, InvalidInput, "a dim 3, not 2"),
        ({"x": np.ones((1, 2), "float32")}, {}, InvalidInput, "dtype float32, not float64"),
        ({"z": np.ones((1, 2))}, {}, InvalidInput, "unknown input 'z'"),
        (rows(1), {"priority": 2}, InvalidInput, "levels 1 to 1"),
        (rows(1), {"deadline_s": -1}, InvalidInput, "deadline_s is a number of seconds"),
        (rows(*range(9)), {}, PayloadTooLarge, "144 bytes, more than the 100"),
    ],
)
async def test_what_does_not_fit_is_refused_before_anything_starts(inputs, options, error, says):
    gate = new_gate()
    async with served(max_request_bytes=100) as (model, _):
        with pytest.raises(error, match=says):
            await model.infer(inputs, **options)
    assert gate.calls == 0


def test_a_model_is_found_by_name_and_version():
    with ag.serving.Server() as server:
        old = server.add("net", outputs())
        new = server.add("net", outputs(), version="2")
        assert server.model("net") is new
        assert server.model("net", "1") is old
        with pytest.raises(ModelNotFound, match="no model 'nte'; did you mean 'net'"):
            server.model("nte")
        with pytest.raises(ModelNotFound, match="no version '3'; it has '1', '2'"):
            server.model("net", "3")
        with pytest.raises(ag.GraphError, match="version '2' of model 'net' is already served"):
            server.add("net", outputs(), version="2")


@each(
    "config, says",
    [
        ({"max_batch": 4}, "unknown keyword 'max_batch' of a model; did you mean 'max_batch_size'"),
        ({"max_queued": -1}, "max_queued must be at least 0"),
        ({"overflow": "drop"}, "overflow must be one of"),
        ({"default_priority": 2}, "only 1 priority_levels"),
        ({"batch_wait_s": -1}, "batch_wait_s is a number of seconds"),
        ({"allow_timeout_override": "higher"}, "allow_timeout_override must be one of"),
        ({"preserve_order": True, "max_concurrent_batches": 2}, "is for one run at a time"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(config, says):
    with ag.serving.Server() as server, pytest.raises((TypeError, ValueError), match=says):
        server.add("net", outputs(), **config)


# -- batches ------------------------------------------------------------------------------------


@on_both_loops
async def test_requests_that_wait_for_a_worker_make_one_batch(gate):
    async with served(max_batch_size=8) as (model, tasks):
        asked = [await stands(gate, tasks, model)]
        asked += [ask(tasks, model, *range(k)) for k in (1, 3, 2)]
        await until(lambda: model.queued == 3)
        gate.open(2)
        for one, k in zip(asked[1:], (1, 3, 2), strict=True):
            np.testing.assert_array_equal(await one.answer(), expected(*range(k)))
    assert gate.calls == 2
    assert model.counts["executions"] == 2
    assert model.counts["inferences"] == model.counts["ok"] == 4


@on_both_loops
async def test_a_batch_has_at_most_its_rows(gate):
    gate.open(99)
    async with served(max_batch_size=4, batch_wait_s=9.0) as (model, tasks):
        asked = [ask(tasks, model, 1, 1, 1)]
        await until(lambda: model.queued == 1)
        asked.append(ask(tasks, model, 2, 2, 2))
        await asked[0].done.wait()
        one_more = ask(tasks, model, 3)
        for one, k in zip(asked, (1, 2), strict=True):
            np.testing.assert_array_equal(await one.answer(), expected(k, k, k))
        np.testing.assert_array_equal(await one_more.answer(), expected(3))
    assert model.counts["executions"] == 2  # 3 rows, and 3 + 1


@on_both_loops
async def test_a_request_of_more_rows_than_a_batch_runs_alone(gate):
    gate.open()
    async with served(max_batch_size=2, batch_wait_s=9.0) as (model, _):
        answer = await model.infer(rows(*range(5)))
    np.testing.assert_array_equal(answer["y"], expected(*range(5)))


@on_both_loops
async def test_a_full_batch_waits_no_longer(gate):
    gate.open()
    long = {"batch_wait_s": 3600.0, "request_timeout_s": 7200.0}
    async with served(max_batch_size=2, **long) as (model, tasks):
        for one in [ask(tasks, model, k) for k in (1, 2)]:
            await one.answer()
    assert gate.calls == 1


@on_both_loops
async def test_a_request_that_finds_no_company_goes_when_its_wait_is_over(gate):
    gate.open()
    async with served(max_batch_size=2, batch_wait_s=0.01) as (model, _):
        assert (await model.infer(rows(1)))["y"][0, 0] == 3


@on_both_loops
async def test_a_deadline_shorter_than_the_wait_ends_the_wait(gate):
    gate.open()
    async with served(max_batch_size=2, batch_wait_s=3600.0) as (model, _):
        assert (await model.infer(rows(1), deadline_s=1.0))["y"][0, 0] == 3


@on_both_loops
@pytest.mark.parametrize("error", [ArithmeticError, MemoryError])
async def test_a_failure_is_that_of_its_request_and_not_of_its_companions(error):
    gate = new_gate(bad=26.0, error=error)
    async with served(max_batch_size=8) as (model, tasks):
        await stands(gate, tasks, model)
        asked = {k: ask(tasks, model, k) for k in (1, 13, 2)}
        await until(lambda: model.queued == 3)
        gate.open(99)
        with pytest.raises(ag.NodeError, match="a bad row"):
            await asked[13].answer()
        for k in (1, 2):
            np.testing.assert_array_equal(await asked[k].answer(), expected(k))
    assert gate.calls == 1 + 1 + 3  # each is run again alone, once


@each(
    "build, says",
    [
        (lambda x: x.sum(), "has no such dim"),
        (lambda x: x - x.mean(axis=0), "looks over all rows"),
        (lambda x: x.sum(axis=1) / x.shape[0], "looks over all rows"),
        (lambda x: ag.while_loop(lambda c: c.sum() < 9.0, lambda c: c * 2.0, x), "all rows"),
        (lambda x: ag.ops.softmax(x, axis=0), "other rows"),
        (lambda x: ag.ops.cumsum(x, axis=0), "other rows"),
        (lambda x: x[::-1] + 0.0, "other rows"),
        (lambda x: ag.ops.batch_norm(x, scale=None, bias=None).y, r"other rows.*\.eval\(\)"),
        (lambda x: ag.scan(lambda c, row: (c + row, c), np.zeros(2), x)[1], "other rows"),
    ],
)
def test_a_model_whose_answers_depend_on_companions_is_not_batched(build, says):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    with ag.serving.Server() as server, pytest.raises(ag.ShapeError, match=says):
        server.add("net", {"y": build(x)}, max_batch_size=8)


@on_both_loops
async def test_requests_of_other_lengths_make_batches_of_their_own(gate):
    x = ag.Graph().input("x", ("rows", "length"), "float64")
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        blocker = server.add("double", outputs())
        model = server.add("sums", {"y": x.sum(axis=1)}, max_batch_size=2, batch_wait_s=9.0)
        asked = [
            Asked(tasks, partial(model.infer, {"x": np.ones((1, length))}))
            for length in (3, 5, 3, 5)
        ]
        assert [float((await one.answer())[0]) for one in asked] == [3, 5, 3, 5]
        assert blocker.counts["executions"] == 0
    assert model.counts["executions"] == 2


# -- admission ----------------------------------------------------------------------------------


@on_both_loops
async def test_one_request_too_many_is_refused_at_once_and_the_next_burst_is_served(gate):
    async with served(max_concurrent_batches=1, max_queued=1) as (model, tasks):
        asked = [await stands(gate, tasks, model), ask(tasks, model, 1)]
        await until(lambda: model.queued == 1)
        with pytest.raises(Overloaded, match="1 requests waiting and 1 running"):
            await model.infer(rows(2))
        gate.open(99)
        for one in asked:
            await one.answer()
        await model.infer(rows(2))
    assert model.counts["rejected"] == 1
    assert model.counts["ok"] == 3


@on_both_loops
async def test_requests_that_cost_too_much_together_are_refused(gate):
    costs = {"max_queued_cost": 10, "cost_fn": lambda inputs: inputs["x"].nbytes / 16}
    async with served(max_concurrent_batches=1, **costs) as (model, tasks):
        first = await stands(gate, tasks, model)
        asked = [ask(tasks, model, *range(12))]  # one may cost what it likes
        await until(lambda: model.queued == 1)
        asked += [ask(tasks, model, *range(3))]
        with pytest.raises(Overloaded, match="requests of the cost 12 wait .*with 3 more"):
            await asked[1].answer()
        asked += [ask(tasks, model, 1)]
        await asked[2].done.wait()
        gate.open(2)
        await first.answer()
        await asked[0].answer()
    assert model.statistics.refusals == {"cost": 2}


@on_both_loops
async def test_the_oldest_goes_where_the_newest_is_wanted(gate):
    config = {"max_queued": 1, "overflow": "shed_oldest"}
    async with served(max_concurrent_batches=1, **config) as (model, tasks):
        running = await stands(gate, tasks, model)
        old = ask(tasks, model, 1)
        await until(lambda: model.queued == 1)
        new = ask(tasks, model, 2)
        with pytest.raises(Overloaded, match="max_queued"):
            await old.answer()
        gate.open(2)
        await running.answer()
        np.testing.assert_array_equal(await new.answer(), expected(2))


@on_both_loops
async def test_a_request_may_wait_for_room(gate):
    async with served(max_concurrent_batches=1, max_queued=0, overflow="wait") as (model, tasks):
        await stands(gate, tasks, model)
        asked = [ask(tasks, model, k) for k in (1, 2)]
        await until(lambda: model.queued == 2)
        gate.open(3)
        for one, k in zip(asked, (1, 2), strict=True):
            np.testing.assert_array_equal(await one.answer(), expected(k))


@on_both_loops
async def test_the_most_urgent_request_runs_first(gate):
    config = {"priority_levels": 3, "default_priority": 2}
    async with served(max_concurrent_batches=1, **config) as (model, tasks):
        await stands(gate, tasks, model)
        order = []

        async def note(value, priority):
            await model.infer(rows(value), priority=priority)
            order.append(value)

        for number, (value, priority) in enumerate([(3, 3), (2, 0), (1, 1)], start=1):
            tasks.start_soon(note, value, priority)
            await until(lambda number=number: model.queued == number)
        for number in range(4):
            gate.open()
            await until(lambda number=number: len(order) == number and model.counts["ok"] > number)
    assert order == [1, 2, 3]


# -- deadlines and cancellation -----------------------------------------------------------------


@on_both_loops
async def test_a_deadline_ends_the_waiting_for_a_run(gate):
    async with served(max_concurrent_batches=1) as (model, tasks):
        running = await stands(gate, tasks, model)
        with pytest.raises(DeadlineExceeded, match="it was waiting for a run"):
            await model.infer(rows(1), deadline_s=0.01)
        assert model.queued == 0
        gate.open()
        await running.answer()
    assert gate.calls == 1  # nothing was computed for the late one


@on_both_loops
async def test_who_is_late_for_a_run_may_wait_for_it_all_the_same(gate):
    async with served(max_concurrent_batches=1, drop_expired_before_run=False) as (model, tasks):
        running = await stands(gate, tasks, model)
        late = ask(tasks, model, 1, deadline_s=0.01)
        await until(lambda: model.queued == 1 and model._queue.requests[0].deadline == inf)
        gate.open(2)
        await running.answer()
        np.testing.assert_array_equal(await late.answer(), expected(1))


@on_both_loops
async def test_a_request_asks_for_less_time_only_where_it_may(gate):
    async with served(allow_timeout_override="none") as (model, tasks):
        asked = ask(tasks, model, 1, deadline_s=1e-6)
        await entered(gate)
        (batch,) = model._dispatcher.batches
        assert batch.members[0].deadline - batch.members[0].arrived == 30.0
        gate.open()
        np.testing.assert_array_equal(await asked.answer(), expected(1))


@on_both_loops
async def test_requests_are_answered_in_the_order_of_their_coming_where_that_is_asked_for(gate):
    x = ag.Graph().input("x", ("rows", "length"), "float64")
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        one_by_one = server.add("double", outputs(), preserve_order=True)
        await stands(gate, tasks, one_by_one)
        asked = [ask(tasks, one_by_one, k) for k in (1, 2)]
        await until(lambda: one_by_one.queued == 2)
        assert one_by_one.inflight == 1
        gate.open(3)
        for k, one in enumerate(asked, start=1):
            np.testing.assert_array_equal(await one.answer(), expected(k))
        model = server.add(
            "sums", {"y": gated(x).sum(axis=1)}, max_batch_size=2, preserve_order=True
        )
        order = []

        async def note(length):
            await model.infer({"x": np.ones((1, length))})
            order.append(length)

        for number, length in enumerate((1, 2, 3, 2)):
            tasks.start_soon(note, length)
            await until(lambda number=number: model.queued + model.inflight == number + 1)
        for number in range(4):  # trio shuffles tasks that it wakes at the same time
            gate.open()
            await until(lambda number=number: len(order) == number + 1)
    assert order == [1, 2, 3, 2]
    assert model.counts["executions"] == 4


@on_both_loops
async def test_who_cannot_be_in_time_does_not_take_the_run_of_who_can(gate):
    async with served(max_concurrent_batches=1) as (model, tasks):
        running = await stands(gate, tasks, model)
        late = ask(tasks, model, 1, deadline_s=0.3)
        await until(lambda: model.queued == 1)
        good = ask(tasks, model, 2)
        await until(lambda: model.queued == 2)
        dispatcher, ended = model._dispatcher, model._dispatcher._collect
        dispatcher._collect = lambda *args: (ended(*args), setattr(model._queue, "run_s", 20.0))
        gate.open(2)
        await running.answer()
        np.testing.assert_array_equal(await good.answer(), expected(2))
        with pytest.raises(DeadlineExceeded):
            await late.answer()
        gate.open()


@on_both_loops
async def test_a_deadline_ends_the_waiting_for_the_result_and_not_that_of_companions(gate):
    async with served(max_batch_size=2, batch_wait_s=9.0, request_timeout_s=20.0) as (model, tasks):
        late = ask(tasks, model, 1, deadline_s=0.3)
        other = ask(tasks, model, 2)
        with pytest.raises(DeadlineExceeded, match="it was running"):
            await late.answer()
        gate.open()
        np.testing.assert_array_equal(await other.answer(), expected(2))
    assert model.counts["deadline"] == model.counts["ok"] == 1


@on_both_loops
async def test_a_request_cannot_ask_for_more_time_than_the_model_gives(gate):
    async with served(request_timeout_s=0.01) as (model, tasks):
        with pytest.raises(DeadlineExceeded, match="the deadline is over") as caught:
            await model.infer(rows(1), deadline_s=3600.0, request_id="r1")
        assert caught.value.__notes__[-1] == "request r1"
        gate.open()
        tasks.cancel_scope.cancel()


@on_both_loops
async def test_a_cancelled_request_leaves_the_queue(gate):
    async with served(max_batch_size=8) as (model, tasks):
        await stands(gate, tasks, model)
        gone, stays = ask(tasks, model, 1), ask(tasks, model, 2)
        await until(lambda: model.queued == 2)
        gone.scope.cancel()
        await gone.done.wait()
        assert model.queued == 1
        gate.open(2)
        np.testing.assert_array_equal(await stays.answer(), expected(2))
    assert model.counts["cancelled"] == 1
    assert model.counts["inferences"] == 2


@on_both_loops
async def test_a_cancelled_request_leaves_a_running_batch_and_harms_nobody(gate):
    async with served(max_batch_size=2, batch_wait_s=9.0) as (model, tasks):
        gone, stays = ask(tasks, model, 1), ask(tasks, model, 2)
        await entered(gate)
        gone.scope.cancel()
        await gone.done.wait()
        gate.open()
        np.testing.assert_array_equal(await stays.answer(), expected(2))


with_looks = [None]
_looks = ag.ops.define(
    "serving_looks", scheme="f[*s] -> f[*s]", forward=lambda xp, x: with_looks[0](xp, x)
)


@on_both_loops
async def test_an_op_is_told_when_nobody_waits_for_it_any_more(gate):
    seen = []

    def looks(xp, x):
        found = ag.serving.cancelled(), gate(xp, x) is None, ag.serving.cancelled()
        seen.append(found)
        return x

    with_looks[0] = looks
    x = ag.Graph().input("x", ("rows", 2), "float64")
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("net", {"y": _looks(x)}, max_batch_size=2, batch_wait_s=60.0)
        for leave in (1, 2):  # one of two, then both
            asked = [ask(tasks, model, 1), ask(tasks, model, 2)]
            await entered(gate)
            for one in asked[:leave]:
                one.scope.cancel()
            await until(lambda leave=leave: model.counts["cancelled"] >= 2 * leave - 1)
            gate.open()
            await until(lambda leave=leave: len(seen) == leave)
    assert seen == [(False, False, False), (False, False, True)]
    assert not ag.serving.cancelled()


@on_both_loops
async def test_who_is_cancelled_after_the_answer_came_and_before_it_was_read_harms_nobody(gate):
    async with served(max_batch_size=8) as (model, tasks):
        asked = await stands(gate, tasks, model)
        gate.open(2)
        while not model.counts["ok"]:  # the loop is held, so that nobody there reads it
            pass
        asked.scope.cancel()
        await asked.done.wait()
        np.testing.assert_array_equal((await model.infer(rows(2)))["y"], expected(2))
    assert (model.counts["ok"], model.counts["cancelled"]) == (2, 0)
    assert (model.inflight, model.queued) == (0, 0)


@on_both_loops
async def test_after_all_have_left_at_once_the_next_requests_are_served(gate):
    async with served(max_batch_size=4) as (model, tasks):
        asked = [await stands(gate, tasks, model)]
        asked += [ask(tasks, model, k) for k in range(20)]
        await until(lambda: model.queued == 20)
        for one in asked:
            one.scope.cancel()
        for one in asked:
            await one.done.wait()
        assert model.queued == 0
        gate.open(99)
        await until(lambda: model.inflight == 0)
        for one in [ask(tasks, model, k) for k in range(20)]:
            await one.answer()
    assert model.counts["cancelled"] == 21
    assert model.counts["ok"] == 20


# -- the end ------------------------------------------------------------------------------------


@on_both_loops
async def test_drain_ends_what_was_taken_and_refuses_the_rest(gate):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", outputs(), max_concurrent_batches=1)
        asked = [await stands(gate, tasks, model), ask(tasks, model, 1)]
        await until(lambda: model.queued == 1)
        tasks.start_soon(server.drain)
        await until(lambda: not model.ready)
        assert not server.ready
        with pytest.raises(NotReady, match="it is stopping"):
            await model.infer(rows(2))
        gate.open(2)
        np.testing.assert_array_equal(await asked[0].answer(), expected(0))
        np.testing.assert_array_equal(await asked[1].answer(), expected(1))


@on_both_loops
async def test_drain_sends_a_batch_that_waits_for_company(gate):
    gate.open()
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", outputs(), max_batch_size=2, batch_wait_s=9.0)
        alone = ask(tasks, model, 1)
        await until(lambda: model.queued == 1)
        await server.drain()
        np.testing.assert_array_equal(await alone.answer(), expected(1))


@on_both_loops
async def test_after_its_grace_drain_answers_who_still_waits(gate):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", outputs(), max_concurrent_batches=1)
        asked = [await stands(gate, tasks, model), ask(tasks, model, 1)]
        await until(lambda: model.queued == 1)
        tasks.start_soon(server.drain, 0.0)
        for one in asked:
            with pytest.raises(NotReady, match="stopped before the request had ended"):
                await one.answer()
        gate.open()


@on_both_loops
async def test_an_op_that_does_not_return_holds_nobody_up_and_its_machine_is_closed_when_it_does(
    gate, caplog
):
    async with anyio.create_task_group() as tasks:
        async with ag.serving.Server() as server:
            model = server.add("double", outputs(), shutdown_grace_s=0.0, cancel_grace_s=0.0)
            running = await stands(gate, tasks, model)
        with pytest.raises(NotReady, match="stopped before the request had ended"):
            await running.answer()
        assert "model 'double' has ops that do not return" in caplog.text
        assert model.inflight == 1  # its place is not free before
        gate.open()
    for thread in threading.enumerate():
        if thread.name == "actorgraph-closing":
            await anyio.to_thread.run_sync(thread.join)
    await until(lambda: model.inflight == 0)


@on_both_loops
async def test_the_overload_of_an_inner_model_reaches_the_client_as_what_it_is(gate):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        inner = server.add("inner", outputs(), max_concurrent_batches=1, max_queued=0)
        outer = server.add("outer", asking(inner))
        running = await stands(gate, tasks, inner)
        with pytest.raises(Overloaded, match="model 'inner'"):
            await outer.infer(rows(1))
        gate.open(2)
        await running.answer()
        np.testing.assert_array_equal((await outer.infer(rows(1)))["y"], expected(1))


def test_threads_and_loops_share_a_model_and_its_batches(gate):
    gate.open(99)
    with ag.serving.Server() as server:
        model = server.add("double", outputs(), max_batch_size=4)
        answers = {}

        def blocked(value):
            answers[value] = model.infer_sync(rows(value))["y"]

        def awaited(value, backend):
            answers[value] = anyio.run(model.infer, rows(value), backend=backend)["y"]

        threads = [threading.Thread(target=blocked, args=(k,)) for k in range(4)]
        threads += [
            threading.Thread(target=awaited, args=(k, backend))
            for k, backend in ((4, "asyncio"), (5, "trio"), (6, "asyncio"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers) == list(range(7))
    for value, answer in answers.items():
        np.testing.assert_array_equal(answer, expected(value))
