"""`Signature`: a model's inputs and outputs; how its requests are read, batched and split."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actorgraph.errors import FeedError, GraphError, ShapeError, near_names
from actorgraph.graph import Node, as_nodes, topological_order
from actorgraph.machines.batching import Batching
from actorgraph.machines.feeds import Repeats, bind_feeds, by_node
from actorgraph.machines.rows import shapes_of
from actorgraph.op import INPUT
from actorgraph.serving.errors import InvalidInput
from actorgraph.serving.independence import changed_by_others
from actorgraph.serving.padding import Padding
from actorgraph.types import UNKNOWN, Dim

Array = np.ndarray[Any, Any]
"""Of NumPy."""


class Signature:
    """The inputs and outputs of a model by their public names, and the dim that is batched.

    Arguments are those of `Server.add` and fields of `Config`; bad ones raise `GraphError`.
    """

    def __init__(
        self, outputs: Mapping[str, Node], inputs: Any = None, *, batched: bool, dim: str | None,
        feedback: Mapping[str, str] | None = None, until: str | None = None,
        mask: str | None = None, buckets: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.outputs = dict(outputs)
        nodes = topological_order(outputs.values())
        needed = [node for node in nodes if node.op is INPUT]
        self.waits = any(node.op.waits for node in nodes)
        self.has_user_ops = any(node.op.checked for node in nodes)
        given = needed if inputs is None else as_nodes(inputs)
        names = list(inputs) if isinstance(inputs, Mapping) else [node.name for node in given]
        self.inputs: dict[str, Node] = dict(zip(names, given, strict=True))
        if set(given) != set(needed) or len(given) != len(needed):
            raise GraphError(
                f"the outputs depend on the inputs {_names(needed)}, but inputs= has "
                f"{_names(given)}; name each of them once"
            )
        self._mask = self._pop_mask(mask)
        self.feedback, self._until = dict(feedback or {}), until
        self._check_feedback()
        self.dim = None if not batched else _first_dim(needed) if dim is None else dim
        self._in_axes: dict[Node, int] = {}
        self._out_axes: dict[str, int] = {}
        if self.dim is not None:
            self._place_axes(self.dim, nodes)
        self._padding: Padding | None = None
        self._block_ends: Node | None = None
        self._repeats = Repeats[tuple[int, Any]](self.inputs.items())
        if self._mask is not None:
            if self.dim is None:
                raise GraphError("mask= is for batches; set max_batch_size= too")
            padded = (*self.inputs.values(), *self.outputs.values())
            self._padding = Padding(self._mask, self.dim, padded, buckets)

    def by_blocks(self) -> dict[str, Node]:
        """Have each request of a batch computed as if alone; return the outputs that do so."""
        from actorgraph.serving.exact import by_blocks

        if self._padding is not None and not self._padding.has_buckets:
            raise GraphError(
                "exact_batches=True with mask= needs buckets=: else requests are filled up to the "
                "longest of their companions"
            )
        if self.dim is not None:
            self.outputs, self._block_ends = by_blocks(self.outputs, self.dim)
        return self.outputs

    def _pop_mask(self, mask: str | None) -> Node | None:
        """Remove the mask from the inputs that clients see: the server fills it in."""
        if mask is not None and mask not in self.inputs:
            raise GraphError(f"mask= names no input: {mask!r}{near_names(mask, self.inputs)}")
        return None if mask is None else self.inputs.pop(mask)

    def _place_axes(self, dim: str, nodes: Sequence[Node]) -> None:
        batching = Batching(self.outputs.values(), (), dim=dim)
        inputs = [(node.name, node) for node in nodes if node.op is INPUT]
        for name, node in (*inputs, *self.outputs.items()):
            axis = batching.axis_of(node)
            if axis is None:
                raise ShapeError(
                    f"requests cannot be joined along {dim!r}: {name!r} ({node.type}) has no such "
                    "dim; give it one, or leave max_batch_size out"
                )
            if node.op is INPUT:
                self._in_axes[node] = axis
            if self.outputs.get(name) is node:
                self._out_axes[name] = axis
        whole = set(batching.whole)
        for node in nodes:
            dims = [size for shape in shapes_of(node) for size in shape]
            words = {word for size in dims for word in re.findall(r"\w+", str(size))}
            has_rows = dim in words or any(size is UNKNOWN for size in dims)
            if getattr(node.attrs.get("loop"), "test", None) is not None:
                has_rows = False  # a while loop ends for all rows at once
            if node in whole or (batching.rows.varies(node) and not has_rows):
                raise ShapeError(
                    f"requests cannot be joined along {dim!r}: {node.name!r} (built at "
                    f"{node.where_built()}) looks over all rows, so an answer would depend on "
                    "others; leave max_batch_size out"
                )
        dependent = changed_by_others(self.outputs, self._in_axes, self._out_axes, dim)
        if dependent is not None:
            raise ShapeError(
                f"requests cannot be joined along {dim!r}: a row of {dependent!r} changes with "
                "other rows, as after a sort, softmax or normalisation along that dim (modules: "
                ".eval()), so an answer would depend on others; leave max_batch_size out"
            )

    def _check_feedback(self) -> None:
        until = () if self._until is None else (self._until,)
        for output in (*self.feedback, *until):
            if output not in self.outputs:
                raise GraphError(
                    f"there is no output {output!r} for a stream{near_names(output, self.outputs)}"
                )
        for output, name in self.feedback.items():
            source, target = self.outputs[output], self.inputs.get(name)
            if target is None:
                raise GraphError(
                    f"feedback of {output!r} goes to {name!r}, which is no input"
                    f"{near_names(name, self.inputs)}"
                )
            if (source.dtype, source.ndim) != (target.dtype, target.ndim):
                raise GraphError(
                    f"feedback of {output!r} ({source.type}) does not fit the input {name!r} "
                    f"({target.type})"
                )
        for output in until:
            if self.outputs[output].dtype != np.bool_:
                raise GraphError(
                    f"until= names an output of bools, got {output!r} ({self.outputs[output].type})"
                )

    # -- streams --------------------------------------------------------------------------------

    def next_inputs(self, inputs: Mapping[Any, Any], part: Mapping[str, Array]) -> dict[Any, Any]:
        """Return the inputs of the step that follows one with this answer."""
        by_name = self._known(inputs) is self.inputs
        fed_back = {
            name if by_name else self.inputs[name]: part[output]
            for output, name in self.feedback.items()
        }
        return {**inputs, **fed_back}

    def has_ended(self, part: Mapping[str, Array]) -> bool:
        """Return whether the step with this answer is the last."""
        return self._until is not None and bool(part[self._until].all())

    # -- requests -------------------------------------------------------------------------------

    def read(self, inputs: Mapping[Any, Any]) -> tuple[dict[Node, Array], int, Any]:
        """Return the arrays of a request, its rows, and its batch key.

        Requests of equal keys may be joined.
        """
        known = self._repeats.find(inputs) if self._padding is None else None
        if known is not None:
            given, (rows, key), _ = known
            return dict(zip(self.inputs.values(), given)), rows, key
        arrays = self.arrays(inputs)
        kind = self._rows(arrays), self._batch_key(arrays)
        self._repeats.keep(list(arrays.values()), kind)
        return arrays, *kind

    def arrays(self, inputs: Mapping[Any, Any]) -> dict[Node, Array]:
        """Return the arrays of a request, or raise `InvalidInput`."""
        try:
            given = by_node(inputs, self._known(inputs), "input")
            nodes, symbols = list(self.inputs.values()), dict[str, int]()
            arrays = dict(zip(nodes, bind_feeds(nodes, given, symbols), strict=True))
        except FeedError as error:
            raise InvalidInput(str(error)) from error
        if self._padding is not None and self._mask is not None:
            arrays[self._mask] = self._padding.mask(symbols)
        return arrays

    def _known(self, inputs: Any) -> dict[str, Node]:
        if isinstance(inputs, Mapping) and any(isinstance(key, Node) for key in inputs):
            return {node.name: node for node in self.inputs.values()}
        return self.inputs

    def _rows(self, arrays: Mapping[Node, Array]) -> int:
        for node, axis in self._in_axes.items():
            return int(arrays[node].shape[axis])
        return 1

    def _batch_key(self, arrays: Mapping[Node, Array]) -> tuple[Any, ...]:
        """Return the padded shapes of the inputs without the batch dim."""
        shapes = []
        for node, axis in self._in_axes.items():
            shape: tuple[int | None, ...] = arrays[node].shape
            if self._padding is not None:
                shape = self._padding.padded_shape(node, arrays[node].shape)
            shapes.append(shape[:axis] + shape[axis + 1 :])
        return tuple(shapes)

    # -- batches --------------------------------------------------------------------------------

    def joined(self, requests: Sequence[Mapping[Node, Array]]) -> dict[str, Array]:
        """Return the feeds of a batch."""
        padding = self._padding
        if len(requests) == 1 and padding is None:
            feeds = {node.name: array for node, array in requests[0].items()}
        else:
            feeds = {}
            for node, axis in self._in_axes.items():
                arrays = [request[node] for request in requests]
                if padding is not None:
                    arrays = padding.padded(node, arrays)
                feeds[node.name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)
        if self._block_ends is not None:
            feeds[self._block_ends.name] = np.cumsum([self._rows(one) for one in requests])
        return feeds

    def split(
        self, results: Mapping[str, Array], requests: Sequence[Mapping[Node, Array]]
    ) -> list[dict[str, Array]]:
        """Return the results of each request of a batch, in arrays of its own."""
        padding, mask = self._padding, self._mask
        if len(requests) == 1 and padding is None:
            return [dict(results)]
        answers: list[dict[str, Array]] = []
        start = 0
        for request in requests:
            end = start + self._rows(request)
            answers.append({})
            for name, axis in self._out_axes.items():
                part = results[name][(slice(None),) * axis + (slice(start, end),)]
                if padding is not None and mask is not None:
                    length = padding.length(request[mask])
                    part = padding.cut(self.outputs[name], part, length)
                answers[-1][name] = part.copy()
            start = end
        return answers


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(repr(node.name) for node in nodes) or "none"


def _first_dim(inputs: Sequence[Node]) -> str:
    firsts = {str(node.dims[0]) for node in inputs if node.ndim and isinstance(node.dims[0], Dim)}
    symbols = sorted(name for name in firsts if name.isidentifier())
    if len(symbols) != 1:
        what = f"several: {', '.join(map(repr, symbols))}" if symbols else "none"
        raise ShapeError(
            "requests are joined along the symbol that inputs have as their first dim, but there "
            f"are {what}; say batch_by=, or give the inputs such a dim"
        )
    return symbols[0]
