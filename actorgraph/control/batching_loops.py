"""Batching rules of branches and loops: their bodies are built for all rows.

If the index of a branch, or the number of iterations or the test of a loop, differs between rows,
rows are computed one by one.  So each row takes its own branch or ends by itself, and no value,
cost or gradient of what it has not run gets in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from actorgraph.control.batching import AllRows, Fields, Value, batched, in_turn, rule
from actorgraph.control.bodies import Body, leaf_of
from actorgraph.control.branch import BRANCH, Cases, branch
from actorgraph.control.loop import LOOP, Spec, loop
from actorgraph.graph import Graph, Node
from actorgraph.ops._records import fields_read, item
from actorgraph.ops.rearranging import moveaxis
from actorgraph.types import Tensor

__all__: list[str] = []


def _built(
    rows: AllRows, title: str, body: Body, flags: Iterable[bool]
) -> tuple[AllRows, list[Node], dict[Node, Any]]:
    """Build a body for all rows in a new graph; return its leaves and the forms of its nodes."""
    inner = AllRows(Graph(title), rows.size)
    leaves: dict[Node, Any] = {}
    for node, flag in zip(body.inputs, flags, strict=True):
        dims = (rows.known_size(), *node.dims) if flag else node.dims
        leaves[node] = leaf_of(inner.graph, node.name, Tensor.of(node.dtype, dims)), flag
    return inner, [leaf for leaf, _ in leaves.values()], batched(inner, body.nodes, leaves)


@rule(op=BRANCH)
def _branch(rows: AllRows, node: Node, args: list[Node], flags: list[bool]) -> Value:
    if flags[0]:
        return in_turn(rows, node, args, flags)
    cases: Cases = node.attrs["cases"]
    built = []
    for body, places in zip(cases.bodies, cases.places, strict=True):
        has_rows = [flags[1 + place] for place in places]
        inner, leaves, made = _built(rows, f"rows of {cases}", body, has_rows)
        built.append((inner, leaves, [made[result] for result in body.results]))
    wide = [
        any(flag for _, flag in field) for field in zip(*[made for *_, made in built], strict=True)
    ]
    bodies = tuple(Body(leaves, inner.widened(made, wide)) for inner, leaves, made in built)
    record = branch(rows.graph, Cases(bodies, cases.places, cases.what), args)
    return {field: (item(record, field), wide[field]) for field in fields_read(node)}


@rule(op=LOOP)
def _loop(rows: AllRows, node: Node, args: list[Node], flags: list[bool]) -> Value:
    spec: Spec = node.attrs["loop"]
    counted, _, tested, *_ = spec.split(flags)
    wide = None if counted or any(tested) else _Wide(rows, spec, flags, fields_read(node))
    if wide is None or wide.test_differs:
        return in_turn(rows, node, args, flags)
    return wide.applied(args)


class _Wide:
    """A loop whose body is built for all rows; `flags` say which operands have rows.

    `wanted` fields of its record that only reverse rules read are stacked like outputs.
    """

    def __init__(self, rows: AllRows, spec: Spec, flags: Sequence[bool], wanted: Any) -> None:
        self.rows, self.old, self.flags = rows, spec, flags
        _, consts, tested, carries, xs = spec.split(flags)
        self.wide = list(carries)
        self.extra = sorted([field for field in wanted if field >= spec.history])
        self.wanted = wanted
        while True:  # fixed point: a carry has rows if the body gives it some
            given = [False, *consts, *self.wide, *xs]
            inner, leaves, forms = _built(rows, f"rows of {spec}", spec.body, given)
            nexts = [forms[result] for result in spec.body.results[: spec.carries]]
            after = [old or flag for old, (_, flag) in zip(self.wide, nexts, strict=True)]
            if after == self.wide:
                break
            self.wide = after
        stacked = [forms[result] for result in spec.body.results[spec.carries :]]
        stacked += [forms[spec.stacked(field)] for field in self.extra]
        self.stacked = [flag for _, flag in stacked]
        body = Body(leaves, [*inner.widened(nexts, self.wide), *[one for one, _ in stacked]])
        self.test_differs, test = False, spec.test
        if test is not None:
            title = f"rows of the test of {spec}"
            _, leaves, forms = _built(rows, title, test, [*tested, *self.wide])
            end, self.test_differs = forms[test.results[0]]
            test = Body(leaves, [end])
        self.spec = replace(spec, body=body, test=test)

    def applied(self, args: Sequence[Node]) -> Fields:
        """Build the loop; return its wanted fields."""
        number, consts, tested, carries, xs = self.old.split(args)
        _, _, _, had, x_flags = self.old.split(self.flags)
        first = self.rows.widened(zip(carries, had, strict=True), self.wide)
        elements = [moveaxis(x, 0, 1) if flag else x for x, flag in zip(xs, x_flags, strict=True)]
        given = [*([number] if self.old.counted else []), *consts, *tested, *first, *elements]
        record = loop(self.rows.graph, self.spec, given)
        return {field: self._field(record, field) for field in self.wanted}

    def _field(self, record: Node, field: int) -> tuple[Node, bool]:
        old = self.old
        if field < old.carries:
            return item(record, field), self.wide[field]
        if field == old.trips:
            return item(record, self.spec.trips), False
        place = field - old.carries if field < old.trips else old.ys + self.extra.index(field)
        result = item(record, old.carries + place)
        has_rows = self.stacked[place]
        return (moveaxis(result, 1, 0) if has_rows else result), has_rows
