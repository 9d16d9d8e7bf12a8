"""Loops as tables: the rows of a loop's body, walked once an iteration without the GIL.

An iteration has rows that copy the entering carries (if they are saved), the rows of the body's
steps, copies of stacked values that have no array of their own, copies of the new carries over the
old ones, and last the rows of the test.  Arrays of elements and stacked arrays advance by one
element in each iteration.

`LoopTable` is one form of `inner.InnerLoop`, which calls it.  Invariants:

- It declines as other tables do (`lower.table`), having written nothing but stacked arrays; then
  the loop in Python starts from the first iteration.
- A dead run ends the walk between two rows.
- About every millisecond the walk returns to Python, for signals and for floating-point errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, TypeAlias

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.helpers import HELPERS
from actorgraph.errors import counted
from actorgraph.graph import Node
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.laps import PartedRows
from actorgraph.lower.quick_rows import QuickRows, code_row, grouped, quick_product, quickened
from actorgraph.lower.seen import node_like
from actorgraph.lower.spots import Unfit
from actorgraph.lower.text import Dead
from actorgraph.lower.walkable import SUM, kinds
from actorgraph.memory.buffers import Memory, fresh, is_fresh, is_view, regular, size_in_bytes
from actorgraph.op import CONSTANT, FRESH_OUT, Op
from actorgraph.types import bind_shape

_AT_ONCE_US = 1000.0
"""Predicted length of one walk, after which Python may handle signals."""

FEWEST = 48
"""Least steps, of all iterations together, for which a walk pays off."""

_MOST_KEPT_BYTES = 1 << 24
"""Most bytes of arrays that a block keeps between calls for later phases."""

_LEAST_US, _LEAST_BODY_US = 30.0, 1.0
"""Least predicted time of the iterations of a walk, and of one iteration, for helper threads."""

_COPY = Op("table_copy", "a[*s] -> a[*s]", np.positive, ufunc="positive", memory=FRESH_OUT)
_COPY_BOOL = Op(
    "table_copy_bool", "a[*s] -> a[*s] -> a[*s]", np.logical_and, ufunc="logical_and",
    memory=FRESH_OUT,
)  # fmt: skip

_Test: TypeAlias = tuple[Sequence[Node], Sequence[Node], Node]


class Declined(Exception):
    """The walk of a loop gave up; the loop in Python must start from the first iteration."""


@dataclass(slots=True)
class _Iteration:
    """An iteration as a stretch: `steps`, inputs `given`, and the stacked values `results`.

    - `asking`: the step that says whether there is another iteration
    - `over`: by the id of a step, the carry that it overwrites
    - `moving`: nodes of which each iteration reads or writes another element
    - `copied`, `shared`: as in `table.Stretch`; empty, as results are written at once
    - `quick`, `packed`, `exact`, `later`: set by `quick_rows`: products and groups by step, places
      of inputs that are passed transposed, whether bits are NumPy's, and factors of carries that
      are added up at the end
    """

    steps: Sequence[Node]
    given: Sequence[Node]
    results: Sequence[Node]
    asking: Node | None
    over: Mapping[int, Node]
    moving: Sequence[Node]
    copied: Collection[int] = ()
    quick: Mapping[int, Any] = field(default_factory=dict)
    packed: Sequence[int] = ()
    exact: bool = True
    later: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    others: Mapping[Op, Any] = field(default_factory=dict)
    shared: Mapping[Node, Node] = field(default_factory=dict)
    odd: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    classes: None = None  # its steps have been replaced since they were numbered

    @property
    def code_row(self) -> Callable[[Any, Node], bool] | None:
        """As in `table.Stretch`."""
        return None if self.exact else code_row

    @property
    def views(self) -> Collection[int]:
        """As in `table.Stretch`."""
        nodes = [node for node in (*self.given, *self.steps) if node.inputs]
        return {node.id for node in nodes if is_view(node)}

    @property
    def lasting(self) -> Sequence[Node]:
        """The nodes read after the last row: results, and the test's answer."""
        return self.results if self.asking is None else [*self.results, self.asking]


class _IterationRows(QuickRows):
    """The rows of an iteration, in which some steps overwrite carries."""

    def _lay(self, stretch: Any) -> None:
        self.places.update({step: self.places[leaf.id] for step, leaf in stretch.over.items()})
        super()._lay(replace(stretch, results=stretch.lasting))


class _PartedRows(PartedRows, _IterationRows):
    """The same rows, and their parts for several threads."""


class LoopTable:
    """A loop whose iterations are walked; `Unfit` is raised if a step cannot be a row.

    `test` is its inputs, steps and result.  With `quick`, last bits may differ from NumPy's, and
    `wait` says that products wait for machine code, instead of using NumPy until it is compiled.
    """

    def __init__(
        self, inputs: Sequence[Sequence[Node]], steps: Sequence[Node], results: Sequence[Node],
        saved: Sequence[int], test: _Test | None, symbols: Mapping[str, int], quick: bool = False,
        wait: bool = False, threads: int = 1,
    ) -> None:  # fmt: skip
        _, captured, carries, _ = inputs
        one = _iteration(inputs, steps, results, saved, test, symbols)
        first = len(captured) + (0 if test is None else len(test[0]) - len(carries))
        self._scalars = [not node.dims for node in one.given[:first]]
        if quick:
            one = quickened(one, first, symbols)
            first += len(one.packed)
        else:
            one = grouped(one, symbols)
        given, asking = one.given, one.asking
        spent = sum([predicted_us(step, symbols) for step in steps])
        threads = min(threads, HELPERS.count + 1)
        self._parted: _PartedRows | None = None
        self._kept: Sequence[Node] = ()
        if threads > 1 and one.asking is None and spent >= _LEAST_BODY_US:
            with suppress(Unfit):
                self._parted = _PartedRows(one, symbols, threads, first + len(carries))
            kept = _whole_batches(one, symbols) if self._parted is None else ()
            if kept:
                wide = replace(one, results=[*one.results, *kept], moving=[*one.moving, *kept])
                with suppress(Unfit):
                    self._parted = _PartedRows(wide, symbols, threads, first + len(carries))
                    self._kept, one = kept, wide
        self._shapes = [bind_shape(node.dims, symbols, 0) for node in self._kept]
        made = self._made = _IterationRows(one, symbols)
        self._rows = made.lines
        self._flag = made.places[asking.id].offset if asking is not None else None
        self._indexed = any(node is inputs[0][0] for node in given)
        self._packed, self._size = one.packed, len(one.steps)
        later = [(place, one.later.get(node.id)) for place, node in enumerate(carries)]
        self._later = [(place, *both) for place, both in later if both is not None]
        self._product = quick_product(np.matmul, wait)
        fixed = range(first + len(carries))
        self._dtypes = [node.dtype for node in carries]
        self._carried = fixed[first:]
        every = range(len(made.objects))
        self._specs = made.specs((*fixed[first:], *every[len(given) :]), every[len(fixed) :])
        self._spent_us = spent
        self._at_once = max(1, int(_AT_ONCE_US / spent)) if spent else 1000
        self._blocks: list[_LoopBlock] = []

    @property
    def story(self) -> str:
        """How many threads walk the rows, and the measured times that decided it."""
        rows = f"a table of {counted(len(self._rows), 'row')}"
        if self._parted is None:
            return f"{rows}, walked by one thread"
        threads, trial = self._parted.rooms, self._parted.pieces.trial
        who = f"{threads} threads" if trial.gains else f"one thread, not {threads}"
        laps_of = f"in {counted(len(self._parted.phases), 'phase')} of shared laps"
        return f"{rows}, walked by {who}, {laps_of}: {trial.timing(threads, 'iterations')}"

    @property
    def kept_bytes(self) -> int:
        """The bytes of memory that idle blocks hold."""
        parted = 0 if self._parted is None else self._parted.total
        kept: int = sum([one.nbytes for block in [*self._blocks] for one in block.kept])
        return len(self._blocks) * (self._made.total + parted) + kept

    def fits(self, positions: range) -> bool:
        """Return whether these iterations can be walked, and are enough to pay off."""
        enough = len(positions) * self._size >= FEWEST
        return enough and native.RUNTIME.walk is not None

    def __call__(
        self, run: Any, positions: range, fixed: Sequence[Any], carries: Sequence[Any],
        arrays: Sequence[Any], stacks: Sequence[Any],
    ) -> tuple[list[Any], int]:  # fmt: skip
        """Walk at least one iteration; return the last carries and the number of iterations.

        If the test still asks for another after the last of `positions`, the number is one more.
        `Declined` and `Dead` are raised with nothing written but `stacks`.
        """
        walk = native.RUNTIME.walk
        assert walk is not None, "`fits` is asked before"
        if not all([one.flags.c_contiguous for one in carries]):  # noqa: C419
            raise Declined  # an array is not as planned
        held = [*arrays, *stacks]
        length = len(held[0]) if held else positions.stop
        index = [np.arange(length)] if self._indexed else ()
        given = [np.asarray(x) if one else x for x, one in zip(fixed, self._scalars, strict=True)]
        given += [np.ascontiguousarray(given[place].T) for place in self._packed]
        down = positions.step < 0
        block = self._taken(length, -1 if down else 1)
        states = block.carries or [
            fresh(one.shape, kind) for one, kind in zip(carries, self._dtypes)
        ]
        for state, one in zip(states, carries, strict=True):
            state[...] = one
        taken = (*given, *states, *arrays, *index, *stacks, *block.kept)
        words, trips, more, flags = block.words, 0, True, 0
        while more and trips < len(positions):
            at = positions[trips]
            words[native.FIRST] = -at if down else at
            most = words[native.TRIPS] = min(len(positions) - trips, self._at_once)
            if self._parted is None or most * self._spent_us < _LEAST_US:
                flags = walk(taken, words.ctypes.data, run)
            else:
                parted, *_ = block.parted
                parted[native.FIRST], parted[native.LAPS] = words[native.FIRST], most
                words[native.MADE] = most
                flags = self._parted.pieces.walk(
                    taken, parted.ctypes.data, run, words.ctypes.data, most
                )
            if flags and not native.is_ignored(flags):
                break
            trips += int(words[native.MADE])
            more = self._flag is None or bool(block.memory[self._flag])
            flags = 0
        if block.carries:
            states = [one.copy() for one in states]
        if sum([one.nbytes for one in block.kept]) > _MOST_KEPT_BYTES:
            block.kept = []
        self._blocks.append(block)
        if flags:
            raise Dead if flags == native.DEAD else Declined
        for state, *both in self._later:
            low, high = sorted((positions[0], positions[-1]))
            x, y = [held[k][low : high + 1].reshape(-1, held[k].shape[-1]) for k in both]
            states[state] += self._product(x.T, y)
        more = more and self._flag is not None
        return [one if one.ndim else one[()] for one in states], trips + more

    def _taken(self, length: int, way: int) -> _LoopBlock:
        """Take an idle block, or make one, for arrays of that length and a direction of 1 or -1."""
        try:
            block = self._blocks.pop()
        except IndexError:
            specs = self._specs.copy()
            words, memory, _ = self._made.block(specs, self._rows)
            if self._flag is not None:
                words[native.FLAG] = memory.ctypes.data + self._flag
            block = _LoopBlock(words, specs, memory)
            if self._parted is not None:
                lines = self._parted.lines
                block.parted = (*self._parted.block(specs, lines), lines)
                block.carries = [self._parted.carry(base) for base in self._carried]
        if block.goes != (length, way):
            moves = self._specs[:, 4] > 0
            block.specs[:, 1] = np.where(moves, length, 1) * self._specs[:, 1]
            block.specs[:, 4] = way * self._specs[:, 4]
            block.kept = block.kept if block.goes[0] == length else []
            block.goes = length, way
        if not block.kept:
            kept = zip(self._shapes, self._kept, strict=True)
            block.kept = [fresh((length, *shape), node.dtype) for shape, node in kept]
        return block


class _LoopBlock:
    """The words of a walk, with what they point to."""

    __slots__ = ("carries", "goes", "kept", "memory", "parted", "specs", "words")

    def __init__(self, words: native.Words, specs: native.Words, memory: Memory) -> None:
        self.words, self.specs, self.memory = words, specs, memory
        self.goes = (0, 0)
        self.carries: list[Any] = []
        self.kept: list[Any] = []  # arrays with an element for each iteration
        self.parted: Any = None  # the block that several threads walk, and what it points to


def _iteration(
    inputs: Sequence[Sequence[Node]], steps: Sequence[Node], results: Sequence[Node],
    saved: Sequence[int], test: _Test | None, symbols: Mapping[str, int],
) -> _Iteration:  # fmt: skip
    [position], captured, carries, elements = inputs
    _check_layouts(steps, carries, results)
    numbers = count(1 + max([node.id for node in (*steps, *results, *chain(*inputs))]))
    rows = _rows_of(steps, symbols)
    entered = [_copy(carries[j], next(numbers)) for j in saved]
    stacked: dict[Node, None] = {}
    copies: list[Node] = []
    for node in results[len(carries) :]:
        kept = node
        if node.id not in rows or node in stacked:
            kept = _copy(node, next(numbers))
            copies.append(kept)
        stacked[kept] = None
    over: dict[Node, Node] = {}
    for carry, node in zip(carries, results[: len(carries)], strict=True):
        if node is carry:
            continue
        source = node
        if node.id not in rows:  # it may be a view of a carry that is overwritten before
            source = _copy(node, next(numbers))
            copies.append(source)
        over[carry] = _copy(source, next(numbers))
    tested: Sequence[Node] = ()
    asking: list[Node] = []
    if test is not None:
        tested, asking = _renumbered(test, numbers, [over.get(one, one) for one in carries])
        _rows_of(asking[:-1], symbols)
    every = (*entered, *steps, *copies, *over.values(), *asking)
    indexed = any(part is position for step in every for part in step.inputs)
    given = (*captured, *tested, *carries, *elements, *[position] * indexed)
    said = asking[-1] if asking else None
    stored = (*entered, *stacked)
    written = {node.id: carry for carry, node in over.items()}
    return _Iteration(every, given, stored, said, written, (*elements, *stored))


def _whole_batches(one: _Iteration, symbols: Mapping[str, int]) -> Sequence[Node]:
    """Return the values whose rows a sum or product adds up, if they stay in an iteration.

    If every iteration leaves them behind, what adds them up may follow in a later phase of laps.
    Values larger than what iterations leave behind anyway stay.
    """
    if not one.exact:
        return ()
    made = {step.id: step for step in one.steps if not is_view(step)}
    lasting = {node.id for node in one.lasting} | set(one.over)
    groups = [how for how in one.quick.values() if how is not None]
    shown = {node.id for group in groups for node in group.outputs}
    hidden = one.quick.keys() - shown
    found: dict[Node, None] = {}
    for step in one.steps:
        adds = step.op is SUM and 0 in step.attrs["axis"]
        if adds or (step.op.ufunc == "matmul" and is_view(step.inputs[0])):
            for part in step.inputs:
                while part.inputs and is_view(part):
                    part = part.inputs[0]
                if part.id in made and part.id not in lasting | hidden:
                    found[part] = None
    sizes = [sum([size_in_bytes(node, symbols) for node in some]) for some in (found, one.moving)]
    return [*found] if sizes[0] <= sizes[1] else ()


def _check_layouts(steps: Sequence[Node], carries: Sequence[Node], results: Sequence[Node]) -> None:
    """Raise `Unfit` if a step reads a carry whose next value may have another memory layout.

    The table copies carries into C order, which may change the bits of sums.
    """
    own, made = regular(steps), {step.id for step in steps}
    given = [*zip(carries, results, strict=False)]
    odd = {
        carry.id for carry, node in given
        if node.dims and node.id in made and not (node.id in own and is_fresh(node))
    }  # fmt: skip
    for _ in carries:
        odd |= {carry.id for carry, node in given if node.id in odd}
    for step in steps:
        if any([part.id in odd for part in step.inputs]):  # noqa: C419
            raise Unfit(f"{step.name!r} reads a carry whose memory layout may change")


def _rows_of(steps: Sequence[Node], symbols: Mapping[str, int]) -> set[int]:
    """Return the ids of the steps that are rows; all others are views, else `Unfit` is raised."""
    found = kinds(steps, symbols)
    if not all(found):
        raise Unfit(f"{steps[found.index('')].name!r} has no row")
    return {step.id for step, kind in zip(steps, found, strict=True) if kind == "row"}


def _copy(node: Node, number: int) -> Node:
    """Return a step that copies a value."""
    if node.dtype.char == "?":
        return node_like(node, number, _COPY_BOOL, (node, node))
    return node_like(node, number, _COPY, (node,))


def _renumbered(
    test: _Test, numbers: Iterator[int], carries: list[Node]
) -> tuple[list[Node], list[Node]]:
    """Return the captures of a test, and its steps applied to `carries`, with new numbers.

    The last step copies the answer.
    """
    inputs, steps, result = test
    tested = [node_like(n, next(numbers), n.op, ()) for n in inputs[: len(inputs) - len(carries)]]
    stands = dict(zip([one.id for one in inputs], [*tested, *carries], strict=True))

    def stand(node: Node) -> Node:
        if node.id not in stands:  # a constant or a step
            parts = () if node.op is CONSTANT else tuple(map(stand, node.inputs))
            stands[node.id] = node_like(node, next(numbers), node.op, parts)
        return stands[node.id]

    made = [*map(stand, steps)]
    return tested, [*made, _copy(stand(result), next(numbers))]
