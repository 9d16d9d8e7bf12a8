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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.dual import Dual
from actorgraph.errors import FeedError, ShapeError
from actorgraph.graph import Node, topological_order
from actorgraph.lower.joint import Mode
from actorgraph.machines.batching import Batching, BatchSlice
from actorgraph.machines.feeds import check_dims, check_like
from actorgraph.machines.group import Assigned, grouped
from actorgraph.machines.reader import duals_of
from actorgraph.machines.rows import Reduce
from actorgraph.machines.run import Run
from actorgraph.op import INPUT
from actorgraph.types import Dim

if TYPE_CHECKING:
    from actorgraph.machines.base import Machine

__all__ = ["Split"]

Array = np.ndarray[Any, Any]


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
        What an op is that takes the dim away without showing how.

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
        self.count = count
        if dim is None:
            nodes = topological_order([*outputs.values(), *wrt])
            dim = _first_dim([node for node in nodes if node.op is INPUT])
        self._outputs = outputs
        self._new = partial(
            Batching, tuple(outputs.values()), tuple(wrt), dim=dim, reduce=reduce,
            option="split_reduce",
        )  # fmt: skip
        self._batching = self._new()
        self._with_tangents: dict[Any, Batching] = {}

    def _batching_of(self, mode: Mode) -> Batching:
        """Return how batches of a mode are cut: what tangents reach is computed of slices."""
        if mode.kind != "tangents":
            return self._batching
        key = tuple([node.id for node in mode.nodes])
        if key not in self._with_tangents:
            self._with_tangents[key] = self._new(tangents=mode.nodes)
        return self._with_tangents[key]

    def outputs(self, mode: Mode) -> dict[str, Node]:
        """Return what slices compute in a mode: outputs, and the terms that they are made of."""
        batching = self._batching_of(mode)
        found = dict(self._outputs)
        for name, node in self._outputs.items():
            for kind, term in batching.terms(node).items():
                if term is not node:
                    found[f"{name}, {kind}"] = term
        return found

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
    ) -> Run:
        """Check everything that a run is given, and make the group of its slices."""
        batching = self._batching_of(mode)
        plan = machine._plan(batching.mode(mode))
        arrays, symbols = batching.bind(given, plan.compiled.inputs)
        check_dims(plan.compiled.checked, symbols)
        backward = mode.kind == "backward"
        what = "seed" if backward else "tangent"
        checked = {node: check_like(seeds[node], node, symbols, what) for node in seeds}
        slices = batching.cut(arrays, symbols, self.count)
        seeded = batching.seeds if backward else batching.tangents
        brought = [{**seeded(checked, one), **one.whole} for one in slices]
        first = machine._started().next_number(self.count)
        number = first // self.count
        drawn = self.count * (number if run_number is None else run_number)
        parts = []
        for one in slices:
            try:
                part = machine._run_of(
                    plan, one.feeds, brought[one.number], priority, host,
                    number=first + one.number, drawn=drawn + one.number,
                )  # fmt: skip
            except FeedError as error:
                rows = symbols[batching.dim]
                error.add_note(
                    f"in slice {one.number}, which has {one.rows} of {rows} rows of "
                    f"{batching.dim!r}"
                )
                raise
            parts.append(part)
        nodes = tuple(dict.fromkeys((*machine.outputs.values(), *machine.wrt)))
        return grouped(number, parts, partial(_joined, batching, nodes, mode, slices))


def _joined(
    batching: Batching,
    nodes: Sequence[Node],
    mode: Mode,
    slices: Sequence[BatchSlice],
    parts: Sequence[Run],
) -> tuple[dict[Node, Dual], Assigned]:
    """Return the results of a run, and what it assigns to buffers."""
    values = parts[0].plan.compiled.joint.values

    def terms(node: Node) -> list[Node]:
        return [values[term] for term in batching.terms(node).values()]

    def value(node: Node) -> Any:
        return batching.joined(node, partial(_values, parts), slices)

    def derivative(node: Node, value: Any) -> Any:
        if mode.kind == "tangents":
            return batching.joined(node, partial(_tangents, parts), slices)
        grads = [part.duals[node].grad for part in parts]
        if grads[0] is None:
            return None
        rows = batching.axis_of(node) is not None
        return batching.concatenated(node, grads) if rows else _sum(grads)

    symbols = parts[0].binding.symbols
    duals = duals_of(nodes, mode.kind, value, derivative, terms, symbols)
    return duals, _assigned(batching, slices, parts)


def _values(parts: Sequence[Run], node: Node) -> list[Any]:
    return [part.duals[node].value for part in parts]


def _tangents(parts: Sequence[Run], node: Node) -> list[Any]:
    return [part.duals[node].tangent for part in parts]


def _assigned(batching: Batching, slices: Sequence[BatchSlice], parts: Sequence[Run]) -> Assigned:
    found: Assigned = []
    for place, (buffer, value) in enumerate(parts[0].plan.compiled.assignments):
        arrays = [part.assigned[place][1] for part in parts]
        if not batching.rows.varies(value):
            array = arrays[0]
        elif value.dtype.kind in "fcV":
            array = batching.averaged(arrays, slices)
        else:
            array = arrays[-1]
        found.append((buffer, array))
    return found


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


def _sum(arrays: Sequence[Array]) -> Array:
    """Return the sum from left to right, in the memory of the first array."""
    total = arrays[0]
    for array in arrays[1:]:
        np.add(total, array, out=total)
    return total
