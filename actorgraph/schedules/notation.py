"""Actions, as text, and in CSV files.

There are two notations, since the letter B has two meanings: in ours it is the part of the backward
pass that the previous stage waits for; in ``torch.distributed.pipelining`` it is the whole, and the
part is I.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast

from actorgraph.errors import ScheduleError, shown

Kind = Literal["F", "B", "W", "BW"]
"""Kinds of actions, see `Action`."""

KINDS: tuple[Kind, ...] = ("F", "B", "W", "BW")
"""All of them."""

Notation = Literal["actorgraph", "torch"]
"""How a file writes actions, see `Schedule.save`."""

_ACTION = re.compile(r"(\+?)([0-9]{1,9})(F|BW|B|W)([0-9]{1,9})")
_TORCH_PAIR = re.compile(r"\(([^;]+);([^;]+)\)OVERLAP_F_B")
_TO_TORCH = {"F": "F", "B": "I", "W": "W", "BW": "B"}
_FROM_TORCH = {letter: kind for kind, letter in _TO_TORCH.items()}


class Action(NamedTuple):
    """A part of the work for one microbatch in one stage.

    Attributes
    ----------
    stage : int
        Number of the stage, from 0.
    kind : str
        ``"F"``: forward.  ``"B"``: gradients of the stage's inputs, which the previous stage waits
        for.  ``"W"``: gradients of the weights.  ``"BW"``: both at once.
    microbatch : int
        Number of the microbatch, from 0.
    joined : bool
        Whether it may overlap with the action before it; both start when both can.

    Examples
    --------
    >>> import actorgraph as ag
    >>> str(ag.pipeline.Action(2, "F", 0))
    '2F0'
    """

    stage: int
    kind: Kind
    microbatch: int
    joined: bool = False

    def __str__(self) -> str:
        return f"{'+' * self.joined}{self.stage}{self.kind}{self.microbatch}"


def parse(text: str) -> Action:
    """Return the action of a text such as ``"2F0"`` or ``"+1BW3"``.

    Examples
    --------
    >>> parse("+1BW3")
    Action(stage=1, kind='BW', microbatch=3, joined=True)
    """
    match = _ACTION.fullmatch(text.strip())
    if match is None:
        raise ScheduleError(
            f"{shown(text)} is no action; expected stage, kind (F, B, W or BW) and microbatch, as "
            "in '2F0', with a '+' in front if it overlaps with the previous action"
        )
    joined, stage, kind, microbatch = match.groups()
    return Action(int(stage), cast(Kind, kind), int(microbatch), bool(joined))


def read(path: str | Path, notation: Notation) -> list[list[Action]]:
    """Return the actions of a file, by row."""
    _check(notation)
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row if cell.strip()] for row in csv.reader(file)]
    except (csv.Error, UnicodeError) as error:
        raise ScheduleError(
            f"{shown(str(path))} is no schedule: {error}; expected a CSV file in UTF-8, as "
            "`Schedule.save` writes it"
        ) from error
    if notation == "torch":
        rows = [[text for cell in row for text in _from_torch(cell)] for row in rows]
    return [[*map(parse, row)] for row in rows if row]


def write(path: str | Path, lanes: Sequence[Sequence[Action]], notation: Notation) -> None:
    """Write a row for each lane."""
    _check(notation)
    rows = [_to_torch(lane) if notation == "torch" else list(map(str, lane)) for lane in lanes]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def _check(notation: str) -> None:
    if not isinstance(notation, str) or notation not in ("actorgraph", "torch"):
        raise ScheduleError(f"notation is {shown(notation)}; it can be 'actorgraph' or 'torch'")


def _to_torch(lane: Sequence[Action]) -> list[str]:
    cells: list[str] = []
    for action in lane:
        cell = f"{action.stage}{_TO_TORCH[action.kind]}{action.microbatch}"
        if action.joined:
            cells[-1] = f"({cells[-1]};{cell})OVERLAP_F_B"
        else:
            cells.append(cell)
    return cells


def _from_torch(cell: str) -> list[str]:
    pair = _TORCH_PAIR.fullmatch(cell)
    if pair is not None:
        first, second = pair.groups()
        return [*_from_torch(first), *(f"+{text}" for text in _from_torch(second))]
    match = re.fullmatch(r"([0-9]{1,9})([FIBW])([0-9]{1,9})", cell.strip())
    if match is None:
        raise ScheduleError(
            f"{shown(cell)} is no action in PyTorch's notation; expected one such as '2F0', '2I0', "
            "'2W0', '2B0' or '(0F1;3B0)OVERLAP_F_B'"
        )
    stage, letter, microbatch = match.groups()
    return [f"{stage}{_FROM_TORCH[letter]}{microbatch}"]
