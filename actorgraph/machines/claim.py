"""`Claim`: the memory that a run asks for at its admission."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Claim"]


@dataclass(frozen=True, slots=True)
class Claim:
    """The most bytes that a run can hold at once, in whatever order its tasks run.

    Attributes
    ----------
    kept : int
        What outlives the turn that makes it (messages, residuals, results), as if all of it were
        alive at once.
    turn : int
        What a turn of a task needs beside that, at its worst moment; only running turns need it.
    arena : int
        Planned memory of a turn, which the machine keeps.
    tasks : int
        How many turns can run at once.
    """

    kept: int
    turn: int
    arena: int
    tasks: int

    def alone(self, workers: int) -> int:
        """Return the bytes of the run by itself."""
        return self.kept + min(self.tasks, workers) * (self.turn + self.arena)
