"""Deadlock check: whether tasks that wait for each other all finish; a token game, before any run.

A *task* fires once for each run: it takes a message from every edge that enters it and puts one
into every edge that leaves it.  A *lane* is the order in which its tasks fire.  An edge of capacity
c and a credit of c constrain alike: one task may be at most c firings ahead of another.

The net is a marked graph: an edge has one sender and one receiver, and a task stands in one lane.
So nothing competes, every order of play ends in the same state, and one game decides.  For the same
reason the depths that one complete game has reached are capacities that suffice.

Machines and pipelines call it; it knows neither and runs nothing.

Sources: F. Commoner et al., Marked directed graphs, 1971; T. Parks, Bounded scheduling of process
networks, 1995.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from actorgraph.errors import GraphError

Action = tuple[int, int]
"""The number of a task, and that of the run for which it fires."""


class Arc(NamedTuple):
    """A channel between tasks, unbounded if `capacity` is None.

    Messages leave in order of arrival (`fifo`), or the receiver picks that of its run.
    """

    source: int
    target: int
    capacity: int | None
    name: str
    fifo: bool = True


class Credit(NamedTuple):
    """The right of a task to be at most `limit` firings ahead of another; None for no bound.

    The `spender` spends a credit at each firing; the `giver` returns one at each of its own.
    """

    spender: int
    giver: int
    limit: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether every action happens, in whatever order lanes are served.

    If not, `blocked` describes a cycle of lanes, each waiting for the next.  `capacities` and
    `credits` have a sufficient number for each edge and each credit; None if no number suffices.
    """

    ok: bool
    blocked: tuple[str, ...]
    capacities: tuple[int, ...] | None
    credits: tuple[int, ...] | None


def check(
    tasks: Sequence[str],
    edges: Sequence[Arc],
    lanes: Sequence[Sequence[Action]],
    credits: Sequence[Credit] = (),  # noqa: A002 - the word for it
    shown: int | None = None,
    unit: str = "run",
) -> Verdict:
    r"""Return whether all lanes finish, in time linear in actions and edges.

    A task stands in one lane (else `GraphError`), once for each run.  Descriptions name lanes from
    number `shown` on by their tasks, and call a run a `unit`.  Sufficient numbers are the peak
    depths of a game without bounds on edges; if that blocks too, without bounds on credits either.

    Examples
    --------
    The second lane wants both runs of b before it looks at a, whose edge holds one message:

    >>> edges = [Arc(0, 1, 1, "a -> b"), Arc(0, 2, 1, "a -> c")]
    >>> verdict = check("abc", edges, [[(0, 0), (0, 1)], [(1, 0), (1, 1), (2, 0), (2, 1)]])
    >>> print(*verdict.blocked, sep="\n")
    lane 0 is at 'a' of run 1, which waits for room in a -> c (capacity 1)
    lane 1 is at 'b' of run 1, which waits for a message in a -> b
    >>> verdict.capacities
    (1, 2)
    """
    first_game = _Game(tasks, edges, lanes, credits)
    first_game.play()
    blocked = (
        ()
        if first_game.complete
        else first_game.story(len(lanes) if shown is None else shown, unit)
    )
    game = first_game
    if not game.complete:
        edges = [edge._replace(capacity=None) for edge in edges]
        game = _Game(tasks, edges, lanes, credits)
        game.play()
    if not game.complete and credits:
        game = _Game(tasks, edges, lanes, [credit._replace(limit=None) for credit in credits])
        game.play()
    if not game.complete:
        return Verdict(False, blocked, None, None)
    capacities = tuple([max(1, peak) for peak in game.peaks])
    return Verdict(first_game.complete, blocked, capacities, tuple(game.most_spent))


_MESSAGE, _ROOM, _CREDIT, _TURN = range(4)


class _Game:
    """One game: the position of every lane, the tokens of every edge, and the waiting lanes."""

    def __init__(
        self,
        tasks: Sequence[str],
        edges: Sequence[Arc],
        lanes: Sequence[Sequence[Action]],
        credits: Sequence[Credit],  # noqa: A002 - the word for it
    ) -> None:
        self.tasks, self.edges, self.lanes, self.credits = tasks, edges, lanes, credits
        self.position = [0] * len(lanes)
        self.lane_of: dict[int, int] = {}
        for lane, actions in enumerate(lanes):
            for task, _ in actions:
                if self.lane_of.setdefault(task, lane) != lane:
                    raise GraphError(
                        f"task {tasks[task]!r} stands in lane {self.lane_of[task]} and in lane "
                        f"{lane}; a task stands in one lane"
                    )
        self.held: list[deque[int]] = [deque() for _ in edges]
        self.peaks = [0] * len(edges)
        self.spent = [0] * len(credits)
        self.most_spent = [0] * len(credits)
        self.entering: list[list[int]] = [[] for _ in tasks]
        self.leaving: list[list[int]] = [[] for _ in tasks]
        for number, edge in enumerate(edges):
            self.leaving[edge.source].append(number)
            self.entering[edge.target].append(number)
        self.spending: list[list[int]] = [[] for _ in tasks]
        self.giving: list[list[int]] = [[] for _ in tasks]
        for number, credit in enumerate(credits):
            self.spending[credit.spender].append(number)
            self.giving[credit.giver].append(number)
        self.waiting: dict[tuple[int, int], int] = {}

    @property
    def complete(self) -> bool:
        """Whether every lane has finished."""
        return all(at == len(lane) for at, lane in zip(self.position, self.lanes, strict=True))

    def play(self) -> None:
        """Fire all tasks that can fire, receivers before senders, so that depths stay small."""
        # `_can_move` registers blocked lanes as waiting, so that tokens wake them.
        ready = [lane for lane in range(len(self.lanes)) if self._can_move(lane)]
        while ready:
            lane = ready.pop()
            if self._can_move(lane):
                ready.append(lane)
                ready += self._fire(*self.lanes[lane][self.position[lane]])
                self.position[lane] += 1

    def _can_move(self, lane: int) -> bool:
        """Return whether a lane can fire its next task; register it as waiting if it is blocked."""
        if self.position[lane] == len(self.lanes[lane]):
            return False
        missing = self._missing(*self.lanes[lane][self.position[lane]])
        if missing is not None:
            self.waiting[missing] = lane
        return missing is None

    def _missing(self, task: int, run: int) -> tuple[int, int] | None:
        """Return the token that a task lacks: its kind, and the number of an edge or credit."""
        for number in self.entering[task]:
            held = self.held[number]
            if not held or (run not in held and not self.edges[number].fifo):
                return _MESSAGE, number
            if held[0] != run and self.edges[number].fifo:
                return _TURN, number
        for number in self.leaving[task]:
            capacity = self.edges[number].capacity
            if capacity is not None and len(self.held[number]) >= capacity:
                return _ROOM, number
        for number in self.spending[task]:
            limit = self.credits[number].limit
            if limit is not None and self.spent[number] >= limit:
                return _CREDIT, number
        return None

    def _fire(self, task: int, run: int) -> list[int]:
        """Move the tokens of a firing; return the lanes that waited for one of them."""
        moved: list[tuple[int, int]] = []
        for number in self.entering[task]:
            self.held[number].remove(run)
            moved.append((_ROOM, number))
        for number in self.spending[task]:
            self.spent[number] += 1
            self.most_spent[number] = max(self.most_spent[number], self.spent[number])
        for number in self.giving[task]:
            self.spent[number] -= 1
            moved.append((_CREDIT, number))
        for number in self.leaving[task]:
            self.held[number].append(run)
            self.peaks[number] = max(self.peaks[number], len(self.held[number]))
            moved.append((_MESSAGE, number))
        return [self.waiting.pop(token) for token in moved if token in self.waiting]

    def story(self, shown: int, unit: str) -> tuple[str, ...]:
        """Describe a cycle of lanes that wait for each other, or a chain to its end."""
        first = next(i for i, lane in enumerate(self.lanes) if self.position[i] < len(lane))
        path: list[int] = []
        lines: list[str] = []
        lane: int | None = first
        while lane is not None and lane not in path:
            path.append(lane)
            text, lane = self._wait_of(lane, shown, unit)
            lines.append(text)
        return tuple(lines if lane is None else lines[path.index(lane) :])

    def _wait_of(self, lane: int, shown: int, unit: str) -> tuple[str, int | None]:
        """Describe what a lane waits for; return also the lane that would have to provide it."""
        task, run = self.lanes[lane][self.position[lane]]
        missing = self._missing(task, run)
        assert missing is not None
        kind, number = missing
        if kind == _CREDIT:
            credit = self.credits[number]
            what, who = f"a credit of {credit.name} (of {credit.limit})", credit.giver
        elif kind == _ROOM:
            edge = self.edges[number]
            what, who = f"room in {edge.name} (capacity {edge.capacity})", edge.target
        elif kind == _MESSAGE:
            edge = self.edges[number]
            what, who = f"a message in {edge.name}", edge.source
        else:
            edge, head = self.edges[number], self.held[number][0]
            what, who = f"its turn in {edge.name}, where {unit} {head} is first", edge.target
        giver = self.lane_of.get(who)
        where = f"lane {lane} is at {self.tasks[task]!r} of {unit} {run}"
        if lane >= shown:
            where = f"{self.tasks[task]!r} is at {unit} {run}"
        text = f"{where}, which waits for {what}"
        if giver is None or self.position[giver] == len(self.lanes[giver]):
            return f"{text}; no lane lists {self.tasks[who]!r} for it", None
        return text, giver
