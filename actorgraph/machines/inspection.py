"""Inspection of a machine: programs, planned memory, regions, and where time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from actorgraph.errors import counted
from actorgraph.graph import Node
from actorgraph.lower.fusion import HEAVY_US, is_heavy
from actorgraph.machines.compiled import Binding
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan
from actorgraph.machines.tuner import turns_us
from actorgraph.memory.buffers import peak_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Predicted memory of one mode for the sizes bound last; leaves are not counted.

    Attributes
    ----------
    mode : str
        ``"forward"``, ``"backward"`` or ``"tangents"``; ``"step"`` of a compiled step.
    peak_bytes : int
        Kept memory plus the most bytes of other arrays of one run in sequential order; not what an
        op allocates inside of its call.
    bound_bytes : int
        The liveness lower bound: the most bytes that live at once in sequential order, if every
        array is allocated when it is computed and dies at its last use.  The peak may be lower if
        steps write over an operand.
    kept_bytes : int
        Memory that the machine keeps between runs, for each worker that works on it at once, and
        for each run in flight where the tasks of a run share memory.
    steps, buffered : int
        Steps of the mode, and how many of them write into kept memory.
    """

    mode: str
    peak_bytes: int
    bound_bytes: int
    kept_bytes: int
    steps: int
    buffered: int


def source(plans: Iterable[Plan], networks: Iterable[Network]) -> str:
    """Return the generated programs, with node names as comments."""
    parts = []
    for plan in plans:
        if plan.inline.program is not None:
            parts.append(f"# mode: {plan.name}")
            parts.append(plan.inline.program.annotated("the calling thread"))
    for network in networks:
        parts.append(f"# mode: {network.plan.name}")
        programs = [(task.program, task.spec.name) for task in network.tasks]
        parts += [program.annotated(name) for program, name in programs if program is not None]
    return "\n\n".join(parts)


def costs(plans: Iterable[Plan]) -> dict[str, float]:
    """Return the microseconds of forward calls by node name, for modes that have run."""
    costs_by_name: dict[str, float] = {}
    for plan in [*plans]:
        if plan.latest is not None:
            symbols, joint = plan.latest.symbols, plan.compiled.joint
            for node in joint.forward:
                name = joint.source(node).name
                costs_by_name.setdefault(name, plan.cost_us(node, symbols))
    return costs_by_name


def busiest(
    plans: Iterable[Plan], networks: Iterable[Network], count: int
) -> list[tuple[str, str, float, int]]:
    """Return (node name, op name, seconds, firings) of the nodes that took longest."""
    totals: dict[int, tuple[str, str, float, int]] = {}
    for plan in plans:
        for binding in plan.bindings():
            if binding.direct_turns:
                _share(plan, binding, totals)
    for network in networks:
        for task in network.tasks if isinstance(network, Network) else ():  # lanes have no counts
            node = network.plan.compiled.joint.source(task.spec.region.nodes[0])
            _, _, seconds, turns = totals.get(node.id, ("", "", 0.0, 0))
            totals[node.id] = node.name, node.op.name, seconds + task.seconds, turns + task.turns
    return sorted(totals.values(), key=itemgetter(2), reverse=True)[:count]


def _share(plan: Plan, binding: Binding, totals: dict[int, tuple[str, str, float, int]]) -> None:
    """Add the time of direct runs to the nodes, divided by predicted cost."""
    part = binding.direct_seconds / binding.predicted_us
    counted = set()
    for step in plan.compiled.joint.order:
        node = plan.compiled.joint.source(step)
        _, _, seconds, turns = totals.get(node.id, ("", "", 0.0, 0))
        seconds += part * plan.cost_us(step, binding.symbols)
        turns += 0 if node.id in counted else binding.direct_turns
        counted.add(node.id)
        totals[node.id] = node.name, node.op.name, seconds, turns


def explain(plans: Iterable[Plan], networks: Sequence[Network], workers: int) -> str:
    """Return what runs where and why, for modes that have run."""
    texts = [
        _explanation(plan, turns_us(plan, networks), workers, _tables(plan, networks))
        for plan in plans
        if plan.latest is not None
    ]
    return "\n\n".join(texts) or "nothing has run yet, and regions are cut at the first run"


def _tables(plan: Plan, networks: Iterable[Network]) -> str:
    """Return how many steps may run as tables, how tables have fared, and what is interpreted."""
    found = [plan.inline.program]
    found += [task.program for one in networks if one.plan is plan for task in one.tasks]
    programs = [program for program in dict.fromkeys(found) if program is not None]
    stretches = [part.stretch for one in programs for part in one.parts if part.stretch]
    steps, every = [sum([len(one.steps) for one in some]) for some in (stretches, programs)]
    rows, lines = sum([one.covered for one in stretches]), list[str]()
    if steps:
        where = f"{steps} of {every} steps in {counted(len(stretches), 'stretch')}"
        lines.append(f"tables: {where}; rows of {rows} are written")
    lines += [one.story for one in stretches if one.story]
    parts = [part for one in programs for part in one.called() if part.is_interpreted]
    if parts:
        lines.append(
            f"parts: {len(parts)} {'is' if len(parts) == 1 else 'are'} interpreted step by step, "
            "until calls pay for compiling them"
        )
    return "\n".join(lines)


_WAITS = {
    "loop": "calls wait on the caller's event loop",
    "thread": "calls wait in threads",
    "lane": "waits for a device, and goes on with other runs",
}


def _explanation(plan: Plan, turn_us: Mapping[int, float], workers: int, tables: str) -> str:
    binding = plan.latest
    assert binding is not None
    sizes = ", ".join(f"{name} = {size}" for name, size in binding.symbols.items())
    costs = "refined by measured time" if plan.factors else "predicted"
    if plan.given_costs is not None:
        costs = "given"
    name = f"mode {plan.name}{f' ({sizes})' if sizes else ''}"
    steps, anywhere = counted(len(plan.compiled.joint.order), "step"), counted(workers, "worker")
    lines = [
        f"{name}: {steps}, {binding.predicted_us:.0f} us {costs}",
        f"cut: {_why(plan)}",
    ]
    if plan.note:
        lines.append(plan.note)
    lines += [tables] if tables else []
    lines += _loops(plan)
    if binding.direct_turns:
        mean = binding.direct_seconds / binding.direct_turns * 1e6
        lines.append(
            "small enough to run in the calling thread, without actors: "
            f"{mean:.0f} us each, mean of {binding.direct_turns}"
        )
    rows = [("region", "steps", "predicted us", "measured us", "where")]
    lanes = plan.partition.lanes or [None] * len(binding.heavy)
    for spec, heavy, lane in zip(plan.partition.tasks, binding.heavy, lanes, strict=True):
        cost = sum(plan.cost_us(step, binding.symbols) for step in spec.steps)
        measured = f"{turn_us[spec.index]:.1f}" if spec.index in turn_us else "-"
        where = f"any of {anywhere}" if heavy else "after its input, on the same worker"
        if spec.waits:
            kinds = {step.op.runs_on for step in spec.steps if step.op.waits}
            where = " and ".join(sorted(_WAITS[kind] for kind in kinds))
        elif lane is not None:
            where = lane.name
        elif binding.direct_turns and spec.index not in turn_us:
            where = "in the calling thread"
        rows.append((spec.name, str(len(spec.steps)), f"{cost:.1f}", measured, where))
    if plan.compiled.placing is not None and plan.compiled.placing.captured:
        from actorgraph.lower.capturing import notes

        lines += notes(plan.partition.tasks, lanes, plan.compiled.joint, binding.kernels)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([*lines, *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)])


def _loops(plan: Plan) -> list[str]:
    """Return how loops run, and how much memory they keep."""
    loops, source = [*plan.compiled.loops], plan.compiled.joint.source
    told = [*chain.from_iterable([one.notes for one in loops])]
    told += [(one.node, one.story) for one in loops if getattr(one, "story", "")]
    notes = {
        f"loop {source(node).name!r}{' backward' * (node.owner is not None)}: {text}": None
        for node, text in told
    }
    kept_bytes = sum([one.kept_bytes for one in loops])
    return [
        *sorted(notes),
        *([f"loops keep {kept_bytes} bytes between runs"] if kept_bytes else []),
    ]


def _why(plan: Plan) -> str:
    if plan.sequential is not None:
        return f"one sequence, since {plan.sequential}"
    if not plan.weighs:
        text = plan.cut.__doc__ or plan.cut.__name__
        return text.partition("\n")[0].removesuffix(".")
    binding = plan.latest
    assert binding is not None
    steps = [plan.cost_us(step, binding.symbols) for step in plan.compiled.joint.order]
    heavy = sum(cost for cost in steps if is_heavy(cost))
    regions = counted(len({spec.region.index for spec in plan.partition.tasks}), "region")
    return (
        f"{regions}, since steps of {HEAVY_US:.0f} us and more make up {heavy:.0f} us; "
        "cheap steps join the region of their inputs"
    )


def memory_plan(plans: Iterable[Plan], *, lends: bool) -> list[MemoryPlan]:
    """Return the planned memory of modes that have run."""
    return [_memory_plan(plan, lends) for plan in plans if plan.latest is not None]


def _memory_plan(plan: Plan, lends: bool) -> MemoryPlan:
    """Return the memory of a plan; with `lends` arrays of results come from free lists."""
    assert plan.latest is not None
    symbols = plan.latest.symbols
    results = list(plan.compiled.result_of)
    inline, tasks = plan.inline, plan.partition
    planned: frozenset[int] = inline.buffered
    from actorgraph.machines.sharing import turns_of
    from actorgraph.memory.packing import assign  # with the first plan

    early: dict[int, int] = {}
    listed: list[Node] = []
    shared: frozenset[int] = frozenset()  # steps that write into memory of their run
    if inline.program is not None:
        order = [*inline.steps]
        kept_bytes = assign(order, results, planned, symbols).total_bytes
    else:
        order, kept_bytes = [], 0
        planned = frozenset().union(*tasks.buffered)
        places = tasks.places(symbols) if lends and plan.workers == 1 else None
        turns = range(len(tasks.tasks)) if places is None else turns_of(tasks.tasks)
        listed = [step for spec in tasks.tasks for step in spec.steps]
        for index in turns:
            spec = tasks.tasks[index]
            preallocated = tasks.preallocated(index, symbols) if lends else ()
            early.update(dict.fromkeys(preallocated, len(order)))
            order += spec.steps
            laid = tasks.buffers(index, None, lends, symbols)
            kept_bytes = max(kept_bytes, laid.total_bytes)
        if places is not None:
            kept_bytes += places.total_bytes
            shared = tasks.over.union(places.where)
            early.update(dict.fromkeys(places.hosts, 0))
    fresh = peak_bytes(order, results, symbols, without=planned | shared, early=early)
    return MemoryPlan(
        mode=plan.name,
        peak_bytes=kept_bytes + fresh,
        bound_bytes=peak_bytes(listed or order, results, symbols),
        kept_bytes=kept_bytes,
        steps=len(order),
        buffered=len(planned),
    )
