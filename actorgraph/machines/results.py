"""`Results`: where a plan finds what a user may read, and the Duals that it makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.devices import Handed
from actorgraph.dual import Dual
from actorgraph.errors import FeedError, near_names, shown
from actorgraph.graph import Node
from actorgraph.lower.joint import Joint, Mode
from actorgraph.memory.buffers import Unallocated, is_fresh
from actorgraph.node import Buffer, Parameter
from actorgraph.types import UNKNOWN

if TYPE_CHECKING:
    from actorgraph.machines.run import Run

__all__ = ["Results"]


class Results:
    """The part of a `Plan` that knows its results."""

    mode: Mode
    joint: Joint
    nodes: tuple[Node, ...]
    wrt: tuple[Node, ...]
    readables: dict[str, Node]
    assignments: list[tuple[Buffer, Node]]

    def _place_results(self) -> None:
        """Number the results (a leaf needs none, the run has it) and note who reads which."""
        joint = self.joint
        self.leaf_index = {leaf.node: index for index, leaf in enumerate(joint.leaves)}
        self.result_of: dict[Node, int] = {}
        for node in (*joint.values.values(), *joint.derivatives.values()):
            if not node.is_leaf and node not in self.result_of:
                self.result_of[node] = len(self.result_of)
        self.result_count = len(self.result_of)
        self._alone = _shown_by_one(self.result_of)
        self._late = self._late_checks()
        self._shared: list[int] = []
        self._unshared: list[int] = []
        for result, number in self.result_of.items():
            (self._unshared if is_fresh(result) else self._shared).append(number)
        read = set(joint.values.values())
        # Most common, and read in 0.25 us instead of 0.6: values and gradients that are fresh.
        self._fresh: list[tuple[Node, int]] = []
        self._slopes: list[tuple[Node, int, int]] = []
        self._reads: list[tuple[Node, int | Node, int | Node | None, bool]] = []
        for node in self.nodes:
            value, derivative = joint.values[node], joint.derivatives.get(node)
            known = self.result_of.get(value, value)
            place = None if derivative is None else self.result_of.get(derivative, derivative)
            again = derivative is not None and derivative in read
            if self.mode.kind == "forward" and isinstance(known, int):
                self._fresh.append((node, known))
            elif self._is_read(value) and isinstance(place, int) and not again:
                self._slopes.append((node, self.leaf_index[value], place))
            else:
                self._reads.append((node, known, place, again))
            if derivative is not None:
                read.add(derivative)

    def _is_read(self, value: Node) -> bool:
        """Return whether this is a parameter of which a gradient is asked, and so its array."""
        index = self.leaf_index.get(value)
        return index is not None and self._is_parameter(index) and self.mode.kind == "backward"

    def _is_parameter(self, index: int) -> bool:
        leaf = self.joint.leaves[index]
        return leaf.kind == "variable" and isinstance(leaf.source, Parameter)

    def _late_checks(self) -> list[tuple[int, Node]]:
        """Return the seeds and tangents whose shape only a run can check, with what they belong to.

        What belongs to a node that is neither read nor fed is left to NumPy.
        """
        leaves = self.joint.leaves
        known = {leaf.source: leaf.node for leaf in leaves if leaf.kind == "feed"}
        known |= self.joint.values
        return [
            (index, known[leaf.source])
            for index, leaf in enumerate(leaves)
            if leaf.kind in ("seed", "tangent") and leaf.source in known
            if any(dim is UNKNOWN for dim in leaf.source.dims)
        ]

    def readable(self, key: object) -> Node:
        """Return the node that a run may be asked for by `key`, or raise `KeyError`."""
        if isinstance(key, Node):
            if any(key is node for node in self.nodes):
                return key
            if all(key.graph is not node.graph for node in self.nodes):
                raise KeyError(f"{key!r} belongs to another graph than this machine")
            key = key.name
        else:
            found = self.readables.get(key) if isinstance(key, str) else None
            if found is not None:
                return found
        near = near_names(key, self.readables)
        raise KeyError(
            f"{shown(key)} is neither an output nor a wrt of this machine{near}; name it among "
            f"the outputs to read it; readable are {', '.join(map(repr, self.readables))}"
        )

    def collect(self, run: Run) -> tuple[dict[Node, Dual], list[tuple[Buffer, Any]]]:
        """Return the Duals of a run that has succeeded, and what it assigns to buffers.

        Every array is the caller's own: only a parameter's value is the array that the run has
        read; whatever else would share memory with a feed, a variable or another result is copied.

        Raises
        ------
        Unallocated
            There is no memory for a copy.
        """
        arrays = self._owned(run) if self._shared else run.results
        for index, node in self._late:
            self._check_shape(run, index, node, arrays)
        duals = {node: Dual(arrays[place], None, None, node) for node, place in self._fresh}
        try:
            for node, value, derivative, again in self._reads:
                array = arrays[value] if isinstance(value, int) else self._leaf_value(run, value)
                duals[node] = dual = Dual(array, None, None, node)
                if derivative is None:
                    found = np.zeros_like(array) if self.derivative_is_zero(node) else None
                elif isinstance(derivative, int):
                    found = arrays[derivative].copy() if again else arrays[derivative]
                else:
                    found = np.array(self._leaf_value(run, derivative))
                if self.mode.kind == "tangents":
                    dual.tangent = found
                else:
                    dual.grad = found
        except MemoryError as error:
            raise Unallocated([self.joint.values[node]], run.binding.symbols) from error
        leaves = run.leaves
        for node, leaf, slope in self._slopes:
            duals[node] = Dual(leaves[leaf], arrays[slope], None, node)
        assigned = []
        for buffer, node in self.assignments:
            copied = self.joint.values[node]
            place = self.result_of.get(copied)
            array = self._leaf_value(run, copied) if place is None else arrays[place]
            assigned.append((buffer, array))
        return duals, assigned

    def _check_shape(self, run: Run, index: int, node: Node, arrays: list[Any]) -> None:
        place = self.result_of.get(node)
        value = self._leaf_value(run, node) if place is None else arrays[place]
        if run.leaves[index].shape != value.shape:
            leaf = self.joint.leaves[index]
            raise FeedError(
                f"{leaf.kind} {leaf.source.name!r} has shape {run.leaves[index].shape}, "
                f"but in this run the node has shape {value.shape}"
            )

    def _owned(self, run: Run) -> list[np.ndarray[Any, Any]]:
        """Return the results as arrays that share memory with no leaf and not with each other."""
        arrays = list(run.results)
        taken: set[int] = set()
        for place in self._shared:
            raw = arrays[place]
            array = raw if type(raw) in (np.ndarray, Handed) else np.asarray(raw)
            if array is raw and type(raw) is np.ndarray:
                if not taken:
                    taken.update(map(id, run.leaves))
                    taken.update([id(arrays[place]) for place in self._unshared])
                shows = array.base is not None and not (place in self._alone and _shows_all(array))
                if shows or id(array) in taken or not array.flags.writeable:
                    try:
                        array = np.array(array)
                    except MemoryError as error:
                        node = list(self.result_of)[place]
                        raise Unallocated([node], run.binding.symbols) from error
                taken.add(id(array))
            arrays[place] = array
        return arrays

    def _leaf_value(self, run: Run, node: Node) -> np.ndarray[Any, Any]:
        """Return the value of a leaf: a parameter's own array, a copy of anything else."""
        if node not in self.leaf_index:
            return np.array(node.attrs["value"])
        index = self.leaf_index[node]
        array: np.ndarray[Any, Any] = run.leaves[index]
        return array if self._is_parameter(index) else np.array(array, order="C")

    def derivative_is_zero(self, node: Node) -> bool:
        """Return whether the node's derivative is zero because nothing depends on it."""
        if node.dtype.kind not in "fcV" or self.mode.kind == "forward":
            return False
        return self.mode.kind == "tangents" or any(node is other for other in self.wrt)


def _shown_by_one(result_of: Mapping[Node, int]) -> frozenset[int]:
    """Return the results that are views of a fresh array which no other result is or shows."""
    shown: dict[Node, list[int]] = {}
    for node, place in result_of.items():
        root = node
        while root.op.is_view and not root.is_leaf:
            root = root.inputs[0]
        shown.setdefault(root, []).append(place)
    return frozenset(
        places[0]
        for root, places in shown.items()
        if len(places) == 1 and is_fresh(root) and not root.is_leaf
    )


def _shows_all(array: np.ndarray[Any, Any]) -> bool:
    """Return whether a view shows the whole array that it is a view of, such as its transpose."""
    base = array.base
    return type(base) is np.ndarray and base.size == array.size and base.dtype == array.dtype
