"""`Plan`: what the runs of one mode share: compiled, cut, and bound for each set of sizes.

A plan holds three records.  `Compiled`, the joint graph and what follows from it, exists from the
start.  The `Partition` is made by the plan's cut for the sizes of the first run, and never changes.
A `Binding` is made for each set of sizes; those used latest are kept.

Invariants:

- A plan is cut once.  Another cut is another plan of the same `Compiled` (`cut_anew`), with the
  same bits; runs in flight keep the plan that they started with.
- Partitions and bindings are made under `THIS.making`, one at a time in the process, and a fork
  waits for them.  Existing ones are read without a lock.
- A plan knows no machine, no core and no run.

Callers: any thread that prepares a run; a `Tuner`, under the core's lock; `inspection` and `check`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from actorgraph.errors import FeedError
from actorgraph.graph import Node
from actorgraph.lower.collector import paused
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.cuts import Cut, by_cost, sequential
from actorgraph.lower.fusion import HEAVY_US, heavy_ids
from actorgraph.lower.program import Tabling
from actorgraph.machines.compiled import COUNTED_BYTES, Binding, Compiled
from actorgraph.machines.feeds import Repeats, bind_feeds, by_node, check_dims, settle
from actorgraph.machines.inline import Inline
from actorgraph.machines.partition import UNCUT, Partition, partitioned, table_us, work_us
from actorgraph.machines.process import THIS
from actorgraph.machines.reader import Collected, Names, Reader
from actorgraph.memory.buffers import size_in_bytes
from actorgraph.types import UnboundDim

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents

_BINDINGS_KEPT = 128  # twice what `Repeats` keeps


class Plan:
    """A mode of a machine, cut at its first run, and bound for the sizes of each.

    - `compiled`, `cut`, `partition`, `latest`: its records.  The partition is `UNCUT` before the
      first run; `latest` is the newest binding.
    - `names`: the nodes that its runs may be read for
    - `collect`: makes the results of a run that has succeeded
    - `inline`: the mode as one function, for direct runs
    - `given_costs`: microseconds of the user's nodes, forward, in place of predictions
    - `factors`: for each of the user's nodes, derivative included, actual over predicted cost
    - `workers`: workers that the cut assumes
    - `sequential`: why the mode is one sequence, if it is
    - `result_count`: results that a run receives from its tasks
    - `name`: its name for users: the kind of the mode, or "step"
    - `network`: makes its networks, if not `machines.network.Network`
    - `note`: what `explain` says of it in addition to its cut
    - `repeats`: bindings by the shapes of feeds that have passed all checks
    """

    in_order = "in sequential order"
    """The order in which runs need least memory, for the text of `MemoryLimitError`."""

    def __init__(
        self, compiled: Compiled, cut: Cut, *, names: Names | None = None,
        collect: Callable[[Any], Collected] | None = None, inline: Inline | None = None,
        costs: Mapping[Node, float] | None = None, workers: int = 1,
    ) -> None:  # fmt: skip
        self.compiled, self.cut = compiled, cut
        self.names = names or Names(compiled.nodes, compiled.outputs)
        self.collect = collect or Reader(compiled, self.names.nodes).collect
        self.inline = inline or Inline(compiled)
        self.given_costs, self.workers = costs, workers
        self.factors: Mapping[Node, float] = {}
        self.partition: Partition = UNCUT
        self.sequential: str | None = None
        self.result_count = len(compiled.result_of)
        self.name: str = compiled.mode.kind
        self.network: Callable[..., Any] | None = None
        self.note = ""
        self.repeats = Repeats[Binding]((node.name, node) for node in compiled.inputs)
        self.latest: Binding | None = None
        self._bindings: OrderedDict[tuple[tuple[str, int], ...], Binding] = OrderedDict()
        self._in_sequence: Plan | None = None

    @property
    def weighs(self) -> bool:
        """Whether one sequence replaces the tasks of the cut if these gain too little."""
        return self.cut is by_cost

    # -- other cuts ---------------------------------------------------------------------------

    def cut_anew(self, cut: Cut, factors: Mapping[Node, float], reason: str | None = None) -> Plan:
        """Return a plan of the same joint graph by another cut, with the same bits.

        `reason` says why the mode is one sequence, if the cut is `sequential`.
        """
        other = Plan(
            self.compiled, cut, names=self.names, collect=self.collect, inline=self.inline,
            costs=self.given_costs, workers=self.workers,
        )  # fmt: skip
        other.factors, other.sequential = factors, reason
        return other

    def in_sequence(self) -> Plan:
        """Return the plan of this joint graph that needs least memory: itself, or one sequence."""
        if self.sequential is not None or len(self.partition.tasks) < 2:
            return self
        if self._in_sequence is None:
            reason = "only so it fits into max_bytes"
            self._in_sequence = self.cut_anew(sequential, self.factors, reason)
        return self._in_sequence

    # -- feeds --------------------------------------------------------------------------------

    def checked(
        self, feeds: Any, known: Mapping[str, Node], placing: Residents | None
    ) -> tuple[Sequence[Any], Binding, bool]:
        """Return the arrays of the inputs, their binding, and whether all are C-contiguous.

        `known` are the inputs of the graph, by name.  Raises `FeedError`.
        """
        fed = {} if feeds is None else by_node(feeds, known, "feed")
        settle(fed, placing)
        symbols: dict[str, int] = {}
        inputs = self.compiled.inputs
        arrays = bind_feeds(inputs, fed, symbols)
        if len(fed) > len(arrays):
            # Feeds that this mode does not need are checked, too, and may bind symbols.
            needed = set(inputs)
            bind_feeds([node for node in fed if node not in needed], fed, symbols)
        check_dims(self.compiled.checked, symbols)
        binding = self.bind(symbols)
        if len(fed) == len(arrays):
            self.repeats.keep(arrays, binding)
        return arrays, binding, all(array.flags.c_contiguous for array in arrays)

    def walk_inline(self, inline: Inline) -> None:
        """Replace the functions of `inline` by ones that walk tables.

        A run in progress continues with its function, which is then dropped.
        """
        with THIS.making:
            if self.inline is inline:
                self.inline = inline.with_tables()
                for binding in self.bindings():
                    binding.direct = {}

    # -- sizes --------------------------------------------------------------------------------

    @property
    def only_binding(self) -> Binding | None:
        """The binding of all runs so far, None if there were several or none."""
        return self.latest if len(self._bindings) == 1 else None

    def bindings(self) -> list[Binding]:
        """Return the bindings that are kept."""
        return list(self._bindings.values())

    def bind(self, symbols: Mapping[str, int]) -> Binding:
        """Return the binding for these sizes, made if there is none."""
        key = tuple(sorted(symbols.items()))
        try:
            self._bindings.move_to_end(key)
            return self._bindings[key]
        except KeyError:  # another thread may have dropped it meanwhile
            return self._bind(key, symbols)

    def _bind(self, key: tuple[tuple[str, int], ...], symbols: Mapping[str, int]) -> Binding:
        with THIS.making:
            binding = self._bindings.get(key)  # another thread was faster
            if binding is not None:
                return binding
            try:
                with paused():
                    binding = self._make_binding(dict(symbols))
            except UnboundDim as missing:
                raise FeedError(
                    f"no feed binds the dim {missing.args[0]!r}; feed an input that has it, "
                    "even if no result depends on its values"
                ) from None
            self._bindings[key] = self.latest = binding
            while len(self._bindings) > _BINDINGS_KEPT:
                self._bindings.popitem(last=False)
        return binding

    def _make_binding(self, symbols: Mapping[str, int]) -> Binding:
        compiled = self.compiled
        if self.given_costs and not self.factors:
            self.factors = self._given_factors(self.given_costs, symbols)
        costs = self._costs(symbols)
        if self.partition is UNCUT:
            # The sizes of the first run decide the cut of all later ones.
            partition, reason = partitioned(
                compiled, self.cut, costs, symbols, self.workers, bool(self.factors)
            )
            self.sequential = self.sequential or reason
            self.partition = partition
        tasks: Sequence[Any] = self.partition.tasks
        lane_of = self.partition.lane_of
        walks = bool(compiled.native) and self.sequential is None and self.workers > 1
        in_tables_us = table_us(tasks, costs) if walks else [0.0] * len(tasks)
        heavy = heavy_ids(costs)
        fed_bytes = sum([size_in_bytes(node, symbols) for node in compiled.inputs])
        results = [size_in_bytes(node, symbols) for node in compiled.result_of]
        return Binding(
            symbols=symbols,
            fed_bytes=fed_bytes,
            is_large=max([fed_bytes, *results]) >= COUNTED_BYTES,
            kernels=[
                compiled.kernel(node, symbols, lane_of.get(node.id), self.sequential is None)
                for node in self.partition.bound
            ],
            heavy=tuple(
                spec_table_us >= HEAVY_US
                or (bool(heavy) and any(not one.op.waits for one in spec.steps if one.id in heavy))
                for spec, spec_table_us in zip(tasks, in_tables_us, strict=True)
            ),
            # Above 0, for ratios divide by it: a graph of leaves alone has no steps.
            predicted_us=work_us(chain.from_iterable([spec.steps for spec in tasks]), costs) or 1.0,
        )

    def tabling(self, errors: Mapping[str, Any] | None) -> Tabling | None:
        """Return how networks of an `np.errstate` run steps as tables, None if they do not."""
        if self.latest is None:
            return None
        tabling = self.compiled.tabling(self.latest.symbols, self.partition.ordered, errors)
        if tabling is None or self.sequential is not None:
            return tabling
        return tabling._replace(strands=1)  # other workers run other tasks

    # -- costs --------------------------------------------------------------------------------

    def cost_us(self, node: Node, symbols: Mapping[str, int]) -> float:
        """Return the predicted microseconds of a joint node, corrected by `factors`."""
        cost = predicted_us(node, symbols)
        source = self.compiled.joint.source
        return cost * self.factors.get(source(node), 1.0) if self.factors else cost

    def _costs(self, symbols: Mapping[str, int]) -> dict[int, float]:
        """Return the costs of all nodes by id; nodes that are alike are predicted once."""
        known: dict[int, float] = {}
        costs, classes = {}, self.compiled.classes
        for node in self.compiled.joint.order:
            number = classes.get(node.id, -1)
            cost = None if self.factors else known.get(number)
            if cost is None:
                cost = self.cost_us(node, symbols)
                if number >= 0:
                    known[number] = cost
            costs[node.id] = cost
        return costs

    def _given_factors(
        self, costs: Mapping[Node, float], symbols: Mapping[str, int]
    ) -> dict[Node, float]:
        joint = self.compiled.joint
        forward = [(joint.source(node), node) for node in joint.forward]
        return {
            source: costs[source] / predicted_us(node, symbols)
            for source, node in forward
            if source in costs
        }
