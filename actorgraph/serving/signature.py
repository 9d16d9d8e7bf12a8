"""`Signature`: what a model takes and gives; its requests as arrays, joined into batches, split."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actorgraph.errors import FeedError, GraphError, ShapeError
from actorgraph.graph import Node, as_nodes, topological_order
from actorgraph.machines.batching import Batching
from actorgraph.machines.feeds import bind_feeds, by_node
from actorgraph.op import INPUT
from actorgraph.serving.errors import InvalidInput
from actorgraph.types import UNKNOWN, Dim

__all__ = ["Array", "Signature"]

Array = np.ndarray[Any, Any]
"""Of NumPy."""


class Signature:
    """The inputs and outputs of a model by their public names, and the dim that is batched.

    Parameters
    ----------
    outputs : dict of Node
    inputs : dict of name to node, or list of nodes, optional
        Public names of the inputs; default the nodes' own.
    batched : bool
        Whether requests are to be joined.
    dim : str, optional
        Along which dim; default the symbol that inputs have as their first.

    Raises
    ------
    GraphError, ShapeError
        An input is missing or too many, or requests cannot be joined along the dim.
    """

    def __init__(
        self, outputs: Mapping[str, Node], inputs: Any, *, batched: bool, dim: str | None
    ) -> None:
        self.outputs = dict(outputs)
        nodes = topological_order(outputs.values())
        needed = [node for node in nodes if node.op is INPUT]
        self.waits = any(node.op.waits for node in nodes)
        given = needed if inputs is None else as_nodes(inputs)
        names = list(inputs) if isinstance(inputs, Mapping) else [node.name for node in given]
        self.inputs: dict[str, Node] = dict(zip(names, given, strict=True))
        if set(given) != set(needed) or len(given) != len(needed):
            raise GraphError(
                f"the outputs depend on the inputs {_names(needed)}, but inputs= has "
                f"{_names(given)}; name each of them once"
            )
        self.dim = None if not batched else _first_dim(needed) if dim is None else dim
        self._in_axes: dict[Node, int] = {}
        self._out_axes: dict[str, int] = {}
        if self.dim is not None:
            self._place_axes(self.dim, nodes)

    def _place_axes(self, dim: str, nodes: Sequence[Node]) -> None:
        batching = Batching(self.outputs.values(), (), dim=dim)
        for name, node in (*self.inputs.items(), *self.outputs.items()):
            axis = batching.axis_of(node)
            if axis is None:
                raise ShapeError(
                    f"requests cannot be joined along {dim!r}: {name!r} ({node.type}) has no such "
                    "dim; give it one, or leave max_batch_size out"
                )
            if node.op is INPUT:
                self._in_axes[node] = axis
            if name in self.outputs:
                self._out_axes[name] = axis
        whole = set(batching.whole)
        for node in nodes:
            words = {word for one in node.dims for word in re.findall(r"\w+", str(one))}
            has_rows = dim in words or any(one is UNKNOWN for one in node.dims)
            if node in whole or (batching.rows.varies(node) and not has_rows):
                raise ShapeError(
                    f"requests cannot be joined along {dim!r}: {node.name!r} (built at "
                    f"{node.where_built()}) looks over all rows, so an answer would depend on "
                    "others; leave max_batch_size out"
                )

    # -- requests -------------------------------------------------------------------------------

    def arrays(self, inputs: Mapping[Any, Any]) -> dict[Node, Array]:
        """Return the arrays of a request.

        Raises
        ------
        InvalidInput
            One is missing, unknown, or of the wrong dtype or shape.
        """
        try:
            given = by_node(inputs, self._known(inputs), "input")
            nodes = list(self.inputs.values())
            return dict(zip(nodes, bind_feeds(nodes, given, {}), strict=True))
        except FeedError as error:
            raise InvalidInput(str(error)) from error

    def _known(self, inputs: Any) -> dict[str, Node]:
        if isinstance(inputs, Mapping) and any(isinstance(key, Node) for key in inputs):
            return {node.name: node for node in self.inputs.values()}
        return self.inputs

    def rows(self, arrays: Mapping[Node, Array]) -> int:
        """Return how many rows a request has; 1 where none are joined."""
        for node, axis in self._in_axes.items():
            return int(arrays[node].shape[axis])
        return 1

    def kind(self, arrays: Mapping[Node, Array]) -> tuple[Any, ...]:
        """Return what requests that are joined have in common: all dims but the batch's."""
        return tuple(
            arrays[node].shape[:axis] + arrays[node].shape[axis + 1 :]
            for node, axis in self._in_axes.items()
        )

    # -- batches --------------------------------------------------------------------------------

    def joined(self, requests: Sequence[Mapping[Node, Array]]) -> Mapping[Node, Array]:
        """Return the feeds of a batch."""
        if len(requests) == 1:
            return requests[0]
        return {
            node: np.concatenate([one[node] for one in requests], axis)
            for node, axis in self._in_axes.items()
        }

    def split(self, results: Mapping[str, Array], rows: Sequence[int]) -> list[dict[str, Array]]:
        """Return the results of each request of a batch, in arrays of its own."""
        if len(rows) == 1:
            return [dict(results)]
        ends = np.cumsum(rows)
        answers: list[dict[str, Array]] = []
        for size, end in zip(rows, ends, strict=True):
            answers.append({})
            for name, axis in self._out_axes.items():
                place = (slice(None),) * axis + (slice(end - size, end),)
                answers[-1][name] = results[name][place].copy()
        return answers


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(repr(node.name) for node in nodes) or "none"


def _first_dim(inputs: Sequence[Node]) -> str:
    firsts = {str(node.dims[0]) for node in inputs if node.ndim and isinstance(node.dims[0], Dim)}
    found = sorted(name for name in firsts if name.isidentifier())
    if len(found) != 1:
        what = f"several: {', '.join(map(repr, found))}" if found else "none"
        raise ShapeError(
            "requests are joined along the symbol that inputs have as their first dim, but there "
            f"are {what}; say batch_by=, or give the inputs such a dim"
        )
    return found[0]
