"""Models that are warmed up, loaded anew and unloaded while requests come."""

import threading

import anyio
import anyio.to_thread
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.serving import InvalidInput, ModelNotFound, NotReady
from tests._until import until
from tests.serving._http import Client, post, tensor
from tests.serving._models import Asked, entered, expected, new_gate, outputs, rows

pytestmark = pytest.mark.anyio
TOKEN = {"authorization": "Bearer secret"}


class Builder:
    """Builds y = factor * x, with a factor that may be changed between builds."""

    factor = 2.0

    def __call__(self):
        if self.factor is None:
            raise ArithmeticError("no factor")
        x = ag.Graph().input("x", ("rows", 2), "float64")
        return {"y": x * self.factor}


@pytest.fixture
def builder():
    return Builder()


async def first(model):
    return (await model.infer(rows(1)))["y"][0, 0]


# -- warm-up ------------------------------------------------------------------------------------


async def test_a_server_that_starts_runs_each_example_and_is_not_ready_before(gate):
    server = ag.serving.Server()
    model = server.add("double", outputs(), example=rows(1), warmup=2)
    app = ag.serving.asgi(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await entered(gate)
        assert (await Client("GET", "/readyz").asked(app)).status == 503
        assert (await Client("GET", "/livez").asked(app)).status == 200
        assert (await post({"inputs": [tensor(1)]}).asked(app)).status == 503
        gate.open(2)
    assert (await Client("GET", "/readyz").asked(app)).status == 200
    assert gate.calls == 2
    assert not model.counts  # it was nobody's request
    await server.start()
    assert gate.calls == 2  # it is warm
    await server.aclose()


async def test_warm_up_may_be_switched_off(gate):
    server = ag.serving.Server()
    server.add("double", outputs(), example=rows(1), warmup=0)
    async with server:
        assert gate.calls == 0


@pytest.mark.parametrize("threads", [1, 2])
async def test_as_many_models_are_warmed_up_at_once_as_load_threads_says(gate, threads):
    server = ag.serving.Server(load_threads=threads)
    for name in "abc":
        server.add(name, outputs(), example=rows(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        for _ in range(threads):
            await entered(gate)
        await anyio.wait_all_tasks_blocked()
        assert not gate.entered.acquire(blocking=False)
        gate.open(3)
    await server.aclose()


async def test_models_that_stay_as_they_are_are_neither_loaded_nor_unloaded(builder):
    async with ag.serving.Server(reload_mode="none") as server:
        model = server.add("net", builder)
        app = ag.serving.asgi(server, repository_token="secret")
        for word in ("load", "unload"):
            path = f"/v2/repository/models/net/{word}"
            asked = await Client("POST", path, headers=TOKEN).asked(app)
            assert (asked.status, asked.json["code"]) == (501, "UNIMPLEMENTED")
        assert server.model("net") is model


async def test_an_example_that_does_not_fit_is_refused_when_it_is_given():
    with ag.serving.Server() as server:
        with pytest.raises(InvalidInput, match="a dim 3, not 2"):
            server.add("double", outputs(), example={"x": np.ones((1, 3))})
        server.add("double", outputs())  # the name is not taken


async def test_a_host_is_told_when_a_model_does_not_run_its_example():
    new_gate(bad=2.0).open()
    server = ag.serving.Server()
    server.add("double", outputs(), example=rows(1))
    sent = []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        sent.append(message)

    await ag.serving.asgi(server)({"type": "lifespan"}, receive, send)
    (told,) = sent
    assert told["type"] == "lifespan.startup.failed"
    assert "a bad row" in told["message"]
    await server.aclose()


# -- loading and unloading ----------------------------------------------------------------------


async def test_a_model_is_made_anew_where_a_function_builds_it(builder):
    async with ag.serving.Server() as server:
        old = server.add("net", builder)
        assert await first(old) == 2
        builder.factor = 3.0
        new = await server.load("net")
        assert server.model("net") is new
        assert await first(new) == 3
        with pytest.raises(NotReady, match="it is stopping"):
            await old.infer(rows(1))


@pytest.mark.parametrize("loaded", [True, False])
async def test_when_loading_fails_all_stays_as_it_was(builder, loaded):
    async with ag.serving.Server() as server:
        old = server.add("net", builder)
        if not loaded:
            await server.unload("net")
        builder.factor = None
        with pytest.raises(ArithmeticError, match="no factor"):
            await server.load("net")
        (told,) = server.index()
        if loaded:
            assert server.model("net") is old
            assert await first(old) == 2
            assert told == {"name": "net", "version": "1", "state": "READY", "reason": ""}
        else:
            assert told["reason"] == "ArithmeticError: no factor"


async def test_a_request_that_runs_ends_with_the_model_that_took_it(gate):
    async with ag.serving.Server() as server:
        old = server.add("double", outputs)
        async with anyio.create_task_group() as tasks:
            running = Asked(tasks, lambda: old.infer(rows(1)))
            await entered(gate)
            tasks.start_soon(server.load, "double")
            await until(lambda: server.model("double") is not old)
            gate.open(2)
            again = await server.model("double").infer(rows(5))
            np.testing.assert_array_equal(await running.answer(), expected(1))
        np.testing.assert_array_equal(again["y"], expected(5))


class Held(Builder):
    """Builds when it is let, with the factor that it had when it was called."""

    def __init__(self):
        self.entered, self.let = threading.Event(), threading.Event()

    def __call__(self):
        held = Builder()
        held.factor = self.factor
        self.entered.set()
        assert self.let.wait(20)
        return held()


async def test_a_load_that_a_later_one_has_overtaken_changes_nothing(builder):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        server.add("net", builder)
        held, found = Held(), []

        async def load():
            found.append(await server.load("net", outputs=held))

        tasks.start_soon(load)
        await anyio.to_thread.run_sync(held.entered.wait)
        builder.factor = 3.0
        new = await server.load("net", outputs=builder)
        held.let.set()
        await until(lambda: found)
        assert server.model("net") is new is found[0]
        builder.factor = 5.0
        assert await first(await server.load("net")) == 5  # nor is it what is loaded from then on


async def test_a_model_that_was_unloaded_while_it_was_loaded_stays_out(builder):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        server.add("net", builder)
        held, found = Held(), []

        async def load():
            with pytest.raises(ModelNotFound, match="was unloaded while it was loaded"):
                await server.load("net", outputs=held)
            found.append(True)

        tasks.start_soon(load)
        await anyio.to_thread.run_sync(held.entered.wait)
        await server.unload("net")
        held.let.set()
        await until(lambda: found)
        assert not server.models


async def test_an_unloaded_model_is_not_found_until_it_is_loaded_again(builder):
    async with ag.serving.Server() as server:
        server.add("net", builder)
        server.add("net", builder, version="2")
        await server.unload("net")
        assert server.versions("net") == ["1"]
        assert server.model("net").version == "1"
        with pytest.raises(ModelNotFound, match="is not loaded: unloaded"):
            server.model("net", "2")
        assert [one["state"] for one in server.index()] == ["READY", "UNAVAILABLE"]
        await server.load("net")
        assert server.model("net").version == "2"


@pytest.mark.parametrize(("readiness", "status"), [("strict", 503), ("lenient", 200)])
async def test_a_server_is_ready_when_all_models_are_that_were_not_unloaded(
    builder, readiness, status
):
    async with ag.serving.Server(readiness=readiness) as server:
        app = ag.serving.asgi(server)

        async def statuses():
            paths = ("/readyz", "/v2/models/net/ready")
            return [(await Client("GET", path).asked(app)).status for path in paths]

        server.add("net", builder)
        server.add("old", builder)
        await server.unload("old")
        assert await statuses() == [200, 200]
        builder.factor = None
        with pytest.raises(ArithmeticError):
            await server.load("new", outputs=builder)
        assert await statuses() == [status, 200]
        assert await first(server.model("net")) == 2
        builder.factor = 2.0
        await server.load("new")
        assert await statuses() == [200, 200]


async def test_no_request_fails_while_a_model_is_loaded_again_and_again(builder):
    async with ag.serving.Server() as server:
        server.add("net", builder)
        found = []

        async def ask():
            while len(found) < 20:
                found.append(await first(server.model("net")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            for _ in range(5):
                await server.load("net")
            await until(lambda: len(found) == 20)
    assert found == [2.0] * 20


# -- over HTTP ----------------------------------------------------------------------------------


async def test_the_routes_of_the_repository_are_off_unless_they_are_enabled(builder):
    async with ag.serving.Server() as server:
        server.add("net", builder)
        app = ag.serving.asgi(server)
        asked = await Client("POST", "/v2/repository/index", headers=TOKEN).asked(app)
        assert asked.status == 404
        assert "model_repository" not in (await Client("GET", "/v2").asked(app)).json["extensions"]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer other"}])
@pytest.mark.parametrize("path", ["index", "models/net/load", "models/net/unload"])
async def test_who_does_not_show_the_token_changes_nothing(builder, headers, path):
    async with ag.serving.Server() as server:
        model = server.add("net", builder)
        app = ag.serving.asgi(server, repository_token="secret")
        asked = await Client("POST", f"/v2/repository/{path}", headers=headers).asked(app)
        assert asked.status == 401
        assert asked.headers["www-authenticate"] == "Bearer"
        assert server.model("net") is model


async def test_models_are_loaded_and_unloaded_over_http(builder):
    async with ag.serving.Server() as server:
        old = server.add("net", builder)
        app = ag.serving.asgi(server, repository_token="secret")

        async def control(path):
            return await Client("POST", f"/v2/repository/{path}", headers=TOKEN).asked(app)

        assert (await control("models/net/load")).status == 200
        assert server.model("net") is not old
        assert (await control("models/net/unload")).status == 200
        assert (await control("index")).json == [
            {"name": "net", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
        ]
        assert (await control("models/nte/load")).status == 404
        assert (await control("models/net/other")).status == 404
        asked = await Client("GET", "/v2/repository/index", headers=TOKEN).asked(app)
        assert asked.status == 405


async def test_what_a_load_or_an_index_is_asked_for_is_not_passed_over(builder):
    async with ag.serving.Server() as server:
        model = server.add("net", builder)
        server.add("old", builder)
        await server.unload("old")
        app = ag.serving.asgi(server, repository_token="secret")

        async def control(path, content):
            return await post(content, f"/v2/repository/{path}", headers=TOKEN).asked(app)

        builder.factor = None
        answer = await control("models/net/load", {})
        assert (answer.status, answer.json["error"]) == (
            500, "model 'net' was not loaded: ArithmeticError: no factor"
        )  # fmt: skip
        builder.factor = 2.0
        for path, asked in (("load", {"config": "{}"}), ("unload", {"unload_dependents": True})):
            answer = await control(f"models/net/{path}", {"parameters": asked})
            assert (answer.status, answer.json["code"]) == (501, "UNIMPLEMENTED")
            assert next(iter(asked)) in answer.json["error"]
        assert server.model("net") is model
        asked = {"parameters": {"unload_dependents": False}}  # as tritonclient always says
        assert (await control("models/net/unload", asked)).status == 200
        await server.load("net")
        assert (await control("index", b"no JSON")).status == 400
        for ready, names in ((True, ["net"]), (False, ["net", "old"])):
            index = (await control("index", {"ready": ready})).json
            assert [one["name"] for one in index] == names
