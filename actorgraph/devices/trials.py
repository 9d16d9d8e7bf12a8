"""`Trial`: whether walks of a table use helpers, decided by timing both kinds in turn.

Walks of the two kinds alternate in short *bursts* until the evidence is clear.  Then walks are of
the faster kind for a *stay*, after which a few of the other kind are timed again.  The more such a
trial has lost, the longer is the stay behind it: all trials together cost a small share of the time
of walks.

Medians say which kind is faster where nothing else happens.  They do not see that a helper loses
its core now and then, to another process, and its caller waits for milliseconds.  So a balance of
the time that helpers have gained is kept while they are used.  Where it is used up, walks are alone
for a while, however good the medians are.

It takes no lock: threads that walk one table at the same time may lose a measurement, no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

_SKIPPED, _TIMED, _PAIRS = 1, 3, 4
"""Walks of a burst that are not timed, as caches hold what the other kind left there; those that
follow and are timed; most pairs of bursts of a trial."""

_LATE = 4
"""Most further walks of a burst that are not timed, while helpers wake up."""

_WORTH, _CLEAR = 0.95, 0.97
"""Helpers are not begun with unless walks take less than this share of the time without them; a
trial ends early if all times of one kind are less than this share of all those of the other."""

_SPARED = 0.9
"""Least share of the time without helpers that rows written for one thread take."""

_REPAID, _LEAST_STAY, _MOST_STAY, _DOUBLINGS = 20, 64, 2048, 4
"""A stay lasts this many times as long as what the trial has lost; least and most walks of a stay;
most times that it is doubled if trials repeat their result."""

_BALANCE_S, _BALANCE_WALKS, _FIRST = 0.016, 20, 0.25
"""Most seconds on the balance: some turns of another process on a core, or so many walks if these
take longer; share of it that is there at first."""


@final
class Trial:
    """Decides whether walks use helpers.

    `are_there` tells whether all helpers are awake.
    """

    def __init__(self, are_there: Callable[[], bool]) -> None:
        self._are_there = are_there
        self.gains = False  # result of the last trial
        self.medians_us = 0.0, 0.0  # of its walks without helpers and with them
        self._burst(False)
        self._tries = False  # whether this is a burst of a trial
        self._repeated = -1  # trials that gave the result of the one before, in a row
        self._failed = 0  # times in a row that the balance was used up
        # Median seconds without helpers, of an iteration and of a walk; the balance and its most.
        self._alone_s = self._walk_s = self._balance_s = self._most_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Forget all times."""
        self._each: tuple[list[float], list[float]] = [], []  # seconds of an iteration, by kind
        self._spent_s, self._walks, self._times = [0.0, 0.0], [0, 0], [0, 0]
        self._pairs = 0

    @property
    def is_clear(self) -> bool:
        """Whether helpers pay whatever rows for one thread would spare."""
        alone_us, together_us = self.medians_us
        return self.gains and together_us < _SPARED * alone_us

    def timing(self, threads: int, what: str = "runs") -> str:
        """Return the measured times that decide, for users."""
        alone_us, together_us = self.medians_us
        if not together_us:
            return f"{what} by {threads} threads have not been timed yet"
        return f"{what} took {alone_us:.1f} us by one thread, {together_us:.1f} us by {threads}"

    def is_together(self) -> bool:
        """Return whether the next walk is to use helpers."""
        return self._together

    def note(self, together: bool, seconds: float, times: int = 1) -> None:
        """Record how long a walk of `times` iterations took."""
        self._left -= 1
        if together and self._together and not self._tries:
            self._balance_s = min(self._balance_s + self._alone_s * times - seconds, self._most_s)
            if self._balance_s < 0.0:
                self._give_up()
            elif self._balance_s == self._most_s:
                self._failed = 0
        if self._tries or self._left < _TIMED:
            self._add(together, seconds, times)
            if self._left <= 0:
                self._end()

    def _add(self, together: bool, seconds: float, times: int) -> None:
        """Record a walk near the end of a stay or in a burst."""
        if together is not self._together:
            return  # another thread has begun another burst meanwhile, or uses the helpers
        self._spent_s[together] += seconds
        self._times[together] += times
        self._walks[together] += 1
        if self._left >= _TIMED:
            return
        if together and self._left == _TIMED - 1 and self._late and not self._are_there():
            self._late -= 1
            self._left += 1
            return
        self._each[together].append(seconds / times)

    def _end(self) -> None:
        """Begin the next burst, or end the trial."""
        if not self._tries:
            self._tries = True
        elif self._together is not self.gains:
            self._pairs += 1
            found = self._found()
            if found is not None:
                self._stay(found)
                return
        self._burst(not self._together)

    def _burst(self, together: bool) -> None:
        self._together = together  # kind of the walks of this burst or stay
        self._left = _SKIPPED + _TIMED  # walks until its end
        self._late = _LATE

    def _found(self) -> bool | None:
        """Return whether helpers pay, None if that is not clear yet."""
        alone, together = map(sorted, self._each)
        odd = self._pairs - 1  # times of each kind that other work may have spoiled
        if min(len(alone), len(together)) > odd:
            if together[-1 - odd] < _CLEAR * alone[odd]:
                return True
            if alone[-1 - odd] < _CLEAR * together[odd]:
                return False
        if self._pairs < _PAIRS:
            return None
        if not alone or not together:  # all were of other threads' bursts
            return self.gains
        return _median(together) < (1.0 if self.gains else _WORTH) * _median(alone)

    def _stay(self, gains: bool) -> None:
        """Begin the stay behind a trial."""
        alone_s, together_s = map(_median, self._each)
        self.medians_us = alone_s * 1e6, together_s * 1e6
        self._alone_s, self._walk_s = alone_s, alone_s * self._times[0] / max(1, self._walks[0])
        self._most_s = max(_BALANCE_S, _BALANCE_WALKS * self._walk_s)
        helped_s = alone_s * self._times[1] - self._spent_s[1]
        self._balance_s = min(_FIRST * self._most_s + helped_s, self._most_s)
        self._repeated = self._repeated + 1 if gains is self.gains else 0
        lost_s = self._spent_s[0] - together_s * self._times[0] if gains else -helped_s
        self._begin_stay(gains, lost_s, self._repeated)

    def _give_up(self) -> None:
        """Begin a stay without helpers, who have lost more time than they had gained.

        A single long delay may be an accident, so it counts no more than the balance can hold.
        """
        lost_s = min(_FIRST * self._most_s - self._balance_s, self._most_s)
        self._begin_stay(False, lost_s, self._failed)
        self._failed += 1

    def _begin_stay(self, gains: bool, lost_s: float, repeated: int) -> None:
        walks = max(_LEAST_STAY, _REPAID * lost_s / max(self._walk_s, 1e-9))
        walks *= 2 ** min(repeated, _DOUBLINGS)
        self.gains = self._together = gains
        self._left, self._tries = int(min(walks, _MOST_STAY)), False
        self._begin()


def _median(some: list[float]) -> float:
    return sorted(some)[len(some) // 2] if some else 0.0
