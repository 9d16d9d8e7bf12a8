"""Controlled interleavings: threads that change places at bytecodes, in an order that a seed gives.

`frontrun` traces the threads opcode by opcode and asks a scheduler before each who goes on.  Two
things differ here from its own random strategy.

- Its schedules give each thread a few opcodes a round.  A lost wake-up needs one thread to get
  through a whole send while another stands between two opcodes of a small function.  So most of our
  interleavings have one to four changes of place, at random points (as in probabilistic concurrency
  testing) of one function, which is drawn first; the rest has turns of random length.
- Threads change places only where one may see another: before calls, attributes, subscripts, tests,
  and wherever one waits for a lock.

Only the files in which threads meet are traced, and the generated programs.  What is not traced
(NumPy, the lowering) happens as if at once.
"""

from __future__ import annotations

import dis
import inspect
import os
import textwrap
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from random import Random
from types import CodeType, FunctionType
from typing import Any, Protocol

import numpy as np
from frontrun._cooperative import get_context, real_lock
from frontrun._opcode_observer import start_opcode_trace
from frontrun._tracing import TraceFilter, set_active_trace_filter
from frontrun.bytecode import BytecodeShuffler, OpcodeScheduler

from tests._soak import SOAK

TRACED = (
    "admission.py", "calling.py", "calls.py", "channels.py", "core.py", "gates.py", "network.py",
    "run.py", "scheduler.py", "tiles.py",
)  # fmt: skip
PLANTED = "planted_"
_MEETING = (
    "LOAD_ATTR", "STORE_ATTR", "LOAD_METHOD", "CALL", "BINARY_", "STORE_SUBSCR", "DELETE_SUBSCR",
    "UNARY_NOT", "POP_JUMP", "JUMP_IF", "TO_BOOL", "FOR_ITER", "CONTAINS", "BEFORE_WITH",
)  # fmt: skip
_PLAIN_TESTS = ("IS_OP", "COMPARE_OP", "CONTAINS_OP", "TO_BOOL")
_SHARE = 1 if SOAK else 90


def share(count: int) -> int:
    """Return `count` in a soak, a ninetieth of it in an ordinary run."""
    return max(1, count // _SHARE)


class Scenario(Protocol):
    """Fresh shared state: what its threads do, and what must hold when all have returned."""

    def threads(self) -> list[Callable[[], None]]: ...

    def check(self) -> None: ...


@dataclass(frozen=True)
class Found:
    """A violation: after how many interleavings, what it was, and the turns (thread, opcodes)."""

    after: int
    violation: str
    turns: tuple[tuple[int, int], ...]


class _Filter(TraceFilter):
    def should_trace_file(self, filename: str) -> bool:
        if filename.startswith("<actorgraph program"):
            return True
        folder, _, name = filename.rpartition(os.sep)
        return name.startswith(PLANTED) or (name in TRACED and "actorgraph" in folder)


class Interleaver(OpcodeScheduler):
    """Says which thread runs, and for how many opcodes.

    The thread whose turn it is draws the next and opens its gate; nobody else writes here.
    """

    def __init__(self, random: Random, lengths: dict[str, int], focus: Sequence[str]) -> None:
        super().__init__([], 0, max_ops=60_000)
        self._random = random
        self._mean = 2 ** random.uniform(2, 7)
        self._focus: str | None = None
        self._switches: list[int] = []
        kind = random.random()
        names = [name for name in focus if name in lengths] if kind < 0.5 else list(lengths)
        if names and kind < 0.75:
            self._focus = random.choice(names)
            length = lengths[self._focus]
            points = sorted(random.randrange(length) for _ in range(random.randint(1, 4)))
            self._switches = [b - a for a, b in pairwise([0, *points])][::-1]
        self._turn = -1
        self._left = 0
        self._steps = 0
        self._gates: list[Any] = []
        self.lengths: dict[str, int] = {}
        self.turns: list[tuple[int, int]] = []

    def begin(self, threads: int) -> None:
        """Draw the first thread."""
        self.num_threads = threads
        self._gates = [real_lock() for _ in range(threads)]
        for gate in self._gates:
            gate.acquire()
        self._draw()
        self._gates[self._turn].release()

    def enter(self, thread_id: int) -> None:
        """Wait for the first turn."""
        self._pass_gate(thread_id)

    def wait_for_turn(self, thread_id: int, function: str = "") -> bool:
        if self._error is not None or self._turn != thread_id:
            return False
        self._steps += 1
        if self._steps > self._max_ops:
            self.report_error(TimeoutError(f"threads ran for more than {self._max_ops} opcodes"))
            return False
        if not function:  # called while it waits for a lock, or sleeps
            self._left = 0
        else:
            self.lengths[function] = self.lengths.get(function, 0) + 1
        if self._left <= 0:
            self._draw()
            if self._turn != thread_id:
                self._gates[self._turn].release()
                self._pass_gate(thread_id)
        if self._focus is None or self._focus == function:
            self._left -= 1
        return self._error is None

    def give_turn(self, thread_id: int) -> None:
        """End the turn early."""
        if self._error is not None:
            raise self._error
        self._left = 0
        self.wait_for_turn(thread_id)

    def mark_done(self, thread_id: int) -> None:
        super().mark_done(thread_id)
        if self._turn == thread_id and len(self._threads_done) < self.num_threads:
            self._draw()
            self._gates[self._turn].release()

    def report_error(self, error: Exception) -> None:
        super().report_error(error)
        self._open()

    def _pass_gate(self, thread_id: int) -> None:
        if not self._gates[thread_id].acquire(timeout=20.0):
            self.report_error(TimeoutError("a thread blocks where the interleaver does not see it"))

    def _draw(self) -> None:
        active = [t for t in range(self.num_threads) if t not in self._threads_done]
        others = [t for t in active if t != self._turn]
        self._turn = self._random.choice(others or active)
        if self._focus is None:
            self._left = 1 + int(self._random.expovariate(1 / self._mean))
        else:
            self._left = 1 + self._switches.pop() if self._switches else self._max_ops
        self.turns.append((self._turn, self._left))

    def _open(self) -> None:
        """Let every thread go on, unobserved: the interleaving is over."""
        for gate in self._gates:
            if gate.locked():
                try:
                    gate.release()
                except RuntimeError:  # another did
                    pass


def pause() -> None:
    """Give the turn away; what a thread does while it waits for something."""
    context = get_context()
    if context is not None:
        context[0].give_turn(context[1])


def _in_turn(thread: Callable[[], None]) -> None:
    """Run a thread's function from its first turn on."""
    context = get_context()
    assert context is not None
    context[0].enter(context[1])
    thread()


@contextmanager
def _traced() -> Any:
    set_active_trace_filter(_Filter())
    try:
        yield
    finally:
        set_active_trace_filter(None)


class Shuffler(BytecodeShuffler):
    """Traces opcodes before which another thread may matter."""

    def _start_opcode_trace(self) -> None:
        scheduler = self.scheduler

        def thread_id() -> int | None:
            context = get_context()
            return context[1] if context is not None and context[0] is scheduler else None

        def on_opcode(code: CodeType, offset: int, frame: object, thread: int) -> bool:
            if offset in _meetings(code):
                scheduler.wait_for_turn(thread, code.co_name)
                return True
            return False

        self._opcode_handle = start_opcode_trace(
            get_thread_id=thread_id,
            on_opcode=on_opcode,
            is_active=lambda: scheduler._error is None,
            tool_name="actorgraph-races",
            tool_kind="optimizer",
            monitor_returns=False,
        )


@cache
def _meetings(code: CodeType) -> frozenset[int]:
    """Return the offsets of the opcodes before which threads may change places."""
    offsets = set()
    before = ""
    for step in dis.get_instructions(code):
        if step.opname.startswith(_MEETING) and not (
            before.startswith(_PLAIN_TESTS) and "JUMP" in step.opname
        ):
            offsets.add(step.offset)
        before = step.opname
    return frozenset(offsets)


def interleave(
    make: Callable[[], Scenario], seed: str, lengths: dict[str, int], focus: Sequence[str] = ()
) -> dict[str, int]:
    """Run one interleaving of a scenario, raise what went wrong.

    Takes and returns how many opcodes were met in which function, the measure for the next.
    """
    turns = Interleaver(Random(seed), lengths, focus)
    runner = Shuffler(turns, detect_io=False)
    with runner.patch_scope():
        scenario = make()
        threads = scenario.threads()
        turns.begin(len(threads))
        try:
            runner.run([partial(_in_turn, thread) for thread in threads], timeout=30.0)
            if turns._error is not None:
                raise turns._error
            scenario.check()
        except BaseException as error:
            error.turns = tuple(turns.turns)  # type: ignore[attr-defined]
            raise
    return turns.lengths


def explore(
    make: Callable[[], Scenario], name: str, count: int, focus: Sequence[str] = ()
) -> Found | None:
    """Run `count` interleavings of a scenario, and return the first violation or None.

    In half of them threads change places in the functions that `focus` names.
    """
    lengths: dict[str, int] = {}
    with _traced(), np.errstate(all="ignore"):
        for number in range(count):
            try:
                lengths = interleave(make, f"{name} {number}", lengths, focus)
            except Exception as error:
                turns = getattr(error, "turns", ())
                return Found(number + 1, f"{type(error).__name__}: {error}", turns)
    return None


def assert_holds(
    make: Callable[[], Scenario], name: str, count: int, focus: Sequence[str] = ()
) -> None:
    """Assert that a `share` of `count` interleavings finds nothing."""
    found = explore(make, name, share(count), focus)
    assert found is None, f"after {found.after} interleavings: {found.violation}\n{found.turns}"


def assert_found(
    make: Callable[[], Scenario], name: str, count: int, focus: Sequence[str] = ()
) -> None:
    """Assert that a planted bug is found within a tenth of `count` interleavings."""
    found = explore(make, name, count // 10, focus)
    assert found is not None, f"not found in {count // 10} interleavings"
    print(f"{name}: found after {found.after}: {found.violation.splitlines()[0]}")


def planted(function: FunctionType, old: str, new: str) -> Any:
    """Return a copy of a library function in which the lines `old` stand as `new`.

    The lines are given without their common indentation, and must occur exactly once.
    """
    source = textwrap.dedent(inspect.getsource(function))
    changed = replace_once(source, old, new)
    assert changed != source
    scope = dict(function.__globals__)
    exec(compile(changed, f"{PLANTED}{function.__name__}.py", "exec"), scope)
    return scope[function.__name__]


def replace_once(text: str, old: str, new: str) -> str:
    """Replace the lines `old` of a text by `new`, whatever their indentation there."""
    lines, wanted = text.splitlines(), textwrap.dedent(old).strip("\n").splitlines()
    found = [
        start
        for start in range(len(lines) - len(wanted) + 1)
        if textwrap.dedent("\n".join(lines[start : start + len(wanted)])).splitlines() == wanted
    ]
    assert len(found) == 1, f"found {len(found)} times: {old!r} in\n{text}"
    start, end = found[0], found[0] + len(wanted)
    indent = min(len(line) - len(line.lstrip()) for line in lines[start:end])
    fresh = textwrap.indent(textwrap.dedent(new).strip("\n"), " " * indent).splitlines()
    return "\n".join([*lines[:start], *fresh, *lines[end:]]) + "\n"
