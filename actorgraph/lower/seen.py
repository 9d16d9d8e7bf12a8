"""Pushing slices upwards: an elementwise step of which only slices are read is computed in slices.

So each slice can join the group of its consumers (`quick_rows`), and elements that no step reads
are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod

from actorgraph.graph import Node
from actorgraph.op import CONSTANT, REGISTRY, Op
from actorgraph.types import Checks, Tensor, bind_shape

_GETITEM, _FULL = REGISTRY["getitem"], slice(None)


def node_like(node: Node, number: int, op: Op, inputs: tuple[Node, ...]) -> Node:
    """Return a node of the same type with another id, op and inputs."""
    attrs = node.attrs if op is node.op else {}
    return Node(
        node.graph, number, op, inputs, attrs, node.type, Checks(), node.line, node.owner, node.name
    )  # fmt: skip


def parted(
    steps: Sequence[Node], kept: Collection[int], symbols: Mapping[str, int],
    numbers: Iterator[int], rule: Callable[[Node], str | None],
) -> list[Node]:  # fmt: skip
    """Return the steps, with those that are only read in slices replaced by a step for each slice.

    Steps whose values are `kept` and steps without an elementwise `rule` stay.
    """
    orders = {step.id: (place, 0) for place, step in enumerate(steps)}
    made = {step.id: step for step in steps}
    readers: dict[int, list[Node]] = {}
    for step in reversed(steps):
        views = readers.get(step.id, ())
        sizes = [prod(bind_shape(view.dims, symbols, 0)) for view in (step, *views)]
        if (
            step.id in kept or not views or not all(map(_is_slice, views))
            or sum(sizes[1:]) > sizes[0] or rule(step) is None
            or any(part.op is CONSTANT and part.ndim for part in step.inputs)
        ):  # fmt: skip
            for part in step.inputs:
                readers.setdefault(part.id, []).append(step)
            continue
        del made[step.id]
        for view in views:
            place, _ = orders[view.id]
            parts = []
            for part in step.inputs:
                index = _slices_of(view, step, part)
                if any(piece != _FULL for piece in index):
                    number = next(numbers)
                    orders[number] = place, -number
                    part = made[number] = _view_of(view, number, part, index)
                    readers.setdefault(part.inputs[0].id, []).append(part)
                parts.append(part)
            made[view.id] = node_like(view, view.id, step.op, tuple(parts))
    return [made[number] for number in sorted(made, key=orders.__getitem__)]


def _is_slice(step: Node) -> bool:
    index = step.attrs.get("index", ()) if step.op is _GETITEM else ()
    return bool(index) and all(isinstance(part, slice) for part in index)


def _slices_of(view: Node, step: Node, part: Node) -> tuple[slice, ...]:
    """Return the slices of an operand that give a view of a step's result."""
    index = (*view.attrs["index"], *[_FULL] * (step.ndim - len(view.attrs["index"])))
    pairs = zip(index[step.ndim - part.ndim :], part.dims, strict=True)
    return tuple([_FULL if dim == 1 else one for one, dim in pairs])


def _view_of(view: Node, number: int, of: Node, index: tuple[slice, ...]) -> Node:
    """Return a step that slices an operand as a view slices a result of it."""
    pairs = zip(of.dims, view.dims[view.ndim - of.ndim :], strict=True)
    dims = tuple([dim if dim == 1 else shown for dim, shown in pairs])
    return Node(
        view.graph, number, view.op, (of,), {"index": index}, Tensor.of(str(of.dtype), dims),
        Checks(), view.line, view.owner, view.name,
    )  # fmt: skip
