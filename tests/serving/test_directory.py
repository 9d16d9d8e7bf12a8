"""A folder of models: what is served of it, and what becomes of changes while requests come."""

import json
import sys
import threading

import anyio
import pytest

import actorgraph as ag
from actorgraph import cli
from actorgraph.errors import GraphError
from actorgraph.serving.directory import Directory
from tests._soak import SOAK
from tests._until import until
from tests.serving._models import rows
from tests.serving.test_command import REQUEST, Process, logger

__all__ = ["logger"]  # as it was after each command

RELOADS = 200 if SOAK else 2
MODEL = """
import numpy as np
import actorgraph as ag

def model():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    return {{"y": x * {factor}}}, {{"x": np.ones((1, 2))}}
"""


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "net", 2)
    return tmp_path


def write(folder, factor):
    """Write a model by renaming, so that nobody sees half of it."""
    folder.mkdir(exist_ok=True)
    half = folder / ".model.py"
    half.write_text(MODEL.format(factor=f"{factor:.1f}"))
    half.rename(folder / "model.py")


async def factor(server, name="net", version=None):
    return (await server.model(name, version).infer(rows(1)))["y"][0, 0]


def test_folders_are_models_and_those_in_them_versions(folder):
    write(folder / "net" / "2", 3)
    (folder / "config.toml").write_text("max_queued = 7\n[models.net]\nmax_batch_size = 4\n")
    with Directory(str(folder)).server as server:
        assert server.versions("net") == ["1", "2"]
        assert server.model("net").config.max_batch_size == 4
        assert server.model("net").config.max_queued == 7
        assert anyio.run(factor, server, "net", "1") == 2
        assert anyio.run(factor, server, "net", "2") == 3
    with Directory(str(folder), {"max_queued": 5}).server as server:
        assert server.model("net").config.max_queued == 5


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("net/model.py", "model = 1 / 0", "division by zero"),
        ("net/model.py", "def other(): pass", "has no function 'model'"),
        ("config.toml", "max_queue = 1", "unknown setting 'max_queue'"),
        ("config.toml", "max_queued = -1", "max_queued must be at least 0"),
        ("net/model.py", None, "no model in"),
    ],
)
def test_a_folder_that_cannot_be_served_exits_with_2(folder, capsys, file, text, says):
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["serve", str(folder)])
    assert says in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_path_is_served_and_loaded_anew(folder):
    async with ag.serving.Server() as server:
        server.add("twice", folder / "net")
        assert await factor(server, "twice") == 2
        write(folder / "net", 3)
        await server.load("twice")
        assert await factor(server, "twice") == 3
        with pytest.raises(GraphError, match="no file"):
            await server.load("twice", outputs=folder / "nowhere")
        assert await factor(server, "twice") == 3
        await server.load("new", outputs=folder / "net")
        assert await factor(server, "new") == 3


@pytest.mark.anyio
async def test_what_changes_is_loaded_what_goes_is_unloaded_and_what_fails_stays(
    folder, monkeypatch, caplog
):
    monkeypatch.setattr("actorgraph.serving.directory.POLL_S", 0.0)
    directory = await anyio.to_thread.run_sync(Directory, str(folder))
    server = directory.server

    async def loaded(name, wanted):
        await until(lambda: name in {one.name for one in server.models})
        with anyio.fail_after(30):
            while await factor(server, name) != wanted:
                await anyio.lowlevel.checkpoint()

    async with server, anyio.create_task_group() as tasks:
        tasks.start_soon(directory.watch)
        write(folder / "net", 3)
        await loaded("net", 3)
        write(folder / "other", 5)
        await loaded("other", 5)
        (folder / "net" / "model.py").write_text("model = ")
        await until(lambda: "was not loaded" in caplog.text)
        assert await factor(server) == 3
        write(folder / "net", 4)
        await loaded("net", 4)
        (folder / "other" / "model.py").unlink()
        await until(lambda: [one.name for one in server.models] == ["net"])
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_of_a_folder_what_has_changed_is_loaded_once_and_nothing_else(
    folder, monkeypatch, caplog
):
    monkeypatch.setattr("actorgraph.serving.directory.POLL_S", 0.0)
    caplog.set_level("INFO", "actorgraph")
    write(folder / "net" / "2", 3)
    directory = await anyio.to_thread.run_sync(Directory, str(folder))
    server = directory.server

    async def told(text):
        await until(lambda: text in caplog.text)

    async with server, anyio.create_task_group() as tasks:
        tasks.start_soon(directory.watch)
        write(folder / "net" / "2", 4)
        await told("version '2' of model 'net' was loaded")
        (folder / "net" / "2" / "model.py").unlink()
        await told("version '2' of model 'net' was unloaded")
        for name in "ab":  # whatever comes of the other is there before these two are
            write(folder / name, 5)
            await told(f"version '1' of model {name!r} was loaded")
        tasks.cancel_scope.cancel()
    assert "of model 'net' was not loaded" not in caplog.text
    assert "version '1' of model 'net'" not in caplog.text


@pytest.mark.anyio
async def test_a_model_imports_the_files_beside_it_as_they_are_now(folder, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])

    def write_both(name, beside, later):
        text = MODEL.format(factor="0.0").replace("0.0", "(FACTOR + LATER)")
        text = text.replace("    x =", "    from beside.later import LATER\n    x =", 1)
        write(folder / name, 0)
        (folder / name / "model.py").write_text("from factors import FACTOR\n" + text)
        (folder / name / "factors.py").write_text(f"FACTOR = {beside}")
        (folder / name / "beside").mkdir(exist_ok=True)
        (folder / name / "beside" / "__init__.py").touch()
        (folder / name / "beside" / "later.py").write_text(f"LATER = {later}")

    for number, name in enumerate("abcd"):
        write_both(name, number, 10)
    server = (await anyio.to_thread.run_sync(Directory, str(folder))).server
    async with server:
        for number, name in enumerate("abcd"):
            assert await factor(server, name) == 10 + number
        for later in (20, 30):
            write_both("a", 5, later)
            await server.load("a")
            assert await factor(server, "a") == 5 + later
        assert await factor(server, "b") == 11
        assert await factor(server) == 2


@pytest.mark.anyio
async def test_the_function_of_a_folder_says_its_config_and_says_it_anew(folder):
    def say(max_queued):
        text = MODEL.format(factor="2.0")
        decorator = f"@ag.serving.configured(max_queued={max_queued})\ndef model"
        (folder / "net" / "model.py").write_text(text.replace("def model", decorator))

    say(3)
    server = (await anyio.to_thread.run_sync(Directory, str(folder))).server
    async with server:
        assert server.model("net").config.max_queued == 3
        say(4)
        assert (await server.load("net")).config.max_queued == 4


@pytest.mark.anyio
async def test_a_folder_that_is_not_watched_is_looked_at_when_a_model_is_asked_for(folder):
    server = (await anyio.to_thread.run_sync(Directory, str(folder))).server
    async with server:
        write(folder / "net", 3)
        write(folder / "other", 5)
        assert await factor(server) == 2
        for name, wanted in (("net", 3), ("other", 5)):
            await server.load(name)
            assert await factor(server, name) == wanted
        write(folder / "net" / "2", 7)
        await server.load("net")
        assert server.versions("net") == ["1", "2"]
        assert (await factor(server), await factor(server, version="1")) == (7, 3)


@pytest.mark.timeout(600 if SOAK else 60)
def test_no_request_fails_while_a_folder_is_loaded_again_and_again(folder):
    with Process(str(folder), "--no-access-log", "--reload").serving() as process:
        answers, ended = [], threading.Event()

        def ask():
            connection = process.connect()
            while not ended.is_set():
                connection.request("POST", "/v2/models/net/infer", json.dumps(REQUEST))
                answer = connection.getresponse()
                told = json.load(answer)
                answers.append((answer.status, told["outputs"][0]["data"][0]))
            connection.close()

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        for number in range(RELOADS):
            write(folder / "net", number + 3)
            process.logs("was loaded")
        seen = len(answers)
        while len(answers) < seen + 8:
            clients[0].join(0.001)
        ended.set()
        for client in clients:
            client.join()
        assert {status for status, _ in answers} == {200}
        assert {answer for _, answer in answers} == {float(n) for n in range(2, RELOADS + 3)}
        assert answers[-1][1] == RELOADS + 2
        process.signal()
        assert process.ended() == 0
    assert not [line for line in process.log if "http net" in line]
