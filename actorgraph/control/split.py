"""Loop distribution: one loop becomes several that feed one another and run concurrently.

Carries and nodes of a body that depend on one another across iterations (strongly connected
components) stay together; others only need their values.  So the components are packed into groups
of even cost, each a loop over the values that earlier groups have stacked: a net of three layers
written as one body becomes three loops.

Invariant: no bit changes.  A value that is handed over is C-contiguous in the whole loop as well,
else its groups stay one; views are made again where they are read.  If anything goes wrong, the
whole loop computes everything in sequence.  `LoopKernel` and `waves` call `parted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from actorgraph.control.bodies import Body, leaf_of
from actorgraph.control.loop import KEPT_BYTES, Course, LoopKernel, Spec, loop
from actorgraph.graph import Graph, Node
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.fusion import is_heavy
from actorgraph.lower.inner import between
from actorgraph.memory.buffers import VIEWS, is_fresh, regular, size_in_bytes
from actorgraph.op import CONSTANT
from actorgraph.rewrite.exact import is_pure
from actorgraph.types import UNKNOWN, Tensor

_MOST_BYTES = 4 * KEPT_BYTES
"""Most bytes that the parts of a loop hand over in all iterations."""

_MOST_NODES = 1000
"""Most nodes of a body that is split, which takes quadratic time."""

_WORTH = 0.8
"""Largest share of an iteration's time that the longest group may take."""

_SLACK = 1.1
"""Factor by which a group may exceed its share: few even groups are better than one more."""


class _Piece(NamedTuple):
    """A group as a loop, with the predicted time `us` of an iteration.

    - `given`: ids of the body's inputs that it captures, and of its carries
    - `taken`: ids of the values whose elements it takes, and whether another part has stacked them
    - `carries`: numbers of its carries in the whole loop
    - `stacked`: ids of stacked values, and their fields of the whole loop, None if there is none
    """

    kernel: LoopKernel
    us: float
    given: list[int]
    taken: list[tuple[int, bool]]
    carries: list[int]
    stacked: list[tuple[int, int | None]]


class Parts(NamedTuple):
    """The parts of a loop, which hand over `bytes` in an iteration.

    `ordered` are the operands that must be C-contiguous, as `Spec.of_body` numbers them.
    """

    parts: list[_Piece]
    bytes: int
    ordered: list[int]

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept between calls."""
        return sum([part.kernel.kept_bytes for part in self.parts])

    def fit(self, spec: Spec, operands: Sequence[Any], length: int) -> bool:
        """Return whether a call with these operands may be split."""
        given = spec.of_body(operands)
        values = [given[place] for place in self.ordered]
        in_order = all(type(x) is not np.ndarray or x.flags.c_contiguous for x in values)
        return in_order and self.bytes * length <= _MOST_BYTES

    def __str__(self) -> str:
        spent = ", ".join([f"{part.us:.0f}" for part in self.parts])
        return (
            f"as {len(self.parts)} loops beside each other, whose iterations take {spent} us and "
            f"hand over {self.bytes} bytes"
        )


class Split:
    """One call of a loop in parts, with the interface of `Course`."""

    def __init__(
        self, kernel: LoopKernel, parts: Parts, run: Any, operands: Sequence[Any], length: int
    ) -> None:
        self._kernel, self._parts, spec = kernel, parts, kernel.spec
        self.length = length
        numbers = [node.id for node in spec.body.inputs[1:]]
        values = dict(zip(numbers, spec.of_body(operands), strict=True))
        self.made: dict[int, Any] = {}
        self.stages: list[Course] = []
        handed: dict[int, Any] = {}
        for part in parts.parts:
            taken = [handed[one] if made else values[one] for one, made in part.taken]
            given = [values[one] for one in part.given]
            course = Course(part.kernel, run, [self.length, *given, *taken])
            self.stages.append(course)
            for (one, field), array in zip(part.stacked, course.made.values(), strict=True):
                handed[one] = array
                if field is not None:
                    self.made[field] = array
        self.longest_us = max([part.us for part in parts.parts])

    def fields(self) -> tuple[Any, ...]:
        """Return the record of the whole loop."""
        fields: list[Any] = [None] * len(self._kernel.types)
        for part, course in zip(self._parts.parts, self.stages, strict=True):
            for place, value in zip(part.carries, course.carries, strict=True):
                fields[place] = value
        fields[self._kernel.spec.trips] = np.int64(self.length)
        for field, array in self.made.items():
            fields[field] = array
        return tuple(fields)


def parted(kernel: LoopKernel, length: int, share: float) -> Parts | str:
    """Split a loop into parts of about that `share` of an iteration; else return why it is not."""
    spec, nodes, share = kernel.spec, kernel.spec.body.nodes, _SLACK * share
    if share >= 1.0:
        return "it is short beside those that it runs with"
    if spec.test is not None:
        return "its test decides whether there is another iteration"
    if len(nodes) > _MOST_NODES:
        return f"its body has more than {_MOST_NODES} nodes"
    if not kernel.stored or not all(is_pure(one.op) and one.op.kernel is None for one in nodes):
        return "its body has an op of yours, another loop, or sizes that only a run knows"
    if kernel.tables is not None and kernel.tables[1]:
        return "`jit` may give its parts other last bits"
    net = _Needs(spec, kernel.symbols, kernel.walked)
    if not net.keeps_order:
        return "a carry may come back in another memory layout"
    most = _MOST_BYTES // max(length, 1)
    limit, whole = most, sum(net.spent)
    light = 0.0 if kernel.walked else sum([us for us in net.spent if not is_heavy(us)])
    while True:
        groups = net.groups(limit, share * whole)
        longest = max([net.us(group) for group in groups])
        if len(groups) < 2 or max(longest, light) > _WORTH * whole:
            part = 100 * longest / whole
            return f"what waits for the iteration before makes up {part:.0f} % of each"
        found = _written(kernel, net, groups)
        if found.bytes <= most:
            return found
        limit //= 2


class _Needs:
    """The dependence graph of a body as bit sets; vertices are carries, and nodes but views."""

    def __init__(self, spec: Spec, symbols: Mapping[str, int], walked: bool) -> None:
        self.spec = spec
        _, consts, self.carries, xs = spec.split_inputs()
        nexts = spec.body.results[: spec.carries]
        steps = [node for node in spec.body.nodes if node.op is not CONSTANT]
        own = [node for node in steps if node.op.memory.layout not in VIEWS]
        self.vertices = [*self.carries, *own]
        self._sources = {node.id: 1 << place for place, node in enumerate(self.vertices)}
        for node in steps:
            if node.id not in self._sources:
                self._sources[node.id] = self.sources(node.inputs)
        self.needs = [self.sources([node]) for node in nexts]
        self.needs += [self.sources(node.inputs) for node in own]
        self.spent = [0.0] * spec.carries + [predicted_us(node, symbols, walked) for node in own]
        self.bytes = [size_in_bytes(node, symbols) for node in self.vertices]
        ordered = regular(steps)
        inputs = {node.id for node in spec.body.inputs}
        self.keeps_order = all(
            not node.dims or node.id in inputs or (node.id in ordered and is_fresh(node))
            for node in nexts
        )
        self._stays = [
            UNKNOWN in node.dims
            or bool(node.dims and node.id not in inputs and node.id not in ordered)
            for node in self.vertices
        ]
        read = {part.id for n in steps if n.op.memory.layout != "c" for part in n.inputs}
        needed = [node.id in read for node in consts] + [True] * (len(self.carries) + len(xs))
        self.ordered = [place for place, one in enumerate(needed) if one]

    def sources(self, nodes: Sequence[Node]) -> int:
        """Return the vertices that make some nodes, views resolved."""
        return reduce(or_, [self._sources.get(node.id, 0) for node in nodes], 0)

    def of(self, bits: int) -> list[int]:
        """Return the members of a bit set."""
        return [place for place in range(len(self.vertices)) if bits >> place & 1]

    def us(self, group: int) -> float:
        """Return the predicted time of a group."""
        return sum([self.spent[place] for place in self.of(group)])

    def groups(self, limit: int, most_us: float) -> list[int]:
        """Return groups in topological order; a value of more than `limit` bytes crosses none.

        Vertices that reach the same set are one strongly connected component.
        """
        needs = list(self.needs)
        for place, (stays, size) in enumerate(zip(self._stays, self.bytes, strict=True)):
            if stays or size > limit:
                for other, needed in enumerate(self.needs):
                    needs[place] |= (needed >> place & 1) << other
        reach = [one | 1 << place for place, one in enumerate(needs)]
        for place in range(len(reach)):
            row = reach[place]
            reach = [one | row if one >> place & 1 else one for one in reach]
        left: dict[int, int] = {}
        counts = [one.bit_count() for one in reach]
        for place in sorted(range(len(reach)), key=counts.__getitem__):
            left[reach[place]] = left.get(reach[place], 0) | 1 << place
        groups: list[int] = []
        done, spent = 0, most_us
        while left:
            ready = [one for one, own in left.items() if not one & ~(done | own)]
            costs = {one: self.us(left[one]) for one in ready}
            ready = [one for one in ready if spent + costs[one] <= most_us] or ready
            last = groups[-1] if groups else 0
            handed = {one: self._handed(last, left[one]) for one in ready}
            chosen = max(ready, key=handed.__getitem__)
            if spent + costs[chosen] > most_us or not groups:
                groups.append(0)
                spent = 0.0
            spent += costs[chosen]
            done |= left[chosen]
            groups[-1] |= left.pop(chosen)
        return groups

    def _handed(self, group: int, other: int) -> int:
        """Return the bytes that one group would hand to another."""
        needed = reduce(or_, [self.needs[place] for place in self.of(other)], 0)
        return sum([self.bytes[place] for place in self.of(needed & group)])


def _written(kernel: LoopKernel, net: _Needs, groups: Sequence[int]) -> Parts:
    """Return groups as loops."""
    spec, body = net.spec, net.spec.body
    fields: list[list[tuple[Node, int]]] = [[] for _ in groups]
    for field in kernel.places:
        node = spec.stacked(field)
        needed = net.sources([node])
        fields[max([i for i, own in enumerate(groups) if own & needed], default=0)].append(
            (node, field)
        )
    given: list[int] = []
    for own, made in zip(groups, fields, strict=True):
        needed = reduce(or_, [net.needs[place] for place in net.of(own)], 0)
        given.append((needed | net.sources([node for node, _ in made])) & ~own)
    parts, size = [], 0
    for number, own in enumerate(groups):
        stacked: list[tuple[Node, int | None]] = [*fields[number]]
        asked = reduce(or_, given, 0) & own
        known = {node.id for node, _ in stacked}
        over = [net.vertices[place] for place in net.of(asked)]
        stacked += [(node, None) for node in over if node.id not in known]
        size += sum([net.bytes[place] for place in net.of(asked)])
        carries = [place for place in net.of(own) if place < spec.carries]
        taken = [net.vertices[place] for place in net.of(given[number])]
        results = [*[body.results[j] for j in carries], *[node for node, _ in stacked]]
        parts.append(_part(kernel, net.us(own), carries, taken, results, stacked))
    return Parts(parts, size, net.ordered)


def _part(
    kernel: LoopKernel,
    us: float,
    carries: list[int],
    handed: Sequence[Node],
    results: Sequence[Node],
    stacked: Sequence[tuple[Node, int | None]],
) -> _Piece:
    """Return the part with some carries, which takes elements of the `handed` values."""
    spec = kernel.spec
    index, consts, every, xs = spec.split_inputs()
    used = {node.id for node in between([*spec.body.inputs, *handed], results)}
    consts = [node for node in consts if node.id in used]
    own = [every[j] for j in carries]
    xs = [node for node in xs if node.id in used]
    body = Body([*index, *consts, *own, *xs, *handed], results)
    length = UNKNOWN if spec.length is None else spec.length
    graph = Graph(f"a part of {spec}")
    leaves = [leaf_of(graph, "length", index[0].type)]
    leaves += [leaf_of(graph, node.name, node.type) for node in (*consts, *own)]
    leaves += [
        leaf_of(graph, node.name, Tensor.of(str(node.dtype), (length, *node.dims)))
        for node in (*xs, *handed)
    ]
    one = Spec(
        body, len(own), len(xs) + len(handed), counted=True, reverse=spec.reverse, what=spec.what
    )
    made = LoopKernel(loop(graph, one, leaves), kernel.symbols, ())
    if kernel.tables is not None:
        made.allow_tables(*kernel.tables)
    return _Piece(
        made,
        us,
        [node.id for node in (*consts, *own)],
        [*[(node.id, False) for node in xs], *[(node.id, True) for node in handed]],
        carries,
        [(node.id, field) for node, field in stacked],
    )
