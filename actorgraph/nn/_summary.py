"""`ModuleSummary`: the layers of a module as a table."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from actorgraph import tables
from actorgraph.autodiff.trees import flatten
from actorgraph.graph import Graph
from actorgraph.node import Node
from actorgraph.types import bind_shape

if TYPE_CHECKING:
    from actorgraph.nn.module import Module

_TITLES = ("layer", "kind", "shape", "parameters", "flops")


class LayerRow(NamedTuple):
    """One layer; the counts include what is inside of it."""

    layer: str
    kind: str
    shape: str
    parameters: int
    flops: int


class ModuleSummary:
    """Rows of a table, one a layer and the total last; ``rich.print`` shows it in colour."""

    def __init__(self, module: Module, inputs: tuple[Any, ...]) -> None:
        graph = Graph("summary")
        shapes: dict[int, Any] = {}

        def note(layer: Module, args: Any, result: Any) -> None:
            shapes.setdefault(id(layer), result)

        removers = [one.register_forward_hook(note) for one in module.modules()]
        try:
            module(*[
                _input(graph, f"input_{number}", one) for number, one in enumerate(inputs)
            ])  # fmt: skip
        finally:
            for remove in removers:
                remove()
        flops = [(graph.scope_of(node), _flops(node)) for node in graph.nodes]
        self.rows: list[LayerRow] = []
        named = [*module.named_modules()]
        for name, one in (*named[1:], named[0]):
            if id(one) in shapes:
                inside = [count for scope, count in flops if f"{scope}.".startswith(f"{name}.")]
                self.rows.append(
                    LayerRow(
                        name or "total",
                        type(one).__name__,
                        _shape(shapes[id(one)]),
                        sum(held.array.size for held in one.parameters()),
                        sum(inside if name else [count for _, count in flops]),
                    )
                )

    @property
    def _cells(self) -> list[tuple[str, ...]]:
        return [(*row[:3], f"{row.parameters:,}", f"{row.flops:,}") for row in self.rows]

    def __str__(self) -> str:
        return "\n".join(tables.lines(_TITLES, self._cells))

    __repr__ = __str__

    def __rich__(self) -> Any:
        return tables.drawn(_TITLES, self._cells)


def _input(graph: Graph, name: str, one: Any) -> Node:
    array = np.empty(one, "float32") if type(one) is tuple else np.asarray(one)
    return graph.input(name, array.shape, array.dtype)


def _shape(result: Any) -> str:
    return ", ".join(f"({', '.join(map(str, leaf.shape))})" for leaf in flatten(result)[0])


def _flops(node: Node) -> int:
    """Return the flops of a node; leaves and views have none."""
    if node.is_leaf or not prod(bind_shape(node.dims, {}, 1)):
        return 0
    shapes = tuple(bind_shape(part.dims, {}, 1) for part in node.inputs)
    flops = node.op.flops(shapes, bind_shape(node.dims, {}, 1), node.attrs)
    return int(flops) if flops > 1 else 0  # every op has at least 1, a view too
