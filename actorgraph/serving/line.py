"""`Line`: the requests that wait for a model, in their order, and who may join them."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from actorgraph.serving.config import Config
from actorgraph.serving.errors import Overloaded
from actorgraph.serving.request import Request

_ORDER, _DUE = attrgetter("order"), attrgetter("due")


class Line:
    """Requests that wait for a model of so many runs at once; its lock is held for changes."""

    def __init__(self, name: str, config: Config, most_runs: int) -> None:
        self._name, self._config, self._most_runs = name, config, most_runs
        self.requests: list[Request] = []  # in their order
        # What the latest has taken: who has less time left would take a run and not use it.
        self.run_s = 0.0

    # -- who joins ------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Put a request in its place."""
        insort(self.requests, request, key=_ORDER)

    def _is_full(self, runs: int, inflight: int) -> bool:
        """Return whether a request more would have to wait behind as many as may wait."""
        config = self._config
        free = (self._most_runs - runs) * config.max_batch_size
        startable = max(0, min(free, config.max_inflight - inflight))
        return len(self.requests) >= config.max_queued + startable

    def check_room(self, runs: int, inflight: int) -> None:
        """Refuse a request too many, before anything is made of it; others have to go later."""
        if self._config.overflow == "reject" and self._is_full(runs, inflight):
            raise self.overload(inflight)

    def joined(self, request: Request, runs: int, inflight: int) -> Request | None:
        """Return the request that has to go for one that comes: the oldest of the least urgent.

        `Overloaded` is the one that comes: what waits costs too much, or goes on.
        """
        most, overflow = self._config.max_queued_cost, self._config.overflow
        if most is not None and overflow != "wait" and self.requests:
            waiting = sum([one.cost for one in self.requests])
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
        new = [one for one in self.requests if not one.continues]
        shed = next((one for one in new if one.order[0] == new[-1].order[0]), None)
        if shed is None:
            raise self.overload(inflight)
        self.requests.remove(shed)
        return shed

    def overload(self, inflight: int) -> Overloaded:
        """Return what a request too many is told."""
        return Overloaded(
            f"model {self._name!r} has {self._config.max_queued} requests waiting and {inflight} "
            "running, which is all it takes (max_queued); ask again later"
        )

    # -- who leaves -----------------------------------------------------------------------------

    def taken(self, inflight: int, now: float) -> tuple[list[Request], str]:
        """Take the next batch out, or nothing yet; and why now."""
        config, waiting, hopeless = self._config, self.requests, now + self.run_s
        if waiting and waiting[0].until <= hopeless:
            # It may be wrong, and is not believed where nobody else is there.
            waiting = [one for one in waiting if one.until > hopeless] or waiting
        if config.preserve_order:
            others = [place for place, one in enumerate(waiting) if one.kind != waiting[0].kind]
            waiting = waiting[: min(others, default=len(waiting))]
        members, full = _chosen(waiting, config.max_batch_size, now)
        members = members[: config.max_inflight - inflight]
        if not members:
            return [], ""
        if self.requests[: len(members)] == members:
            del self.requests[: len(members)]
        else:
            self.requests = [one for one in self.requests if one not in members]
        if full or not config.batch_wait_s:
            return members, "full" if full else "idle"
        first = min(members, key=_DUE)
        waited = first.due >= first.born + config.batch_wait_s
        return members, "window" if waited else "deadline"


def _chosen(queue: list[Request], most_rows: int, now: float) -> tuple[list[Request], bool]:
    """Return the next batch of those that wait in their order, or none yet; and whether it is full.

    A batch is due when it is full, or when one of its requests has waited long enough.  Who is late
    is told so at his desk, and must not cost a run.
    """
    seen = set()
    for place, head in enumerate(queue):
        if head.kind in seen or head.until <= now:
            continue
        seen.add(head.kind)
        found, rows, due, full = [head], head.rows, head.due, False
        for one in queue[place + 1 :] if rows < most_rows else ():
            if one.kind != head.kind or one.until <= now:
                continue
            if rows + one.rows > most_rows:
                full = True
                break
            found.append(one)
            rows += one.rows
            due = min(due, one.due)
        full = full or rows >= most_rows
        if full or due <= now:
            return found, full
    return [], False
