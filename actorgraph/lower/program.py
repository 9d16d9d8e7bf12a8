"""Program text: a task as a generator in straight-line Python.

The generated function is the actor's coroutine.  Each turn of its loop waits until every port
holds a message (and every credited edge has room), takes one message from each, computes the
steps into local variables, and sends.  Names are canonical (``m0`` message, ``k0`` kernel, ``v0``
value, ``q0`` queue ...), so tasks of the same form share one compiled function; `annotated` prints
the text with node names.

The protocol of waiting, which scheduler and actors share without a lock:

- before it parks, an actor sets ``task.wait`` to the queue that it waits for;
- a producer appends first and looks at ``wait`` of the consumer after;
- the worker looks at ``wait`` again after the coroutine has parked, and makes the actor ready
  once more where the queue has filled in between.

So either the producer sees the marker, or the worker sees the message.  An actor may be made
ready twice; the second turn finds nothing and parks again.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from actorgraph.graph import Node
from actorgraph.lower.regions import TaskSpec
from actorgraph.op import CONSTANT

__all__ = ["Program", "last_uses", "lower", "lower_directly"]


@dataclass(frozen=True, slots=True)
class Program:
    """The text of a task and how to call it.

    Attributes
    ----------
    text, filename : str
        Source of the generator function ``actor``, and the name by which tracebacks know it.
    make : callable
        The compiled function.
    expressions : dict
        Joint node id to the expression by which the text refers to its value.
    lines : dict
        Line of the text to the joint node whose kernel is called there.
    constants : tuple of Node
    """

    text: str
    filename: str
    make: Callable[..., Any]
    expressions: dict[int, str]
    lines: dict[int, Node]
    constants: tuple[Node, ...]

    def annotated(self, name: str) -> str:
        """Return the text with the names of nodes as comments."""
        lines = self.text.splitlines()
        for number, node in self.lines.items():
            label = node.name if node.owner is None else f"{node.op.name} for {node.owner.name}"
            lines[number - 1] += f"  # {label}: {node.type}"
        fused = [(node, node.attrs.get("program")) for node in self.lines.values()]
        inner = [
            f"\n{one.annotated(f'the steps of {node.name}')}"
            for node, one in fused
            if isinstance(one, Program)
        ]
        return "\n".join([f"# {name}", *lines, *inner])


def lower(
    spec: TaskSpec,
    *,
    preferred: int,
    credited_in: set[int],
    credited_out: set[int],
    bound: Container[int],
    long_steps: Container[int] = (),
    buffered: Collection[int] = (),
    leaving: Collection[int] = (),
) -> Program:
    """Return the program of a task.

    Parameters
    ----------
    spec : TaskSpec
    preferred : int
        Port to wait for first: the one that fills last.
    credited_in, credited_out : set of int
        Ports and sends (by position) whose channels have credits.
    bound : container of int
        Ids of nodes whose kernels depend on the run's symbols.
    long_steps : container of int
        Ids of nodes before which the program looks whether the run is still wanted.
    buffered, leaving : collection of int
        Ids of the steps that write into memory of the turn, and into arrays that leave it; the
        run's kernels have at the index ``kb`` what returns these and the arena, or as many None.
    """
    writer = _Writer(
        spec, preferred, credited_in, credited_out, bound, long_steps, buffered, leaving
    )
    text = writer.write()
    return Program(
        text, *_compiled(text), writer.expressions, writer.lines, tuple(writer.constants)
    )


def lower_directly(
    steps: Sequence[Node],
    leaves: Sequence[Node],
    results: Sequence[Node],
    buffered: Collection[int] = (),
) -> Program:
    """Return a program that a thread calls by itself: leaves in, results out, no messages.

    ``make(*kernels, *constants, *buffers)`` returns ``program(*leaf values)``; there is a buffer
    (or None) for each of the `buffered` steps, in the order of `steps`.
    """
    expressions = {leaf.id: f"x{i}" for i, leaf in enumerate(leaves)}
    constants: list[Node] = []
    for node in [part for step in steps for part in step.inputs]:
        if node.op is CONSTANT and node.id not in expressions:
            expressions[node.id] = f"c{len(constants)}"
            constants.append(node)
    freed_after = _name_steps(steps, results, expressions, buffered)
    kernels = [f"k{j}" for j in range(len(steps))]
    outs = {step.id: f"b{j}" for j, step in enumerate(steps) if step.id in buffered}
    made_of = ", ".join([*kernels, *(expressions[node.id] for node in constants), *outs.values()])
    values = ", ".join(expressions[leaf.id] for leaf in leaves)
    body = [f"def actor({made_of}):", f"    def program({values}):"]
    lines: dict[int, Node] = {}
    for j, step in enumerate(steps):
        call = _call(step, f"k{j}", expressions, outs.get(step.id))
        body.append(f"        {expressions[step.id]} = {call}")
        lines[len(body)] = step
        if freed_after[j]:
            body.append(f"        {' = '.join(freed_after[j])} = None")
    body.append(f"        return [{', '.join(expressions[node.id] for node in results)}]")
    text = "\n".join([*body, "    return program"]) + "\n"
    return Program(text, *_compiled(text), expressions, lines, tuple(constants))


def _name_steps(
    steps: Sequence[Node],
    kept: Iterable[Node],
    expressions: dict[int, str],
    buffered: Container[int] = (),
) -> list[list[str]]:
    """Give each step a local variable; return, by step, the ones to forget after it.

    A step takes over the variable of an operand that nothing needs any more: that frees the
    operand at the same moment as forgetting it would, and saves the line.  What stands in a buffer
    need not be forgotten.
    """
    unused = last_uses(steps, kept)
    freed_after: list[list[str]] = []
    idle: list[str] = []
    count = 0
    for step, ended in zip(steps, unused, strict=True):
        freed = {expressions[n]: n for n in ended if n != step.id and _is_local(expressions[n])}
        # A residual's variable is forgotten, not taken over: its name says what it is.
        own = [name for name in freed if name[0] == "v"]
        if own:
            name = own[0]
            del freed[name]
        elif idle:
            name = idle.pop()
        else:
            name, count = f"v{count}", count + 1
        expressions[step.id] = name
        if step.id in ended:
            freed[name] = step.id
        idle += [other for other in freed if other[0] == "v"]
        freed_after.append([other for other, number in freed.items() if number not in buffered])
    return freed_after


def _call(step: Node, kernel: str, expressions: Mapping[int, str], out: str | None) -> str:
    """Return the call of a step's kernel, which writes to `out` where one is named."""
    args = [expressions[part.id] for part in step.inputs]
    if out is not None:
        # NumPy deprecates a third positional argument of these two.
        args.append(f"out={out}" if step.op.ufunc in ("maximum", "minimum") else out)
    return f"{kernel}({', '.join(args)})"


def _is_local(expression: str) -> bool:
    return expression[0] in "vr"


def last_uses(steps: Sequence[Node], kept: Iterable[Node]) -> list[list[int]]:
    """Return, for each step, the ids of the values that nothing needs after it."""
    last: dict[int, int] = {}
    for position, step in enumerate(steps):
        for node in (step, *step.inputs):
            last[node.id] = position
    held = {node.id for node in kept}
    unused: list[list[int]] = [[] for _ in steps]
    for number, position in last.items():
        if number not in held:
            unused[position].append(number)
    return unused


@lru_cache(maxsize=1024)
def _compiled(text: str) -> tuple[str, Callable[..., Any]]:
    filename = f"<actorgraph program {abs(hash(text)):x}>"
    # Tracebacks show generated lines from here; of names in <> they read no lazy entries.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {}
    exec(compile(text, filename, "exec"), scope)  # our own text, made from numbers only
    return filename, scope["actor"]


class _Writer:
    def __init__(
        self,
        spec: TaskSpec,
        preferred: int,
        credited_in: set[int],
        credited_out: set[int],
        bound: Container[int],
        long_steps: Container[int],
        buffered: Collection[int],
        leaving: Collection[int],
    ) -> None:
        self.spec = spec
        self.buffered = buffered
        written = [step.id for step in spec.steps if step.id in buffered or step.id in leaving]
        self.outs = {number: f"b{j}" for j, number in enumerate(written)}
        self.long_steps = long_steps
        self.preferred = preferred
        self.credited_in = sorted(credited_in)
        self.credited_out = sorted(credited_out)
        self.bound = bound
        self.expressions: dict[int, str] = {}
        self.lines: dict[int, Node] = {}
        self.constants: list[Node] = []
        self.body: list[str] = []
        self.has_async = any(not step.op.blocking for step in spec.steps)
        # What `fail` is told: a message of each port, to find the mark of a dead run among them.
        self.messages = ", ".join(f"m{i}" for i in range(len(spec.ports)))

    def write(self) -> str:
        self._name_values()
        self._header()
        self._waits()
        self.body += ["        try:"]
        self._steps()
        outgoing = self._outgoing()
        delivered = {self.expressions[node.id]: None for node, _ in self.spec.results}
        marks = " = ".join([*outgoing.values(), *delivered, "bad"])
        self.body += [
            "        except BaseException as error:",
            f"            {marks} = fail(task, error, {self.messages})",
            "            bad = error = None",
        ]
        if self.outs:
            self.body += ["        if arena is not None:", "            give(arena)"]
        self._sends(outgoing)
        return "\n".join(self.body) + "\n"

    def _name_values(self) -> None:
        for i, port in enumerate(self.spec.ports):
            if port.node is not None:
                self.expressions[port.node.id] = f"m{i}.value"
            elif port.kind == "residual":
                for j, node in enumerate(self.spec.residuals):
                    self.expressions[node.id] = f"r{j}"
        for step in self.spec.steps:
            for node in step.inputs:
                if node.op is CONSTANT and node.id not in self.expressions:
                    self.expressions[node.id] = f"c{len(self.constants)}"
                    self.constants.append(node)
        spec = self.spec
        self.freed_after = _name_steps(spec.steps, spec.kept, self.expressions, self.buffered)

    def _header(self) -> None:
        spec = self.spec
        params = ["task", "Message", "Dead", "fail"]
        params += [f"{letter}{i}" for i in range(len(spec.ports)) for letter in ("q", "p")]
        params += [f"{letter}{i}" for i in self.credited_in for letter in ("g", "h", "w")]
        params += [f"k{j}" for j in range(len(spec.steps))]
        params += ["kb", "give"] if self.outs else []
        params += [f"c{i}" for i in range(len(self.constants))]
        targets = len(spec.sends) + (spec.saves_to is not None)
        params += [f"{letter}{i}" for i in range(targets) for letter in ("o", "a", "t")]
        params += [f"{letter}{i}" for i in self.credited_out for letter in ("x", "y")]
        self.body += [f"def actor({', '.join(params)}):"]
        self.body += ["    arena = None"] if self.outs else []
        self.body += ["    push = yield", "    while True:"]

    def _waits(self) -> None:
        count = len(self.spec.ports)
        order = [self.preferred, *(i for i in range(count) if i != self.preferred)]
        for queue in [f"q{i}" for i in order] + [f"x{i}" for i in self.credited_out]:
            self.body += [
                f"        if not {queue}:",
                f"            task.wait = {queue}",
                "            push = yield",
                "            continue",
            ]
        self.body += [f"        m{i} = p{i}()" for i in range(count)]
        self.body += ["        run = m0.run"]
        # The sender's credits: given back as soon as the message has left the channel.
        for i in self.credited_in:
            self.body += [
                f"        g{i}(None)",
                f"        if w{i}.wait is h{i}:",
                f"            push(w{i})",
            ]

    def _steps(self) -> None:
        body, spec = self.body, self.spec
        body += ["            if run.dead is not None:", "                raise Dead"]
        for i, port in enumerate(spec.ports):
            if port.kind == "residual":
                names = "".join(f"r{j}, " for j in range(len(spec.residuals)))
                body.append(f"            {names}= m{i}")
        if self.outs:
            body.append(f"            {', '.join(self.outs.values())}, arena = run.kernels[kb]()")
        single = len(spec.steps) == 1
        for j, step in enumerate(spec.steps):
            if j and step.id in self.long_steps:
                body += ["            if run.dead is not None:", "                raise Dead"]
            kernel = f"run.kernels[k{j}]" if step.id in self.bound else f"k{j}"
            if step.op.blocking:
                call = _call(step, kernel, self.expressions, self.outs.get(step.id))
                body.append(f"            {self.expressions[step.id]} = {call}")
            else:
                args = ", ".join(self.expressions[node.id] for node in step.inputs)
                self._call_async(step, kernel, f"({args},)" if args else "()")
                body.append(f"            {self.expressions[step.id]} = reply.pop()()")
            self.lines[len(body)] = step
            if self.freed_after[j] and not single:
                body.append(f"            {' = '.join(self.freed_after[j])} = None")

    def _call_async(self, step: Node, kernel: str, args: str) -> None:
        """Write a call whose reply the actor waits for, parked outside every ``try``."""
        self.body.append(f"            reply = run.call_async(task, {kernel}, {args})")
        self.lines[len(self.body)] = step
        self.body += [
            "        except BaseException as error:",
            f"            reply = [fail(task, error, {self.messages}).refuse]",
            "        while not reply:",
            "            task.wait = reply",
            "            push = yield",
            "        try:",
        ]

    def _outgoing(self) -> dict[Any, str]:
        """Write what makes the messages; return their names by node id (and the residual's).

        A message that only this task has received is sent on with the new value: making another
        costs 0.13 us.
        """
        spec = self.spec
        outgoing: dict[Any, str] = {}
        if spec.saves_to is not None:
            values = "".join(f"{self.expressions[node.id]}, " for node in spec.saves)
            outgoing["residual"] = "s"
            self.body.append(f"            s = ({values})")
        spare = list(spec.exclusive)
        for node, _ in spec.sends:
            if node.id in outgoing:
                continue
            if spare:
                name = outgoing[node.id] = f"m{spare.pop()}"
                self.body.append(f"            {name}.value = {self.expressions[node.id]}")
            else:
                name = outgoing[node.id] = f"d{len(outgoing)}"
                self.body.append(f"            {name} = Message({self.expressions[node.id]}, run)")
        return outgoing

    def _sends(self, outgoing: dict[Any, str]) -> None:
        spec, body = self.spec, self.body
        body += [f"        y{i}()" for i in self.credited_out]
        for node, index in spec.results:
            body += [
                f"        run.results[{index}] = {self.expressions[node.id]}",
                "        if run.tokens.pop():",
                "            run.core.finish(run)",
            ]
        targets = [outgoing[node.id] for node, _ in spec.sends]
        if spec.saves_to is not None:
            # The residual goes first: its own backward may be resumed by what follows.
            residual = len(spec.sends)
            body.append(f"        a{residual}({outgoing['residual']})")
            body += [
                f"        if t{residual}.wait is o{residual}:",
                f"            push(t{residual})",
            ]
        for i, name in enumerate(targets):
            body.append(f"        a{i}({name})")
            if i < len(targets) - 1:
                body += [f"        if t{i}.wait is o{i}:", f"            push(t{i})"]
        self._park(sorted(set(outgoing.values())), len(targets) - 1)

    @staticmethod
    def _wake(target: int) -> list[str]:
        return [f"        if t{target}.wait is o{target}:", f"            push(t{target})"]

    def _park(self, messages: list[str], last: int) -> None:
        """Forget every array, which a parked frame would keep alive; hand over to a consumer."""
        spec = self.spec
        names = [f"m{i}" for i in range(len(spec.ports))]
        names += [name for name in messages if name not in names]
        names += dict.fromkeys(self.expressions[step.id] for step in spec.steps)
        names += [f"r{j}" for j in range(len(spec.residuals))]
        names += ["reply"] if self.has_async else []
        names += ["arena", *self.outs.values()] if self.outs else []
        self.body += [
            f"        task.wait = q{self.preferred}",
            f"        {' = '.join([*names, 'run'])} = None",
        ]
        if last < 0:
            self.body.append("        push = yield")
        else:
            self.body.append(f"        push = yield (t{last} if t{last}.wait is o{last} else None)")
