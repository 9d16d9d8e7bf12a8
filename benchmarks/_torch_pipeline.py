"""The MLP of `microbatches` by PyTorch's pipelining: 1F1B in two processes of one thread each."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from contextlib import ExitStack
from functools import cache, partial
from time import perf_counter
from typing import Any

from benchmarks._harness import Trial, installed
from benchmarks._work import Array

_FEW = 3


class TorchPipeline:
    """The two processes, started when they are first asked for, idle between the cases.

    Parameters
    ----------
    weights : list of array
    fed : array
    scope : ExitStack
        They end with it.
    """

    def __init__(self, weights: list[Array], fed: Array, scope: ExitStack) -> None:
        self._weights, self._fed, self._scope = weights, fed, scope
        self._ends: list[Any] = []

    def trial(self, count: int, scope: ExitStack) -> Trial:
        """Return steps of so many microbatches."""
        installed("torch")
        if not self._ends:
            self._start()
        return Trial(lambda: [self._steps(count, 1)], best=partial(self._best, count))

    def _start(self) -> None:
        folder = self._scope.enter_context(tempfile.TemporaryDirectory())
        context, half = multiprocessing.get_context("spawn"), len(self._weights) // 2
        for rank in range(2):
            mine, other = context.Pipe()
            layers = self._weights[rank * half : (rank + 1) * half]
            given = rank, os.path.join(folder, "meet"), layers, self._fed, other
            process = context.Process(target=_stage, args=given)
            process.start()
            self._scope.callback(process.join)
            self._ends.append(mine)
        for mine in self._ends:
            self._scope.callback(mine.send, None)

    def _steps(self, count: int, steps: int) -> float:
        """Return the shortest of some steps: each takes until both processes are through."""
        for mine in self._ends:
            mine.send((count, steps))
        found = [mine.recv() for mine in self._ends]
        return min([max(times) for times in zip(*found, strict=True)])

    def _best(self, count: int, slice_s: float) -> float:
        found = self._steps(count, _FEW)
        return min(found, self._steps(count, max(1, round(slice_s / found))))


def _stage(rank: int, path: str, weights: list[Array], fed: Array, orders: Any) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    x, unused = torch.tensor(fed), torch.zeros(len(fed), 1)

    @cache
    def made(count: int) -> tuple[Any, Any]:
        module = torch.nn.Sequential()
        for array in weights:
            layer = torch.nn.Linear(*array.shape, bias=False)
            layer.weight = torch.nn.Parameter(torch.tensor(array.T.copy()))
            module.extend([layer, torch.nn.Tanh()])
        stage = PipelineStage(module, rank, 2, torch.device("cpu"))
        return module, Schedule1F1B(stage, count, loss_fn=lambda y, _: y.square().mean())

    while asked := orders.recv():
        times, (count, steps) = [], asked
        module, schedule = made(count)
        for _ in range(steps + 1):
            module.zero_grad()
            dist.barrier()
            started = perf_counter()
            if rank:
                schedule.step(target=unused, losses=[])
            else:
                schedule.step(x)
            times.append(perf_counter() - started)
        orders.send(times[1:])  # the first has made the buffers
    dist.destroy_process_group()
