"""Fusing elementwise steps, sums and softmax-like steps into compiled steps (``jit=True``).

It runs last, on the steps of each task.  A *group* (`jit.groups`) becomes one step in the place of
its last step, with that one's id, type, owner and line, so that programs, buffers and errors treat
it like any other.  Its other results become steps before it that only provide memory, which the
group writes.  The group's kernel runs the compiled loops once they are ready, and until then, or
where they decline, the ordinary kernels as a program of its own, whose lines tell which one failed.

Loops neither raise nor warn of floating-point errors; so under an `np.errstate` that does more than
warn (`kernels.is_silent`) the ordinary kernels run.  With a watch for NaN or Inf nothing is fused.

Tolerance: sums are taken in float64 and rounded once.  Arithmetic is rounded as NumPy's;
exponentials, logarithms and error functions of float32 are within 3 units in the last place (`erfc`
6), and activations are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.loops import Routine
from actorgraph.graph import Node
from actorgraph.jit.compiler import COMPILER, size_of
from actorgraph.jit.groups import Group, groups, is_read
from actorgraph.jit.loops import LEVELS, Loops, LoopWriter, open_sizes
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.kernels import kernel
from actorgraph.lower.program import Program, lower_directly
from actorgraph.lower.splitting import spans
from actorgraph.lower.spots import ONCE, Spot, Unfit
from actorgraph.memory.buffers import fresh
from actorgraph.op import CONSTANT, FRESH_OUT, Op, bind_attrs, never
from actorgraph.rewrite.exact import restated
from actorgraph.types import bind_shape


def _predicted(node: Node, symbols: Mapping[str, int]) -> float:
    group = node.attrs["loops"].group
    return sum([predicted_us(step, symbols, walked=True) for step in group.steps])


FUSED = Op("fused", "a[*s]", never, memory=FRESH_OUT, predicted=_predicted, doc="A group of steps.")
"""The op of fusion groups."""

_ROOM = Op("room", "a[*s]", never, memory=FRESH_OUT, doc="What a group writes, too.")

OWN = frozenset({FUSED, _ROOM})
"""The ops whose kernels are `fused_kernel`."""


@dataclass(frozen=True, slots=True)
class _Fused:
    """A group and its loops.

    The inputs of its step are, in this order: the arrays that loops read (`arrays` of them), single
    numbers (`numbers`), constants with the values `fixed`, operands of which only the shape counts,
    and the memory of the other results (`rooms`).
    """

    group: Group
    loops: Loops
    arrays: int
    numbers: int
    fixed: tuple[float, ...]
    rooms: int

    def constants(self, symbols: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """Return the array of constants and sizes that loops take."""
        sizes = [
            float(bind_attrs(step.attrs, symbols)[name])
            for step in self.group.steps
            for name in open_sizes(step)
        ]
        return np.array([*self.fixed, *sizes] or [0.0], np.float64)

    def feet(self, symbols: Mapping[str, int]) -> int:
        """Return the number of float64 that sums over rows need as scratch memory."""
        columns = [step.dims for step in self.group.steps if self.group.levels[step.id] == "foot"]
        return sum([prod(bind_shape(dims, symbols, 0)) for dims in columns])


def fused(
    parts: Sequence[Sequence[Node]], results: Iterable[Node], symbols: Mapping[str, int],
    apart: Callable[[Node, Mapping[str, int]], bool],
) -> list[list[Node]]:  # fmt: skip
    """Return the steps of each task in `parts` with groups fused; `results` of the run stay.

    `symbols` and `apart` are as in `groups`.
    """
    kept = {node.id for node in results}
    uses: dict[int, list[Node]] = {}
    for steps in parts:
        for step in steps:
            for operand in step.inputs:
                uses.setdefault(operand.id, []).append(step)
    result: list[list[Node]] = []
    for steps in parts:
        instead: dict[int, list[Node]] = {}
        for group in groups(steps, kept, uses, symbols, apart):
            instead |= {step.id: [] for step in group.steps}
            instead[group.steps[-1].id] = _steps_for(group)
        result.append([one for step in steps for one in instead.get(step.id, (step,))])
    return result


def _steps_for(group: Group) -> list[Node]:
    """Return the steps that replace a group: memory for all results but the last, and the group."""
    *others, root = group.outputs
    levels = group.levels
    read = {
        part.id: part
        for step in group.steps
        for place, part in enumerate(step.inputs)
        if is_read(step, place)
    }
    given = [part for part in group.inputs if part.id in read]
    arrays = [part for part in given if levels[part.id] != "whole"]
    single = [part for part in given if levels[part.id] == "whole"]
    numbers = [part for part in single if part.op is not CONSTANT]
    constants = [part for part in single if part.op is CONSTANT]
    loaded = [*arrays, *numbers, *constants]
    operands = [*loaded, *(part for part in group.inputs if part.id not in read)]
    fixed = tuple([part.attrs["value"].item() for part in constants])
    loops = LoopWriter(group.steps, levels, loaded, group.outputs).write()
    rooms = [restated(step, _ROOM, (), {"dims": step.dims}) for step in others]
    attrs = {
        "loops": _Fused(group, loops, len(arrays), len(numbers), fixed, len(rooms)),
        "program": lower_directly(group.steps, operands, group.outputs),
        "dims": root.dims,
        "attrs": tuple([step.attrs for step in group.steps]),  # they may hold symbols
    }
    return [*rooms, restated(root, FUSED, (*operands, *rooms), attrs)]


# -- kernels and rows ------------------------------------------------------------------------------


def fused_kernel(node: Node, symbols: Mapping[str, int], *, wait: bool) -> Callable[..., Any]:
    """Return the kernel of one of `OWN`; with `wait` block until its loops are compiled."""
    empty = partial(fresh, bind_attrs(node.attrs["dims"], symbols), node.dtype)
    if node.op is _ROOM:
        return partial(_room, empty)
    what: _Fused = node.attrs["loops"]
    program: Program = node.attrs["program"]
    one_by_one = program.make(*[kernel(step, np, symbols) for step in what.group.steps])
    compiled = COMPILER.request(what.loops)
    if wait:
        compiled.done.wait()
    count = len(node.inputs)
    operands = count - what.rooms

    def ordinary(*given: Any, out: Any = None) -> Any:
        *others, result = one_by_one(*given[:operands])
        for room, value in zip(given[operands:count], others, strict=True):
            room[...] = value
        return np.ascontiguousarray(result) if result.ndim else result

    constants, feet, single = what.constants(symbols), what.feet(symbols), not node.dims

    def fused_step(*given: Any, out: Any = None) -> Any:
        if compiled.call is None:
            return ordinary(*given)
        result = empty() if out is None else out
        numbers = map(np.asarray, given[what.arrays : what.arrays + what.numbers])
        called = [*given[: what.arrays], *numbers, constants, *given[operands:], result]
        if feet:
            called.append(fresh((feet,), np.dtype(np.float64)))
        if compiled.call(tuple(called), id(np.ndarray)):
            return result[()] if single else result
        return ordinary(*given)

    fused_step.ordinary = ordinary  # type: ignore[attr-defined]
    return fused_step


def write_row(rows: Any, step: Node) -> None:
    """Write the row of one of `OWN`, for `lower.table_rows.Written`."""
    if step.op is _ROOM:
        return
    what: _Fused = step.attrs["loops"]
    symbols, loops = rows.symbols, what.loops
    compiled = COMPILER.request(loops)
    # No deadlock in the background thread: loops are requested before the rows that need them.
    compiled.done.wait()
    read = step.inputs[: what.arrays + what.numbers]
    written = step.inputs[len(step.inputs) - what.rooms :]
    places = [*map(rows.place, read), rows.constant(what.constants(symbols))]
    places += [*map(rows.place, written), rows.places[step.id]]
    if loops.feet:
        places.append(rows.scratch((what.feet(symbols),), np.dtype(np.float64)))
    shape = places[loops.levels.index("element")].shape
    cols, elements = shape[-1] if loops.rows else prod(shape), prod(shape)
    if not elements:
        raise Unfit
    count = elements // cols
    for one, level in zip(places, loops.levels, strict=True):
        if level in LEVELS and prod(one.shape) != size_of(level, elements, count, cols, 1):
            raise Unfit
    write_loops(rows, compiled.address, places, (count, cols), len(read) + 1)
    if not {"element", "row"}.issuperset(loops.levels[len(read) + 1 :]):
        return  # it writes what depends on all rows, or is the same for all
    per_row = {"element": cols if loops.rows else 1, "row": 1}
    by = [per_row.get(level, 0) for level in loops.levels]

    def write_part(begin: int, end: int) -> None:
        size = (end - begin, cols) if loops.rows else (1, end - begin)
        parts = [_part(one, many * begin, many * end) for one, many in zip(places, by, strict=True)]
        write_loops(rows, compiled.address, parts, size, len(read) + 1)

    units = spans(count if loops.rows else cols, rows.parts(step))
    rows.in_parts([partial(write_part, *unit) for unit in units])


def write_loops(
    rows: Any, address: int, places: Sequence[Spot], size: tuple[int, int], read: int
) -> None:
    """Write the row of a group, given the address of its loops, and its rows and columns.

    It only reads the first `read` arrays.
    """
    for place, result in enumerate(places[read:], read):
        if rows.overlaps(result, [*places[:place], *places[place + 1 :]]):
            raise Unfit
    wrong = [
        not one.is_flat or one.begin < 0 or one.end > rows.sizes[one.base]
        or one.offset % one.itemsize for one in places
    ]  # fmt: skip
    if not address or any(wrong):
        raise Unfit
    routine = Routine(native.RUNTIME.routine("group"), address, keeps_flags=False)
    dims = [len(places), *size, *[word for one in places for word in (one.base, one.offset)]]
    last = places[-1], places[-1].offset, ()
    rows.write(routine, ONCE, dims, [1], [last], native.REFUSES)
    rows.touching(places[:read], places[read:])


def _part(place: Spot, begin: int, end: int) -> Spot:
    """Return these elements of an array, all of it if there are none."""
    size = place.itemsize
    if begin == end:
        return place
    return place._replace(offset=place.offset + begin * size, shape=(end - begin,), strides=(size,))


ROWS = dict.fromkeys(OWN, write_row)
"""The writers of rows of tables for the ops in `OWN`."""


def _room(empty: Callable[[], Any], *, out: Any = None) -> Any:
    return empty() if out is None else out
