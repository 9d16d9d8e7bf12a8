"""`RequestQueue`: the requests that wait for a model, bounded and in order of priority."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from actorgraph.serving.config import Config
from actorgraph.serving.errors import Overloaded
from actorgraph.serving.request import Request

_ORDER, _DUE = attrgetter("order"), attrgetter("due")


class RequestQueue:
    """The waiting requests of a model, which runs `max_runs` at once; changed under its lock."""

    def __init__(self, name: str, config: Config, max_runs: int) -> None:
        self._name, self._config, self._max_runs = name, config, max_runs
        self.requests: list[Request] = []  # sorted by `order`
        # Of the latest run: a request with less time left would be late and waste its run.
        self.run_s = 0.0

    # -- adding ---------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Insert a request by its order."""
        insort(self.requests, request, key=_ORDER)

    def _is_full(self, runs: int, inflight: int, coming: int = 0) -> bool:
        """Return whether one more request than those `coming` would exceed `max_queued`."""
        config = self._config
        free = (self._max_runs - runs) * config.max_batch_size
        startable = max(0, min(free, config.max_inflight - inflight))
        return len(self.requests) + coming >= config.max_queued + startable

    def refusal(self, runs: int, inflight: int, coming: int = 0) -> Overloaded | None:
        """Return the error if ``overflow="reject"`` refuses one behind those `coming`."""
        if self._config.overflow == "reject" and self._is_full(runs, inflight, coming):
            return self.overload(inflight)
        return None

    def make_room(self, request: Request, runs: int, inflight: int) -> Request | None:
        """Remove and return the request to shed for a new one: the oldest of the least urgent.

        Raises `Overloaded` if the new one is to be refused: the waiting ones cost too much, or all
        are later steps of streams.
        """
        most, overflow = self._config.max_queued_cost, self._config.overflow
        if most is not None and overflow != "wait" and self.requests:
            waiting = sum([queued.cost for queued in self.requests])
            if waiting + request.cost > most:
                error = Overloaded(
                    f"requests of the cost {waiting:g} wait for model {self._name!r}, and with "
                    f"{request.cost:g} more it is more than it takes (max_queued_cost); ask again "
                    "later"
                )
                error.why = "cost"
                raise error
        if overflow != "shed_oldest" or not self._is_full(runs, inflight):
            return None
        first_steps = [queued for queued in self.requests if not queued.continues]
        least_urgent = first_steps[-1].order[0] if first_steps else None
        shed = next((queued for queued in first_steps if queued.order[0] == least_urgent), None)
        if shed is None:
            raise self.overload(inflight)
        self.requests.remove(shed)
        return shed

    def overload(self, inflight: int) -> Overloaded:
        """Return the error for a request that finds the queue full."""
        return Overloaded(
            f"model {self._name!r} has {self._config.max_queued} requests waiting and {inflight} "
            "running, which is all it takes (max_queued); ask again later"
        )

    # -- taking ---------------------------------------------------------------------------------

    def due_batch(self, inflight: int, now: float) -> tuple[list[Request], str]:
        """Return the batch that is due, and why it is sent now; [] if there is none."""
        config, waiting, run_end = self._config, self.requests, now + self.run_s
        if waiting and waiting[0].deadline <= run_end:
            # `run_s` may mislead, so requests that look late are tried where no others wait.
            waiting = [one for one in waiting if one.deadline > run_end] or waiting
        if config.preserve_order:
            keys = [request.batch_key for request in waiting]
            others = [place for place, key in enumerate(keys) if key != keys[0]]
            waiting = waiting[: min(others, default=len(waiting))]
        members, full = _next_batch(waiting, config.max_batch_size, now)
        members = members[: config.max_inflight - inflight]
        if not members:
            return [], ""
        if full or not config.batch_wait_s:
            return members, "full" if full else "idle"
        first = min(members, key=_DUE)
        waited = first.due >= first.arrived + config.batch_wait_s
        return members, "window" if waited else "deadline"

    def remove(self, members: list[Request]) -> None:
        """Remove the requests of a batch."""
        if self.requests[: len(members)] == members:
            del self.requests[: len(members)]
        else:
            self.requests = [request for request in self.requests if request not in members]


def _next_batch(queue: list[Request], max_rows: int, now: float) -> tuple[list[Request], bool]:
    """Return the first batch that is due, empty if none is, and whether it is full.

    A batch is due when it is full, or when one of its requests has waited long enough.  Late
    requests are left out, for their caller loops refuse them.
    """
    seen = set()
    for index, head in enumerate(queue):
        if head.batch_key in seen or head.deadline <= now:
            continue
        seen.add(head.batch_key)
        members, rows, due, full = [head], head.rows, head.due, False
        for request in queue[index + 1 :] if rows < max_rows else ():
            if request.batch_key != head.batch_key or request.deadline <= now:
                continue
            if rows + request.rows > max_rows:
                full = True
                break
            members.append(request)
            rows += request.rows
            due = min(due, request.due)
        full = full or rows >= max_rows
        if full or due <= now:
            return members, full
    return [], False
