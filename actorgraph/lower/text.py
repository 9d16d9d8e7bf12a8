"""Program text: a task as a generator in straight-line Python.

The text is a function of a structural key alone (`lower.keys`): how many values come in, which
kernel each step applies to which of them, and where results go.  Names are canonical (``m0``
message, ``k0`` kernel, ``v0`` value, ``q0`` queue ...), so a graph of 100,000 equal nodes has one
text for all of them.  `lower.program` calls `code_of` for a task, `direct_code` for a plain
function of values, and `loop_code` for a loop over a body.

The generated function of a task is the actor's coroutine.  Each turn waits until every port holds a
message (and every credited edge has room), takes one message from each, computes the steps into
local variables, and sends.

The waiting protocol, which scheduler and actors share without a lock:

- before it parks, an actor sets ``task.wait`` to the queue that it waits for;
- a producer first appends and then reads the consumer's ``wait``;
- the worker reads ``wait`` again after the coroutine has parked, and makes the actor ready if the
  queue has filled in between.

So either the producer sees the marker, or the worker sees the message.  An actor may be made
ready twice; the second turn finds nothing and parks again.

Invariants:

- The text holds numbers and names of our own, nothing of a user's, and no array.
- A line calls at most one kernel or part, so a traceback's line identifies the failed step.
- A parked program refers to no array and to no run.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import lru_cache
from itertools import accumulate, chain, count
from types import FrameType
from typing import Any, NamedTuple, TypeVar
from weakref import finalize

from actorgraph.lower import keys
from actorgraph.lower.keys import CallKey, DirectKey, LoopKey, StepKey, TaskKey

T = TypeVar("T")


class Dead(Exception):
    """Raised and caught inside an actor when its message belongs to a dead run."""


class Code(NamedTuple):
    """Compiled text, which all programs of one key share.

    `make` is the function ``actor`` whose source is `text`.  `expressions` has by number how the
    text refers to a value, `lines` by line number the position of the call made there.
    """

    text: str
    filename: str
    make: Callable[..., Any]
    expressions: dict[int, str]
    lines: dict[int, int]

    @property
    def written(self) -> Code:
        """The code itself, as its text is always there; see `stepping.SteppingCode`."""
        return self

    def place(self, frame: FrameType, line: int) -> int | None:
        """Return the position of the step that a frame calls, None for a frame of other code."""
        return self.lines.get(line) if frame.f_code.co_filename == self.filename else None

    def expression(self, number: int, frame: FrameType) -> str:
        """Return the expression for the value of a number in a frame."""
        return self.expressions[number]


_MANY = 16
"""Ports, and sends, from which the text loops over them: 900 unrolled ones compile slowly."""


@lru_cache(maxsize=1024)
def direct_code(key: DirectKey) -> Code:
    """Return the code of a plain function of values, or of a part."""
    if key.sizes is not None:
        return _code_of_parts(key, key.sizes)
    steps, results = key.steps, key.results
    expressions = {number: f"x{number}" for number in range(key.leaves)}
    constants = _name_constants(steps, expressions)
    made, freed_after = _name_steps(steps, key.leaves, results, expressions)
    outs = _outs(steps)
    values = [expressions[number] for number in range(key.leaves)]
    given = () if key.is_part else outs.values()
    body = [f"def actor({', '.join([*_callables(steps), *constants, *given])}):"]
    if key.is_part:
        body.append(f"    def program({', '.join(['run', 'out', *values])}):")
        body += [f"        {', '.join(outs.values())}, = out"] if outs else []
    else:
        body.append(f"    def program({', '.join(values)}):")
    # Without a run the context is that of the calling thread.
    of_run = ("run.context.copy()", "run") if key.is_part else ("copy_context()", "None")
    lines = _write_steps(body, 8, steps, (made, freed_after), outs, expressions, *of_run)
    body.append(f"        return [{_listed(expressions, results)}]")
    return _code([*body, "    return program"], expressions, lines)


def _code_of_parts(key: DirectKey, sizes: Sequence[int]) -> Code:
    """Return the code of a part made of parts: values stay in the lists that these return."""
    calls = [step for step in key.steps if isinstance(step, CallKey)]
    assert len(calls) == len(key.steps), "nothing is beside the parts"
    places = [("x", number) for number in range(key.leaves)]
    places += [(f"r{j}", place) for j, step in enumerate(calls) for place in range(step.results)]
    expressions = {number: f"{name}[{place}]" for number, (name, place) in enumerate(places)}
    written = (
        f"out[{end - size}:{end}]" for end, size in zip(accumulate(sizes), sizes, strict=True)
    )
    kept = {places[number][0] for number in key.results} | {"x"}
    freed = last_uses(
        [[f"r{j}", *{places[n][0] for n in step.operands}] for j, step in enumerate(calls)], kept
    )
    body = [f"def actor({', '.join(_callables(calls))}):", "    def program(run, out, *x):"]
    lines = {}
    for j, step in enumerate(calls):
        out = next(written) if step.writes else "None"
        body.append(f"        r{j} = f{j}(run, {out}, {_listed(expressions, step.operands)})")
        lines[len(body)] = j
        body += [f"        {' = '.join(freed[j])} = None"] if freed[j] else []
    body += [f"        return [{_listed(expressions, key.results)}]", "    return program"]
    return _code(body, expressions, lines)


def _listed(expressions: Mapping[int, str], numbers: Iterable[int]) -> str:
    """Return the text of a list of values, with slices for runs of places in one list."""
    found: list[tuple[str, list[int]]] = []
    for text in [expressions[number] for number in numbers]:
        name, _, rest = text.partition("[")
        places = [int(rest[:-1])] if rest else []
        if places and found and found[-1][0] == name:
            run = found[-1][1]
            by = places[0] - run[-1]
            if by in (1, -1) and (len(run) == 1 or run[1] - run[0] == by):
                run += places
                continue
        found.append((name, places))
    return ", ".join([_part_of(name, run) for name, run in found])


def _part_of(name: str, run: Sequence[int]) -> str:
    """Return the text of consecutive places of a list, ascending or descending."""
    if len(run) < 2:
        return f"{name}[{run[0]}]" if run else name
    if run[1] > run[0]:
        return f"*{name}[{run[0]}:{run[-1] + 1}]"
    return f"*{name}[{run[0]}:{run[-1] - 1 if run[-1] else ''}:-1]"


def _outs(steps: Iterable[StepKey | CallKey]) -> dict[int, str]:
    """Return by position of a step the name of its output array; for a part, of a list of them."""
    written = [
        j
        for j, step in enumerate(steps)
        if (step.writes if isinstance(step, CallKey) else step.how & keys.INTO)
    ]
    return {j: f"b{i}" for i, j in enumerate(written)}


def _callables(steps: Iterable[StepKey | CallKey]) -> list[str]:
    """Return the names of the functions that the text calls: kernels, then parts."""
    parts = [step for step in steps if isinstance(step, CallKey)]
    kernels = [f"k{step.kernel}" for step in steps if not isinstance(step, CallKey)]
    return [*dict.fromkeys(kernels), *[f"f{i}" for i in range(len(parts))]]


@lru_cache(maxsize=1024)
def loop_code(key: LoopKey) -> Code:
    """Return the code of a loop with the steps of its body inline."""
    steps, results, count = key.steps, key.results, key.carries
    first = 1 + key.captured
    leaves = first + count + key.elements
    expressions = {number: f"x{number}" for number in range(leaves)}
    constants = _name_constants(steps, expressions)
    named = _name_steps(steps, leaves, results, expressions)
    kernels = _callables(steps)
    outs = _outs(steps)
    names = [expressions[number] for number in range(leaves)]
    captured, carries, taken = names[1:first], names[first : first + count], names[first + count :]
    arrays = [f"e{i}" for i in range(key.elements)]
    keeps = [f"h{i}" for i in range(len(key.saved))]
    stacks = [f"s{i}" for i in range(len(results) - count)]
    body = [
        f"def actor({', '.join(['Dead', 'index', *kernels, *constants])}):",
        "    def program(run, positions, test, limit, tested, given, entering, arrays,",
        "                keep, stack, buffers):",
    ]
    asked = [f"t{i}" for i in range(key.tested or 0)]
    for targets, group in (
        (asked, "tested"), (captured, "given"), (carries, "entering"), (arrays, "arrays"),
        (keeps, "keep"), (stacks, "stack"), (outs.values(), "buffers"),
    ):  # fmt: skip
        body += [f"        {', '.join(targets)}, = {group}"] if targets else []
    body += [
        "        trips = 0",
        "        for position in positions:",
        "            if run.dead is not None:",
        "                raise Dead",
    ]
    if key.tested is not None:
        body += [
            f"            if not test(run, (), {', '.join([*asked, *carries])})[0]:",
            "                break",
            "            if trips == limit:",
            "                trips += 1",
            "                break",
        ]
    note = "            {}[position] = {}" if key.stored else "            {}({})"
    entered = [names[first + place] for place in key.saved]
    body += map(note.format, keeps, entered)
    body += ["            x0 = index(position)"] if key.indexed else []
    body += [f"            {x} = {e}[position]" for x, e in zip(taken, arrays, strict=True)]
    lines = _write_steps(body, 12, steps, named, outs, expressions)
    made = [expressions[number] for number in results]
    body += map(note.format, stacks, made[count:])
    body += [f"            {', '.join(carries)}, = {', '.join(made[:count])}, "] if carries else []
    body += ["            trips += 1", f"        return [{', '.join(carries)}], trips"]
    return _code([*body, "    return program"], expressions, lines)


def _name_constants(steps: Iterable[StepKey | CallKey], expressions: dict[int, str]) -> list[str]:
    """Add the names of the constants to `expressions`, and return them in order."""
    count = -min([number for step in steps for number in step.operands], default=0)
    names = [f"c{i}" for i in range(max(0, count))]
    expressions.update({-1 - i: name for i, name in enumerate(names)})
    return names


def _name_steps(
    steps: Sequence[StepKey | CallKey], first: int, kept: Collection[int],
    expressions: dict[int, str], tuples: Iterable[range] = (),
) -> tuple[list[list[str]], list[list[str]]]:  # fmt: skip
    """Allocate local variables; return for each step its variables, and those to clear after it.

    A step reuses the variable of an operand that dies there: that frees the operand as early as
    clearing it would, and saves a line.  Values in buffers need no clearing.  Many results of a
    part, or values of `tuples`, that all die at one step stay in the list or tuple that they come
    in.
    """
    names = (f"v{number}" for number in count())
    made = []
    for step in steps:
        made.append(range(first, first + (step.results if isinstance(step, CallKey) else 1)))
        first = made[-1].stop
    uses = [[*own, *step.operands] for own, step in zip(made, steps, strict=True)]
    together = _together([*made, *tuples], uses, kept)
    if not together and not any(isinstance(step, CallKey) for step in steps):
        return _name_kernels(steps, first - len(steps), last_uses(uses, kept), expressions)
    if together:
        kept = [together.get(number, number) for number in kept]
        uses = [list(dict.fromkeys([together.get(n, n) for n in numbers])) for numbers in uses]
    variables = dict(expressions)

    def shown(numbers: Iterable[int]) -> dict[int, str]:
        found = [(number, together.get(number)) for number in numbers]
        return {n: variables[n] if b is None else f"{variables[b]}[{n - b}]" for n, b in found}

    expressions |= shown(chain.from_iterable(tuples))
    buffered: set[int] = set()
    targets: list[list[str]] = []
    freed_after: list[list[str]] = []
    idle: list[str] = []
    for step, results, ended in zip(steps, made, last_uses(uses, kept), strict=True):
        own = results[:1] if together.keys() & results[:1] else results
        freed = {variables[n]: n for n in ended if n not in own and variables[n][0] in "vr"}
        if isinstance(step, CallKey):
            for number in own:
                variables[number] = idle.pop() if idle else next(names)
        else:
            [number] = own
            name = next(iter(freed), None)
            if name is not None:
                del freed[name]
            else:
                name = idle.pop() if idle else next(names)
            variables[number] = name
            if step.how & keys.BUFFERED:
                buffered.add(number)
        expressions |= shown(results)
        freed |= {variables[number]: number for number in ended if number in own}
        idle += freed
        freed_after.append([name for name, number in freed.items() if number not in buffered])
        targets.append([variables[number] for number in own])
    return targets, freed_after


def _name_kernels(
    steps: Sequence[StepKey | CallKey], first: int, ends: Iterable[Sequence[int]],
    expressions: dict[int, str],
) -> tuple[list[list[str]], list[list[str]]]:  # fmt: skip
    """Do what `_name_steps` does, for steps without parts, which have one variable each.

    `ends` has for each step the values whose last use it is.
    """
    names = (f"v{number}" for number in count())
    targets: list[list[str]] = []
    freed_after: list[list[str]] = []
    idle: list[str] = []
    buffered: set[int] = set()
    for number, (step, ended) in enumerate(zip(steps, ends, strict=True), first):
        assert isinstance(step, StepKey), "no parts"
        if step.how & keys.BUFFERED:
            buffered.add(number)
        freed = [n for n in ended if n != number and expressions[n][0] in "vr"]
        if freed:
            name = expressions[freed.pop(0)]
        else:
            name = idle.pop() if idle else next(names)
        expressions[number] = name
        freed += [number] if number in ended else []
        idle += [expressions[n] for n in freed]
        freed_after.append([expressions[n] for n in freed if n not in buffered])
        targets.append([name])
    return targets, freed_after


def _together(
    groups: Iterable[range], uses: Sequence[Sequence[int]], kept: Collection[int]
) -> dict[int, int]:
    """Map the values of each large group that all die at one step to the group's first value."""
    large = [group for group in groups if len(group) >= _MANY]
    if not large:
        return {}
    last = {number: position for position, used in enumerate(uses) for number in used}
    last |= dict.fromkeys(kept, len(uses))
    whole = [group for group in large if len({last.get(number) for number in group}) == 1]
    return {number: group[0] for group in whole for number in group}


def _write_steps(
    body: list[str], indent: int, steps: Sequence[StepKey | CallKey],
    named: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]], outs: Mapping[int, str],
    expressions: Mapping[int, str], context: str = "run.context.copy()", run: str = "run",
) -> dict[int, int]:  # fmt: skip
    """Add the lines of steps to the body; return the position of the step that each line calls.

    `named` is what `_name_steps` returned, `outs` what `_outs` did.
    """
    lines: dict[int, int] = {}
    space, parts = " " * indent, count()
    for j, (step, made, freed) in enumerate(zip(steps, *named, strict=True)):
        if isinstance(step, CallKey):
            args = f"{run}, {outs.get(j, 'None')}, {_listed(expressions, step.operands)}"
            targets = f"{', '.join(made)}{', =' if len(made) == step.results else ' ='} "
            call = f"{targets if made else ''}f{next(parts)}({args})"
        else:
            if step.how & keys.LONG:
                body += [f"{space}if run.dead is not None:", f"{space}    raise Dead"]
            over = expressions[step.operands[0]] if step.how & keys.OVER else None
            call = f"{made[0]} = {_call(step, expressions, outs.get(j, over), context, run)}"
        body.append(f"{space}{call}")
        lines[len(body)] = j
        if freed:
            body.append(f"{space}{' = '.join(freed)} = None")
    return lines


def _call(
    step: StepKey, expressions: Mapping[int, str], out: str | None, context: str, run: str
) -> str:
    """Return the call of a step's kernel, which writes into `out` if one is named.

    A user's kernel runs in a copy of the context of the run's caller: another worker may be in that
    context, and no kernel may see what another one has set.  A kernel that waits is yielded.
    """
    kernel = f"run.kernels[k{step.kernel}]" if step.how & keys.BOUND else f"k{step.kernel}"
    if step.how & keys.AWAITED:
        return f"yield {kernel}, ({''.join([f'{expressions[n]}, ' for n in step.operands])})"
    if step.how & keys.OWN:
        args = [expressions[number] for number in step.operands]
        return f"{context}.run({', '.join([kernel, *args])})"
    args = [run] if step.how & keys.GIVES_RUN else []
    args += [expressions[number] for number in step.operands]
    if out is not None:
        args.append(f"out={out}" if step.how & keys.BY_NAME else out)
    return f"{kernel}({', '.join(args)})"


def last_uses(uses: Sequence[Sequence[T]], kept: Collection[T]) -> list[list[T]]:
    """Return, for each step, the values that die after it; those that are `kept` never do.

    `uses` has for each step the values that it makes and takes.
    """
    last = {number: position for position, used in enumerate(uses) for number in used}
    held = set(kept)
    unused: list[list[T]] = [[] for _ in uses]
    for number, position in last.items():
        if number not in held:
            unused[position].append(number)
    return unused


_numbers = count()


def _code(body: Iterable[str], expressions: dict[int, str], lines: dict[int, int]) -> Code:
    """Return the compiled lines of a function ``actor``; see `Code`."""
    text = "\n".join(body) + "\n"
    filename = f"<actorgraph program {next(_numbers)}>"
    scope: dict[str, Any] = {"copy_context": copy_context, "Dead": Dead}
    exec(compile(text, filename, "exec"), scope)  # our own text, made from numbers only
    actor = scope.pop("actor")
    # Tracebacks take generated lines from here; lazy entries are ignored for names in <>.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    finalize(actor, linecache.cache.pop, filename, None).atexit = False
    return Code(text, filename, actor, expressions, lines)


@lru_cache(maxsize=1024)
def code_of(key: TaskKey) -> Code:
    """Return the code of a task."""
    writer = _Writer(key)
    writer.write()
    return _code(writer.body, writer.expressions, writer.lines)


class _Writer:
    """Writes the text of a task."""

    def __init__(self, key: TaskKey) -> None:
        self.key = key
        self.outs = _outs(key.steps)
        self.expressions: dict[int, str] = {}
        self.body: list[str] = []
        # `fail` looks for the mark of a dead run among the messages of all ports.
        self.messages = ", ".join([f"m{i}" for i in range(len(key.ports))])

    def write(self) -> None:
        self._name_values()
        self._header()
        self._waits()
        self.body += ["        try:"]
        self._steps()
        outgoing = self._outgoing()
        delivered = self._delivered()
        marks = " = ".join([*outgoing.values(), *dict.fromkeys(delivered), "bad"])
        self.body += [
            "        except BaseException as error:",
            f"            {marks} = fail(task, error, {self.messages})",
            "            bad = error = None",
        ]
        if self.outs:
            self.body += ["        if arena is not None:", "            give(arena)"]
        self._sends(outgoing, delivered)

    def _name_values(self) -> None:
        key = self.key
        received: dict[int, range] = {}
        first = 0
        for i, size in enumerate(key.ports):
            if size < 0:
                self.expressions[first] = f"m{i}.value"
                first += 1
            else:
                received[i] = range(first, first + size)
                self.expressions.update([(number, f"r{number}") for number in received[i]])
                first += size
        self.constants = _name_constants(key.steps, self.expressions)
        bundled = [number for numbers in key.bundles for number in numbers]
        kept = [*key.sends, *key.results, *bundled]
        self.made, self.freed_after = _name_steps(
            key.steps, first, kept, self.expressions, received.values()
        )
        self.bundles = {
            i: list(dict.fromkeys([self.expressions[n].partition("[")[0] for n in numbers]))
            for i, numbers in received.items()
        }

    def _header(self) -> None:
        key = self.key
        params = ["task", "Message", "Dead", "fail"]
        params += [f"{letter}{i}" for i in range(len(key.ports)) for letter in ("q", "p")]
        params += [f"{letter}{i}" for i in key.credited_in for letter in ("g", "h", "w")]
        params += _callables(key.steps)
        params += ["kb", "give"] if self.outs else []
        params += self.constants
        targets = range(len(key.sends) + len(key.bundles))
        last = [f"{letter}{i}" for i in targets for letter in ("o", "a", "t")]
        last += [f"{letter}{i}" for i in key.credited_out for letter in ("x", "y")]
        last += [f"i{i}" for i in range(len(key.results))]
        together = 3 * (len(key.sends) - 1) if len(key.sends) > _MANY else 0
        params += ["*rest"] if together else last
        self.body += [f"def actor({', '.join(params)}):"]
        self.body += ["    arena = None"] if self.outs else []
        # The port that fills last comes first: earlier messages wake nobody.
        order = [key.preferred, *(i for i in range(len(key.ports)) if i != key.preferred)]
        self.queues = [f"q{i}" for i in order] + [f"x{i}" for i in key.credited_out]
        if len(key.ports) >= _MANY:
            self.body += [
                f"    queues = {', '.join(self.queues)}",
                f"    takes = {', '.join([f'p{i}' for i in range(len(key.ports))])}",
            ]
        if together:
            self.body += [
                f"    targets = [*zip(*[iter(rest[:{together}])] * 3)]",
                f"    {', '.join(last[together:])}, = rest[{together}:]",
            ]
        self.body += ["    push = yield", "    while True:"]

    def _waits(self) -> None:
        key = self.key
        ports = range(len(key.ports))
        if len(ports) < _MANY:
            for queue in self.queues:
                self.body += [
                    f"        if not {queue}:",
                    f"            task.wait = {queue}",
                    "            push = yield",
                    "            continue",
                ]
            self.body += [f"        m{i} = p{i}.popleft()" for i in ports]
        else:
            # All may have filled by then: an actor parked at a filled queue is resumed at once.
            self.body += [
                "        if not all(queues):",
                "            task.wait = [*[queue for queue in queues if not queue], *queues][0]",
                "            push = yield",
                "            continue",
                f"        {self.messages} = [queue.popleft() for queue in takes]",
            ]
        self.body += ["        run = m0.run"]
        # Credits return to the sender as soon as the message has left the channel.
        for i in key.credited_in:
            self.body += [
                f"        g{i}(None)",
                f"        if w{i}.wait is h{i}:",
                f"            push(w{i})",
            ]

    def _steps(self) -> None:
        body, key = self.body, self.key
        body += ["            if run.dead is not None:", "                raise Dead"]
        for i, names in self.bundles.items():
            # The message would keep values alive after their last use.
            whole = len(names) == 1 < self.key.ports[i]
            taken = f"{names[0]} = [*m{i}]" if whole else f"{', '.join(names)}, = m{i}"
            body += [f"            {taken}", f"            m{i} = None"]
        if self.outs:
            body.append(
                f"            {', '.join(self.outs.values())}, arena = run.kernels[kb](run)"
            )
        single = len(key.steps) == 1
        named = self.made, [[]] if single else self.freed_after
        self.lines = _write_steps(body, 12, key.steps, named, self.outs, self.expressions)

    def _outgoing(self) -> dict[Any, str]:
        """Write the lines that make messages; return their names by number, or bundle's numbers.

        An exclusive message is sent on with the new value: making another costs 0.13 us.
        """
        key = self.key
        outgoing: dict[Any, str] = {}
        for numbers in key.bundles:
            if numbers not in outgoing:
                name = outgoing[numbers] = f"s{len(outgoing)}"
                self.body.append(f"            {name} = ({_listed(self.expressions, numbers)},)")
        spare = list(key.exclusive)
        for number in key.sends:
            if number in outgoing:
                continue
            if spare:
                name = outgoing[number] = f"m{spare.pop()}"
                self.body.append(f"            {name}.value = {self.expressions[number]}")
            else:
                name = outgoing[number] = f"d{len(outgoing)}"
                self.body.append(f"            {name} = Message({self.expressions[number]}, run)")
        return outgoing

    def _delivered(self) -> list[str]:
        """Return the variables of results; one in a list gets its own, as `fail` may set it."""
        found = [self.expressions[number] for number in self.key.results]
        for i, text in enumerate(found):
            if "[" in text:
                found[i] = f"e{i}"
                self.body.append(f"            e{i} = {text}")
        return found

    def _sends(self, outgoing: dict[Any, str], delivered: Sequence[str]) -> None:
        key, body = self.key, self.body
        body += [f"        y{i}()" for i in key.credited_out]
        for i, result in enumerate(delivered):
            body.append(f"        run.results[i{i}] = {result}")
        if key.results:
            many = len(key.results) > 1
            body += [f"        for _ in range({len(key.results)}):"] if many else []
            indent = " " * (12 if many else 8)
            body += [f"{indent}if run.tokens.pop():", f"{indent}    run.core.finish(run)"]
        targets = [outgoing[number] for number in key.sends]
        # Residuals go first: later sends may resume the task's own backward task.
        for i, numbers in enumerate(key.bundles, len(targets)):
            body += [f"        a{i}.append({outgoing[numbers]})", *self._wake(i)]
        last = len(targets) - 1
        if last < _MANY:
            for i, name in enumerate(targets[:last]):
                body += [f"        a{i}.append({name})", *self._wake(i)]
        else:
            body += [
                f"        for (o, a, t), message in zip(targets, ({', '.join(targets[:last])})):",
                "            a.append(message)",
                "            if t.wait is o:",
                "                push(t)",
            ]
        body += [f"        a{last}.append({name})" for name in targets[last:]]
        self._park(sorted({*outgoing.values(), *delivered}), len(targets) - 1)

    @staticmethod
    def _wake(target: int) -> list[str]:
        return [f"        if t{target}.wait is o{target}:", f"            push(t{target})"]

    def _park(self, messages: list[str], last: int) -> None:
        """Clear every array, which a parked frame would keep alive; hand over to a consumer."""
        key = self.key
        names = [f"m{i}" for i in range(len(key.ports))]
        names += [*messages, *[name for own in self.made for name in own]]
        names += [name for held in self.bundles.values() for name in held]
        names += ["message"] if last >= _MANY else []
        names += ["arena", *self.outs.values()] if self.outs else []
        self.body += [
            f"        task.wait = q{key.preferred}",
            f"        {' = '.join(dict.fromkeys([*names, 'run']))} = None",
        ]
        if last < 0:
            self.body.append("        push = yield")
        else:
            self.body.append(f"        push = yield (t{last} if t{last}.wait is o{last} else None)")
