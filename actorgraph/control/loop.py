"""The op ``loop``: a body applied repeatedly to carries and to elements of arrays.

Its result is a record: the final carries, the stacked outputs of the iterations, the number of
iterations, and two kinds of fields that only reverse rules read: the carries as they entered each
iteration, and the values of the body's nodes.  Fields that nobody reads are not computed.

Invariant: an iteration's *position* is the index of its elements; positions start at 0, or with
`reverse` at the last.  Everything stacked is stored at its position, so that the reverse pass,
which runs the other way, meets the same values.

A loop is one step of its program: this module knows neither tasks nor machines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod
from typing import Any

import numpy as np

from actorgraph.control.bodies import Body, agreed
from actorgraph.devices import structs
from actorgraph.errors import GraphError, ShapeError
from actorgraph.graph import Graph, Node
from actorgraph.lower.fusion import parallel_us
from actorgraph.lower.inner import Inner, InnerLoop
from actorgraph.memory.buffers import fresh
from actorgraph.memory.free_lists import FreeLists
from actorgraph.op import CONSTANT, Attrs, Op, Together
from actorgraph.ops._records import any_types, fields_read
from actorgraph.tiles import compute_parts, evenly, workers_here
from actorgraph.types import UNKNOWN, Checks, Dim, Record, Tensor, bind_dims, bind_shape, dtype_of

_TRIPS = Tensor.of("int64", ())
_GUESSED_TRIPS = 1000
"""Expected iterations of a loop that ends by its test."""
KEPT_BYTES = 1 << 24
"""Most bytes of stacked arrays that a loop keeps in free lists for its next call."""

MOST_COPIED_BYTES = 4 * KEPT_BYTES
"""Most bytes of an array whose elements iterations take that is copied into C order first."""

_TURN_US = 2.0
"""Microseconds of a loop of no iterations."""


@dataclass(frozen=True)
class Spec:
    """A loop without its operands.

    The operands are, in this order: the number of iterations (if `counted`), the captures of the
    body, those of the test, initial carries, and arrays whose elements the iterations take.

    - `body`: inputs are position, captures, carries, elements; results are carries, stacked outputs
    - `carries`, `xs`: number of carries, and of arrays
    - `length`: number of iterations, if known before a run
    - `test`: inputs are captures, carries; the result says whether there is another iteration
    - `limit`: iterations after which the test must not ask for another
    - `reverse`: whether positions count down
    - `save`: what the forward pass saves for the reverse pass
    - `what`: name in errors
    """

    body: Body
    carries: int
    xs: int = 0
    length: int | Dim | None = None
    counted: bool = False
    test: Body | None = None
    limit: int | None = None
    reverse: bool = False
    save: str | int = "auto"
    what: str = "scan"

    @cached_property
    def consts(self) -> int:
        """How many operands the body captures."""
        return len(self.body.inputs) - 1 - self.carries - self.xs

    @cached_property
    def tested(self) -> int:
        """How many operands the test captures."""
        return 0 if self.test is None else len(self.test.inputs) - self.carries

    @cached_property
    def ys(self) -> int:
        """How many results are stacked."""
        return len(self.body.results) - self.carries

    @property
    def trips(self) -> int:
        """The field with the number of iterations."""
        return self.carries + self.ys

    @property
    def history(self) -> int:
        """The field of the first carry as it entered each iteration."""
        return self.trips + 1

    @property
    def inner(self) -> int:
        """The first of the fields with values of the body's nodes."""
        return self.history + self.carries

    def split(self, operands: Sequence[Any]) -> tuple[Any, list[Any], list[Any], list[Any], Any]:
        """Return the operands by group: number, captures of body and test, carries, arrays."""
        first = int(self.counted)
        marks = [first]
        for size in (self.consts, self.tested, self.carries, self.xs):
            marks.append(marks[-1] + size)
        groups = [list(operands[i:j]) for i, j in itertools.pairwise(marks)]
        return (operands[0] if self.counted else None, *groups)  # type: ignore[return-value]

    def split_inputs(self) -> list[Sequence[Node]]:
        """Return the inputs of the body: position, captures, carries, elements."""
        inputs = self.body.inputs
        ends = [0, 1, 1 + self.consts, 1 + self.consts + self.carries, len(inputs)]
        return [inputs[i:j] for i, j in itertools.pairwise(ends)]

    def stacked(self, field: int) -> Node:
        """Return the body's node whose values a field stacks."""
        if field >= self.inner:
            return self.body.nodes[field - self.inner]
        if field >= self.history:
            return self.split_inputs()[2][field - self.history]
        return self.body.results[field]

    def of_body(self, operands: Sequence[Any]) -> list[Any]:
        """Return the operands of the body in the order of its inputs, without the position."""
        _, consts, _, carries, xs = self.split(operands)
        return [*consts, *carries, *xs]

    @property
    def titles(self) -> list[tuple[str, Body]]:
        """The bodies, with their names in drawings."""
        test = [] if self.test is None else [("test", self.test)]
        return [*test, ("body", self.body)]

    def __str__(self) -> str:
        return self.what


def loop(graph: Graph, spec: Spec, operands: Iterable[Node]) -> Node:
    """Return the record of a loop."""
    return graph.apply(LOOP, tuple(operands), {"loop": spec})


def check_carries(
    checks: Checks, entering: Sequence[Tensor], leaving: Sequence[Tensor], what: str
) -> None:
    """Raise where a carry leaves an iteration with another type than it enters with."""
    for number, (one, other) in enumerate(zip(entering, leaving, strict=True)):
        text = f"carry {number} of {what} enters as {one} and leaves as {other}"
        cast = f".astype({str(one.dtype)!r})"
        agreed(checks, one, other, text, cast=cast, way="it has to keep its dims")


def _typing(checks: Checks, types: tuple[Tensor, ...], attrs: Attrs) -> Tensor:
    spec: Spec = attrs["loop"]
    body = spec.body
    _, consts, tested, carries, xs = spec.split(types)
    elements = [Tensor.of(str(x.dtype), x.shape[1:]) for x in xs]
    _check_inputs(checks, spec, body.inputs[1:], [*consts, *carries, *elements])
    if spec.test is not None:
        _check_inputs(checks, spec, spec.test.inputs, [*tested, *carries])
    leaving = [node.type for node in body.results]
    check_carries(checks, carries, leaving[: spec.carries], spec.what)
    body.check_into(checks)
    if spec.test is not None:
        spec.test.check_into(checks)
    length = spec.length if spec.length is not None else UNKNOWN
    for x in xs:
        length = checks.equal(length, x.shape[0], f"lengths of the arrays of {spec.what}")

    def stacked(type_: Tensor) -> Tensor:
        return Tensor.of(str(type_.dtype), (length, *type_.shape))

    ys = [stacked(type_) for type_ in leaving[spec.carries :]]
    history = [stacked(type_) for type_ in carries]
    inner = [
        node.type if isinstance(node.type, Record) else stacked(node.type) for node in body.nodes
    ]
    return Record.of_fields((*carries, *ys, _TRIPS, *history, *inner))


def _check_inputs(
    checks: Checks, spec: Spec, inputs: Sequence[Node], given: Sequence[Tensor]
) -> None:
    """Raise where operands have other types than those that a body was traced with."""
    for node, type_ in zip(inputs, given, strict=True):
        check_carries(checks, [node.type], [type_], f"{spec.what} at {node.name!r}")


class LoopKernel:
    """The kernel of a loop for one binding, called with the run and the operands.

    - `places`: the fields that are stacked
    - `stored`: whether these go into arrays, since all their sizes are known before the loop begins
    - `parts`: the loops that may replace it (see `split`), or why there are none; None until the
      first call finds out
    """

    def __init__(self, node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> None:
        spec: Spec = node.attrs["loop"]
        self.spec, self.node = spec, node
        body, wanted = spec.body, fields_read(node)
        saved = [j for j in range(spec.carries) if spec.history + j in wanted]
        inner = [k for k in range(len(body.nodes)) if spec.inner + k in wanted]
        results = [*body.results, *[body.nodes[k] for k in inner]]
        stacked = [*range(spec.carries, spec.trips), *[spec.inner + k for k in inner]]
        self.places = [*[spec.history + j for j in saved], *stacked]
        self.kept = len(saved)
        self.symbols = symbols
        self.length = bound_length(spec, symbols)
        self.types: Sequence[Tensor] = node.type.fields  # type: ignore[attr-defined]
        self.lists: tuple[int, list[Any]] | None = None
        test = spec.test
        self.parts: Any = "it is interpreted, watched, on a device, or in the body of another"
        self.tables: tuple[bool, bool] | None = None
        self.heavy_us = 0.0 if spec.carries or test is not None else body.heavy_us(symbols)
        sized = [UNKNOWN not in self.types[place].shape[1:] for place in self.places]
        self.stored = test is None and all(sized)
        self.call = InnerLoop(
            spec.split_inputs(),
            results,
            saved,
            None if test is None else Inner(test.inputs, test.results, symbols, watch),
            symbols,
            watch,
            self.stored,
        )

    def __call__(self, run: Any, *operands: Any) -> tuple[Any, ...]:
        """Return the record of the loop in a run."""
        run = structs.IDLE if run is None else run
        if not isinstance(self.parts, str) and self.spec.carries and workers_here() > 1:
            record = self._beside(run, operands)
            if record is not None:
                return record
        course = Course(self, run, operands)
        count = min(course.length, int(course.length * self.heavy_us / parallel_us()))
        if count > 1:
            course.split(count)
        else:
            course.advance(course.positions)
        return course.fields()

    def _beside(self, run: Any, operands: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the record as computed by concurrent parts, None if the loop is not run so."""
        from actorgraph.control.layers import is_long, made_beside

        begun: list[Any] = []

        def begin() -> Any:
            begun[:] = [self.begun(run, operands, 1.0 / workers_here())]
            way = -1 if self.spec.reverse else 1
            return [[stage] for stage in begun[0].stages], 1, begun[0].longest_us, way

        us, layers = self.body_us, 2
        if self.parts is not None:
            each = [part.us for part in self.parts.parts]
            us, layers = max(each), len(each)
        long = is_long(self._length(operands) * us, layers)
        return begun[0].fields() if long and made_beside(run, begin) else None

    @cached_property
    def body_us(self) -> float:
        """Predicted microseconds of an iteration."""
        return self.spec.body.predicted_us(self.symbols, self.walked)

    def _length(self, operands: Sequence[Any]) -> int:
        number, *_, xs = self.spec.split(operands)
        return length_of(self.spec, self.length, number, xs)

    def begun(self, run: Any, operands: Sequence[Any], share: float) -> Any:
        """Return a call of the loop, or of parts of which each takes at most a `share` of it."""
        from actorgraph.control.split import Split, parted

        length = self._length(operands)
        if self.parts is None:
            self.parts = parted(self, length, share)
        if not isinstance(self.parts, str) and self.parts.fit(self.spec, operands, length):
            return Split(self, self.parts, run, operands, length)
        return Course(self, run, operands)

    def allow_tables(self, wait: bool, quick: bool, threads: int = 1) -> None:
        """Allow machine code to walk the iterations; see `InnerLoop.allow_tables`."""
        self.tables = wait, quick
        self.call.allow_tables(wait, quick, threads)

    @property
    def notes(self) -> list[tuple[Node, str]]:
        """How the loop runs where several workers could share it, for users."""
        if isinstance(self.parts, str):
            return [(self.node, f"in turn, since {self.parts}")]
        return [] if self.parts is None else [(self.node, str(self.parts))]

    @property
    def story(self) -> str:
        """Who computes the iterations: a table, and how many threads walk it, or Python."""
        return self.call.story

    @property
    def walked(self) -> bool:
        """Whether machine code can walk the iterations."""
        from actorgraph.lower.walkable import kinds

        steps = [node for node in self.spec.body.nodes if node.op is not CONSTANT]
        return self.tables is not None and all(kinds(steps, self.symbols))

    @property
    def kept_bytes(self) -> int:
        """The bytes that the loop keeps between calls and nobody else holds."""
        stacks = () if self.lists is None else {free for *_, free in self.lists[1] if free}
        idle: int = sum([array.nbytes for free in stacks for array in free.kept()[0]])
        return self.call.kept_bytes + idle + getattr(self.parts, "kept_bytes", 0)

    def room(self, length: int) -> list[Any]:
        """Return an array for each stacked field, or lists where not all sizes are known."""
        if not self.stored:
            return [[] for _ in self.places]
        if self.lists is None or self.lists[0] != length:
            lists = FreeLists()
            types = [self.types[place] for place in self.places]
            sizes = [
                ((length, *bind_shape(one.shape[1:], self.symbols, 0)), dtype_of(str(one.dtype)))
                for one in types
            ]
            kept = sum([prod(shape) * dtype.itemsize for shape, dtype in sizes]) <= KEPT_BYTES
            stacks = [(*size, lists.of(*size, True, 2) if kept else None) for size in sizes]
            self.lists = length, stacks
        return [
            fresh(shape, dtype) if free is None else free.take()
            for shape, dtype, free in self.lists[1]
        ]


class Course:
    """One call of a loop, which may advance by blocks of iterations.

    `made` has the stacked arrays or lists by field.  `longest_us` is what an iteration of its
    longest loop is predicted to take.
    """

    def __init__(self, kernel: LoopKernel, run: Any, operands: Sequence[Any]) -> None:
        self._kernel, spec = kernel, kernel.spec
        self._run, self.longest_us = run, kernel.body_us
        number, self._consts, self._tested, carries, xs = spec.split(operands)
        self.carries, self._xs = in_order(carries), in_order(xs, MOST_COPIED_BYTES)
        self.length = length_of(spec, kernel.length, number, self._xs)
        self.positions: Any = range(self.length) if spec.test is None else itertools.count()
        if spec.reverse and spec.test is None:
            self.positions = range(self.length)[::-1]
        room = kernel.room(self.length)
        self.made = dict(zip(kernel.places, room, strict=True))
        noted = room if kernel.stored else [one.append for one in room]
        self._noted = noted[: kernel.kept], noted[kernel.kept :]
        self._trips = 0

    @property
    def stages(self) -> Sequence[Course]:
        """The loops that the call consists of: itself."""
        return (self,)

    def advance(self, positions: Any) -> None:
        """Run the next iterations."""
        limit = self._kernel.spec.limit
        self.carries, trips = self._kernel.call(
            self._run, positions, limit, self._tested, self._consts, self.carries, self._xs,
            *self._noted,
        )  # fmt: skip
        self._trips += trips

    def split(self, count: int) -> None:
        """Run all iterations, none of which depends on another, in `count` parts.

        Idle workers take parts in order, one at a time.
        """
        cuts = evenly(self.length, count)

        def compute(part: int) -> None:
            self._kernel.call(
                self._run, self.positions[cuts[part]], None, (), self._consts, (), self._xs,
                *self._noted,
            )  # fmt: skip

        compute_parts(compute, count)
        self._trips = self.length

    def fields(self) -> tuple[Any, ...]:
        """Return the record."""
        kernel, spec = self._kernel, self._kernel.spec
        if spec.limit is not None and self._trips > spec.limit:
            raise GraphError(
                f"{spec.what} {kernel.node.name!r} has made max_trips={spec.limit} iterations and "
                "its test asks for more; raise max_trips, or mend the test"
            )
        fields: list[Any] = [None] * len(kernel.types)
        fields[: spec.carries] = self.carries
        fields[spec.trips] = np.int64(self._trips)
        for field, values in self.made.items():
            fields[field] = values
            if not kernel.stored:
                fields[field] = joined(kernel.types[field], values, kernel.symbols, spec.reverse)
        return tuple(fields)


def in_order(operands: Sequence[Any], most_bytes: float = inf) -> list[Any]:
    """Return operands in C order, which broadcast cotangents and swapped axes are not.

    Only then has a loop buffers and a table; and its bits are those from a saved carry.
    """
    return [
        np.ascontiguousarray(x)
        if type(x) is np.ndarray and not x.flags.c_contiguous and x.nbytes <= most_bytes
        else x
        for x in operands
    ]


def bound_length(spec: Spec, symbols: Mapping[str, int]) -> int | None:
    """Return the length of a loop for a binding, None if only operands tell it."""
    length = spec.length
    return bind_dims(length, symbols) if isinstance(length, Dim) else length


def length_of(spec: Spec, known: int | None, number: Any, xs: Sequence[Any]) -> int:
    """Return the number of iterations, on which the length, the count and all arrays must agree."""
    lengths = {len(x) for x in xs}
    if known is not None:
        lengths.add(known)
    if number is not None:
        lengths.add(max(0, int(number)))
    if len(lengths) > 1:
        raise ShapeError(f"the arrays of {spec} have the lengths {sorted(lengths)}")
    return lengths.pop() if lengths else 0


def joined(type_: Tensor, values: list[Any], symbols: Mapping[str, int], reverse: bool) -> Any:
    """Stack the outputs of the iterations in one array by position."""
    if not values:
        return np.empty((0, *bind_shape(type_.shape[1:], symbols, 0)), str(type_.dtype))
    return np.array(values[::-1] if reverse else values)


def guessed_trips(spec: Spec, operands: Sequence[Node], symbols: Mapping[str, int]) -> int:
    """Return the number of iterations for predictions."""
    *_, xs = spec.split(operands)
    known = spec.length if not xs else xs[0].dims[0]
    if known is None or spec.test is not None:
        return _GUESSED_TRIPS
    return bind_shape((known,), symbols, 1)[0]


def _predicted(node: Node, symbols: Mapping[str, int]) -> float:
    spec: Spec = node.attrs["loop"]
    return _TURN_US + guessed_trips(spec, node.inputs, symbols) * spec.body.predicted_us(symbols)


def _pull(*args: Any, **attrs: Any) -> Any:
    from actorgraph.control.derivatives import pull_loop  # which builds loops

    return pull_loop(*args, **attrs)


def _push(*args: Any, **attrs: Any) -> Any:
    from actorgraph.control.derivatives import push_loop  # which builds loops

    return push_loop(*args, **attrs)


LOOP = Op(
    "loop", any_types, lambda xp, *arrays, **attrs: None, typing=_typing, vjp=Together(_pull),
    jvp=_push, predicted=_predicted, kernel=LoopKernel, doc="A body, applied again and again.",
)  # fmt: skip
"""The op of all loops."""
