"""Programs: the code of a task, and which of the task's nodes stand where in it.

`lower` and `lower_directly` number the values of a task; tasks that are equal but for their nodes
have one structural key, hence one compiled function (`lower.text`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from actorgraph.errors import printable
from actorgraph.graph import Node
from actorgraph.lower.keys import (
    AWAITED,
    BOUND,
    BUFFERED,
    BY_NAME,
    GIVES_RUN,
    LEAVING,
    LONG,
    OVER,
    OWN,
    CallKey,
    DirectKey,
    LoopKey,
    StepKey,
    TaskKey,
)  # fmt: skip
from actorgraph.lower.parts import FEWEST, cut_steps
from actorgraph.lower.regions import TaskSpec
from actorgraph.lower.text import Code, code_of, direct_code, loop_code

__all__ = ["Program", "Subprogram", "lower", "lower_directly", "lower_loop", "numbered"]


@dataclass(slots=True, eq=False)
class Program:
    """The code of a task, and which nodes its numbers stand for.

    Attributes
    ----------
    code : Code
    steps : sequence of Node
    numbers : dict
        Joint node id to number.
    constants : tuple of Node
    parts : tuple of Subprogram
        What the text calls in place of the steps.
    """

    code: Code
    steps: Sequence[Node]
    numbers: dict[int, int]
    constants: tuple[Node, ...]
    parts: tuple[Subprogram, ...] = ()

    @property
    def filename(self) -> str:
        """The name by which tracebacks know the text."""
        return self.code.filename

    @property
    def make(self) -> Callable[..., Any]:
        """The compiled function."""
        return self.code.make

    @property
    def arrays(self) -> list[int]:
        """How many arrays each part writes into, of those that write; nothing without parts."""
        return [part.arrays for part in self.parts if part.arrays]

    def step(self, line: int) -> Node:
        """Return the step whose kernel is called in a line of the text, or the first of a part."""
        place = self.code.lines[line]
        return self.parts[place].program.steps[0] if self.parts else self.steps[place]

    def inner(self, line: int) -> Program | None:
        """Return the program that a line of the text calls: a part, or that of a fused step."""
        if self.parts:
            return self.parts[self.code.lines[line]].program
        found = self.step(line).attrs.get("program")
        return found if isinstance(found, Program) else None

    def callables(
        self, kernels: Sequence[Any], to_device: Callable[[Any], Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return what the text calls, given the task's kernels, and its constants."""
        if not self.parts:
            return list(kernels), [to_device(node.attrs["value"]) for node in self.constants]
        made = []
        for program, chosen, _ in self.parts:
            called, constants = program.callables([kernels[i] for i in chosen], to_device)
            made.append(program.make(*called, *constants))
        return made, []

    def expression(self, node: Node) -> str:
        """Return how the text refers to the value of a node."""
        return self.code.expressions[self.numbers[node.id]]

    def annotated(self, name: str) -> str:
        """Return the text with the names of nodes as comments."""
        lines = self.code.text.splitlines()
        inner = []
        for number, place in self.code.lines.items():
            node, one = self.step(number), self.inner(number)
            owner = node.owner
            label = printable(node.name if owner is None else f"{node.op.name} for {owner.name}")
            if self.parts and one is not None:
                title = f"the {len(one.steps)} steps of f{place} in {name}"
                lines[number - 1] += f"  # {len(one.steps)} steps, from {label} on"
            else:
                title = f"the steps of {node.name}"
                lines[number - 1] += f"  # {label}: {node.type}"
            inner += [] if one is None else [f"\n{one.annotated(title)}"]
        return "\n".join([f"# {printable(name)}", *lines, *inner])


class Subprogram(NamedTuple):
    """A part of a task's steps, which is a function.

    Attributes
    ----------
    program : Program
    kernels : tuple of int
        Numbers of the task's kernels that it calls.
    arrays : int
        How many it writes into.
    """

    program: Program
    kernels: tuple[int, ...]
    arrays: int


def numbered(things: Iterable[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """Return a number for each thing, one for one object, and the objects by number.

    Examples
    --------
    >>> numbered([max, min, max])
    ((0, 1, 0), [<built-in function max>, <built-in function min>])
    """
    distinct = {id(thing): thing for thing in things}
    number_of = {key: number for number, key in enumerate(distinct)}
    return tuple([number_of[id(thing)] for thing in things]), list(distinct.values())


def lower(
    spec: TaskSpec,
    kernels: Sequence[int],
    *,
    preferred: int,
    credited_in: Sequence[int],
    credited_out: Sequence[int],
    bound: Container[int],
    long_steps: Container[int] = (),
    buffered: Container[int] = (),
    leaving: Container[int] = (),
    bulky: Container[int] = (),
    over: Container[int] = (),
) -> Program:
    """Return the program of a task.

    Parameters
    ----------
    spec : TaskSpec
    kernels : sequence of int
        The number of each step's kernel; steps may share one.
    preferred : int
        Port to wait for first: the one that fills last.
    credited_in, credited_out : sequence of int
        Ports and sends (by position, increasing) whose channels have credits.
    bound : container of int
        Ids of nodes whose kernels depend on the run's symbols.
    long_steps : container of int
        Ids of nodes before which the program looks whether the run is still wanted.
    buffered, leaving : container of int
        Ids of the steps that write into memory of the turn, and into arrays that leave it; the
        run's kernels have at the index ``kb`` what returns these and the arena, or as many None; a
        list of them for each part that writes.
    bulky : container of int
        Ids of steps whose results are to be forgotten at once; tasks with none may be in parts.
    over : container of int
        Ids of the steps that write over their first operand.
    """
    numbers: dict[int, int] = {}
    ports = []
    count = 0
    for port in spec.ports:
        ports.append(len(port.nodes) if port.kind in ("bundle", "residual") else -1)
        for number, node in enumerate(port.nodes, count):
            numbers[node.id] = number
        count += len(port.nodes) or 1
    how = [_how(step, bound, long_steps, buffered, leaving, over) for step in spec.steps]
    steps: tuple[StepKey, ...] = ()
    constants: tuple[Node, ...] = ()
    parts: tuple[Subprogram, ...] = ()
    calls: tuple[CallKey, ...] = ()
    if _may_be_in_parts(spec.steps, how, bulky):
        parts, calls = _in_parts(spec, kernels, how, numbers, count)
    else:
        steps, constants = _numbered_steps(spec.steps, kernels, how, numbers, count)
    key = TaskKey(
        tuple(ports),
        steps,
        tuple([numbers[node.id] for node, _ in spec.sends]),
        tuple([tuple([numbers[node.id] for node in nodes]) for nodes, _ in spec.bundles]),
        tuple(spec.exclusive),
        tuple([numbers[node.id] for node, _ in spec.results]),
        preferred,
        tuple(credited_in),
        tuple(credited_out),
        calls,
    )
    return Program(code_of(key), spec.steps, numbers, constants, parts)


def _may_be_in_parts(steps: Sequence[Node], how: Iterable[int], bulky: Container[int]) -> bool:
    if len(steps) < FEWEST or any([one & (LONG | AWAITED | OVER) for one in how]):  # noqa: C419
        return False
    return not any([step.id in bulky for step in steps])  # noqa: C419


def _in_parts(
    spec: TaskSpec,
    kernels: Sequence[int],
    how: Sequence[int],
    numbers: dict[int, int],
    first: int,
) -> tuple[tuple[Subprogram, ...], tuple[CallKey, ...]]:
    """Return the parts of a task and how they are called; number what they return."""
    parts: list[Subprogram] = []
    calls: list[CallKey] = []
    for begin, end, given, returned in cut_steps(spec.steps, spec.kept):
        steps = spec.steps[begin:end]
        inner = {node.id: number for number, node in enumerate(given)}
        chosen: dict[int, int] = {}
        called = [chosen.setdefault(number, len(chosen)) for number in kernels[begin:end]]
        found, constants = _numbered_steps(steps, called, how[begin:end], inner, len(given))
        key = DirectKey(len(given), found, tuple([inner[node.id] for node in returned]), True)
        arrays = len([one for one in how[begin:end] if one & (BUFFERED | LEAVING)])
        program = Program(direct_code(key), steps, inner, constants)
        parts.append(Subprogram(program, tuple(chosen), arrays))
        calls.append(
            CallKey(tuple([numbers[node.id] for node in given]), len(returned), arrays > 0)
        )
        numbers.update({node.id: number for number, node in enumerate(returned, first)})
        first += len(returned)
    return tuple(parts), tuple(calls)


def _how(
    step: Node,
    bound: Container[int],
    long_steps: Container[int],
    buffered: Container[int],
    leaving: Container[int],
    over: Container[int] = (),
) -> int:
    number = step.id
    how = 0
    if number in bound:
        how |= BOUND
    if number in long_steps:
        how |= LONG
    if step.op.waits:
        how |= AWAITED
    if number in buffered:
        how |= BUFFERED
    elif number in leaving:
        how |= LEAVING
    elif number in over:
        how |= OVER
    # Forwards may have any number of operands; of these two NumPy deprecates a third one.
    if how >= BUFFERED and step.op.ufunc in (None, "maximum", "minimum"):
        how |= BY_NAME
    if step.op.checked and not step.op.waits:
        how |= OWN
    if step.op.kernel is not None:
        how |= GIVES_RUN
    return how


def _numbered_steps(
    steps: Sequence[Node],
    kernels: Iterable[int],
    how: Iterable[int],
    numbers: dict[int, int],
    first: int,
) -> tuple[tuple[StepKey, ...], tuple[Node, ...]]:
    """Return the steps by number, and the constants; note the numbers of both."""
    constants: list[Node] = []
    found = []
    number = first
    for step, kernel, one in zip(steps, kernels, how, strict=True):
        operands = []
        for part in step.inputs:
            operand = numbers.get(part.id)
            if operand is None:  # a constant
                constants.append(part)
                operand = numbers[part.id] = -len(constants)
            operands.append(operand)
        found.append(StepKey(kernel, tuple(operands), one))
        numbers[step.id] = number
        number += 1
    return tuple(found), tuple(constants)


def lower_directly(
    steps: Sequence[Node],
    leaves: Sequence[Node],
    results: Sequence[Node],
    buffered: Container[int] = (),
    bound: Container[int] | None = None,
) -> Program:
    """Return a program that a thread calls by itself: leaves in, results out, no messages.

    ``make(*kernels, *constants, *buffers)`` returns ``program(*leaf values)``; there is a buffer
    (or None) for each of the `buffered` steps, in the order of `steps`.  Given the ids of `bound`
    nodes, whose kernels depend on the run's symbols, it is ``program(run, (), *leaf values)``.
    With steps that wait the program is a generator: it yields each of their kernels with the
    operands, is sent the result (or has what was raised thrown into it), and returns the results.
    """
    numbers = {leaf.id: number for number, leaf in enumerate(leaves)}
    how = [_how(step, bound or (), (), buffered, ()) for step in steps]
    found, constants = _numbered_steps(steps, range(len(steps)), how, numbers, len(leaves))
    wanted = tuple([numbers[node.id] for node in results])
    key = DirectKey(len(leaves), found, wanted, bound is not None)
    return Program(direct_code(key), steps, numbers, constants)


def lower_loop(
    steps: Sequence[Node],
    leaves: Sequence[Node],
    results: Sequence[Node],
    *,
    carries: int,
    elements: int,
    saved: Sequence[int],
    tested: int | None,
    buffered: Container[int] = (),
    stored: bool = False,
) -> Program:
    """Return the program of a loop, with the steps of its body in place.

    ``make(Dead, index, *kernels, *constants)`` returns ``program(run, positions, test, limit,
    tested, captured, carries, arrays, keep, stack, buffers)``, which returns the last carries and
    the number of iterations; ``keep`` and ``stack`` are called with what is `saved` (carries, by
    number) before each iteration, and with what results behind the carries, or are arrays into
    which that is `stored`.  ``test(run, (), *tested, *carries)`` returns, in a list, whether there
    is another iteration.

    Parameters
    ----------
    steps, leaves, results : sequence of Node
        Of the body; the leaves in the order of `LoopKey`.
    carries, elements : int
    saved : sequence of int
    tested : int, optional
    buffered : container of int
        Ids of the steps for each of which there is an array among the buffers, or None.
    """
    numbers = {leaf.id: number for number, leaf in enumerate(leaves)}
    how = [_how(step, (), (), buffered, ()) for step in steps]
    found, constants = _numbered_steps(steps, range(len(steps)), how, numbers, len(leaves))
    wanted = tuple([numbers[node.id] for node in results])
    read = {number for step in found for number in step.operands}
    key = LoopKey(
        len(leaves) - 1 - carries - elements, carries, elements, found, wanted, tuple(saved),
        0 in read or 0 in wanted, tested, stored,
    )  # fmt: skip
    return Program(loop_code(key), steps, numbers, constants)
