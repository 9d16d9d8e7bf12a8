"""Derivatives of loops, which are loops again.

Forward mode doubles the carries.  Reverse mode runs the iterations from the last to the first, with
the carries as they entered each; its own carries are the cotangents of the carries, and the sums of
the cotangents of captures.

Invariant: gradients have the bits of the unrolled graph.  Sums begin at -0.0, which changes no
term, and an arriving cotangent is the first term of its placeholder, so sums associate alike.  The
forward values that the reverse body reads are elements of saved arrays (``save="all"``), or are
recomputed; that changes no bit either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import isqrt

from actorgraph.autodiff.forward import push_forward
from actorgraph.autodiff.reverse import active_nodes, or_zeros, pull_back, seeded
from actorgraph.control.bodies import Body, copied, is_float, leaf_of
from actorgraph.control.loop import Spec, loop
from actorgraph.control.revolve import REVOLVE, Chain
from actorgraph.graph import Graph, Node
from actorgraph.lower.inner import between
from actorgraph.memory.buffers import size_in_bytes
from actorgraph.ops._records import cotangents, fields_read, item, tangent_of
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.broadcasting import zeros_like
from actorgraph.types import UNKNOWN, Dim, Record, UnboundDim

MOST_BYTES = 256 * 1024 * 1024
"""Most bytes that ``save="auto"`` saves between the passes."""


def _varied(spec: Spec, given: Sequence[Node]) -> list[Node]:
    """Return the inputs of the body that depend on the `given` ones, in any iteration."""
    carries = spec.split_inputs()[2]
    nexts = spec.body.results[: spec.carries]
    seen = (*spec.body.inputs, *spec.body.nodes)
    varied = dict.fromkeys(given)
    while True:
        active = active_nodes(seen, varied)
        more = [
            carry
            for carry, after in zip(carries, nexts, strict=True)
            if carry not in varied and after in active and is_float(carry.type)
        ]
        if not more:
            return [node for node in spec.body.inputs if node in varied]
        varied.update(dict.fromkeys(more))


def _moved(spec: Spec, argnums: Sequence[int], operands: Sequence[Node]) -> list[Node]:
    """Return the inputs of the body for those operands, without captures of the test."""
    places = spec.of_body(range(len(operands)))
    return [
        node for node, place in zip(spec.body.inputs[1:], places, strict=True) if place in argnums
    ]


# -- forward mode ---------------------------------------------------------------------------------


def push_loop(tans: Sequence[Node | None], y: Node, *operands: Node, **attrs: Spec) -> Node | None:
    """Return the tangent of a loop's record: fields of the loop with doubled carries."""
    spec = attrs["loop"]
    seeds = _moved(spec, [i for i, tan in enumerate(tans) if tan is not None], operands)
    if not seeds:
        return None
    position, captured, entering, elements = spec.split_inputs()
    graph = Graph(f"tangents of {spec}")
    copies = copied(spec.body, graph)
    tan_leaves = {
        node: leaf_of(graph, f"tangent of {node.name}", node.type) for node in _varied(spec, seeds)
    }
    order = between([copies[node] for node in spec.body.inputs], [*copies.values()])
    tangents = push_forward(graph, order, {copies[n]: t for n, t in tan_leaves.items()}, owned=True)

    results = [copies[node] for node in spec.body.results]
    nexts, ys = results[: spec.carries], results[spec.carries :]
    moving = [j for j, carry in enumerate(entering) if carry in tan_leaves]
    stacked = {spec.carries + j: node for j, node in enumerate(spec.body.results[spec.carries :])}
    inner = {spec.inner + k: node for k, node in enumerate(spec.body.nodes)}
    stacked |= {field: inner[field] for field in fields_read(y) if field in inner}
    stacked = {field: node for field, node in stacked.items() if copies[node] in tangents}

    def group(nodes: Sequence[Node]) -> list[Node]:
        return [*[copies[n] for n in nodes], *[tan_leaves[n] for n in nodes if n in tan_leaves]]

    inputs = [*group(position), *group(captured), *group(entering), *group(elements)]
    after = or_zeros(tangents, [nexts[j] for j in moving])
    body = Body(inputs, [*nexts, *after, *ys, *[tangents[copies[n]] for n in stacked.values()]])
    double = replace(
        spec, body=body, carries=spec.carries + len(moving), test=_wider(spec, moving),
        xs=spec.xs + len([x for x in elements if x in tan_leaves]),
    )  # fmt: skip
    parts, moves = spec.split(operands), spec.split(tans)
    number, consts, tested, carries, xs = parts
    filled = [zeros_like(carries[j]) if moves[3][j] is None else moves[3][j] for j in moving]
    given = [
        *([number] if spec.counted else []),
        *consts, *[tan for tan, n in zip(moves[1], captured, strict=True) if n in tan_leaves],
        *tested,
        *carries, *filled,
        *xs, *[tan for tan, n in zip(moves[4], elements, strict=True) if n in tan_leaves],
    ]  # fmt: skip
    record = loop(y.graph, double, given)
    places = {j: spec.carries + k for k, j in enumerate(moving)}
    first = double.carries + spec.ys
    places |= {field: first + k for k, field in enumerate(stacked)}
    places |= {spec.history + j: double.history + spec.carries + k for k, j in enumerate(moving)}
    return tangent_of(y, record, places)


def _wider(spec: Spec, moving: Sequence[int]) -> Body | None:
    """Return the test of a loop with tangents of some carries behind the carries."""
    if spec.test is None:
        return None
    graph = Graph(f"test of {spec}")
    copies = copied(spec.test, graph)
    leaves = [copies[node] for node in spec.test.inputs]
    carries = leaves[spec.tested :]
    unread = [leaf_of(graph, "tangent", carries[j].type) for j in moving]
    return Body([*leaves, *unread], [copies[node] for node in spec.test.results])


# -- reverse mode ---------------------------------------------------------------------------------


def pull_loop(
    argnums: Sequence[int], ct: Node, y: Node, *operands: Node, **attrs: Spec
) -> list[Node | None]:
    """Return the cotangents of operands: results of the reverse loop."""
    spec, arrived = attrs["loop"], cotangents(ct)
    moved = _moved(spec, argnums, operands)
    if not moved:
        return [None] * len(argnums)
    slots = _slots(spec, operands)
    back = Reverse(spec, moved, arrived, keeps=slots is None and spec.save in ("all", "auto"))
    if not any([isinstance(source, int) for source in back.forward]):  # noqa: C419
        slots = None  # it reads no carry
    value_of = dict(zip(spec.body.inputs[1:], spec.of_body(operands), strict=True))
    begin = [
        arrived[j] if j in arrived else neg(zeros_like(value_of[carry]))
        for j, carry in back.moving.items()
    ]
    begin += [neg(zeros_like(value_of[node])) for node in back.summing]
    fields_given = [
        item(y, field) if isinstance(field, int) else value_of[field]
        for field in back.forward
        if slots is None or not isinstance(field, int)
    ]
    back_operands = [
        *([item(y, spec.trips)] if back.spec.counted else []),
        *[value_of[node] for node in back.consts],
        *begin,
        *fields_given,
        *[arrived[field] for field in back.arriving],
    ]
    if slots is None:
        record = loop(y.graph, back.spec, back_operands)
    else:
        step = replace(spec, test=None, limit=None, counted=spec.length is None, save="carry")
        entered = tuple(
            [one - spec.history if isinstance(one, int) else None for one in back.forward]
        )
        first = [item(y, spec.trips)] if step.counted else []
        chain = Chain(step, back.spec, entered, slots)
        every = *first, *spec.of_body(operands), *back_operands
        record = y.graph.apply(REVOLVE, every, {"chain": chain})
    ends = [*back.moving.values(), *back.summing, *back.elements]
    field_of = {node: field for field, node in enumerate(ends)}
    numbers = dict(zip(spec.of_body(range(len(operands))), spec.body.inputs[1:], strict=True))
    return [
        item(record, field_of[numbers[argnum]]) if numbers.get(argnum) in field_of else None
        for argnum in argnums
    ]


def _slots(spec: Spec, operands: Sequence[Node]) -> int | None:
    """Return the number of carries to keep at once, None for all."""
    *_, carries, _ = spec.split(operands)
    if isinstance(spec.save, int):
        return spec.save
    if spec.save != "auto" or _fits(carries, spec.length) or not isinstance(spec.length, int):
        return None
    return isqrt(spec.length) + 1


class Reverse:
    """The reverse loop of a loop.

    `moved` are the inputs of the forward body whose cotangents are wanted, `arrived` the fields
    with cotangents.  With `keeps` values of nodes are saved if they fit, and not only carries.

    - `spec`: its carries are the cotangents of the carries `moving` and of the captures `summing`;
      its stacked outputs are the cotangents of `elements`
    - `consts`: inputs of the forward body that it captures
    - `forward`: its first elements: inputs of the forward body, or fields of its record
    - `arriving`: fields whose cotangents are its last elements
    """

    def __init__(
        self, spec: Spec, moved: Sequence[Node], arrived: Collection[int], keeps: bool
    ) -> None:
        self._forward = spec
        _, captured, carries, xs = spec.split_inputs()
        varied = set(_varied(spec, moved))
        self.moving = {j: carry for j, carry in enumerate(carries) if carry in varied}
        self.summing = [node for node in captured if node in varied]
        graph = Graph(f"reverse of {spec}")
        self._stands = copies = copied(spec.body, graph)
        inputs = [copies[node] for node in spec.body.inputs]
        cts = {n: _ct(graph, n) for n in (*self.moving.values(), *self.summing)}
        stacked = {field: spec.stacked(field) for field in arrived if field >= spec.carries}
        ends = {field: _ct(graph, node) for field, node in stacked.items()}
        pairs = [(copies[node], ends[field]) for field, node in stacked.items()]
        pairs += [(copies[spec.body.results[j]], cts[node]) for j, node in self.moving.items()]
        pairs += [(copies[node], cts[node]) for node in self.summing]
        seeds = seeded(pairs)
        wrt = {node: copies[node] for node in spec.body.inputs if node in varied}
        order = between(inputs, [*seeds, *wrt.values()])
        pulled = pull_back(graph, order, seeds, [*wrt.values()], owned=True)
        self.elements = [x for x in xs if x in wrt and pulled[wrt[x]] is not None]
        ends_of = (*self.moving.values(), *self.summing, *self.elements)
        results = or_zeros(pulled, [wrt[node] for node in ends_of])
        leaves = [*inputs, *cts.values(), *ends.values()]
        saved = self._saved(leaves, results) if keeps else []
        entered: list[tuple[Node | int, Node]] = [
            (spec.inner + k, copies[spec.body.nodes[k]]) for k in saved
        ]
        entered += [(spec.history + j, copies[c]) for j, c in enumerate(carries)]
        entered += [(x, copies[x]) for x in xs]
        read = {node.id for node in between([*[leaf for _, leaf in entered], *leaves], results)}
        entered = [one for one in entered if one[1].id in read]
        self.forward = [source for source, _ in entered]
        self.arriving = [field for field, leaf in ends.items() if leaf.id in read]
        self.consts = [node for node in captured if copies[node].id in read]
        body = Body(
            [
                inputs[0],
                *[copies[node] for node in self.consts],
                *cts.values(),
                *[leaf for _, leaf in entered],
                *[ends[field] for field in self.arriving],
            ],
            results,
        )
        self.spec = Spec(
            body, len(cts), len(entered) + len(self.arriving), spec.length, spec.length is None,
            reverse=not spec.reverse, save=spec.save, what=spec.what,
        )  # fmt: skip

    def _saved(self, leaves: Sequence[Node], results: Sequence[Node]) -> list[int]:
        """Return the numbers of the forward body's nodes to save: those that rules read."""
        spec, copies = self._forward, self._stands
        number_of = {copies[node].id: k for k, node in enumerate(spec.body.nodes)}
        position, _, carries, xs = spec.split_inputs()
        varying = {copies[node].id for node in (*position, *carries, *xs)}
        for node in spec.body.nodes:
            if any([copies[part].id in varying for part in node.inputs]):  # noqa: C419
                varying.add(copies[node].id)
        derived = [node for node in between(leaves, results) if node.id not in number_of]
        read = [*results, *[part for node in derived for part in node.inputs]]
        saved = {number_of[node.id] for node in read if node.id in number_of and node.id in varying}
        # Records cannot be stacked: a loop in the body is recomputed, as with save="carry".
        saved = {
            k
            for k, node in enumerate(spec.body.nodes)
            if k in saved and UNKNOWN not in node.dims and not isinstance(node.type, Record)
        }
        saved_nodes = {spec.body.nodes[k] for k in saved}
        saved = {k for k in saved if not _is_view_of_kept(spec.body.nodes[k], saved_nodes)}
        if spec.save == "auto" and not _fits([spec.body.nodes[k] for k in saved], spec.length):
            return []
        return sorted(saved)


def _is_view_of_kept(node: Node, kept: Collection[Node]) -> bool:
    """Return whether a node is a view of a saved one, which is cheap to make again."""
    while len(node.inputs) == 1 and node.op.memory.layout_with(node.attrs) == "ordered":
        node = node.inputs[0]
        if node in kept:
            return True
    return False


def _ct(graph: Graph, node: Node) -> Node:
    return leaf_of(graph, f"cotangent of {node.name}", node.type)


def _fits(nodes: Sequence[Node], length: int | Dim | None) -> bool:
    """Return whether the values of nodes in all iterations are known to fit into `MOST_BYTES`."""
    if not isinstance(length, int):
        return False
    try:
        return length * sum([size_in_bytes(node, {}) for node in nodes]) <= MOST_BYTES
    except UnboundDim:
        return False
