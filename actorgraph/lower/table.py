"""Tables: steps as rows, each a call of one of NumPy's inner loops, executed without the GIL.

A call from Python costs 0.2 us on top of a step's arithmetic, a row some nanoseconds; both call the
same loop (`devices.loops`, `devices.native`).  A *stretch* is a range of consecutive steps each of
which is a row or a view.  It is a part of its program (`program.Subprogram`) with two forms: the
Python text, and the table, whose rows machine code *walks*, that is, executes in order.  `program`
makes stretches; their rows are written in the background after some calls, for one binding of dims.

A table *declines* where an array is not as planned, or where a loop raised a floating-point flag
that is not ignored.  Then the Python text computes the whole stretch, and warns or raises as usual.

Invariants:

- Inputs of a stretch are never overwritten while it may still decline: rows write into the table's
  own memory or into arrays that share none with inputs; other results are copied at the end.
- The function that walks a table owns it; the table owns all blocks and constants that its rows
  point to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ref

import numpy as np
from numpy.lib.stride_tricks import as_strided

from actorgraph.devices import structs
from actorgraph.flag import Flag
from actorgraph.graph import Node
from actorgraph.lower import keys
from actorgraph.lower.asking import TRIES, Asking
from actorgraph.lower.kernels import class_numbers, kernel, with_errstate
from actorgraph.lower.layouts import Layouts
from actorgraph.lower.program import (
    CALLS_TILL_ROWS,
    FEWEST_ROWS,
    Program,
    Tabling,
    constant_value,
    lower_directly,
)
from actorgraph.lower.spots import Unfit
from actorgraph.lower.text import Dead
from actorgraph.lower.walkable import has_loop, kinds, may_overwrite
from actorgraph.memory.buffers import fresh, is_view, size_in_bytes
from actorgraph.op import CONSTANT, is_symbolic
from actorgraph.scratch import MOST_BYTES, scratch
from actorgraph.types import bind_shape

if TYPE_CHECKING:
    from actorgraph.devices.trials import Trial
    from actorgraph.lower.strands import StrandRows
    from actorgraph.lower.table_rows import Written
    from actorgraph.memory.buffers import Buffers

_KEPT = 4
"""Bindings whose tables a stretch keeps."""

_ALONE = 64
"""Walks without helpers of rows in strands before the same rows are written for one thread.  Those
in strands use more memory, which makes them up to a tenth slower for one thread."""

_MANY = 16
"""Least steps of a stretch that is walked around a step without a row, which costs 1 us more."""

_LEAST_WALKED = 0.8
"""Least share of the steps that are walked around others.  Each of these is called under an error
state, which costs what rows save for some four steps."""

_SHARED_BYTES = 32 * 1024
"""Least size of inner values that lie in arrays of the run: a walk takes each array by itself."""

_LENT_BYTES = 128 * 1024
"""Least memory of a table that is scratch, as the kernels' is: taking it costs a walk 0.7 us."""

_BYTES = np.dtype(np.uint8)

_BRIEF_BYTES, _BRIEF_GIVEN = 64 * 1024, 1024 * 1024
"""Bytes written and bytes given below which a walk keeps the GIL: getting it back may cost more."""


def stretches(
    steps: Sequence[Node], allowed: Sequence[bool], tabling: Tabling
) -> list[tuple[int, int]]:
    """Return the begin and end of each stretch; only steps that are `allowed` are in one."""
    if len(steps) < FEWEST_ROWS:
        return []
    layouts = Layouts(steps, tabling.symbols, tabling.ordered, tabling.classes)
    found_kinds = kinds(
        steps, tabling.symbols, tabling.ordered, tabling.largest, tabling.others, tabling.known,
        layouts.of, tabling.classes,
    )  # fmt: skip
    both = zip(found_kinds, allowed, strict=True)
    edges = [-1, *[place for place, (kind, may) in enumerate(both) if not (kind and may)]]
    spans = [(before + 1, end) for before, end in pairwise([*edges, len(steps)])]
    return [
        (begin, end) for begin, end in spans
        if end - begin >= FEWEST_ROWS and found_kinds[begin:end].count("row") >= FEWEST_ROWS
    ]  # fmt: skip


class _Results(NamedTuple):
    """The results of a stretch, ids of those to copy, returned views, and places in the arrays.

    Then the ids of all values that may show the memory of others.
    """

    results: Sequence[Node]
    copied: Collection[int]
    shown: Sequence[Node]
    place_of: Mapping[int, int]
    views: Collection[int]


class Stretch:
    """A part of a program that may be walked: its steps, inputs and results.

    `how` says which arrays of the program the steps write into (see `keys.StepKey`).  The arrays of
    `buffered` steps may hold other values until the stretch ends, so results are copied there last.
    """

    odd: Mapping[int, tuple[int, ...]] = {}
    shared: Mapping[Node, Node] = {}
    classes: Mapping[int, int] | None = None
    buffers: Buffers | None = None
    """In a copy for one binding of dims: strides of the steps whose values are not in C order;
    inner steps that write into arrays of the run, each with the first step of its array;
    `class_numbers` of the steps; and where arrays of runs lie, if that is known."""

    def __init__(
        self, steps: Sequence[Node], given: Sequence[Node], returned: Sequence[Node],
        how: Sequence[int], buffered: Container[int], tabling: Tabling,
    ) -> None:  # fmt: skip
        self.steps, self.given, self.returned = steps, given, returned
        self._how, self._buffered = how, buffered
        self._tabling, self.others = tabling, tabling.others
        self._latest: Written | None = None
        self._unfit: Node | None = None  # the step without a row in the latest try to write all
        self._around_it: Program | None = None  # what computes it between tables
        self._tables: dict[Any, Asking] = {}
        self._blocks: tuple[ref[_WalkBlocks], ...] = ()

    @cached_property
    def _found(self) -> _Results:
        """The results; a first run does not wait for them, as only writing rows needs them."""
        outside = {node.id for node in self.returned}
        views = [step for step in self.steps if is_view(step)]
        for view in reversed(views):
            if view.id in outside:
                outside.add(view.inputs[0].id)
        shown = [view for view in views if view.id in outside]
        inner = {view.id for view in views}
        results = [one for one in self.steps if one.id in outside and one.id not in inner]
        into = [one for one in zip(self.steps, self._how, strict=True) if one[1] & keys.INTO]
        place_of = {step.id: place for place, (step, _) in enumerate(into)}
        copied = {node.id for node in results if node.id in place_of}
        # Inputs in buffers may share memory with arrays that leave the turn and are written later.
        if not any(_whole(node) in self._buffered for node in self.given):
            copied.difference_update([step.id for step, one in into if one & keys.LEAVING])
        inner.update([node.id for node in self.given if node.inputs and is_view(node)])
        return _Results(results, copied, shown, place_of, inner)

    @property
    def code_row(self) -> Callable[[Written, Node], bool] | None:
        """The writer of rows of our own machine code, if last bits may change."""
        if not self._tabling.quick:
            return None
        from actorgraph.lower.quick_rows import code_row

        return code_row

    @property
    def views(self) -> Collection[int]:
        """The ids of all values that may show the memory of others."""
        return self._found.views

    @property
    def results(self) -> Sequence[Node]:
        """Steps with rows whose values are needed outside, directly or through views."""
        return self._found.results

    @cached_property
    def copied(self) -> Collection[int]:
        """The ids of results that are copied to their arrays at the end."""
        return self._found.copied

    @property
    def bytes(self) -> int:
        """The bytes of memory that tables keep for what rows write."""
        alive = [one() for one in self._blocks]
        return sum([blocks.bytes for blocks in alive if blocks is not None])

    @property
    def _is_bound(self) -> bool:
        """Whether all sizes are known before a run."""
        if not self._tabling.symbols:
            return True
        return not any(
            not isinstance(dim, int) for node in (*self.given, *self.steps) for dim in node.dims
        ) and not any(is_symbolic(step.attrs) for step in self.steps)

    def walked(
        self, plain: Callable[..., list[Any]], symbols: Mapping[str, int] | None, calls: int = 0
    ) -> Callable[..., list[Any]]:
        """Return ``part(run, arrays, *values)``, which walks the table once there is one.

        Until then, and where the table declines, it calls `plain`.  It is safe to call from several
        threads.  Without `symbols` the dims are those of the run's binding.  `calls` is how often
        the steps have been called with these dims before.
        """
        if symbols is None and self._is_bound:
            symbols = {}
        tables: dict[int, tuple[Any, Asking]] = {}
        only, flag = None if symbols is None else self._table(symbols, calls), self._tabling.flag

        def part(run: Any, out: Any, *given: Any) -> list[Any]:
            table = only
            if table is None:
                binding = run.binding
                known = tables.get(id(binding))
                if known is None:  # the entry holds the binding, so that its id stays unique
                    if len(tables) >= _KEPT:
                        tables.clear()
                    # Earlier calls were of the dims that come first.
                    before = 0 if tables else calls
                    known = tables[id(binding)] = binding, self._table(binding.symbols, before)
                table = known[1]
            if table.calls >= 0:
                table.count()
            walk = table.made
            if walk is None:
                if flag is not None:
                    flag.set()
                return plain(run, out, *given)
            found: list[Any] | None = walk(run, out, given)
            if found is None:
                table.decline()
                return plain(run, out, *given)
            table.tries = TRIES
            return found

        return part

    def _table(self, symbols: Mapping[str, int], calls: int = 0) -> Asking:
        """Return the table for a binding, which all functions of this stretch share."""
        key = tuple(sorted(symbols.items()))
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= _KEPT:
                self._tables.clear()
            left = max(0, CALLS_TILL_ROWS - calls)
            found = self._tables[key] = Asking(
                partial(self.write, symbols), left, self._tabling.wait
            )
        return found

    def write(self, symbols: Mapping[str, int]) -> Callable[..., list[Any] | None] | None:
        """Write the rows for a binding, and return the function that walks them.

        It returns the results, or None where the walk declines.  Without rows there is no function.
        """
        from actorgraph.devices import native  # the first runs need it not

        self._unfit = self._around_it = None
        try:
            laid = self._laid(symbols)
            stranded = laid._stranded(symbols)
            written = self._latest = stranded or laid._rows(symbols, not self._tabling.quick)
        except Unfit as unfit:
            step = self._unfit = self.steps[unfit.position]
            return None if len(self.steps) < _MANY else self._around(step, symbols)
        blocks = self._blocks_of(written)
        sources, count = self._sources(written, symbols), len(self.results)
        shapes, dtypes = [one[1] for one in sources], [one[2] for one in sources]
        none_given = all(place is None for place, _, _ in sources)
        scalars = [place for place, node in enumerate(self.given) if not node.dims]
        finish = self._finish(symbols, [laid.odd.get(node.id) for node in self.results])
        idle, errors, walk = structs.IDLE, self._tabling.errors, _walk_of(written)
        trial, dead = None if stranded is None else stranded.pieces.trial, native.DEAD
        alone = self._alone(trial, partial(laid._rows, symbols, False))

        def walked(run: Any, out: Any, given: tuple[Any, ...]) -> list[Any] | None:
            own = blocks if alone is None else alone() or blocks
            idle_blocks = own.idle
            try:
                if none_given or out is None:
                    made = list(map(fresh, shapes, dtypes))
                else:
                    made = [
                        fresh(shape, dtype) if place is None or (to := out[place]) is None else to
                        for place, shape, dtype in sources
                    ]
                if own.lent:
                    memory = scratch(np, (own.lent[-1],), _BYTES)
                    made += [memory[begin:end] for begin, end in pairwise(own.lent)]
                block = idle_blocks.pop() if idle_blocks else own.made()
            except IndexError:  # another thread took the last idle block
                block = own.made()
            except MemoryError:  # the Python text allocates again, and its error names the step
                return None
            for i in scalars:
                if type(given[i]) is not np.ndarray:
                    given = (*given[:i], np.asarray(given[i]), *given[i + 1 :])
            flags = walk((*given, *made), block[0], idle if run is None else run)
            if flags:
                if native.is_ignored(flags, errors):
                    block[1][native.HEEDLESS] = 1
                    flags = walk((*given, *made), block[0], idle if run is None else run)
                if flags == dead:
                    idle_blocks.append(block)  # all threads have left it
                    raise Dead
            idle_blocks.append(block)
            del made[count:]
            return None if flags else made if finish is None else finish(given, made)

        return walked

    def _sources(
        self, written: Written, symbols: Mapping[str, int]
    ) -> list[tuple[int | None, tuple[int, ...], np.dtype[Any]]]:
        """Return the place among the run's arrays, shape and dtype of each one that rows fill."""
        place_of, filled = self._found.place_of, written.objects[len(self.given) :]
        return [
            (place_of.get(node.id), bind_shape(node.dims, symbols, 0), node.dtype)
            for node in filled
        ]

    def _rows(self, symbols: Mapping[str, int], may_share: bool) -> Written:
        """Return rows for one thread, some in arrays of the run if these may be shared."""
        from actorgraph.lower.table_rows import Written  # the first runs do not need it

        self.copied, self.shared = self._lying(symbols, may_share)
        try:
            return Written(self, symbols)
        except Unfit:
            if not self.shared:
                raise
        return self._rows(symbols, False)

    def _alone(
        self, trial: Trial | None, write: Callable[[], Written]
    ) -> Callable[[], _WalkBlocks | None] | None:
        """Return what gives the blocks for one thread, unless helpers clearly pay or are used."""
        if trial is None:
            return None

        def written() -> _WalkBlocks:
            return self._blocks_of(write())

        asking = Asking(written, _ALONE, wait=False)

        def found() -> _WalkBlocks | None:
            if trial.is_clear or trial.is_together():
                return None
            if asking.calls >= 0:
                asking.count()
            made: _WalkBlocks | None = asking.made
            return made

        return found

    def _blocks_of(self, written: Written) -> _WalkBlocks:
        blocks = _WalkBlocks(written, len(self.given), self._tabling.flag)
        alive = [one for one in self._blocks if one() is not None]
        self._blocks = (*alive, ref(blocks))
        return blocks

    def _laid(self, symbols: Mapping[str, int]) -> Stretch:
        """Return a copy for a binding; raises `Unfit` if the layout of a step is not known."""
        ordered, views = self._tabling.ordered, self.views
        laid, laid.odd, laid.classes = copy(self), {}, class_numbers(self.steps)
        laid.buffers = self._buffers(symbols)
        layouts = Layouts(self.steps, symbols, ordered, laid.classes)
        for position, step in enumerate(self.steps):
            if step.id in ordered and step.id not in views:
                continue
            spot = layouts.of(step)
            if step.id in views or (spot is not None and spot.is_flat):
                continue
            if spot is None:
                unfit = Unfit()
                unfit.position = position
                raise unfit
            laid.odd[step.id] = spot.strides
        return laid

    def _buffers(self, symbols: Mapping[str, int]) -> Buffers | None:
        """Return where the arrays lie that runs of a binding are given, None if that is unknown."""
        tabling = self._tabling
        if tabling.planned is None or (tabling.symbols and not symbols):  # see `_is_bound`
            return None
        return tabling.planned((*symbols.items(),))

    def _lying(
        self, symbols: Mapping[str, int], may_share: bool
    ) -> tuple[Collection[int], Mapping[Node, Node]]:
        """Return what `copied` and `shared` are for a binding.

        An array of the run shares no memory with other values that are alive, by the plan of its
        task.  Only inputs stay alive longer: the walk may decline.
        """
        found = self._found
        buffers = self.buffers
        if buffers is None:
            return found.copied, {}
        taken: dict[int, list[_Span]] = {}
        for node in self.given:
            for one in _owners(node):
                of, begin, end = _region(one, buffers, symbols)
                taken.setdefault(of, []).append((begin, end))
        taken = {of: _merged(spans) for of, spans in taken.items()}
        free: dict[int, _Region] = {}
        for step, how in zip(self.steps, self._how, strict=True):
            if how & keys.INTO:
                region = _region(step, buffers, symbols)
                of = region[0]
                if of not in taken or not _meets(region, taken[of]):
                    free[step.id] = region
                if step.id in buffers.in_place and not (
                    step.op.traced or may_overwrite(step, self.views)
                ):
                    for part in step.inputs:
                        if free.get(part.id) == region:
                            del free[part.id]  # Python overwrites it, a row must not
        copied = {node.id for node in found.results if node.id in found.place_of}
        copied.difference_update(free)
        if not may_share:
            return copied, {}
        results = {node.id for node in found.results}
        large = {number for number, (_, begin, end) in free.items() if end - begin >= _SHARED_BYTES}
        shared = [step for step in self.steps if step.id in large]
        arrays: dict[Any, Node] = {}
        for step in (*[step for step in shared if step.id in results], *shared):
            arrays.setdefault((free[step.id], step.dims, step.dtype), step)
        return copied, {
            step: arrays[free[step.id], step.dims, step.dtype]
            for step in shared if step.id not in results
        }  # fmt: skip

    def _stranded(self, symbols: Mapping[str, int]) -> StrandRows | None:
        """Return the rows in strands, or None where one thread is predicted to be as fast."""
        if self._tabling.strands < 2:
            return None
        from actorgraph.lower.strands import stranded

        self.copied, _ = self._lying(symbols, False)
        return stranded(self, symbols, self._tabling.strands)

    def _around(
        self, step: Node, symbols: Mapping[str, int]
    ) -> Callable[..., list[Any] | None] | None:
        """Return a function that walks the other steps, and calls this one from Python.

        This step has no row for this binding; there may be more.  Where anything raises, the
        function returns None: the Python text of the whole stretch raises it again, at the right
        line.  There is no function where too few steps would be walked.
        """
        # All that have no loop at once: each would be walked around inside the walk around another.
        apart = {*self._tabling.apart, step.id, *[one.id for one in self.steps if _lacks_loop(one)]}
        tabling = self._tabling._replace(
            symbols=symbols, wait=True, apart=apart, known=None, planned=None
        )
        program = lower_directly(self.steps, self.given, self.returned, bound=(), tabling=tabling)
        raising = {"divide": "raise", "invalid": "raise", "over": "raise", "under": "raise"}
        kernels = [with_errstate(kernel(one, np, symbols), raising) for one in self.steps]
        called, fixed = program.callables(kernels, constant_value, symbols)
        made = program.make(*called, *fixed)
        walks = sum([len(one.stretch.steps) for one in program.parts if one.stretch])
        if walks < _LEAST_WALKED * len(self.steps):
            return None
        self._around_it = program

        def walked(run: Any, out: Any, given: tuple[Any, ...]) -> list[Any] | None:
            try:
                found: list[Any] = made(run, (), *given)
            except Dead:
                raise
            except Exception:  # noqa: BLE001 - the Python text decides whether it is an error
                return None
            return found

        return walked

    def _finish(
        self, symbols: Mapping[str, int], odd: Sequence[tuple[int, ...] | None]
    ) -> Callable[..., list[Any]] | None:
        """Return what makes the part's results of the walked ones, None if they are the same.

        `odd` has the strides of walked results that are not in C order, None for the others.
        """
        same = [one.id for one in self.returned] == [one.id for one in self.results]
        if same and not any(odd):
            singles = [place for place, node in enumerate(self.results) if not node.dims]
            return partial(_with_scalars, singles) if singles else None
        shown = self._found.shown
        constants = [view.inputs[0] for view in shown if view.inputs[0].op is CONSTANT]
        fixed = [*map(constant_value, constants)]
        known = *self.given, *self.results, *constants
        number, views = {node.id: place for place, node in enumerate(known)}, []
        for view in shown:
            views.append((kernel(view, np, symbols), number[view.inputs[0].id]))
            number[view.id] = len(known) + len(views) - 1
        wanted = [(number[node.id], not node.dims) for node in self.returned]

        def finish(given: Sequence[Any], made: Sequence[Any]) -> list[Any]:
            values = [*given, *made, *fixed]
            for place, strides in enumerate(odd, len(given)):
                if strides is not None:
                    values[place] = as_strided(values[place], strides=strides)
            for view, of in views:
                values.append(view(values[of]))
            return [values[place][()] if single else values[place] for place, single in wanted]

        return finish

    @property
    def story(self) -> str:
        """How the steps are walked: by which threads, or why not."""
        if self._fault:
            return f"no table of {len(self.steps)} steps: {self._fault}"
        if self._unfit is None:
            return "" if self._latest is None else self._latest.story
        name, every = self._unfit.name, len(self.steps)
        if self._around_it is None:
            return f"no table of {every} steps: {name!r} has no row for these layouts"
        return f"{self.covered} of {every} steps are walked around {name!r}, which has no row"

    @property
    def _fault(self) -> str:
        """What writing rows raised for a binding; empty if it raised nothing."""
        return next((one.fault for one in [*self._tables.values()] if one.fault), "")

    @property
    def covered(self) -> int:
        """The number of steps for which rows stand."""
        if self._around_it is not None:
            return sum([one.stretch.covered for one in self._around_it.parts if one.stretch])
        return 0 if self._latest is None or self._unfit is not None else len(self.steps)

    def comments(self) -> list[str]:
        """Return the rows that were written last as comments of the program's source."""
        written = self._latest
        if self._unfit is not None or self._fault:
            return [f"# {self.story}"]
        if written is None:
            return [
                f"# rows are written after {CALLS_TILL_ROWS} calls, where there is machine code"
            ]
        notes = written.columns.notes
        found = [f"# {len(notes)} rows of NumPy's loops stand for it:"]
        found += [f"# {written.story}"] if written.story else []
        for of, row in notes:
            places = zip(row.places[::4], row.places[1::4], strict=True)
            shown = ", ".join([f"m{base}[{offset}]" for base, offset in places])
            found.append(f"#   {of}: {prod(row.times)} x {[*row.dims]}, {shown}")
        return found


def _with_scalars(places: Sequence[int], given: Sequence[Any], made: list[Any]) -> list[Any]:
    """Return what was made, with scalars in some places: arrays without dims as NumPy has them."""
    for place in places:
        made[place] = made[place][()]
    return made


def _lacks_loop(step: Node) -> bool:
    """Return whether the ufunc of a step has no verified loop, whatever the sizes."""
    op = step.op
    return op.ufunc not in (None, "matmul") and not (op.traced or is_view(step) or has_loop(step))


def _whole(node: Node) -> int:
    """Return the id of the node that owns the memory of a view, else the node's own id."""
    while node.inputs and is_view(node):
        node = node.inputs[0]
    return node.id


def _walk_of(written: Written) -> Callable[..., int]:
    """Return the function that walks the rows of a table."""
    from actorgraph.devices import native

    runtime = native.RUNTIME
    is_brief = written.bytes < _BRIEF_BYTES and written.given_bytes < _BRIEF_GIVEN
    own = None if written.pieces is None else written.pieces.walk
    walk: Callable[..., int] | None = own or (runtime.brief if is_brief else runtime.walk)
    assert walk is not None, "rows are written where there is a runtime"
    return walk


_Region: TypeAlias = tuple[int, int, int]
"""The memory of a value: whose array it is in, -1 for an arena, and its begin and end there."""


def _region(node: Node, buffers: Buffers, symbols: Mapping[str, int]) -> _Region:
    begin = buffers.place_of.get(node.id)
    of = node.id if begin is None else buffers.inside_of.get(node.id, -1)
    return of, begin or 0, (begin or 0) + size_in_bytes(node, symbols)


_Span: TypeAlias = tuple[int, int]
"""The begin and end of bytes."""


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans that share no byte, in order, for the same bytes."""
    found = list[_Span]()
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            begin, end = found[-1][0], max(end, found.pop()[1])
        found.append((begin, end))
    return found


def _meets(region: _Region, spans: Sequence[_Span]) -> bool:
    """Return whether a region shares a byte with one of the spans that `_merged` returns."""
    before = bisect_left(spans, (region[2],))
    return before > 0 and spans[before - 1][1] > region[1]


def _owners(node: Node) -> Iterator[Node]:
    """Yield the nodes whose memory a value may show: its own, or those of a view."""
    if node.inputs and is_view(node):
        for part in node.inputs:
            yield from _owners(part)
    else:
        yield node


class _WalkBlocks:
    """The blocks of a table; a walk has one for itself and returns it to `idle`.

    If there is anything in `lent`, the last arrays that a walk is given are memory between these
    bytes.  A walk ends when all threads have left it, so nobody touches that memory later.
    """

    def __init__(self, written: Written, given: int, flag: Flag | None) -> None:
        from actorgraph.devices import native

        self._written, self._flag, self.bytes = written, flag, 0
        is_large = written.total >= _LENT_BYTES and (
            written.rooms == 1 or written.total <= MOST_BYTES
        )
        self.lent = written.begins if is_large else []
        self._lines = written.lines
        self._specs = written.specs(range(given, len(written.objects)))
        if self.lent:
            sizes = [end - begin for begin, end in pairwise(self.lent)]
            lent = [native.spec(_BYTES, size, writable=True) for size in sizes]
            self._specs = np.array([*self._specs, *lent], np.int64)
        self.idle = [self.made()]

    def made(self) -> tuple[int, Any, Any]:
        """Return the address of a new block, the block, and what must live as long."""
        from actorgraph.devices.native import BELL

        block, *owned = self._written.block(self._specs, self._lines, bool(self.lent))
        if self._flag is not None:
            block[BELL] = self._flag.address
        self.bytes += 0 if self.lent else self._written.total
        return block.ctypes.data, block, owned
