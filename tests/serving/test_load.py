"""`actorgraph serve` under clients who leave at any moment, and under more than it can do."""

import asyncio
import json
import random
import re
from contextlib import suppress
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from tests._soak import SOAK
from tests.serving.test_command import Process, logger

__all__ = ["logger"]  # as it was after each command

pytestmark = pytest.mark.soak
CLIENTS, SECONDS = (2000, 60.0) if SOAK else (40, 0.3)
FILE = """
import timeit

import numpy as np
import actorgraph as ag

def storm():
    server = ag.serving.Server()
    x = y = ag.Graph().input("x", ("rows", 64), "float32")
    for _ in range(8):
        y = np.tanh(y @ np.eye(64, dtype="float32"))
    server.add("net", {"y": y}, max_batch_size=8, batch_wait_s=0.002, max_queued=500)
    n = ag.Graph().input("n", ("rows",), "int64")
    server.add("counts", {"n": n + 1}, feedback={"n": "n"}, max_steps=20, max_inflight=300)
    return server

def slow():
    server = ag.serving.Server()
    x = y = ag.Graph().input("x", (1, 64), "float32")
    wide = (x @ np.ones((64, 500), "float32")).reshape((500, 1)) * np.ones((1, 500), "float32")
    array = np.full((500, 500), 0.5, "float32")
    spent_s = min(timeit.repeat(lambda: np.tanh(array), number=1, repeat=20))
    for _ in range(int(0.03 / spent_s)):  # all who wait are answered before their deadline
        wide = np.tanh(wide)
    one = ag.ActorMachine({"y": wide.sum(axis=1)}, workers=1)
    server.add("slow", one, max_queued=10, request_timeout_s=0.5, max_concurrent_batches=1)
    return server
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "served.py"
    path.write_text(FILE)
    return path


def request(path, /, **tensor):
    content = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST /v2/models/{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}"
    return f"{head}\r\nconnection: close\r\n\r\n".encode() + content


NET = request("net/infer", name="x", datatype="FP32", shape=[1, 64], data=[0.5] * 64)
COUNTS = request("counts/infer_stream", name="n", datatype="INT64", shape=[1], data=[0])
SLOW = request("slow/infer", name="x", datatype="FP32", shape=[1, 64], data=[0.5] * 64)
ANSWER = 0.5
for _ in range(8):
    ANSWER = np.tanh(ANSWER)


async def asked(port, sent, leaves_s=None):
    """Return status and body; one who leaves breaks off, in whatever state, and gets nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), 60.0 if leaves_s is None else leaves_s)
    except TimeoutError:
        if leaves_s is None:
            raise
        return 0, b""
    finally:
        writer.transport.abort()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def check(sent, status, body):
    if status == 200 and sent is NET:
        np.testing.assert_allclose(json.loads(body)["outputs"][0]["data"], ANSWER, rtol=1e-5)
    elif status == 200:
        parts = [int(one) for one in re.findall(rb'"data":\s*\[(\d+)\]', body)]
        assert parts == list(range(1, len(parts) + 1))
        ended = b"event: end" in body and len(parts) == 20
        assert ended or b"DEADLINE_EXCEEDED" in body
    else:
        assert status in (0, 503), (status, body)


class Served:
    """What the process says of itself, and what the system says of it."""

    def __init__(self, process):
        self._process = process
        self._folder = Path(f"/proc/{process._process.pid}")

    async def busy(self):
        """Return how many requests run or wait."""
        get = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        _, body = await asked(self._process.port, get)
        found = re.findall(
            rb"^actorgraph_requests_(?:inflight|queued){.*} (.*)$", body, re.MULTILINE
        )
        return sum(map(float, found))

    async def is_idle(self):
        """Wait until it has nothing to do."""
        end = monotonic() + 30
        while await self.busy():
            assert monotonic() < end, "requests are left"

    def memory_mb(self):
        status = (self._folder / "status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def files(self):
        return len(list((self._folder / "fd").iterdir()))


linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


@linux
@pytest.mark.timeout(300 if SOAK else 60)
def test_a_storm_of_clients_of_which_half_leave_at_any_moment_leaves_nothing_behind(file):
    async def storm(process):
        port, served = process.port, Served(process)
        for sent in (NET, COUNTS) * 4:
            check(sent, *await asked(port, sent))
        files, memory_mb, counted = served.files(), [], [0, 0]

        async def client(number):
            draw = random.Random(number)
            while monotonic() < end:
                sent = NET if draw.random() < 0.7 else COUNTS
                leaves_s = draw.random() ** 2 * 0.5 if number % 2 else None
                with suppress(ConnectionError):  # more than the port's own queue takes
                    status, body = await asked(port, sent, leaves_s)
                    check(sent, status, body)
                    counted[status == 0] += 1

        for _ in range(2):  # the memory that the first half has taken is enough for the second
            end = monotonic() + SECONDS / 2
            await asyncio.gather(*[client(number) for number in range(CLIENTS)])
            await served.is_idle()
            memory_mb.append(served.memory_mb())
        assert min(counted) > 0
        assert memory_mb[1] < memory_mb[0] * 1.25 + 20
        # All at once.
        leaving = [asked(port, NET if n % 2 else COUNTS, 0.05) for n in range(CLIENTS)]
        await asyncio.gather(*leaving, return_exceptions=True)
        again = await asyncio.gather(*[asked(port, NET) for _ in range(50)])
        assert {status for status, _ in again} == {200}
        await served.is_idle()
        while served.files() > files + 2:  # of connections that the kernel has yet to tell of
            await served.busy()
        return counted, memory_mb

    with Process(f"{file}:storm", "--no-access-log").serving() as process:
        print(asyncio.run(storm(process)))
        process.signal()
        assert process.ended() == 0


@linux
@pytest.mark.skipif(not SOAK, reason="measures for 20 s; test_overload.py has the states by gates")
@pytest.mark.timeout(120)
def test_three_times_the_capacity_keeps_the_throughput_and_refuses_the_rest_at_once(file):
    async def overload(process):
        port, served = process.port, Served(process)
        ended = []

        async def closed(end):
            while monotonic() < end:
                status, _ = await asked(port, SLOW)
                assert status == 200
                ended.append(monotonic())

        await asyncio.gather(*[closed(monotonic() + 1.0) for _ in range(4)])
        ended.clear()
        await asyncio.gather(*[closed(monotonic() + 5.0) for _ in range(4)])
        peak, memory_mb, times = len(ended) / 5.0, served.memory_mb(), {200: [], 503: [], 504: []}

        async def one(due):
            came = monotonic()
            late.append(came - due)
            status, _ = await asked(port, SLOW)
            times[status].append(monotonic() - came)

        start, tasks, late = monotonic(), [], []
        loop, launched = asyncio.get_running_loop(), asyncio.Event()
        for number in range(int(3 * peak * 10)):
            due_s = number / (3 * peak)
            loop.call_later(
                due_s, lambda due: tasks.append(loop.create_task(one(due))), start + due_s
            )
        loop.call_later(10.0, launched.set)
        await launched.wait()
        await asyncio.gather(*tasks)
        rate = len(times[200]) / (monotonic() - start)
        p99 = {status: float(np.percentile(found, 99)) for status, found in times.items() if found}
        own_late = float(np.percentile(late, 99))  # of this process, which shares the cores
        print(f"peak {peak:.1f}/s, then {rate:.1f}/s, p99 {p99} s, {served.memory_mb()} MB")
        print(f"the client itself: p99 {own_late} s late")
        assert rate >= 0.9 * peak
        assert p99[200] <= 0.5 + 1 / peak + own_late
        assert p99[503] < 0.010 + own_late
        assert served.memory_mb() < memory_mb + 20

    with Process(f"{file}:slow", "--no-access-log").serving() as process:
        asyncio.run(overload(process))
