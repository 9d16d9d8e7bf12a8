"""The named schedules: the order of each device's forward and backward actions.

Device d of p has a warm-up of forwards, then alternates, then drains.  The orders of the papers are
for enough microbatches, some for multiples of p.  For other numbers the order of the next fitting
number is made, and whole microbatches are removed from it; since dependencies stay within one
microbatch, the rest can still be executed.

Sources: GPipe (arXiv 1811.06965); 1F1B and its interleaved form (2104.04473); looped breadth-first
(2211.05953); ZB-H1, ZB-H2 (2401.10241); ZB-V (2405.15362); the eight steps of DualPipeV as its
authors describe them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, cast

from actorgraph.errors import ScheduleError, near_names, shown
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.model import at_least, check_size
from actorgraph.schedules.notation import Action, Kind

Name: TypeAlias = Literal[
    "gpipe", "1f1b", "interleaved", "looped_bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"
]
"""The names of `SCHEDULES`, for editors."""


class _Size(NamedTuple):
    """The size of an order: device `d` of `p`, `m` microbatches, `v` chunks a device."""

    d: int
    p: int
    m: int
    v: int
    extra: int  # forwards beyond the order's own warm-up


def schedule(
    name: Name, *, stages: int, microbatches: int, chunks: int | None = None, extra_warmup: int = 0,
) -> Schedule:  # fmt: skip
    """Return a named schedule.

    Parameters
    ----------
    name : str
        One of `SCHEDULES`.
    stages : int
        Number of devices.  With chunks, a device holds that many stages of the model.
    microbatches : int
        May be smaller than `stages`.
    chunks : int, optional
        Stages on each device, for ``"interleaved"``, ``"looped_bfs"`` (2 if not given) and
        ``"zb-h1"`` (1 if not given); ``"zb-v"`` and ``"dualpipe-v"`` have 2, others 1.
    extra_warmup : int
        For orders with a warm-up: further forwards of device 0 before it alternates; the last
        device does none of them, those between do in proportion.  They hide the latency between
        devices and cost activations: if messages take up to half a microbatch's time, 1F1B with
        ``stages - 1`` loses no more to them than GPipe.

    Raises
    ------
    ScheduleError
        The name is unknown, a number too small, or the order does not have an option.

    Examples
    --------
    >>> import actorgraph as ag
    >>> print(ag.pipeline.schedule("1f1b", stages=2, microbatches=3).grid())
    0 | 0F0  0F1       0BW0 0F2  0BW1      0BW2
    1 |      1F0  1BW0 1F1  1BW1 1F2  1BW2
    """
    order = ORDERS.get(name) if isinstance(name, str) else None
    if order is None:
        raise ScheduleError(
            f"there is no schedule {shown(name)}{near_names(name, SCHEDULES)}; "
            f"known are {', '.join(SCHEDULES)}, and for a Pipeline 'dynamic'"
        )
    p, m = at_least("stages", stages, 1), at_least("microbatches", microbatches, 1)
    v = order.chunks if chunks is None else at_least("chunks", chunks, 1)
    if v != order.chunks and not order.any_chunks:
        raise ScheduleError(
            f"chunks={v} does not fit {name!r}, which has {order.chunks}; "
            "'interleaved', 'looped_bfs' and 'zb-h1' take any number"
        )
    extra = at_least("extra_warmup", extra_warmup, 0)
    if extra and not order.has_warmup:
        raise ScheduleError(f"extra_warmup={extra} does not fit {name!r}, which has no warm-up")
    whole = order.fitting(p, m, v)
    check_size(p, v, whole)
    # In proportion to the distance from the last device, as is the number of microbatches on their
    # way to it and back.  The same number for all would only delay the last devices.
    extras = [-(-extra * (p - 1 - d) // max(p - 1, 1)) for d in range(p)]
    lanes = (order.lane(_Size(d, p, whole, v, extras[d])) for d in range(p))
    options = f" chunks={v}" * (v != order.chunks) + f" extra_warmup={extra}" * bool(extra)
    try:
        return Schedule(tuple(_first(m, lane) for lane in lanes), name + options)
    except ScheduleError as error:
        if not extra:
            raise
        text = f"extra_warmup={extra} is too much for {name!r} with {p} devices and {v} chunks"
        raise ScheduleError(f"{text}; {p - 1} always fits") from error


def _first(microbatches: int, lane: list[Action]) -> tuple[Action, ...]:
    """Return the lane with the actions of the first microbatches only."""
    if all(action.microbatch < microbatches for action in lane):
        return tuple(lane)
    kept: list[Action] = []
    for before, action in zip([None, *lane], lane):
        if action.microbatch < microbatches:
            alone = before is None or before.microbatch >= microbatches
            kept.append(action._replace(joined=False) if action.joined and alone else action)
    return tuple(kept)


# -- orders of stages in a loop: chunk c of device d is stage c p + d ----------------------------


def _gpipe(size: _Size) -> list[Action]:
    """All forwards, then all backwards, chunk by chunk."""
    forward = [c * size.p + size.d for c in range(size.v)]
    lane = [Action(stage, "F", j) for stage in forward for j in range(size.m)]
    return lane + [Action(stage, "BW", j) for stage in forward[::-1] for j in range(size.m)]


def _alternate(size: _Size, each: int, split: bool = False) -> list[Action]:
    """Return a warm-up, then alternating forwards and backwards, then the rest.

    The warm-up has `each` forwards for every later device; with chunks it begins with a round
    through all chunks but the last.  If backwards are `split`, a W comes `each` B after its own for
    every earlier device; the remaining ones come last.
    """
    rounds = [range(j, min(j + size.p, size.m)) for j in range(0, size.m, size.p)]
    if size.v == 1:
        rounds = [range(size.m)]
    chunks = range(size.v)
    forward = [(c * size.p + size.d, j) for js in rounds for c in chunks for j in js]
    backward = [(c * size.p + size.d, j) for js in rounds for c in chunks[::-1] for j in js]
    warmup = each * (size.p - 1 - size.d) + (size.v - 1) * size.p + size.extra
    late = each * size.d
    lane = [Action(stage, "F", j) for stage, j in forward[:warmup]]
    for number, (stage, j) in enumerate(backward):
        lane += [Action(s, "F", k) for s, k in forward[warmup + number : warmup + number + 1]]
        lane.append(Action(stage, "B" if split else "BW", j))
        if split and number >= late:
            lane.append(_weights(backward[number - late]))
    if split:
        lane += map(_weights, backward[max(0, len(backward) - late) :])
    return lane


def _weights(of: tuple[int, int]) -> Action:
    return Action(of[0], "W", of[1])


# -- orders of stages in a V: device d holds the stages d and 2 p - 1 - d ------------------------


class _Vee:
    """Builds the lane of a device with two chunks.

    Words stand for actions: ``F0`` for the next forward pass of chunk 0, ``BW0`` for its next
    backward pass, ``B0`` for one whose W is left, ``W`` for the oldest W that is left, ``W0`` for
    that of a chunk.  A ``+`` joins an action to the one before.
    """

    def __init__(self, size: _Size) -> None:
        self.stage = (size.d, 2 * size.p - 1 - size.d)
        self.lane: list[Action] = []
        self.left: list[Action] = []  # W, the oldest first
        self._passes = Counter[tuple[bool, int]]()

    def add(self, words: str, times: int = 1) -> None:
        """List actions so many times."""
        for word in words.split() * times:
            kind = cast(Kind, word.strip("+01"))
            stages = self.stage if word == "W" else (self.stage[int(word[-1])],)
            if kind == "W":
                oldest = next(action for action in self.left if action.stage in stages)
                self.left.remove(oldest)
                self.lane.append(oldest)
                continue
            passes = kind == "F", stages[0]
            action = Action(stages[0], kind, self._passes[passes], word[0] == "+")
            self._passes[passes] += 1
            self.lane.append(action)
            if kind == "B":
                self.left.append(action._replace(kind="W"))


def _zb_v(size: _Size) -> list[Action]:
    """Return the order of ZB-V; needs at least 2 p - 1 microbatches."""
    d, p, m, vee = size.d, size.p, size.m, _Vee(size)
    vee.add("F0", 2 * (p - d) - 1)
    vee.add("F1 F0", d)
    vee.add("F1 B1 W", p - d)
    vee.add("F0 B0 W F1 B1 W", m - (2 * p - d - 1))  # as many forwards came before
    vee.add("B0 W F1 B1 W", p - d - 1)
    vee.add("B0 B1", d)
    vee.add("B0 W0", p - d)
    vee.add("W1", d)
    vee.add("W0", d)
    return vee.lane


def _dualpipe_v(size: _Size) -> list[Action]:
    """Return the eight steps of DualPipeV; needs at least 2 p microbatches.

    The authors' formula for its bubble, (p - 1) (T_FB + B_f - 3 W) in times of a chunk, with B_f =
    B + W, is for an order whose pairs are all joined.  It is exact for F <= B (and W <= B) if the
    last device's first pair is joined too; the authors separate that pair, which shortens the
    bubble by B - F, once.  For F > B each hop costs F - B more, in either order.
    """
    d, p, m, vee = size.d, size.p, size.m, _Vee(size)
    pairs = "F0 +BW1 F1 +BW0"
    vee.add("F0", 2 * (p - d - 1))
    vee.add("F0 F1", d + 1)
    vee.add("B1 W F1", p - d - 1)
    vee.add("F0 BW1 F1 +BW0" if d == p - 1 else pairs)  # after the first loss nothing overlaps yet
    vee.add(pairs, m - 2 * p + d)
    vee.add("BW1 F1 +BW0", p - d - 1)
    for number in range(2 * (d + 1)):  # the second half of these is split
        vee.add(f"{'B' if number > d else 'BW'}{(number + 1) % 2}")
    vee.add("W B0", p - d - 1)
    vee.add("W", len(vee.left))
    return vee.lane


# -- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """A named order: its lanes, and what it can be made for."""

    about: str  # one line
    lane: Callable[[_Size], list[Action]]  # makes the actions of a device
    chunks: int = 1  # default stages on each device
    any_chunks: bool = False  # whether it takes other numbers of `chunks`
    has_warmup: bool = False  # whether it takes `extra_warmup`
    # The least number of microbatches from m on for which the order is defined.
    fitting: Callable[[int, int, int], int] = lambda p, m, v: m


def _full_rounds(p: int, m: int, v: int) -> int:
    """Return the least number of microbatches, from m on, that interleaved orders take."""
    return m if v == 1 else -(-m // p) * p


ORDERS: dict[str, Order] = {
    "gpipe": Order("all forwards, then all backwards; holds every microbatch", _gpipe),
    "1f1b": Order(
        "a forward and a backward by turns; the bubble of gpipe, holds p - d microbatches",
        partial(_alternate, each=1),
        has_warmup=True,
    ),
    "interleaved": Order(
        "1f1b with v stages a device: a v-th of its bubble, v times the messages",
        partial(_alternate, each=2), 2, True, fitting=_full_rounds,
    ),
    "looped_bfs": Order(
        "gpipe with v stages a device: a v-th of its bubble, holds every microbatch",
        _gpipe, 2, True,
    ),
    "zb-h1": Order(
        "1f1b with W put off: a third of its bubble if F = B = W, holds p microbatches",
        partial(_alternate, each=1, split=True), 1, True, True, _full_rounds,
    ),
    "zb-h2": Order(
        "zb-h1 with a longer warm-up: no bubble within spans if F = B = W, holds 2 p - 1",
        partial(_alternate, each=2, split=True), has_warmup=True,
    ),
    "zb-v": Order(
        "two stages a device in a V: no bubble within spans if F = B = W, holds p microbatches",
        _zb_v, 2, fitting=lambda p, m, v: max(m, 2 * p - 1),
    ),
    "dualpipe-v": Order(
        "two stages a device in a V, forwards overlapping backwards; holds p + 1/2 microbatches",
        _dualpipe_v, 2, fitting=lambda p, m, v: max(m, 2 * p),
    ),
}  # fmt: skip
"""The named orders."""

SCHEDULES: Mapping[str, str] = MappingProxyType({name: one.about for name, one in ORDERS.items()})
"""The names for `schedule`, with a line on each: p devices, d the device, v stages on each."""
