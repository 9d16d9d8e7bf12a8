"""Layouts: the strides that NumPy gives to values, which need not be in C order.

The result of an elementwise op has the memory order of its operands, which may be transposed.  Rows
write the same layout, as an op that reads the value may have other bits for another one.  Layouts
hold for C-contiguous leaves and the sizes of a run.  They are found by calling NumPy on zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from actorgraph.devices.copies import laid
from actorgraph.devices.listed import may_have_loop
from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.spots import Spot, Unfit, strides_of, view_spot
from actorgraph.lower.walkable import RESHAPE, SUM, has_loop, shows, sums_columns
from actorgraph.memory.buffers import is_view
from actorgraph.op import CONSTANT
from actorgraph.types import Record, bind_shape


class Layouts:
    """The layouts of steps; those in `ordered` are in C order."""

    def __init__(
        self, steps: Sequence[Node], symbols: Mapping[str, int], ordered: Collection[int],
        classes: Mapping[int, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._steps, self._symbols = steps, symbols
        self._ordered, self._classes = ordered, classes
        self._known: dict[int, Spot | None] = {}
        self._plain: dict[int, Spot] = {}  # by type
        self._of_class: dict[Any, Spot | None] = {}  # by class, and layouts of operands

    @cached_property
    def _made(self) -> dict[int, Node]:
        return {step.id: step for step in self._steps}

    def of(self, node: Node) -> Spot | None:
        """Return the layout of a value, with offset 0, None if it is not known.

        Callers ask in build order, so the recursion stays shallow.
        """
        if node.id not in self._known:
            self._known[node.id] = self._found(node)
        return self._known[node.id]

    def _found(self, node: Node) -> Spot | None:
        plain = self._plain.get(id(node.type))
        if plain is None:
            if isinstance(node.type, Record):
                return None
            shape, size = bind_shape(node.dims, self._symbols, 0), node.dtype.itemsize
            plain = self._plain[id(node.type)] = Spot(0, 0, shape, strides_of(shape, size), size)
        if node.op is CONSTANT:
            return plain if np.asarray(node.attrs["value"]).flags.c_contiguous else None
        if node.id not in self._made or (node.id in self._ordered and not is_view(node)):
            return plain
        node, given = self._made[node.id], []  # an input may be older than its step
        for part in node.inputs:
            spot = self.of(part)
            if spot is None:
                return None
            given.append(spot)
        number = self._classes.get(node.id)
        if number is None:
            return self._derived(node, given, plain)
        # Late rewriting may put other steps in the places of nodes.
        key = node.op, id(node.attrs), number, *given
        if key not in self._of_class:
            self._of_class[key] = self._derived(node, given, plain)
        return self._of_class[key]

    def _derived(self, node: Node, given: Sequence[Spot], plain: Spot) -> Spot | None:
        """Return the layout of a result, given those of its operands and the one in C order."""
        if is_view(node):
            return self._shown(node, given[0], plain) if shows(node) and len(given) == 1 else None
        of_one_order = all(one.is_flat for one in given) or (
            sums_columns(node) and len(given[0].shape) == 2
        )
        if of_one_order and node.op.memory.layout == "kept":
            return plain
        if node.op is SUM:
            if sum([size > 1 for size in plain.shape]) < 2:
                return plain
        elif node.op.ufunc in (None, "matmul") or not has_loop(node, may_have_loop):
            return None
        called = kernel(node, np, self._symbols)
        dtypes = tuple([part.dtype for part in node.inputs])
        strides = _strides(called, dtypes, tuple([(one.shape, one.strides) for one in given]))
        return plain._replace(strides=strides) if min(strides, default=0) >= 0 else None

    def _shown(self, view: Node, of: Spot, plain: Spot) -> Spot | None:
        try:
            found = view_spot(of, view.dtype, kernel(view, np, self._symbols))
        except Unfit:  # a copy
            return plain if view.op is RESHAPE else None
        return found._replace(offset=0) if found.shape == plain.shape else None


@lru_cache(1024)
def _strides(
    called: Callable[..., Any],
    dtypes: tuple[np.dtype[Any], ...],
    operands: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
) -> tuple[int, ...]:
    """Return the strides of a kernel's result for operands with these shapes and strides."""
    given = [laid(one[0], dtype, one[1]) for dtype, one in zip(dtypes, operands, strict=True)]
    with np.errstate(all="ignore"):
        return np.asarray(called(*given)).strides
