"""`Plan`: what all runs of one mode have in common: compiled, cut, and bound for each set of sizes.

A plan holds three records.  `Compiled` is there from the beginning: the joint graph and what
follows from it.  `Partition` is made by the plan's cut with the sizes of the first run, and stays.
A `Binding` is made for each set of sizes; those used latest are kept.

Invariants:

- A plan is cut once.  Another cut is another plan of the same `Compiled` (`cut_anew`): runs in
  flight keep the plan that they began with, and bits are the same.
- Partitions and bindings are made under `THIS.making`, one at a time in the process, and a fork
  waits for them.  Whoever finds one that is made takes it without a lock.
- A plan knows no machine, no core and no run.

Who calls it: the thread that prepares a run, whichever that is; a `Tuner`, under the core's lock;
and what shows a machine (`inspection`, `check`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actorgraph.errors import FeedError
from actorgraph.graph import Node
from actorgraph.lower.collector import paused
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.cuts import Cut, by_cost, sequential
from actorgraph.lower.fusion import HEAVY_US, is_heavy
from actorgraph.lower.kernels import alike
from actorgraph.lower.program import Tabling
from actorgraph.machines.binding import Binding
from actorgraph.machines.compiled import Compiled
from actorgraph.machines.inline import Inline
from actorgraph.machines.partition import UNCUT, Partition, partitioned, spent_us, walked_us
from actorgraph.machines.process import THIS
from actorgraph.machines.reader import Collected, Names, Reader
from actorgraph.machines.repeats import Repeats
from actorgraph.machines.tally import COUNTED_BYTES
from actorgraph.memory.buffers import size_in_bytes
from actorgraph.op import attrs_key
from actorgraph.types import UnboundDim

_BINDINGS_KEPT = 128  # twice what `Repeats` keeps


class Plan:
    """A mode of a machine, cut at its first run, and bound for the sizes of each.

    Attributes
    ----------
    compiled, cut, partition, latest : Compiled, Cut, Partition, Binding or None
        Its records, `UNCUT` before the first run; the binding that was made last.
    names : Names
        What its runs may be read for.
    collect : callable
        Makes the results of a run that has succeeded.
    inline : Inline
        The mode as a function, which the calling thread calls.
    given_costs : mapping or None
        Microseconds of the user's nodes, forward, instead of predictions.
    factors : mapping
        How much longer these take, derivative included, than `lower.cost` predicts.
    workers : int
        Those that a cut counts on.
    sequential : str or None
        Why the whole is one sequence, if it is.
    result_count : int
        Results that a run gathers from its tasks.
    name : str
        What users call it: the kind of the mode, or "step".
    network : callable or None
        Makes its networks, where they are not those of `machines.network`.
    note : str
        What `explain` says of it beside its cut.
    repeats : Repeats
        Bindings by the shapes of feeds that have passed all checks.
    """

    in_order = "in sequential order"
    """How runs pass where they hold least, in words."""

    def __init__(
        self,
        compiled: Compiled,
        cut: Cut,
        *,
        names: Names | None = None,
        collect: Callable[[Any], Collected] | None = None,
        inline: Inline | None = None,
        costs: Mapping[Node, float] | None = None,
        workers: int = 1,
    ) -> None:
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
        self.repeats = Repeats[Binding]((node.name, node.dtype) for node in compiled.inputs)
        self.latest: Binding | None = None
        self._bindings: OrderedDict[tuple[tuple[str, int], ...], Binding] = OrderedDict()
        self._in_sequence: Plan | None = None

    @property
    def weighs(self) -> bool:
        """Whether one sequence stands for the tasks of the cut where these gain too little."""
        return self.cut is by_cost

    # -- other cuts ---------------------------------------------------------------------------

    def cut_anew(self, cut: Cut, factors: Mapping[Node, float], reason: str | None = None) -> Plan:
        """Return a plan of the same joint graph, and of the same bits, by another cut.

        Runs of this one go on as they are.  `reason` says why all is one sequence.
        """
        other = Plan(
            self.compiled, cut, names=self.names, collect=self.collect, inline=self.inline,
            costs=self.given_costs, workers=self.workers,
        )  # fmt: skip
        other.factors, other.sequential = factors, reason
        return other

    def in_sequence(self) -> Plan:
        """Return a plan of the same joint graph that holds least: itself, or one sequence."""
        if self.sequential is not None or len(self.partition.tasks) < 2:
            return self
        if self._in_sequence is None:
            reason = "only so it fits into max_bytes"
            self._in_sequence = self.cut_anew(sequential, self.factors, reason)
        return self._in_sequence

    # -- sizes --------------------------------------------------------------------------------

    @property
    def only_binding(self) -> Binding | None:
        """The binding of all runs so far, None where there were several or none."""
        return self.latest if len(self._bindings) == 1 else None

    def bindings(self) -> list[Binding]:
        """Return those that are kept."""
        return list(self._bindings.values())

    def bind(self, symbols: Mapping[str, int]) -> Binding:
        """Return the binding for these symbols; those used latest are kept."""
        key = tuple(sorted(symbols.items()))
        try:
            self._bindings.move_to_end(key)
            return self._bindings[key]
        except KeyError:  # also where another thread has dropped it meanwhile
            return self._bind(key, symbols)

    def _bind(self, key: tuple[tuple[str, int], ...], symbols: Mapping[str, int]) -> Binding:
        with THIS.making:
            found = self._bindings.get(key)  # another thread was faster
            if found is not None:
                return found
            try:
                with paused():
                    found = self._make_binding(dict(symbols))
            except UnboundDim as missing:
                raise FeedError(
                    f"no feed binds the dim {missing.args[0]!r}; feed an input that has it, "
                    "though no result depends on its values"
                ) from None
            self._bindings[key] = self.latest = found
            while len(self._bindings) > _BINDINGS_KEPT:
                self._bindings.popitem(last=False)
        return found

    def _make_binding(self, symbols: Mapping[str, int]) -> Binding:
        compiled = self.compiled
        if self.given_costs and not self.factors:
            self.factors = self._given_factors(self.given_costs, symbols)
        by_node = self._costs(symbols)
        if self.partition is UNCUT:
            # The first run's dims decide the cut; it stands for all later ones.
            found, reason = partitioned(
                compiled, self.cut, by_node, symbols, self.workers, bool(self.factors)
            )
            self.sequential = self.sequential or reason
            self.partition = found
        tasks: Sequence[Any] = self.partition.tasks
        lane_of = self.partition.lane_of
        walks = bool(compiled.native) and self.sequential is None and self.workers > 1
        walked = walked_us(tasks, by_node) if walks else [0.0] * len(tasks)
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
                any(is_heavy(by_node.get(n.id, 0.0)) and not n.op.waits for n in spec.steps)
                or of_table_us >= HEAVY_US
                for spec, of_table_us in zip(tasks, walked, strict=True)
            ),
            # Leaves alone have no steps; ratios divide by it.
            predicted_us=sum([spent_us(spec, by_node) for spec in tasks]) or 1.0,
        )

    def tabling(self, errors: Mapping[str, Any] | None) -> Tabling | None:
        """Return how steps are walked as tables in networks of an `np.errstate`, if they are."""
        if self.latest is None:
            return None
        found = self.compiled.tabling(self.latest.symbols, self.partition.ordered, errors)
        if found is None or self.sequential is not None:
            return found
        return found._replace(strands=1, largest=None)  # workers that run other tasks are busy

    # -- costs --------------------------------------------------------------------------------

    def cost_us(self, node: Node, symbols: Mapping[str, int]) -> float:
        """Return the microseconds that a joint node is taken to need."""
        cost = predicted_us(node, symbols)
        source = self.compiled.joint.source
        return cost * self.factors.get(source(node), 1.0) if self.factors else cost

    def _costs(self, symbols: Mapping[str, int]) -> dict[int, float]:
        """Return the costs of all nodes by id; equal types, which are one object, cost the same."""
        known: dict[Any, float] = {}
        found = {}
        for node in self.compiled.joint.order:
            key: Any = alike(node)
            if node.attrs:
                key = key, attrs_key(node.attrs)
            cost = None if self.factors else known.get(key)
            if cost is None:
                cost = known[key] = self.cost_us(node, symbols)
            found[node.id] = cost
        return found

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
