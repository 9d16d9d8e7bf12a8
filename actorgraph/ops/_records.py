"""Records: nodes with several results, read by `item`, and their derivatives.

No machine computes the cotangent or the tangent of a record: rules take these nodes apart into the
nodes that they were built of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Memory, Op
from actorgraph.ops.broadcasting import add
from actorgraph.types import Checks, Record, Tensor


def any_types(arity: int, attrs: Attrs) -> str:
    """Return the scheme of an op whose `typing` decides the types."""
    return " -> ".join([f"a{i}[*s{i}]" for i in range(arity + 1)])


def _unbuilt(name: str) -> Op:
    def never(xp: Any, *arrays: Any, **attrs: Any) -> Any:
        raise AssertionError("rules take it apart, no machine computes it")

    return Op(name, any_types, never, typing=lambda checks, types, attrs: attrs["type"])


def _field(checks: Checks, types: tuple[Tensor, ...], attrs: Attrs) -> Tensor:
    (record,) = types
    assert isinstance(record, Record)
    return record.fields[attrs["field"]]


_COTANGENTS, _TANGENT = _unbuilt("record_cotangent"), _unbuilt("record_tangent")


def _push(tans: tuple[Node, ...], y: Node, record: Node, *, field: int) -> Node | None:
    (tan,) = tans
    place = dict(tan.attrs["places"]).get(field)
    return None if place is None else item(tan.inputs[0], place)


ITEM = Op(
    "item", any_types, lambda xp, record, *, field: record[field], typing=_field,
    vjp=(lambda ct, y, x, field: build(_COTANGENTS, ct, type=x.type, fields=(field,)),),
    jvp=_push, memory=Memory(is_view=True), doc="A field of a record.",
)  # fmt: skip
"""The op of fields of records."""


def item(record: Node, field: int) -> Node:
    """Return one of the results of a record."""
    return record.graph.apply(ITEM, (record,), {"field": field})


def fields_read(record: Node) -> frozenset[int]:
    """Return the fields that nodes of the graph read: only these need to be computed."""
    later = record.graph.nodes[record.id + 1 :]
    return frozenset(
        node.attrs["field"] for node in later if node.op is ITEM and node.inputs[0].id == record.id
    )


def summed(ct: Node, other: Node) -> Node:
    """Return the sum of two cotangents, of records too."""
    if not isinstance(ct.type, Record):
        return add(ct, other)
    found = cotangents(ct)
    for field, part in cotangents(other).items():
        found[field] = add(found[field], part) if field in found else part
    attrs = {"type": ct.type, "fields": tuple(found)}
    return ct.graph.apply(_COTANGENTS, tuple(found.values()), attrs)


def cotangents(ct: Node) -> dict[int, Node]:
    """Return the cotangents of the fields of a record that have one."""
    return dict(zip(ct.attrs["fields"], ct.inputs, strict=True))


def tangent_of(record: Node, other: Node, places: Mapping[int, int]) -> Node:
    """Return the tangent of a record: `places` maps its fields to fields of `other`."""
    return build(_TANGENT, other, type=record.type, places=tuple(places.items()))
