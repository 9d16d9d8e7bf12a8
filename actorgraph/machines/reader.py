"""`Reader`: makes the Duals of a run from the results of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from actorgraph.devices import Handed
from actorgraph.dual import Dual
from actorgraph.errors import FeedError, GraphError, near_names, shown
from actorgraph.graph import Node
from actorgraph.machines.compiled import Compiled
from actorgraph.memory.buffers import Unallocated, is_fresh
from actorgraph.node import Parameter, Variable
from actorgraph.runs import AbstractRun
from actorgraph.store import PROMISES, Held, present
from actorgraph.types import UNKNOWN

Collected = tuple[dict[Node, Dual], Sequence[tuple[Variable, Any]]]
"""The Duals of a successful run, and the arrays that it assigns to variables."""


class Names:
    """The nodes that runs of a plan may be read for; keys of `more` are names, too, and win."""

    def __init__(self, nodes: Sequence[Node], more: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self._by_name = {**{node.name: node for node in nodes}, **more}

    def readable(self, key: object) -> Node:
        """Return the node for a `key` of a run, or raise `KeyError`."""
        named = self._by_name.get(key) if isinstance(key, str) else None
        if named is not None:
            return named
        if isinstance(key, Held):
            try:
                key = self.nodes[0].graph.bound(key)
            except GraphError as error:
                raise KeyError(str(error)) from None
        if isinstance(key, Node):
            if any(key is node for node in self.nodes):
                return key
            if all(key.graph is not node.graph for node in self.nodes):
                raise KeyError(f"{key!r} belongs to another graph than this machine")
            key = key.name
        if isinstance(key, int):  # also for `loss, y = run`
            raise KeyError(
                f"{shown(key)} is neither an output nor a wrt of this machine, and a run is no "
                "sequence: a result is a Dual; its array is run[node].value"
            )
        near = near_names(key, self._by_name)
        raise KeyError(
            f"{shown(key)} is neither an output nor a wrt of this machine{near}; name it among "
            f"the outputs to read it; readable are {', '.join(map(repr, self._by_name))}"
        )


class Reader:
    """Makes the Duals of outputs and wrt, of arrays that are the caller's own."""

    def __init__(
        self, compiled: Compiled, nodes: Iterable[Node], *, derivatives: bool = True
    ) -> None:
        nodes = tuple(dict.fromkeys(nodes))
        self._compiled = compiled
        self._kind = compiled.mode.kind if derivatives else "forward"
        joint, result_of = compiled.joint, compiled.result_of
        zero = compiled.derivative_is_zero
        self._zeros = {node for node in nodes if derivatives and zero(node)}
        self._unsized = self._open_shapes()
        self._sole_views = _sole_view_places(result_of)
        self._scalars: list[int] = []  # results that NumPy may return as scalars
        self._shared: list[int] = []  # results that may share memory with others
        self._unshared: list[int] = []
        slopes = joint.derivatives if derivatives else {}
        read = set(joint.values.values())
        handed_out = {*read, *slopes.values()}
        for result, number in result_of.items():
            if result in handed_out:
                own = self._unshared if result.dims else self._scalars
                (own if result.op.makes_own else self._shared).append(number)
        # The most common results are read in 0.1 us instead of 0.4: computed values without a
        # derivative, parameters and their gradients.
        self._fresh: list[tuple[Node, int]] = []
        self._slopes: list[tuple[Node, int, int]] = []
        self._parameters: list[tuple[Node, int]] = []  # of which no derivative is asked
        self._others: list[tuple[Node, int | Node, int | Node | None, bool]] = []
        for node in nodes:
            value, derivative = joint.values[node], slopes.get(node)
            known = result_of.get(value, value)
            place = None if derivative is None else result_of.get(derivative, derivative)
            again = derivative is not None and derivative in read
            if isinstance(known, int) and derivative is None and node not in self._zeros:
                self._fresh.append((node, known))
            elif (
                self._kind == "backward" and isinstance(place, int) and not again
                and self._is_parameter(compiled.leaf_index.get(value))
            ):  # fmt: skip
                self._slopes.append((node, compiled.leaf_index[value], place))
            elif self._kind == "forward" and self._is_parameter(compiled.leaf_index.get(value)):
                self._parameters.append((node, compiled.leaf_index[value]))
            else:
                self._others.append((node, known, place, again))
            if derivative is not None:
                read.add(derivative)
        # Whether there are but fresh values to read.
        others = self._slopes or self._parameters or self._others
        self._is_simple = not (others or self._unsized or compiled.assignments)

    def collect(self, run: AbstractRun) -> Collected:
        """Return the Duals of a successful run, and what it assigns to variables.

        Every array is the caller's own, except that a parameter's value is the array that the run
        has read.  Arrays that would share memory with a feed, a variable or another result are
        copied.  Raises `Unallocated` if there is no memory for that.
        """
        arrays = run.results
        for place in self._scalars:
            raw = arrays[place]
            if type(raw) is not np.ndarray and not isinstance(raw, Handed):
                arrays[place] = np.asarray(raw)
        if self._shared:
            arrays = self._owned(run)
        duals: dict[Node, Dual] = {}
        made = object.__new__  # without `__init__`, which takes a third of the time of a Dual
        for node, place in self._fresh:
            duals[node] = dual = made(Dual)
            dual.value = arrays[place]
            dual.grad = dual.tangent = None
            dual.node = node
        if self._is_simple:
            return duals, ()
        for index, node in self._unsized:
            self._check_shape(run, index, node, arrays)
        if self._others:
            self._read_others(run, arrays, duals)
        compiled, leaves = self._compiled, run.leaves
        if self._slopes:
            if PROMISES.given and compiled.mode.fetch is True:
                for _, leaf, _ in self._slopes:
                    present(leaves[leaf])
            for node, leaf, slope in self._slopes:
                duals[node] = dual = made(Dual)
                dual.value = leaves[leaf]
                dual.grad = arrays[slope]
                dual.tangent = None
                dual.node = node
        for node, leaf in self._parameters:
            duals[node] = dual = made(Dual)
            dual.value = present(leaves[leaf]) if PROMISES.given else leaves[leaf]
            dual.grad = dual.tangent = None
            dual.node = node
        if not compiled.assignments:
            return duals, ()
        return duals, [
            (buffer, self._value(run, compiled.joint.values[value], arrays))
            for buffer, value in compiled.assignments
        ]

    def _read_others(
        self, run: AbstractRun, arrays: Sequence[Any], duals: dict[Node, Dual]
    ) -> None:
        """Add the Duals of nodes that are neither fresh values nor parameters."""
        try:
            for node, value, derivative, again in self._others:
                array = arrays[value] if isinstance(value, int) else self.leaf_value(run, value)
                duals[node] = dual = Dual(array, None, None, node)
                if derivative is None:
                    derived = np.zeros_like(array) if node in self._zeros else None
                elif isinstance(derivative, int):
                    derived = arrays[derivative].copy() if again else arrays[derivative]
                else:
                    derived = np.array(self.leaf_value(run, derivative))
                if self._kind == "tangents":
                    dual.tangent = derived
                else:
                    dual.grad = derived
        except MemoryError as error:
            joint = self._compiled.joint
            raise Unallocated([joint.values[node]], run.binding.symbols) from error

    def own(self, raw: Any, taken: set[int], *, alone: bool = False) -> np.ndarray[Any, Any]:
        """Return a result as an array that shares no memory with arrays `taken` before.

        `taken` has the ids of leaves and other results; this one is added.  `alone` says that no
        other result is, or views, the array that this one may view.  A `Handed` stays as it is.
        """
        if isinstance(raw, Handed):
            return raw  # type: ignore[return-value]
        array = raw if type(raw) is np.ndarray else np.asarray(raw)
        if array is raw:
            shows = array.base is not None and not (alone and _views_all(array))
            if shows or id(array) in taken or not array.flags.writeable:
                array = np.array(array)
            taken.add(id(array))
        owned: np.ndarray[Any, Any] = array
        return owned

    def leaf_value(self, run: AbstractRun, node: Node) -> np.ndarray[Any, Any]:
        """Return the value of a leaf: a parameter's own array, else a copy."""
        index = self._compiled.leaf_index.get(node)
        if index is None:
            return np.array(node.attrs["value"])
        array = run.leaves[index]
        return present(array) if self._is_parameter(index) else np.array(array, order="C")

    def _is_parameter(self, index: int | None) -> bool:
        if index is None:
            return False
        leaf = self._compiled.joint.leaves[index]
        return leaf.kind == "variable" and isinstance(leaf.source, Parameter)

    def _open_shapes(self) -> list[tuple[int, Node]]:
        """Return the seeds and tangents with dims of None, and the nodes they must match in shape.

        Those of nodes that are neither read nor fed are left to NumPy.
        """
        joint = self._compiled.joint
        known = {leaf.source: leaf.node for leaf in joint.leaves if leaf.kind == "feed"}
        known |= joint.values
        return [
            (index, known[leaf.source])
            for index, leaf in enumerate(joint.leaves)
            if leaf.kind in ("seed", "tangent") and leaf.source in known
            if any(dim is UNKNOWN for dim in leaf.source.dims)
        ]

    def _check_shape(self, run: AbstractRun, index: int, node: Node, arrays: Sequence[Any]) -> None:
        value = self._value(run, node, arrays)
        if run.leaves[index].shape != value.shape:
            leaf = self._compiled.joint.leaves[index]
            raise FeedError(
                f"{leaf.kind} {leaf.source.name!r} has shape {run.leaves[index].shape}, "
                f"but in this run the node has shape {value.shape}"
            )

    def _owned(self, run: AbstractRun) -> list[np.ndarray[Any, Any]]:
        """Return the results as arrays that share memory with no leaf, and with no other result."""
        arrays = list(run.results)
        taken: set[int] = set()
        for place in self._shared:
            if not taken and type(arrays[place]) is np.ndarray:
                taken.update(map(id, run.leaves))
                taken.update([id(arrays[one]) for one in (*self._unshared, *self._scalars)])
            try:
                arrays[place] = self.own(arrays[place], taken, alone=place in self._sole_views)
            except MemoryError as error:
                node = list(self._compiled.result_of)[place]
                raise Unallocated([node], run.binding.symbols) from error
        return arrays

    def _value(self, run: AbstractRun, node: Node, arrays: Sequence[Any]) -> Any:
        """Return the value of a joint node, which is a result or a leaf."""
        place = self._compiled.result_of.get(node)
        return self.leaf_value(run, node) if place is None else arrays[place]


def _sole_view_places(result_of: Mapping[Node, int]) -> frozenset[int]:
    """Return the results that view a fresh array which no other result is, or views."""
    shown: dict[Node, list[int]] = {}
    for node, place in result_of.items():
        root = node
        while root.op.memory.is_view and not root.is_leaf:
            root = root.inputs[0]
        shown.setdefault(root, []).append(place)
    return frozenset(
        places[0]
        for root, places in shown.items()
        if len(places) == 1 and is_fresh(root) and not root.is_leaf
    )


def _views_all(array: np.ndarray[Any, Any]) -> bool:
    """Return whether a view has all elements of its base, such as a transpose."""
    base = array.base
    return type(base) is np.ndarray and base.size == array.size and base.dtype == array.dtype
