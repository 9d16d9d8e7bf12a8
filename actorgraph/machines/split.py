"""`Split`: a machine's runs as slices of their batch, at once, with results joined in slice order.

What is cut and how slices are joined is told in `batching`.  Slice j of run r draws random numbers
as run ``r * n + j``.  Buffers are read by all slices before any is assigned, and get one value per
run: a float buffer the mean of what the slices assign, weighted by their rows (hence running means
over a batch are those of the whole batch), any other what the last slice assigns.

What it brings depends on how busy workers are without it.  A slice costs 70 us, and what an op
does once for each call; slices give workers that one sequence leaves idle something to do.  Large
products are shared in tiles anyway.  Measured against unsplit runs, two slices on two cores that
others used too, best of each: MLP 128x784x512, forward and backward 1.00, step 0.99; batch 512,
0.91 and 0.86; MLP 32x64x32, which takes 78 us, 2.9.  With one worker there is nothing to gain: two
slices took 1.1 to 1.2 times the processor time of the unsplit run on one, 2.9 times for the small.

>>> import numpy as np
>>> import actorgraph as ag
>>> g = ag.Graph()
>>> x = g.input("x", ("batch", 2), "float64")
>>> w = g.parameter("w", np.ones(2))
>>> loss = (x * w).sum(axis=1).mean()
>>> with ag.ActorMachine([loss], split_batch=2) as machine:
...     run = machine.run_sync({"x": np.arange(6.0).reshape(3, 2)}, backward=True)
>>> float(run[loss].value), run[w].grad
(5.0, array([2., 3.]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from actorgraph.dual import Dual
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from actorgraph.graph import Node, topological_order
from actorgraph.lower.buffers import Unallocated
from actorgraph.lower.joint import Mode
from actorgraph.machines.batching import (
    Reduce,
    axis_of,
    check_inputs,
    depending_on,
    reduction_of,
    sliced,
    stretches,
    terms_of,
)
from actorgraph.machines.feeds import bind_feeds, check_dims, check_like
from actorgraph.machines.group import Assigned, Group
from actorgraph.machines.preparation import run_of
from actorgraph.machines.run import Run
from actorgraph.op import INPUT
from actorgraph.types import Dim

if TYPE_CHECKING:
    from actorgraph.machines.base import Machine

__all__ = ["Split"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Way:
    """How a value of a run is made of those of slices.

    ``"rows"``: along `axis`.  ``"same"``: all have it.  ``"mean"`` and ``"sum"``: `batch` is
    reduced, and `once`, the terms that do not depend on the dim, added.
    """

    kind: Literal["rows", "same", "mean", "sum"]
    batch: Node
    axis: int | None = None
    once: Node | None = None

    @property
    def terms(self) -> tuple[Node, ...]:
        return (self.batch,) if self.once is None else (self.batch, self.once)


class Split:
    """How the runs of one machine are cut.

    Parameters
    ----------
    outputs : dict
    wrt : sequence of Node
    count : int
        Slices of a run; fewer where the batch has fewer rows.
    dim : str, optional
        Default the one symbol that inputs have as their first dim.
    reduce : "mean" or "sum", optional
        What outputs that have not the dim are, where the graph does not show it.

    Raises
    ------
    GraphError, GraphTypeError, ShapeError
        There is no such dim, or an output or wrt cannot be made of slices.
    """

    def __init__(
        self,
        outputs: Mapping[str, Node],
        wrt: Sequence[Node],
        *,
        count: int,
        dim: str | None,
        reduce: Reduce | None,
    ) -> None:
        nodes = topological_order([*outputs.values(), *wrt])
        inputs = [node for node in nodes if node.op is INPUT]
        self.count, self.reduce = count, reduce
        self.dim = _first_dim(inputs) if dim is None else dim
        check_inputs(inputs, self.dim)
        self._axes = {node: axis_of(node, self.dim) for node in inputs}
        self._depending = depending_on(nodes, self.dim)
        self._ways = {node: self._way(node) for node in (*outputs.values(), *wrt)}
        for node in wrt:
            if self._ways[node].kind in ("mean", "sum"):
                raise GraphTypeError(
                    f"wrt {node!r} depends on {self.dim!r} without having that dim, so slices have "
                    "no gradient of it to join; leave it out of wrt, or run without split_batch"
                )
        first = next(iter(outputs.values()))
        shown = self._ways[first].kind
        if reduce is not None and shown in ("mean", "sum") and shown != reduce:
            raise GraphTypeError(
                f"split_reduce is {reduce!r}, but {first!r} is a {shown} over {self.dim!r}"
            )
        self.outputs = dict(outputs)
        for name, node in outputs.items():
            for place, term in enumerate(self._ways[node].terms):
                if term is not node:
                    self.outputs[f"{name}, term {place}"] = term
        self._varying: dict[Node, bool] = {}

    def _way(self, node: Node) -> _Way:
        axis = axis_of(node, self.dim)
        if axis is not None:
            return _Way("rows", node, axis)
        if node not in self._depending:
            return _Way("same", node)
        batch, once = terms_of(node, self._depending)
        assert batch is not None
        self._depending = depending_on(topological_order([batch, *self._depending]), self.dim)
        kind = reduction_of(batch, self.dim, self._depending) or self.reduce
        if kind is None:
            raise GraphTypeError(
                f"{node!r} depends on {self.dim!r} without having that dim, and its ops do not "
                "show whether it is a mean or a sum over it; say split_reduce='mean' or 'sum'"
            )
        if node.dtype.kind not in ("fcV" if kind == "mean" else "fcViu"):
            raise GraphTypeError(
                f"output {node!r} depends on {self.dim!r} without having that dim, so its slices "
                f"are reduced to their {kind}, which {node.dtype} does not have; convert it with "
                ".astype"
            )
        return _Way(kind, batch, None, once)

    def _axis(self, node: Node) -> int | None:
        """Return the axis of a feed or tangent that is the dim, looked up once."""
        if node not in self._axes:
            self._axes[node] = axis_of(node, self.dim)
        return self._axes[node]

    # -- cutting --------------------------------------------------------------------------------

    def group(
        self,
        machine: Machine,
        given: Mapping[Node, Any],
        mode: Mode,
        seeds: Mapping[Node, Any],
        priority: int,
        run_number: int | None,
        host: Callable[[Callable[[], object]], object] | None,
    ) -> Group:
        """Check everything that a run is given, and make the group of its slices."""
        plan = machine._plan(self._mode(mode))
        symbols: dict[str, int] = {}
        inputs = [*plan.inputs, *(node for node in given if node not in plan.needed)]
        arrays = dict(zip(inputs, bind_feeds(inputs, given, symbols)))
        check_dims(plan.checked, symbols)
        rows = symbols[self.dim]
        what = "seed" if mode.kind == "backward" else "tangent"
        checked = {node: check_like(seeds[node], node, symbols, what) for node in seeds}
        slices = stretches(rows, max(1, min(self.count, rows)))
        shares = tuple([size / rows if rows else 1.0 for _, size in slices])
        brought = [
            self._seeds(checked, place, start, size, shares[place])
            if mode.kind == "backward"
            else self._tangents(checked, start, size)
            for place, (start, size) in enumerate(slices)
        ]
        axes = {node: self._axis(node) for node in inputs}
        first = machine._started().next_number(self.count)
        number = first // self.count
        drawn = self.count * (number if run_number is None else run_number)
        parts = []
        for place, (start, size) in enumerate(slices):
            feeds = {node: sliced(array, axes[node], start, size) for node, array in arrays.items()}
            try:
                part = run_of(
                    machine, plan, feeds, brought[place], priority, host,
                    number=first + place, drawn=drawn + place,
                )  # fmt: skip
            except FeedError as error:
                error.add_note(f"in slice {place}, which has {size} of {rows} rows of {self.dim!r}")
                raise
            parts.append(part)
        nodes = tuple(dict.fromkeys((*machine.outputs.values(), *machine.wrt)))
        return Group(number, parts, partial(self._join, nodes, mode, shares))

    def _mode(self, mode: Mode) -> Mode:
        """Return the mode of a slice: seeds go to the terms that outputs are made of."""
        if mode.kind != "backward":
            return mode
        terms = {term for node in mode.nodes for term in self._ways[node].terms}
        return Mode("backward", tuple(sorted(terms, key=_number)))

    def _seeds(
        self, seeds: Mapping[Node, Array], place: int, start: int, size: int, share: float
    ) -> dict[Node, Array]:
        found: dict[Node, Array] = {}

        def add(node: Node, seed: Array) -> None:
            found[node] = found[node] + seed if node in found else seed

        for node, seed in seeds.items():
            way = self._ways[node]
            once = seed if place == 0 else np.zeros_like(seed)
            if way.kind == "rows":
                add(node, sliced(seed, way.axis, start, size))
            elif way.kind == "same":
                add(node, once)
            else:
                add(way.batch, _weighted(seed, share) if way.kind == "mean" else seed)
                if way.once is not None:
                    add(way.once, once)
        return found

    def _tangents(self, tangents: Mapping[Node, Array], start: int, size: int) -> dict[Node, Array]:
        found = {}
        for node, tangent in tangents.items():
            axis = self._axis(node)
            depends = bool(depending_on(topological_order([node]), self.dim) & {node})
            if axis is None and depends:
                raise GraphTypeError(
                    f"the tangent of {node!r}, which depends on {self.dim!r} without having that "
                    "dim, cannot be given to slices; run without split_batch"
                )
            found[node] = sliced(tangent, axis, start, size)
        return found

    # -- joining --------------------------------------------------------------------------------

    def _join(
        self, nodes: Sequence[Node], mode: Mode, shares: Sequence[float], parts: Sequence[Run]
    ) -> tuple[dict[Node, Dual], Assigned]:
        duals: dict[Node, Dual] = {}
        for node in nodes:
            try:
                duals[node] = self._joined(node, mode, shares, parts)
            except MemoryError as error:
                first = parts[0]
                known = first.plan.joint.values[self._ways[node].batch]
                raise Unallocated([known], first.binding.symbols) from error
        return duals, self._assigned(parts, shares)

    def _joined(
        self, node: Node, mode: Mode, shares: Sequence[float], parts: Sequence[Run]
    ) -> Dual:
        way = self._ways[node]
        dual = Dual(self._together(way, parts, shares, _value), None, None, node)
        if mode.kind == "tangents":
            dual.tangent = self._together(way, parts, shares, _tangent)
        elif mode.kind == "backward":
            grads = [part.duals[node].grad for part in parts]
            if grads[0] is not None:
                joined = way.kind == "rows"
                dual.grad = np.concatenate(grads, way.axis or 0) if joined else _sum(grads)
        return dual

    @staticmethod
    def _together(
        way: _Way, parts: Sequence[Run], shares: Sequence[float], read: Callable[[Dual], Any]
    ) -> Any:
        """Return what is read of the slices as that of the run, None where there is nothing."""
        values = [read(part.duals[way.batch]) for part in parts]
        if way.kind == "same" or values[0] is None:
            return values[0]
        if way.kind == "rows":
            return np.concatenate(values, way.axis or 0)
        if way.kind == "mean":
            values = [_weighted(value, share) for value, share in zip(values, shares)]
        total = _sum(values)
        return total if way.once is None else total + read(parts[0].duals[way.once])

    def _assigned(self, parts: Sequence[Run], shares: Sequence[float]) -> Assigned:
        found: Assigned = []
        for place, (buffer, value) in enumerate(parts[0].plan.assignments):
            arrays = [part.assigned[place][1] for part in parts]
            if not self._varies(value):
                array = arrays[0]
            elif value.dtype.kind in "fcV":
                array = _sum([_weighted(one, share) for one, share in zip(arrays, shares)])
            else:
                array = arrays[-1]
            found.append((buffer, array))
        return found

    def _varies(self, node: Node) -> bool:
        """Return whether what is assigned may differ from slice to slice."""
        if node not in self._varying:
            self._varying[node] = node in depending_on(topological_order([node]), self.dim)
        return self._varying[node]


def _first_dim(inputs: Iterable[Node]) -> str:
    firsts = {str(node.dims[0]) for node in inputs if node.ndim and isinstance(node.dims[0], Dim)}
    found = sorted(name for name in firsts if name.isidentifier())
    if len(found) != 1:
        what = f"several: {', '.join(map(repr, found))}" if found else "none"
        raise ShapeError(
            "split_batch cuts along the symbol that inputs have as their first dim, but there are "
            f"{what}; say split_dim=, or give the inputs such a dim"
        )
    return found[0]


def _number(node: Node) -> int:
    return node.id


def _value(dual: Dual) -> Any:
    return dual.value


def _tangent(dual: Dual) -> Any:
    return dual.tangent


def _weighted(value: Array, share: float) -> Array:
    return np.asarray(value * np.asarray(share, value.dtype))


def _sum(arrays: Sequence[Array]) -> Array:
    """Return the sum from left to right, in the memory of the first array."""
    total = arrays[0]
    for array in arrays[1:]:
        np.add(total, array, out=total)
    return total
