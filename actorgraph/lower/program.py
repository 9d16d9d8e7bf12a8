"""Programs: the code of a task, and the nodes that its numbers stand for.

`lower` (tasks of actors), `lower_directly` (functions) and `lower_loop` (loops) number the values
of some steps and so form a structural key.  Invariant: the key says all that the text depends on;
equal tasks of any graph share one compiled function (`lower.text`).

Machines, kernels of loops and fused steps call these three.  This module knows neither machines
nor arrays; kernels and constants come in when a program is called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from actorgraph.errors import counted, printable
from actorgraph.graph import Node
from actorgraph.lower import keys
from actorgraph.lower.keys import CallKey, DirectKey, LoopKey, StepKey, TaskKey
from actorgraph.lower.parts import FEWEST, Part, cut_steps
from actorgraph.lower.regions import TaskSpec
from actorgraph.lower.stepping import SteppingCode, stepping_code
from actorgraph.lower.text import Code, code_of, direct_code, loop_code

if TYPE_CHECKING:
    from actorgraph.flag import Flag
    from actorgraph.lower.table import Stretch
    from actorgraph.memory.buffers import Buffers
    from actorgraph.op import Op


def constant_value(node: Node) -> Any:
    """Return the array of a constant."""
    return node.attrs["value"]


@dataclass(slots=True, eq=False)
class Program:
    """The code of a task, and the nodes that its numbers stand for.

    - `steps`: all steps of the task, those in parts included
    - `numbers`: number of each value in the text, by node id
    - `items`: what the text calls, in order: steps, and `parts`, which stand for several
    - `kernels`: numbers of the task's kernels that the text itself calls, without those of parts
    - `arrays`: the sizes for `arenas.in_parts`, empty without parts: for each item that writes into
      given arrays the number of these, -1 for a step
    """

    code: Code | SteppingCode
    steps: Sequence[Node]
    numbers: dict[int, int]
    constants: tuple[Node, ...]
    items: Sequence[Node | Subprogram]
    parts: Sequence[Subprogram]
    kernels: Sequence[int]
    arrays: Sequence[int]

    @property
    def make(self) -> Callable[..., Any]:
        """The compiled function."""
        return self.code.make

    @property
    def is_interpreted(self) -> bool:
        """Whether the steps are interpreted until they have been called more often."""
        return isinstance(self.code, SteppingCode) and self.code.compiled is None

    def called(self) -> list[Program]:
        """Return the programs of parts that Python calls, innermost ones where parts have parts."""
        own = [part.program for part in self.parts if not part.is_walked]
        return [one for program in own for one in (program.called() or [program])]

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The begin and end of each range of steps that a table may compute."""
        found, end = [], 0
        for item in self.items:
            begin, end = end, end + (len(item.program.steps) if isinstance(item, Subprogram) else 1)
            if isinstance(item, Subprogram) and item.stretch is not None:
                found.append((begin, end))
        return found

    @property
    def begins_with_walk(self) -> bool:
        """Whether the first item is a part that may be walked."""
        first = self.items[0] if self.items else None
        return isinstance(first, Subprogram) and first.stretch is not None

    @property
    def walked_bytes(self) -> int:
        """The bytes of memory of all tables."""
        return sum([part.stretch.bytes for part in self.parts if part.stretch is not None])

    def step(self, place: int) -> Node:
        """Return the step at a place among the items; for a part, its first step."""
        found = self.items[place]
        return found.program.steps[0] if isinstance(found, Subprogram) else found

    def inner(self, place: int) -> Program | None:
        """Return the program that an item calls: a part, or that of a fused step."""
        found: Any = self.items[place]
        found = found.program if isinstance(found, Subprogram) else found.attrs.get("program")
        return found if isinstance(found, Program) else None

    def callables(
        self, kernels: Sequence[Any], to_device: Callable[[Any], Any],
        symbols: Mapping[str, int] | None = None, calls: int = 0,
    ) -> tuple[list[Any], list[Any]]:  # fmt: skip
        """Return the functions that `make` takes, from the task's kernels, and the constants.

        Without `symbols` the dims are those of each run's binding.  `calls` is how often the steps
        have been called with these dims before.
        """
        made = [kernels[i] for i in self.kernels]
        for part in self.parts:
            called, constants = part.program.callables(
                [kernels[i] for i in part.kernels], to_device
            )
            plain = part.program.make(*called, *constants)
            made.append(
                plain if part.stretch is None else part.stretch.walked(plain, symbols, calls)
            )
        return made, [*map(to_device, self.constants)]

    def expression(self, node: Node, frame: FrameType) -> str:
        """Return how a frame of the program refers to the value of a node."""
        return self.code.expression(self.numbers[node.id], frame)

    def annotated(self, name: str, is_walked: bool = False) -> str:
        """Return the text with the names of nodes as comments; a table may stand for it."""
        code = self.code.written
        lines = code.text.splitlines()
        inner = []
        functions = count()
        for number, place in code.lines.items():
            node, one, item = self.step(place), self.inner(place), self.items[place]
            owner = node.owner
            label = printable(node.name if owner is None else f"{node.op.name} for {owner.name}")
            if one is not None and isinstance(item, Subprogram):
                title = f"the {counted(len(one.steps), 'step')} of f{next(functions)} in {name}"
                lines[number - 1] += f"  # {counted(len(one.steps), 'step')}, from {label} on"
                rows = [] if item.stretch is None else item.stretch.comments()
            else:
                title, rows = f"the steps of {node.name}", []
                lines[number - 1] += f"  # {label}: {node.type}"
            walked = is_walked or (isinstance(item, Subprogram) and item.is_walked)
            inner += [] if one is None else [f"\n{one.annotated(title, walked)}", *rows]
        told = self.code.story if isinstance(self.code, SteppingCode) and not is_walked else ""
        story = [f"# {told}"] if told else []
        return "\n".join([f"# {printable(name)}", *story, *lines, *inner])


class Subprogram(NamedTuple):
    """A part of a task's steps: a function of its own.

    It calls the task's kernels with the numbers `kernels` and writes into that many `arrays`.  If
    it has a `stretch`, a table may compute it.
    """

    program: Program
    kernels: tuple[int, ...]
    arrays: int
    stretch: Stretch | None = None

    @property
    def is_walked(self) -> bool:
        """Whether a table stands for the steps."""
        return self.stretch is not None and self.stretch.covered > 0


CALLS_TILL_ROWS = 100
"""Calls of a part before its rows are written: writing them costs what 150 to 400 walks save."""


FEWEST_ROWS = 6
"""Least rows of a stretch: a walk costs 0.7 us, and a row saves 0.23 us over a call from Python."""


class Tabling(NamedTuple):
    """How steps are to be walked as tables.

    - `symbols`: the binding that decides which arrays are small enough
    - `wait`: whether the first call waits for machine code
    - `ordered`: ids of steps whose strides are in C order (`buffers.regular`)
    - `errors`: `np.errstate` of all runs, None for that of each caller
    - `apart`: ids of steps that turned out to have no row
    - `quick`: whether last bits may change; then long products have kernels faster than rows
    - `largest`: bytes of the largest result of a row, None for the default
    - `others`: writers of rows for internal ops, ``write(rows, step)``
    - `flag`: set by a walk as soon as it has released the GIL
    - `known`: cache of `walkable.kinds` for this binding
    - `classes`: `kernels.class_numbers` of the nodes that steps were made of
    - `planned`: where the arrays lie that runs of a binding, as items, are given; None if unknown
    - `strands`: threads that may walk rows at the same time
    """

    symbols: Mapping[str, int]
    wait: bool
    ordered: Collection[int]
    errors: Mapping[str, Any] | None = None
    apart: Collection[int] = ()
    quick: bool = False
    largest: int | None = None
    others: Mapping[Op, Callable[..., None]] = MappingProxyType({})
    flag: Flag | None = None
    known: dict[int, tuple[Op, Any, str]] | None = None
    strands: int = 1
    classes: Mapping[int, int] = MappingProxyType({})
    planned: Callable[[tuple[tuple[str, int], ...]], Buffers] | None = None


def numbered(things: Iterable[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """Number distinct objects; return the number of each thing, and the objects by number.

    Examples
    --------
    >>> numbered([max, min, max])
    ((0, 1, 0), [<built-in function max>, <built-in function min>])
    """
    distinct = {id(thing): thing for thing in things}
    number_of = {key: number for number, key in enumerate(distinct)}
    return tuple([number_of[id(thing)] for thing in things]), list(distinct.values())


def lower(
    spec: TaskSpec, kernels: Sequence[int], *, preferred: int, credited_in: Sequence[int],
    credited_out: Sequence[int], bound: Container[int], long_steps: Container[int] = (),
    buffered: Container[int] = (), leaving: Container[int] = (), bulky: Collection[int] = (),
    over: Container[int] = (), tabling: Tabling | None = None,
) -> Program:  # fmt: skip
    """Return the program of a task.

    - `kernels`: the number of each step's kernel; steps may share one
    - `preferred`: port to wait for first: the one that is expected to fill last
    - `credited_in`, `credited_out`: ports and sends (by position) whose channels have credits
    - `bound`: ids of steps whose kernels depend on the run's symbols
    - `long_steps`: ids of steps before which the program tests whether the run is dead
    - `buffered`, `leaving`: ids of steps that write into the turn's buffers, and into arrays that
      leave the turn; the run's kernel ``kb`` leases these and the arena (`arenas.Layout.lease`), or
      returns as many None
    - `bulky`: ids of steps whose results must be dropped at once; only a task without any has parts
    - `over`: ids of steps that overwrite their first operand
    """
    numbers: dict[int, int] = {}
    ports = []
    count = 0
    for port in spec.ports:
        ports.append(len(port.nodes) if port.kind in ("bundle", "residual") else -1)
        for number, node in enumerate(port.nodes, count):
            numbers[node.id] = number
        count += len(port.nodes) or 1
    how = _how(spec.steps, bound, long_steps, buffered, leaving, over)
    within: Sequence[tuple[int, int]] = ()
    gaps: Sequence[tuple[int, int]] = ()
    if len(spec.steps) >= FEWEST_ROWS:  # else there is neither a table nor a part
        within = _stretches(spec.steps, how, tabling)
        gaps = _gaps(spec.steps, how, within, bulky)
    if how:
        how[0] &= ~keys.LONG  # the turn has just tested it
    made = _Numbering(numbers, count)
    kept = spec.kept if within or gaps else ()
    _take(made, spec.steps, kernels, how, (within, gaps), kept, buffered, tabling)
    key = TaskKey(
        tuple(ports),
        tuple(made.keys),
        tuple([numbers[node.id] for node, _ in spec.sends]),
        tuple([made.of(nodes) for nodes, _ in spec.bundles]) if spec.bundles else (),
        tuple(spec.exclusive),
        tuple([numbers[node.id] for node, _ in spec.results]) if spec.results else (),
        preferred,
        tuple(credited_in),
        tuple(credited_out),
    )
    return made.program(code_of(key), spec.steps)


class _Numbering:
    """Builds a program: numbers its values and constants, and collects its calls."""

    def __init__(self, numbers: dict[int, int], first: int) -> None:
        self.numbers, self.next = numbers, first
        self.constants: list[Node] = []
        self.keys: list[StepKey | CallKey] = []
        self.items: list[Node | Subprogram] = []
        self.parts: list[Subprogram] = []
        self.kernels: dict[int, None] = {}

    def of(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        """Return the numbers of values."""
        return tuple([self.numbers[node.id] for node in nodes])

    def take(self, steps: Sequence[Node], kernels: Sequence[int], how: Iterable[int]) -> None:
        """Add steps, each a call of its kernel."""
        self.kernels.update(dict.fromkeys(kernels))
        numbers, constants, number = self.numbers, self.constants, self.next
        for step, kernel, one in zip(steps, kernels, how, strict=True):
            operands = []
            for part in step.inputs:
                operand = numbers.get(part.id)
                if operand is None:  # a constant
                    constants.append(part)
                    operand = numbers[part.id] = -len(constants)
                operands.append(operand)
            # The constructor of a named tuple takes twice as long.
            self.keys.append(tuple.__new__(StepKey, (kernel, tuple(operands), one)))
            numbers[step.id] = number
            number += 1
        self.next = number
        self.items += steps

    def sizes(self) -> tuple[int, ...]:
        """Return the number of arrays of each call that writes, -1 for a step."""
        return tuple(
            [
                item.arrays if isinstance(item, Subprogram) else -1
                for key, item in zip(self.keys, self.items, strict=True)
                if (key.writes if isinstance(key, CallKey) else key.how & keys.INTO)
            ]
        )

    def program(self, code: Code | SteppingCode, steps: Sequence[Node]) -> Program:
        """Return the finished program."""
        return Program(
            code, steps, self.numbers, tuple(self.constants), self.items, self.parts,
            tuple(self.kernels), self.sizes() if self.parts else (),
        )  # fmt: skip


def _stretches(
    steps: Sequence[Node], how: Sequence[int], tabling: Tabling | None
) -> Sequence[tuple[int, int]]:
    """Return the begin and end of each range of steps that a table may compute."""
    if tabling is None:
        return ()
    from actorgraph.lower.table import stretches

    apart = keys.AWAITED | keys.OVER | keys.OWN | keys.GIVES_RUN
    may = [not one & apart for one in how]
    if tabling.apart:
        may = [one and step.id not in tabling.apart for one, step in zip(may, steps, strict=True)]
    if tabling.quick:
        from actorgraph.lower.quick_rows import is_quick

        symbols = tabling.symbols
        may = [one and not is_quick(step, symbols) for one, step in zip(may, steps, strict=True)]
    return stretches(steps, may, tabling)


def _gaps(
    steps: Sequence[Node], how: Iterable[int], within: Sequence[tuple[int, int]],
    bulky: Collection[int], apart: int = 0,
) -> Sequence[tuple[int, int]]:  # fmt: skip
    """Return the ranges beside those `within`, if the steps may be in parts.

    None may be there if there are few, or steps that must not be in parts, by flag or as `bulky`.
    """
    apart |= keys.LONG | keys.AWAITED | keys.OVER
    if len(steps) < FEWEST or any([one & apart for one in set(how)]):  # noqa: C419
        return ()
    if any([step.id in bulky for step in steps]):  # noqa: C419
        return ()
    edges = [0, *[edge for one in within for edge in one], len(steps)]
    return [one for one in zip(edges[::2], edges[1::2], strict=True) if one[0] < one[1]]


def _take(
    made: _Numbering, steps: Sequence[Node], kernels: Sequence[int], how: Sequence[int],
    within: tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]], kept: Collection[Node],
    buffered: Container[int], tabling: Tabling | None,
) -> None:  # fmt: skip
    """Add steps; those `within` ranges (of tables, and of others) are cut into parts."""
    done = 0
    tables, gaps = within
    if not (tables or gaps):
        made.take(steps, kernels, how)
        return
    stretched = sorted([(*one, True) for one in tables] + [(*one, False) for one in gaps])
    for part in cut_steps(steps, kept, stretched):
        begin, end = part.begin, part.end
        made.take(steps[done:begin], kernels[done:begin], how[done:begin])
        done, stretch = end, None
        if tabling is not None and part.is_walked:
            from actorgraph.lower.table import Stretch

            own, own_how = steps[begin:end], how[begin:end]
            stretch = Stretch(own, part.given, part.returned, own_how, buffered, tabling)
        _call(made, part, steps, kernels, how, stretch)
    made.take(steps[done:], kernels[done:], how[done:])


def _call(
    made: _Numbering, part: Part, steps: Sequence[Node], kernels: Sequence[int], how: Sequence[int],
    stretch: Stretch | None = None,
) -> None:  # fmt: skip
    """Add the call of a part, which a table may compute."""
    begin, end, given, returned, _, parts = part
    inner = _Numbering({node.id: number for number, node in enumerate(given)}, len(given))
    own, own_how = steps[begin:end], how[begin:end]
    chosen: dict[int, int] = {}
    called = [chosen.setdefault(number, len(chosen)) for number in kernels[begin:end]]
    for one in parts:
        moved = one._replace(begin=one.begin - begin, end=one.end - begin)
        _call(inner, moved, own, called, own_how)
    if not parts:
        inner.take(own, called, own_how)
    sizes = inner.sizes() if parts else None
    key = DirectKey(len(given), tuple(inner.keys), inner.of(returned), True, sizes)
    program = inner.program(stepping_code(key) or direct_code(key), own)
    written = sum([one & keys.INTO > 0 for one in own_how])
    made.parts.append(Subprogram(program, tuple(chosen), written, stretch))
    made.items.append(made.parts[-1])
    made.keys.append(CallKey(made.of(given), len(returned), bool(written)))
    made.numbers.update({node.id: number for number, node in enumerate(returned, made.next)})
    made.next += len(returned)


def _how(
    steps: Sequence[Node], bound: Container[int], long_steps: Container[int],
    buffered: Container[int], leaving: Container[int], over: Container[int] = (),
) -> list[int]:  # fmt: skip
    """Return how each step is called."""
    found = []
    for step in steps:
        number, (how, by_name) = step.id, _how_by_op(step.op)
        if number in buffered:
            how |= keys.BUFFERED | by_name
        elif number in leaving:
            how |= keys.LEAVING | by_name
        elif number in over:
            how |= keys.OVER | by_name
        if number in bound:
            how |= keys.BOUND
        if number in long_steps:
            how |= keys.LONG
        found.append(how)
    return found


@lru_cache(maxsize=1024)
def _how_by_op(op: Op) -> tuple[int, int]:
    """Return how an op is called, and what is added if it writes into a given array."""
    how = keys.AWAITED if op.waits else 0
    if op.checked and not op.waits:
        how |= keys.OWN
    if op.kernel is not None:
        how |= keys.GIVES_RUN
    # A forward may have any number of operands; NumPy deprecates a third one of these two.
    return how, keys.BY_NAME if op.ufunc in (None, "maximum", "minimum") else 0


def lower_directly(
    steps: Sequence[Node], leaves: Sequence[Node], results: Sequence[Node],
    buffered: Container[int] = (), bound: Container[int] | None = None,
    tabling: Tabling | None = None, leaving: Container[int] = (),
    bulky: Collection[int] | None = None,
) -> Program:  # fmt: skip
    """Return a program that is a plain function of its leaves, without messages.

    ``make(*kernels, *constants, *buffers)`` returns ``program(*leaf values)``; there is a buffer
    (or None) for each of the `buffered` and `leaving` steps, in order.  Given the ids of `bound`
    nodes, whose kernels depend on the run's symbols, it is ``program(run, (), *leaf values)``.
    With steps that wait it is a generator: it yields each of their kernels with the operands, is
    sent the result or thrown the exception, and returns the results.  If there are many steps, and
    none is `bulky`, those beside tables are in parts, too; by default they are not.
    """
    made = _Numbering({leaf.id: number for number, leaf in enumerate(leaves)}, len(leaves))
    how = _how(steps, bound or (), (), buffered, leaving)
    within, kernels = _stretches(steps, how, tabling), range(len(steps))
    # Without a run users' ops have the context of the thread, which parts do not know.
    gaps = () if bulky is None else _gaps(steps, how, within, bulky, keys.OWN)
    _take(made, steps, kernels, how, (within, gaps), results, buffered, tabling)
    key = DirectKey(len(leaves), tuple(made.keys), made.of(results), bound is not None)
    return made.program(direct_code(key), steps)


def lower_loop(
    steps: Sequence[Node], leaves: Sequence[Node], results: Sequence[Node], *, carries: int,
    elements: int, saved: Sequence[int], tested: int | None, buffered: Container[int] = (),
    stored: bool = False,
) -> Program:  # fmt: skip
    """Return the program of a loop, with the body's steps inline; leaves as in `LoopKey`.

    ``make(Dead, index, *kernels, *constants)`` returns ``program(run, positions, test, limit,
    tested, captured, carries, arrays, keep, stack, buffers)``, which returns the last carries and
    the number of iterations.

    - ``test(run, (), *tested, *carries)`` returns, in a list, whether there is another iteration.
    - ``keep`` takes the carries `saved` (by number) before each iteration, ``stack`` the results
      behind the carries after it: functions that are called, or arrays if they are `stored`.
    - ``buffers`` has an array or None for each of the `buffered` steps.
    """
    made = _Numbering({leaf.id: number for number, leaf in enumerate(leaves)}, len(leaves))
    made.take(steps, range(len(steps)), _how(steps, (), (), buffered, ()))
    wanted = made.of(results)
    read = {number for step in made.keys for number in step.operands}
    key = LoopKey(
        len(leaves) - 1 - carries - elements, carries, elements, tuple(made.keys), wanted,
        tuple(saved), 0 in read or 0 in wanted, tested, stored,
    )  # fmt: skip
    return made.program(loop_code(key), steps)
