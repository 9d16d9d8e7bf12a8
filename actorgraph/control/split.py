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


class _LoopPart(NamedTuple):
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

    parts: list[_LoopPart]
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
        times = ", ".join([f"{part.us:.0f}" for part in self.parts])
        return (
            f"as {len(self.parts)} concurrent loops, whose iterations take {times} us and "
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
        stacked: dict[int, Any] = {}
        for part in parts.parts:
            elements = [stacked[one] if made else values[one] for one, made in part.taken]
            fixed = [values[one] for one in part.given]
            course = Course(part.kernel, run, [self.length, *fixed, *elements])
            self.stages.append(course)
            for (one, field), array in zip(part.stacked, course.made.values(), strict=True):
                stacked[one] = array
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
        return "it is short compared with the loops that it runs with"
    if spec.test is not None:
        return "its test decides whether there is another iteration"
    if len(nodes) > _MOST_NODES:
        return f"its body has more than {_MOST_NODES} nodes"
    if not kernel.stored or not all(is_pure(node.op) and node.op.kernel is None for node in nodes):
        return "its body has an op of yours, another loop, or sizes that are unknown before a run"
    if kernel.tables is not None and kernel.tables[1]:
        return "`jit` may give its parts other last bits"
    needs = _Dependences(spec, kernel.symbols, kernel.walked)
    if not needs.keeps_order:
        return "a carry may come back in another memory layout"
    most_bytes = _MOST_BYTES // max(length, 1)
    limit, whole_us = most_bytes, sum(needs.costs_us)
    light_us = 0.0 if kernel.walked else sum([us for us in needs.costs_us if not is_heavy(us)])
    while True:
        groups = needs.groups(limit, share * whole_us)
        longest_us = max([needs.us(group) for group in groups])
        if len(groups) < 2 or max(longest_us, light_us) > _WORTH * whole_us:
            part = 100 * longest_us / whole_us
            return f"what depends on the iteration before takes {part:.0f} % of each"
        parts = _written(kernel, needs, groups)
        if parts.bytes <= most_bytes:
            return parts
        limit //= 2


class _Dependences:
    """The dependence graph of a body as bit sets; vertices are carries, and nodes but views."""

    def __init__(self, spec: Spec, symbols: Mapping[str, int], walked: bool) -> None:
        self.spec = spec
        _, consts, self.carries, xs = spec.split_inputs()
        nexts = spec.body.results[: spec.carries]
        steps = [node for node in spec.body.nodes if node.op is not CONSTANT]
        computed = [node for node in steps if node.op.memory.layout not in VIEWS]
        self.vertices = [*self.carries, *computed]
        self._sources = {node.id: 1 << place for place, node in enumerate(self.vertices)}
        for node in steps:
            if node.id not in self._sources:
                self._sources[node.id] = self.sources(node.inputs)
        self.needs = [self.sources([node]) for node in nexts]
        self.needs += [self.sources(node.inputs) for node in computed]
        self.costs_us = [0.0] * spec.carries + [
            predicted_us(node, symbols, walked) for node in computed
        ]
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
        return sum([self.costs_us[place] for place in self.of(group)])

    def groups(self, limit: int, most_us: float) -> list[int]:
        """Return groups in topological order; a value of more than `limit` bytes crosses none.

        Vertices that reach the same set are one strongly connected component.
        """
        needs = list(self.needs)
        for place, (stays, size) in enumerate(zip(self._stays, self.bytes, strict=True)):
            if stays or size > limit:
                for other, needed in enumerate(self.needs):
                    needs[place] |= (needed >> place & 1) << other
        reachable = [one | 1 << place for place, one in enumerate(needs)]
        for place in range(len(reachable)):
            reached = reachable[place]
            reachable = [one | reached if one >> place & 1 else one for one in reachable]
        components: dict[int, int] = {}
        counts = [one.bit_count() for one in reachable]
        for place in sorted(range(len(reachable)), key=counts.__getitem__):
            components[reachable[place]] = components.get(reachable[place], 0) | 1 << place
        groups: list[int] = []
        done, group_us = 0, most_us
        while components:
            ready = [one for one, members in components.items() if not one & ~(done | members)]
            costs = {one: self.us(components[one]) for one in ready}
            ready = [one for one in ready if group_us + costs[one] <= most_us] or ready
            last, shared_bytes = groups[-1] if groups else 0, {}
            for one in ready:  # the bytes that the last group would hand to it
                needed = reduce(or_, [self.needs[place] for place in self.of(components[one])], 0)
                shared_bytes[one] = sum([self.bytes[place] for place in self.of(needed & last)])
            chosen = max(ready, key=shared_bytes.__getitem__)
            if group_us + costs[chosen] > most_us or not groups:
                groups.append(0)
                group_us = 0.0
            group_us += costs[chosen]
            done |= components[chosen]
            groups[-1] |= components.pop(chosen)
        return groups


def _written(kernel: LoopKernel, needs: _Dependences, groups: Sequence[int]) -> Parts:
    """Return groups as loops."""
    spec, body = needs.spec, needs.spec.body
    fields: list[list[tuple[Node, int]]] = [[] for _ in groups]
    for field in kernel.places:
        node = spec.stacked(field)
        needed = needs.sources([node])
        fields[max([i for i, group in enumerate(groups) if group & needed], default=0)].append(
            (node, field)
        )
    inputs: list[int] = []
    for group, outputs in zip(groups, fields, strict=True):
        needed = reduce(or_, [needs.needs[place] for place in needs.of(group)], 0)
        inputs.append((needed | needs.sources([node for node, _ in outputs])) & ~group)
    parts, size = [], 0
    for number, group in enumerate(groups):
        stacked: list[tuple[Node, int | None]] = [*fields[number]]
        handed = reduce(or_, inputs, 0) & group
        stacked_ids = {node.id for node, _ in stacked}
        handed_nodes = [needs.vertices[place] for place in needs.of(handed)]
        stacked += [(node, None) for node in handed_nodes if node.id not in stacked_ids]
        size += sum([needs.bytes[place] for place in needs.of(handed)])
        carries = [place for place in needs.of(group) if place < spec.carries]
        received = [needs.vertices[place] for place in needs.of(inputs[number])]
        results = [*[body.results[j] for j in carries], *[node for node, _ in stacked]]
        parts.append(_part(kernel, needs.us(group), carries, received, results, stacked))
    return Parts(parts, size, needs.ordered)


def _part(
    kernel: LoopKernel, us: float, carries: list[int], handed: Sequence[Node],
    results: Sequence[Node], stacked: Sequence[tuple[Node, int | None]],
) -> _LoopPart:  # fmt: skip
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
    part_spec = Spec(
        body, len(own), len(xs) + len(handed), counted=True, reverse=spec.reverse, what=spec.what
    )
    made = LoopKernel(loop(graph, part_spec, leaves), kernel.symbols, ())
    if kernel.tables is not None:
        made.allow_tables(*kernel.tables)
    return _LoopPart(
        made,
        us,
        [node.id for node in (*consts, *own)],
        [*[(node.id, False) for node in xs], *[(node.id, True) for node in handed]],
        carries,
        [(node.id, field) for node, field in stacked],
    )
