"""Revolve: reversing a chain of steps with few checkpoints, and the op that so reverses a loop.

Some carries are kept in slots, one of which holds the first carry.  From the latest kept one the
chain is advanced again to the next carry that the reversal needs.  Revolve's choice of slots is
optimal: no other schedule advances fewer steps.

Source: A. Griewank and A. Walther, Algorithm 799: Revolve, ACM TOMS 26, 2000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import comb
from typing import Any, NamedTuple

import numpy as np

from actorgraph.autodiff.forward import push_forward
from actorgraph.autodiff.reverse import pull_back
from actorgraph.autodiff.tracing import lifted
from actorgraph.control.loop import (
    LOOP,
    MOST_COPIED_BYTES,
    Spec,
    bound_length,
    guessed_trips,
    in_order,
    joined,
    length_of,
    loop,
)
from actorgraph.devices import structs
from actorgraph.graph import Graph, Node
from actorgraph.lower.inner import Dead, InBody, Inner, between
from actorgraph.op import Attrs, Op, Together
from actorgraph.ops._records import any_types, item
from actorgraph.types import Checks, Record, Tensor


def reach(slots: int, repeats: int) -> int:
    """Return the longest chain whose reversal advances no step more than `repeats` times."""
    return comb(slots + repeats, slots) if repeats >= 0 else 0


def _repeats(length: int, slots: int) -> int:
    repeats = 0
    while reach(slots, repeats) < length:
        repeats += 1
    return repeats


def steps_again(length: int, slots: int) -> int:
    """Return the number of steps that the reversal of a chain advances.

    Examples
    --------
    >>> steps_again(100, 10)
    222
    """
    repeats = _repeats(length, slots)
    return repeats * length - comb(slots + repeats, slots + 1) if length > 1 else 0


def reversal(length: int, slots: int) -> Iterator[tuple[str, int]]:
    """Yield actions ``("advance", to)``, ``("keep", at)``, ``("drop", at)`` and ``("back", at)``.

    ``"advance"`` starts at the current place; after ``"drop"`` and ``"back"`` that is the latest
    kept place.  Place 0 is kept from the start.

    Examples
    --------
    >>> list(reversal(2, 1))
    [('advance', 1), ('back', 1), ('back', 0)]
    """
    stack = [(0, length)]  # for each slot, the part of the chain that is left to reverse
    while stack:
        begin, end = stack.pop()
        free, size = slots - len(stack), end - begin
        if not size:
            if stack:
                yield "drop", begin
            continue
        middle = begin + _ahead(size, free)
        if middle > begin:
            yield "advance", middle
        stack.append((begin, middle))
        if end - middle > 1:
            yield "keep", middle
            stack.append((middle, end))
        else:
            yield "back", middle


def _ahead(size: int, slots: int) -> int:
    """Return the number of steps to the next carry to keep, or to the last one."""
    if slots == 1 or size == 1:
        return size - 1
    repeats = _repeats(size, slots)
    return min(reach(slots, repeats - 1), size - reach(slots - 1, repeats - 1))


# -- the op ---------------------------------------------------------------------------------------
#
# Operands: those of the forward loop (without its test's captures), then those of the reverse loop
# (without the history).  Its definition is the reverse loop on the forward loop's history.


class Chain(NamedTuple):
    """A loop that is reversed with few carries kept.

    `forward` is the loop without its test; if it has no length, its first operand is the number of
    iterations.  `back` is the reverse loop.  `entered` has for each of the first elements of `back`
    the carry of `forward` that it is, or None if it is an operand.
    """

    forward: Spec
    back: Spec
    entered: tuple[int | None, ...]
    slots: int

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the operands of both loops, those of the reverse one without the history."""
        forward = self.forward
        size = forward.counted + forward.consts + forward.carries + forward.xs
        return [*operands[:size]], [*operands[size:]]

    def completed(self, given: Sequence[Any], history: Mapping[int, Any]) -> list[Any]:
        """Return the operands of the reverse loop, with the history among its elements."""
        first = len(given) - (self.back.xs - len([j for j in self.entered if j is not None]))
        rest = iter(given[first:])
        elements = [next(rest) if j is None else history[j] for j in self.entered]
        return [*given[:first], *elements, *rest]

    def __str__(self) -> str:
        return f"{self.forward} reversed in {self.slots} slots"

    @property
    def titles(self) -> list[tuple[str, Any]]:
        """The bodies, with their names in drawings."""
        return [("step", self.forward.body), ("back", self.back.body)]


def _definition(graph: Graph, chain: Chain, operands: Sequence[Node]) -> Node:
    forward, given = chain.split(operands)
    record = loop(graph, chain.forward, forward)
    carries = {j for j in chain.entered if j is not None}
    history = {j: item(record, chain.forward.history + j) for j in carries}
    return loop(graph, chain.back, chain.completed(given, history))


def _typing(checks: Checks, types: tuple[Tensor, ...], attrs: Attrs) -> Tensor:
    chain: Chain = attrs["chain"]
    forward, back_types = chain.split(types)
    record = LOOP.typing(checks, tuple(forward), {"loop": chain.forward})  # type: ignore[misc]
    assert isinstance(record, Record)
    history = {j: record.fields[chain.forward.history + j] for j in range(chain.forward.carries)}
    operand_types = tuple(chain.completed(back_types, history))
    back_record = LOOP.typing(checks, operand_types, {"loop": chain.back})  # type: ignore[misc]
    assert isinstance(back_record, Record)
    return Record.of_fields(back_record.fields[: chain.back.trips])


def _pull(
    argnums: Sequence[int], ct: Node, y: Node, *operands: Node, chain: Chain
) -> list[Node | None]:
    graph = y.graph
    args = lifted(graph, operands)  # separate nodes, since one may depend on another
    record = _definition(graph, chain, args)
    result = pull_back(graph, between(args, [record]), {record: ct}, [args[i] for i in argnums])
    return [result[args[i]] for i in argnums]


def _push(tans: Sequence[Node | None], y: Node, *operands: Node, chain: Chain) -> Node | None:
    graph = y.graph
    args = lifted(graph, operands)
    record = _definition(graph, chain, args)
    seeds = {arg: tan for arg, tan in zip(args, tans, strict=True) if tan is not None}
    return push_forward(graph, between(args, [record]), seeds).get(record)


class _RevolveKernel:
    """A reversal compiled for one binding: called with the run and the operands."""

    def __init__(self, node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> None:
        self.chain: Chain = node.attrs["chain"]
        forward, back = self.chain.forward, self.chain.back
        results = forward.body.results[: forward.carries]
        self.step = Inner(forward.body.inputs, results, symbols, watch)
        self.turn = Inner(back.body.inputs, back.body.results, symbols, watch)
        self.joined = partial(joined, symbols=symbols, reverse=back.reverse)
        self.types = node.type.fields  # type: ignore[attr-defined]
        self.length = bound_length(forward, symbols)

    def __call__(self, run: Any, *operands: Any) -> list[Any]:
        run = structs.IDLE if run is None else run
        chain = self.chain
        forward, back_operands = chain.split(operands)
        number, consts, _, carries, xs = chain.forward.split(forward)
        xs = in_order(xs, MOST_COPIED_BYTES)
        length = length_of(chain.forward, self.length, number, xs)
        entered = [j for j in chain.entered if j is not None]
        filled = chain.completed(back_operands, dict.fromkeys(entered))
        _, captured, _, cts, elements = chain.back.split(filled)
        elements = in_order(elements, MOST_COPIED_BYTES)
        down = chain.forward.reverse
        stacks: list[Any] = [[] for _ in range(chain.back.ys)]
        at, state = 0, in_order(carries)
        saved = [(0, state)]
        position, program = 0, self.step.program
        try:
            for action, place in reversal(length, chain.slots):
                if action == "advance":
                    program = self.step.program
                    for step in range(at, place):
                        if run.dead is not None:
                            raise Dead
                        position = length - 1 - step if down else step
                        row = [x[position] for x in xs]
                        state = self.step.call(run, (), np.int64(position), *consts, *state, *row)
                    at = place
                elif action == "keep":
                    saved.append((place, state))
                elif action == "drop":
                    saved.pop()
                    at, state = saved[-1]
                else:
                    if run.dead is not None:
                        raise Dead
                    program = self.turn.program
                    position = length - 1 - at if down else at
                    row = [None if x is None else x[position] for x in elements]
                    for k, j in enumerate(chain.entered):
                        if j is not None:
                            row[k] = state[j]
                    results = self.turn.call(run, (), np.int64(position), *captured, *cts, *row)
                    cts = results[: chain.back.carries]
                    for stack, value in zip(stacks, results[chain.back.carries :], strict=True):
                        stack.append(value)
                    at, state = saved[-1]
        except Dead:
            raise
        except Exception as error:
            raise InBody(program, position, error) from error
        types = self.types[chain.back.carries :]
        return [*cts, *[self.joined(*one) for one in zip(types, stacks, strict=True)]]


def _predicted(node: Node, symbols: Mapping[str, int]) -> float:
    chain: Chain = node.attrs["chain"]
    trips = guessed_trips(chain.forward, node.inputs, symbols)
    again = steps_again(trips, chain.slots)
    step, turn = (one.body.predicted_us(symbols) for one in (chain.forward, chain.back))
    return 2.0 + again * step + trips * turn


REVOLVE = Op(
    "revolve", any_types, lambda xp, *arrays, **attrs: None, typing=_typing, vjp=Together(_pull),
    jvp=_push, kernel=_RevolveKernel, predicted=_predicted,
    doc="A loop turned around, whose carries are computed again from a few.",
)  # fmt: skip
"""The op of loops that are reversed with a number of slots."""
