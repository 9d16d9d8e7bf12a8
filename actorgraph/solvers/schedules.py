"""Learning rates as functions of the number of steps before, for ``lr=`` of every solver.

Any function of an int is one.  These say PyTorch's schedules in closed form; they are looked up at
each step, also of a compiled one, so nothing is compiled anew.  All can be pickled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import cos, inf, pi
from typing import Any

from actorgraph.keywords import all_answering, answering
from actorgraph.options import choice, positive, real

__all__ = [
    "chain", "cosine", "cosine_restarts", "exponential", "linear", "multi_step", "one_cycle",
    "plateau", "polynomial", "step", "warmup",
]  # fmt: skip
__dir__ = __all__.copy

Schedule = Callable[[int], float]


def _power(lr: float, gamma: float, every: int, count: int) -> float:
    return float(lr * gamma ** (count // every))


def step(lr: float, every: int, gamma: float = 0.1) -> Schedule:
    """Return a rate that is multiplied by `gamma` after every so many steps.

    Examples
    --------
    >>> import actorgraph as ag
    >>> [ag.solvers.schedules.step(1.0, every=2, gamma=0.5)(count) for count in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return partial(_power, real("lr", lr), real("gamma", gamma), positive("every", every))


def exponential(lr: float, gamma: float) -> Schedule:
    """Return a rate that is multiplied by `gamma` after each step.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.exponential(1.0, gamma=0.5)
    >>> [round(rate(count), 3) for count in range(4)]
    [1.0, 0.5, 0.25, 0.125]
    """
    return step(lr, 1, gamma)


def _multi_step(lr: float, milestones: list[int], gamma: float, count: int) -> float:
    return float(lr * gamma ** bisect_right(milestones, count))


def multi_step(lr: float, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """Return a rate that is multiplied by `gamma` at each of the milestones.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.multi_step(1.0, milestones=[1, 3])
    >>> [round(rate(count), 3) for count in range(5)]
    [1.0, 0.1, 0.1, 0.01, 0.01]
    """
    return partial(_multi_step, real("lr", lr), sorted(milestones), real("gamma", gamma))


def _cosine(lr: float, steps: int, end: float, count: int) -> float:
    return end + (lr - end) * (1 + cos(pi * min(count, steps) / steps)) / 2


def cosine(lr: float, steps: int, end: float = 0.0) -> Schedule:
    """Return a rate that falls to `end` in so many steps, as half a wave of a cosine.

    Source: I. Loshchilov and F. Hutter, "SGDR", ICLR 2017, without restarts.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.cosine(1.0, steps=4)
    >>> [round(rate(count), 3) for count in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """
    return partial(_cosine, real("lr", lr), positive("steps", steps), real("end", end))


def _cosine_restarts(lr: float, steps: int, factor: int, end: float, count: int) -> float:
    while count >= steps:
        count, steps = count - steps, steps * factor
        if factor == 1:
            count %= steps
    return _cosine(lr, steps, end, count)


def cosine_restarts(lr: float, steps: int, factor: int = 1, end: float = 0.0) -> Schedule:
    """Return `cosine` that begins again, each time `factor` times as long.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.cosine_restarts(1.0, steps=2)
    >>> [round(rate(count), 3) for count in range(5)]
    [1.0, 0.5, 1.0, 0.5, 1.0]
    """
    return partial(
        _cosine_restarts, real("lr", lr), positive("steps", steps), positive("factor", factor),
        real("end", end),
    )  # fmt: skip


def _between(one: float, other: float, share: float, shape: str) -> float:
    if shape == "linear":
        return one + (other - one) * share
    return other + (one - other) / 2 * (1 + cos(pi * share))


def _one_cycle(
    first: float, most: float, last: float, top: float, steps: int, shape: str, count: int
) -> float:
    count = min(count, steps - 1)
    if count <= top:
        return _between(first, most, count / top if top else 1.0, shape)
    return _between(most, last, (count - top) / (steps - 1 - top), shape)


def one_cycle(
    lr: float, steps: int, pct_start: float = 0.3, div_factor: float = 25.0,
    final_div_factor: float = 1e4, anneal: str = "cos",
) -> Schedule:  # fmt: skip
    """Return a rate that rises to `lr` and falls to nearly 0.

    Source: L. Smith and N. Topin, "Super-Convergence", 2018.

    Parameters
    ----------
    lr : float
        The largest rate.
    steps : int
    pct_start : float
        Share of the steps in which it rises.
    div_factor, final_div_factor : float
        The first rate is `lr` by the one, the last is the first by the other.
    anneal : {"cos", "linear"}

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.one_cycle(1.0, steps=5)
    >>> [round(rate(count), 3) for count in range(5)]
    [0.04, 0.95, 0.611, 0.188, 0.0]
    """
    first = real("lr", lr) / real("div_factor", div_factor)
    choice("anneal", anneal, ("cos", "linear"))
    top = real("pct_start", pct_start, below=1.0) * positive("steps", steps) - 1
    return partial(_one_cycle, first, lr, first / final_div_factor, top, steps, anneal)


def _linear(lr: float, steps: int, start: float, end: float, count: int) -> float:
    return lr * _between(start, end, min(count, steps) / steps, "linear")


def linear(lr: float, steps: int, start: float = 1 / 3, end: float = 1.0) -> Schedule:
    """Return a rate that goes from the share `start` of `lr` to the share `end` in some steps.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.linear(1.0, steps=2, start=0.5)
    >>> [round(rate(count), 3) for count in range(4)]
    [0.5, 0.75, 1.0, 1.0]
    """
    return partial(
        _linear, real("lr", lr), positive("steps", steps), real("start", start), real("end", end)
    )


def _polynomial(lr: float, steps: int, power: float, end: float, count: int) -> float:
    return float(end + (lr - end) * (1 - min(count, steps) / steps) ** power)


def polynomial(lr: float, steps: int, power: float = 1.0, end: float = 0.0) -> Schedule:
    """Return a rate that falls to `end` in so many steps, by a power of what is left of them.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.polynomial(1.0, steps=4)
    >>> [round(rate(count), 3) for count in range(6)]
    [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """
    return partial(
        _polynomial, real("lr", lr), positive("steps", steps), real("power", power),
        real("end", end),
    )  # fmt: skip


def _warmup(after: Any, steps: int, start: float, count: int) -> float:
    if count >= steps:
        return float(after(count - steps)) if callable(after) else float(after)
    full = after(0) if callable(after) else after
    return float(full * _between(start, 1.0, count / steps, "linear"))


def warmup(after: float | Schedule, steps: int, start: float = 0.0) -> Schedule:
    """Return a rate that rises in so many steps to a rate, or to a schedule that begins then.

    Examples
    --------
    >>> import actorgraph as ag
    >>> [ag.solvers.schedules.warmup(1.0, steps=4)(count) for count in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return partial(_warmup, after, positive("steps", steps), real("start", start))


def _chain(schedules: list[Schedule], milestones: list[int], count: int) -> float:
    place = bisect_right(milestones, count)
    return float(schedules[place](count - (milestones[place - 1] if place else 0)))


def chain(schedules: Sequence[Schedule], milestones: Sequence[int]) -> Schedule:
    """Return schedules one after another: each begins anew at its milestone.

    Raises
    ------
    ValueError
        There is not one milestone less than there are schedules.

    Examples
    --------
    >>> import actorgraph as ag
    >>> schedules = ag.solvers.schedules
    >>> parts = schedules.linear(1.0, steps=2), schedules.exponential(1.0, gamma=0.5)
    >>> rate = schedules.chain(parts, milestones=[2])
    >>> [round(rate(count), 3) for count in range(5)]
    [0.333, 0.667, 1.0, 0.5, 0.25]
    """
    if len(schedules) != len(milestones) + 1 or sorted(milestones) != list(milestones):
        raise ValueError(
            f"{len(schedules)} schedules need one milestone less, in order, got {milestones!r}"
        )
    return partial(_chain, list(schedules), list(milestones))


@answering
class plateau:
    """A rate that falls when the losses that it is told stop falling.

    Parameters
    ----------
    lr : float
    factor : float
        By which it falls.
    patience : int
        Losses without progress that are borne.
    threshold : float
        Share by which a loss has to be better.
    cooldown : int
        Losses after a fall that do not count.
    min_lr : float
    mode : {"min", "max"}
        Whether smaller or larger is better.

    Examples
    --------
    >>> import actorgraph as ag
    >>> rate = ag.solvers.schedules.plateau(1.0, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     rate.tell(loss)
    >>> rate(0)
    0.5
    """

    def __init__(
        self, lr: float, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        cooldown: int = 0, min_lr: float = 0.0, mode: str = "min",
    ) -> None:  # fmt: skip
        self.lr, self.factor = real("lr", lr), real("factor", factor, below=1.0)
        self.patience, self.cooldown = patience, cooldown
        self.threshold, self.min_lr = real("threshold", threshold), real("min_lr", min_lr)
        self.mode = choice("mode", mode, ("min", "max"))
        self.best = inf if mode == "min" else -inf
        self.bad = self.cooling = 0

    def tell(self, loss: float) -> None:
        """Take a loss in."""
        share = 1 - self.threshold if self.mode == "min" else 1 + self.threshold
        better = loss < self.best * share if self.mode == "min" else loss > self.best * share
        if better:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling, self.bad = self.cooling - 1, 0
        if self.bad > self.patience:
            self.lr = max(self.lr * self.factor, self.min_lr)
            self.cooling, self.bad = self.cooldown, 0

    def __call__(self, count: int) -> float:
        """Return the present rate."""
        return self.lr

    def state_dict(self) -> dict[str, float]:
        """Return what losses have made of it."""
        return {"lr": self.lr, "best": self.best, "bad": self.bad, "cooling": self.cooling}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from there."""
        self.lr, self.best = state["lr"], state["best"]
        self.bad, self.cooling = int(state["bad"]), int(state["cooling"])


all_answering(globals())
