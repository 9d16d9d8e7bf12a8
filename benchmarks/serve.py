"""Served models in process, over HTTP and gRPC, beside what others serve.

Clients of one loop ask one request of one row after the other, and at 80 % of the best rate that a
system has shown, whether it keeps up or not (`offered`).  The models are an MLP that takes about a
millisecond for a row, most of it to read its weights, and a small convolution net for the 8 x 8
digits.  A product uses one thread, as ours does: NumPy's own threads would fight for cores.
Servers are processes of their own on the same cores as the clients, which never interrupt them;
peers take raw bytes where their framework reads them, else JSON, and batch where they can.

For overload the MLP is served by one worker, with a queue for 64 requests.  What 64 clients reach
who ask again when they are answered is its peak and its capacity; then three times as many requests
are due, from the same process over connections of the same kind.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from importlib import util
from typing import Any, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks._harness import MISSING_OURS
from benchmarks._report import options, print_environment, print_rows, tell, write_json

CLIENTS = (1, 8, 64)
CONNECTIONS = 4 * CLIENTS[-1]
"""Made before a server is asked: for those that wait and run, and as many again."""

OPEN = 0
"""Stands for the open loop where numbers of clients do."""

SHARE = 0.8
SLICE_S, NOTHING_S = 0.7, 0.1
WIDTHS = (784, 1536, 1536, 1536, 10)
DRAW = np.random.default_rng(0)
WEIGHTS = [
    (DRAW.standard_normal((wide, narrow)) / wide**0.5).astype("float32")
    for wide, narrow in itertools.pairwise(WIDTHS)
]
ROW = DRAW.standard_normal((1, WIDTHS[0])).astype("float32")
DIGIT = DRAW.standard_normal((1, 1, 8, 8)).astype("float32")
BATCHED, IN_PROCESS, HTTP, LATE_MS = 3.0, 2.0, 1.5, 10.0
SERVED, REFUSED_MS = 0.9, 10.0
"""What is wanted: see `verdicts`."""

OVERLOAD, OVERLOAD_S, PEAK_S, DEADLINE_S = 3, 2.0, 1.0, 0.5
ROUNDS = 5
"""Of the peak and of overload, in turn: a machine is not as fast in every second."""

T = TypeVar("T")
Ask = Callable[[], Awaitable[Any]]
System = Callable[[], AbstractAsyncContextManager[Ask]]


@dataclass
class Row:
    """One system, and by number of clients the requests a second and times of the best round."""

    name: str
    system: System
    rates: dict[int, float] = field(default_factory=dict)
    times_ms: dict[int, list[float]] = field(default_factory=dict)
    """p50, p99, p99.9 of requests, and p99 of the loop's lateness."""

    note: str = ""


@dataclass(frozen=True)
class Figure:
    """What is reported of a row and a number of clients, 0 for the open loop."""

    system: str
    clients: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    loop_late_p99_ms: float
    """Of the clients' loop, which serves too where it is in process."""


def computed(x: Any) -> Any:
    """Return what NumPy computes."""
    for weight in WEIGHTS[:-1]:
        x = np.maximum(x @ weight, 0)
    return x @ WEIGHTS[-1]


@asynccontextmanager
async def with_numpy() -> AsyncIterator[Ask]:
    """A thread of the pool for each request."""
    yield lambda: asyncio.to_thread(computed, ROW)


def torch_mlp() -> Callable[[Any], Any]:
    """Return what computes the same with PyTorch, on one thread."""
    import torch

    torch.set_num_threads(1)
    weights = [torch.from_numpy(weight) for weight in WEIGHTS]

    def forward(rows: Any) -> Any:
        with torch.inference_mode():
            x = torch.from_numpy(rows)
            for weight in weights[:-1]:
                x = torch.relu(x @ weight)
            return (x @ weights[-1]).numpy()

    return forward


def with_torch(forward: Callable[[], Callable[[Any], Any]], row: Any) -> System:
    """PyTorch in a thread of the pool for each request."""

    @asynccontextmanager
    async def system() -> AsyncIterator[Ask]:
        made = forward()
        yield lambda: asyncio.to_thread(made, row)

    return system


def mlp() -> tuple[Any, Any]:
    """Return input and output of our MLP."""
    import actorgraph as ag

    g = ag.Graph("mlp")
    x = h = g.input("x", ("rows", WIDTHS[0]), "float32")
    for number, weight in enumerate(WEIGHTS):
        h = h @ g.parameter(f"W{number}", weight)
        h = ag.ops.relu(h) if number < len(WEIGHTS) - 1 else h
    return x, h


def layers(nn: Any) -> Any:
    """Return the convolution net, of PyTorch's or of our modules."""
    first, second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
    head = [nn.Flatten(), nn.Linear(128, 10)]
    pool = nn.MaxPool2d(2)
    return nn.Sequential(first, nn.ReLU(), pool, second, nn.ReLU(), pool, *head).eval()


def digits() -> tuple[Any, Any]:
    """Return input and output of our convolution net."""
    import actorgraph as ag

    x = ag.Graph("digits").input("x", ("rows", 1, 8, 8), "float32")
    return x, layers(ag.nn)(x)


def torch_digits() -> Callable[[Any], Any]:
    """Return the convolution net of PyTorch, on one thread."""
    import torch

    torch.set_num_threads(1)
    net = layers(torch.nn)

    def forward(rows: Any) -> Any:
        with torch.inference_mode():
            return net(torch.from_numpy(rows)).numpy()

    return forward


def ours(made: Callable[[], tuple[Any, Any]], row: Any, **config: Any) -> System:
    """A served model."""

    @asynccontextmanager
    async def system() -> AsyncIterator[Ask]:
        import actorgraph as ag

        x, y = made()
        async with ag.serving.Server() as server:
            model = server.add("net", {"y": y}, inputs=[x], max_queued=100_000, **config)

            async def ask() -> Any:
                return (await model.infer({"x": row}))["y"]

            yield ask

    return system


def remote(server: str, model: str, how: str) -> System:
    """A server of `benchmarks._serve_peers`, which ends with each round."""

    @asynccontextmanager
    async def system() -> AsyncIterator[Ask]:
        from benchmarks import _serve_clients as clients

        row = ROW if model == "MLP" else DIGIT
        if server.startswith("ours"):
            asked = clients.our_request(row, binary=how != "JSON")
        else:
            asked = clients.peers_request(server, row)
        process = clients.Process(server, model)
        try:
            why = await process.answers(asked)
            if why:
                raise MissingPeer(why)
            if how == "gRPC":
                made: Any = clients.over_grpc(process.port + 1, row)
            else:
                made = clients.over_http(process.port, asked, CONNECTIONS)
            async with made as ask:
                clients.check(await ask(), wanted_of(model))
                yield ask
        finally:
            process.end()

    return system


class MissingPeer(Exception):
    """A server does not answer; the message says why."""


def wanted_of(model: str) -> Any:
    """Return the right answer where both sides have the same weights, else None."""
    return computed(ROW) if model == "MLP" else None


PEERS = ("FastAPI, NumPy", "FastAPI, PyTorch", "LitServe", "BentoML", "Ray Serve")
OURS = (
    ("ours", "binary"), ("ours batched", "binary"), ("ours batched", "JSON"),
    ("ours batched", "gRPC"),
)  # fmt: skip


def all_rows() -> list[Row]:
    """The reference of each model first."""
    return [
        Row("MLP, NumPy to_thread", with_numpy),
        Row("MLP, PyTorch to_thread", with_torch(torch_mlp, ROW)),
        Row("MLP, ours", ours(mlp, ROW)),
        Row("MLP, ours batched", ours(mlp, ROW, max_batch_size=64)),
        Row("MLP, ours exact batches", ours(mlp, ROW, max_batch_size=64, exact_batches=True)),
        Row("digits, PyTorch to_thread", with_torch(torch_digits, DIGIT)),
        Row("digits, ours", ours(digits, DIGIT)),
        Row("digits, ours batched", ours(digits, DIGIT, max_batch_size=64)),
        *(
            Row(f"{model} served by {name}{how and ', ' + how}", remote(name, model, how))
            for model in ("MLP", "digits")
            for name, how in [*((one, "") for one in PEERS), *OURS]
            if (name, model) != ("FastAPI, NumPy", "digits")  # which has no convolution
        ),
    ]


async def measure(row: Row) -> None:
    """Note one round of each load, where it was the best."""
    async with row.system() as ask:
        found = await ask()
        if row.name.startswith("MLP,"):
            np.testing.assert_allclose(found, computed(ROW), rtol=1e-3, atol=1e-4)
        gc.collect()
        gc.freeze()  # to look at all modules holds the loop for 50 ms, whatever is measured
        for clients in (*CLIENTS, OPEN):
            times: list[float] = []
            late: list[float] = []
            rate = 0.0 if clients else await offered(row)
            begin = time.perf_counter()
            end = begin + SLICE_S
            load = closed(ask, clients, end, times) if clients else opened(ask, rate, end, times)
            await asyncio.gather(ticks(end, late), load)
            rate = len(times) / (time.perf_counter() - begin)
            if rate > row.rates.get(clients, 0.0) or clients == OPEN:
                row.rates[clients] = rate
                told = [*np.percentile(times, [50, 99, 99.9]), np.percentile(late, 99)]
                row.times_ms[clients] = [float(one) * 1e3 for one in told]


async def offered(row: Row) -> float:
    """Return the rate of the open loop.

    In process its clients hold the system's own loop, which is no merit of the system: what they
    take where there is nothing to ask is added to the time of a request.
    """
    best = max(row.rates.values(), default=0.0)
    if " served by " in row.name:
        return SHARE * best

    async def nothing() -> None:
        pass

    times: list[float] = []
    before = time.process_time()
    await opened(nothing, SHARE * best, time.perf_counter() + NOTHING_S, times)
    return SHARE / (1 / best + (time.process_time() - before) / len(times))


async def closed(ask: Ask, clients: int, end: float, times: list[float]) -> None:
    """Have clients ask one request after the other."""

    async def client() -> None:
        while (start := time.perf_counter()) < end:
            await ask()
            times.append(time.perf_counter() - start)

    await asyncio.gather(*[client() for _ in range(clients)])


async def opened(ask: Ask, rate: float, end: float, times: list[float]) -> None:
    """Ask so often a second; times count from when a request was due."""

    async def client(due: float) -> None:
        await ask()
        times.append(time.perf_counter() - due)

    due = time.perf_counter()
    async with asyncio.TaskGroup() as asked:  # to gather all tasks at the end would hold the loop
        while due < end:
            if (left_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(left_s)
            asked.create_task(client(due))
            due += 1 / rate


async def ticks(end: float, late: list[float]) -> None:
    """Note how much later than it should the loop wakes."""
    while (start := time.perf_counter()) < end:
        await asyncio.sleep(0.002)
        late.append(time.perf_counter() - start - 0.002)


@dataclass(frozen=True)
class Overload:
    """What became of three times as many requests as a bounded server of the MLP answers.

    Of all cores, what server and clients have had is told of the peak and of the overload.
    """

    share: float
    peak_per_s: float
    served_per_s: float
    served_p99_ms: float
    refused_per_s: float
    refused_p50_ms: float
    refused_p99_ms: float
    grown_mb: float
    peak_server_cores: float
    peak_clients_cores: float
    server_cores: float
    clients_cores: float


async def overloaded() -> Overload:
    """Ask a server by 64 clients, each when it has its answer, then three times as often, in turn.

    The rate of the first is the peak and the capacity.  Both are asked by the same connections in
    the same way, of the same processes; times count from when a request was due.  Rates and cores
    are medians of the rounds, and so is the share of the peak; percentiles are of all requests.
    """
    from benchmarks import _serve_clients as clients

    asked, process = clients.our_request(ROW, binary=True), clients.Process("ours bounded", "MLP")
    times: dict[int, list[float]] = {200: [], 503: []}
    found = []

    async def measured(load: Any, asking: Awaitable[float]) -> list[float]:
        """Return how many were served and refused a second, and the cores of both sides."""
        before = process.cores_s(), time.process_time()
        spent_s = await asking
        after = process.cores_s(), time.process_time()
        load.close()
        told = [len(load.times.get(status, ())) for status in times]
        return [one / spent_s for one in (*told, after[0] - before[0], after[1] - before[1])]

    async def closed(for_s: float) -> list[float]:
        load = clients.Load(process.port, asked)
        return await measured(load, load.closed(CLIENTS[-1], for_s))

    try:
        if why := await process.answers(asked):
            raise MissingPeer(why)
        await closed(PEAK_S)
        before_mb = process.resident_mb()
        for _ in range(ROUNDS):
            peak, load = await closed(PEAK_S), clients.Load(process.port, asked)
            await load.connected(CONNECTIONS)
            over = await measured(load, load.opened(OVERLOAD * peak[0], OVERLOAD_S))
            found.append([over[0] / peak[0], *peak, *over])
            for status, some in times.items():
                some += load.times.get(status, [])
        grown_mb = process.resident_mb() - before_mb
    finally:
        process.end()
    share, peak_per_s, _, *peak_cores, served, refused, server, client = np.median(
        found, 0
    ).tolist()
    served_ms = float(np.percentile(times[200], 99)) * 1e3
    refused_ms = [float(one) * 1e3 for one in np.percentile(times[503], [50, 99])]
    return Overload(
        share, peak_per_s, served, served_ms, refused, *refused_ms, grown_mb,
        *peak_cores, server, client,
    )  # fmt: skip


def print_table(rows: Sequence[Row]) -> None:
    """One line a system, one column a number of clients."""
    heads = [*[f"{count} clients" for count in CLIENTS], f"open loop at {SHARE:.0%}"]
    table = [["system", *heads]]
    for row in rows:
        cells = []
        for count in (*CLIENTS, OPEN):
            if count not in row.rates:
                cells.append("-")
                continue
            p50, p99, p999, _ = row.times_ms[count]
            cells.append(f"{row.rates[count]:.0f}/s, {p50:.1f}, {p99:.1f}, {p999:.1f} ms")
        table.append([row.name, *cells])
    print_rows("serve: requests of one row a second, and p50, p99 and p99.9 of their time", table)
    for row in rows:
        if row.note:
            print(f"  {row.name}: {row.note}")


def told_of(over: Overload) -> str:
    """Return what became of the requests in a sentence."""
    return (
        f"Served {over.served_per_s:.0f} requests a second (at best {over.peak_per_s:.0f}) with a "
        f"p99 of {over.served_p99_ms:.0f} ms, refused {over.refused_per_s:.0f} with a median of "
        f"{over.refused_p50_ms:.1f} ms and a p99 of {over.refused_p99_ms:.1f} ms; memory grew by "
        f"{over.grown_mb:.1f} MB. The server held {over.server_cores:.2f} cores (at best "
        f"{over.peak_server_cores:.2f}), the clients {over.clients_cores:.2f} (at best "
        f"{over.peak_clients_cores:.2f})."
    )


def verdicts(rows: Sequence[Row], over: Overload | None) -> dict[str, bool]:
    """Tell what was wanted and what was found, of what was measured."""
    by_name, most = {row.name: row for row in rows if row.rates}, CLIENTS[-1]
    found: dict[str, bool] = {}

    def judge(what: str, ratio: float, wanted: float, *, also: bool = True) -> None:
        found[what] = ratio >= wanted and also
        told = "met" if found[what] else "missed"
        tell(f"{what}: {ratio:.2f}, wanted {wanted:g}: {told}.")

    if {"MLP, ours", "MLP, ours batched"} <= by_name.keys():
        one, many = by_name["MLP, ours"], by_name["MLP, ours batched"]
        what = f"batching the MLP, times the requests a second without, {most} clients"
        judge(what, many.rates[most] / one.rates[most], BATCHED)
    for model in ("MLP", "digits"):
        own, peer = f"{model}, ours batched", f"{model} served by FastAPI, PyTorch"
        if {own, peer} <= by_name.keys():
            ratio = max(by_name[own].rates.values()) / max(by_name[peer].rates.values())
            judge(f"{model} in process, times FastAPI's best", ratio, IN_PROCESS)
        peers = [by_name[f"{model} served by {name}"] for name in PEERS
                 if f"{model} served by {name}" in by_name]  # fmt: skip
        http = by_name.get(f"{model} served by ours batched, binary")
        if peers and http:
            best = max(peers, key=lambda row: row.rates[most])
            p99 = http.times_ms[most][1], best.times_ms[most][1]
            what = (
                f"{model} over HTTP in binary, times {best.name.partition('by ')[2]}, "
                f"{most} clients (p99 {p99[0]:.1f} and {p99[1]:.1f} ms, wanted no higher)"
            )
            judge(what, http.rates[most] / best.rates[most], HTTP, also=p99[0] <= p99[1])
    # An open loop's tasks fill the loop that they share with the server.
    late = {
        f"{row.name} with {count}": times[3]
        for row in rows if ", ours" in row.name for count, times in row.times_ms.items()
        if count != OPEN
    }  # fmt: skip
    if late:
        worst = max(late, key=lambda name: late[name])
        what = f"{LATE_MS:g} ms over the p99 of the loop's lateness at its worst ({worst})"
        judge(what, LATE_MS / late[worst], 1.0)
    if over is not None:
        what = (
            f"share of its best that the MLP serves over HTTP at {OVERLOAD} times as many requests"
        )
        judge(what, over.share, SERVED)
        limit_ms = DEADLINE_S * 1e3 + CLIENTS[-1] / over.peak_per_s * 1e3
        judge("deadline and one batch over the p99 of these", limit_ms / over.served_p99_ms, 1.0)
        judge(f"{REFUSED_MS:g} ms over the p99 of a 503", REFUSED_MS / over.refused_p99_ms, 1.0)
        tell(told_of(over))
    return found


def run(main: Coroutine[Any, Any, T], *, remote: bool) -> T:
    """Run it; clients of other processes take as little of the cores as they can."""
    if remote and util.find_spec("uvloop") is not None:
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("serve", __doc__)
    print_environment()
    rows = [row for row in all_rows() if asked.wants(row.name)]
    begin, over = time.monotonic(), None
    for number in range(1 if asked.quick else 2):
        for row in rows:
            print(f"{time.monotonic() - begin:4.0f} s: {row.name}", file=sys.stderr, flush=True)
            if number and " served by " in row.name:  # to start one takes longer than to ask it
                continue
            try:
                run(measure(row), remote=" served by " in row.name)
            except ModuleNotFoundError as error:
                row.note = MISSING_OURS if error.name == "actorgraph" else f"no {error.name}"
            except MissingPeer as error:
                row.note = f"does not answer here: {error}"
    if asked.wants("overload"):
        over = run(overloaded(), remote=True)
    print_table(rows)
    judged = verdicts(rows, over)
    found = [
        Figure(row.name, clients, rate, *row.times_ms[clients])
        for row in rows
        for clients, rate in row.rates.items()
    ]
    more = {} if over is None else {"overload": asdict(over)}
    if found or over is None:
        write_json("serve", asked, found, {"verdicts": judged, **more})
    return int(any("ours" in row.name and not row.rates for row in rows))


if __name__ == "__main__":
    sys.exit(main())
