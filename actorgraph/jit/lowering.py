"""Fusing elementwise steps, sums and softmax-like ones into compiled steps (``jit=True``).

It comes last, when tasks have their steps.  A *group* (`jit.groups`) becomes one step in the
place of its last, with that one's number, type, owner and line, so that programs, buffers and
errors treat it like any other.  Its other results are steps of their own before it, which only
bring memory that it writes to.  Its kernel runs the compiled loops where they are there, and else
the ordinary kernels as a program of its own, whose lines tell which of them failed.

Loops raise no floating-point error and warn of none; so under an `np.errstate` that does more than
warn (`kernels.is_silent`) the ordinary kernels run.  Where something is watched nothing is fused.

Tolerance: each element is computed by the same operations, rounded alike, so elementwise steps
differ from NumPy's in the last bit at most; sums and exponentials are taken in float64 and rounded
once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.jit.compiler import COMPILER
from actorgraph.jit.groups import Group, groups, is_read
from actorgraph.jit.loops import Source, open_sizes, write
from actorgraph.lower.kernels import kernel
from actorgraph.lower.program import Program, lower_directly
from actorgraph.lower.rates import path
from actorgraph.lower.regions import TaskSpec
from actorgraph.op import CONSTANT, FRESH_OUT, Op, bind_attrs
from actorgraph.rewrite.exact import restated


def _never(xp: Any, *arrays: Any, **attrs: Any) -> Any:
    raise AssertionError("a fused step has a kernel of its own")


FUSED = Op("fused", "a[*s]", _never, memory=FRESH_OUT, doc="A group of steps.")
"""The op of groups; its attributes are not for users."""

_ROOM = Op("room", "a[*s]", _never, memory=FRESH_OUT, doc="What a group writes, too.")

OWN = frozenset({FUSED, _ROOM})
"""The ops whose kernels are `fused_kernel`."""


@dataclass(frozen=True, slots=True)
class _Loops:
    """A group and its loops.

    Of the inputs of its step the first are arrays that loops read, the next `numbers` are single,
    constants with the values `fixed` follow, then what only has a shape, and last `rooms` results.
    """

    group: Group
    source: Source
    arrays: int
    numbers: int
    fixed: tuple[float, ...]
    rooms: int


def fused(
    parts: Sequence[Sequence[Node]],
    results: Iterable[Node],
    symbols: Mapping[str, int],
    apart: Callable[[Node, Mapping[str, int]], bool],
) -> list[list[Node]]:
    """Return the steps of each task with groups fused.

    Parameters
    ----------
    parts : sequence of list of Node
        Steps of each task, in order.
    results : iterable of Node
        What has to stay.
    symbols : mapping
        Sizes that tell which groups are large enough.
    apart : callable
        Of which steps machine code of their own is faster.
    """
    kept = {node.id for node in results}
    uses: dict[int, list[Node]] = {}
    for steps in parts:
        for step in steps:
            for operand in step.inputs:
                uses.setdefault(operand.id, []).append(step)
    return [_with_groups(steps, groups(steps, kept, uses, symbols, apart)) for steps in parts]


def fuse(
    tasks: Sequence[TaskSpec],
    results: Iterable[Node],
    symbols: Mapping[str, int],
    apart: Callable[[Node, Mapping[str, int]], bool],
) -> list[Node]:
    """Give the tasks, fresh from the cut, their steps with groups fused; return all steps."""
    parts = fused([spec.steps for spec in tasks], results, symbols, apart)
    for spec, steps in zip(tasks, parts, strict=True):
        spec.steps = steps
    return [step for steps in parts for step in steps]


def _with_groups(steps: Sequence[Node], found: Sequence[Group]) -> list[Node]:
    gone = {step.id for group in found for step in group.steps}
    ends = {group.steps[-1].id: _steps_for(group) for group in found}
    result: list[Node] = []
    for step in steps:
        result += ends.get(step.id, [] if step.id in gone else [step])
    return result


def _steps_for(group: Group) -> list[Node]:
    """Return what stands for a group: memory for all results but the last, and the fused step."""
    *others, root = group.outputs
    levels = group.levels
    read = {
        part.id: part
        for step in group.steps
        for place, part in enumerate(step.inputs)
        if is_read(step, place)
    }
    given = [part for part in group.inputs if part.id in read]
    arrays = [part for part in given if levels[part.id] != "whole"]
    single = [part for part in given if levels[part.id] == "whole"]
    numbers = [part for part in single if part.op is not CONSTANT]
    constants = [part for part in single if part.op is CONSTANT]
    loaded = [*arrays, *numbers, *constants]
    operands = [*loaded, *(part for part in group.inputs if part.id not in read)]
    fixed = tuple([part.attrs["value"].item() for part in constants])
    source = write(group.steps, levels, loaded, group.outputs)
    rooms = [restated(step, _ROOM, (), {"dims": step.dims}) for step in others]
    attrs = {
        "loops": _Loops(group, source, len(arrays), len(numbers), fixed, len(rooms)),
        "program": lower_directly(group.steps, operands, group.outputs),
        "dims": root.dims,
        "attrs": tuple([step.attrs for step in group.steps]),  # which may hold what a run binds
    }
    return [*rooms, restated(root, FUSED, (*operands, *rooms), attrs)]


# -- kernels --------------------------------------------------------------------------------------


def fused_kernel(node: Node, symbols: Mapping[str, int], *, wait: bool) -> Callable[..., Any]:
    """Return the kernel of one of `OWN`; with `wait` blocks until its loops are compiled."""
    empty = partial(np.empty, bind_attrs(node.attrs["dims"], symbols), node.dtype)
    if node.op is _ROOM:
        return _room(empty)
    loops: _Loops = node.attrs["loops"]
    program: Program = node.attrs["program"]
    one_by_one = program.make(*[kernel(step, np, symbols) for step in loops.group.steps])
    source = loops.source
    compiled = COMPILER.request(source.text, source.parameters, os.path.dirname(path()))
    if wait:
        compiled.done.wait()
    count = len(node.inputs)
    operands = count - loops.rooms

    def ordinary(*given: Any, out: Any = None) -> Any:
        *others, result = one_by_one(*given[:operands])
        for room, value in zip(given[operands:count], others, strict=True):
            room[...] = value
        return np.ascontiguousarray(result) if result.ndim else result

    fixed = [*loops.fixed, *_sizes(loops.group, bind_attrs(node.attrs["attrs"], symbols))]
    make = _wrapper(count, loops.arrays, loops.numbers, len(fixed), loops.rooms, not node.dims)
    found: Callable[..., Any] = make(compiled, ordinary, empty, *fixed)
    found.ordinary = ordinary  # type: ignore[attr-defined]
    return found


def _room(empty: Callable[[], Any]) -> Callable[..., Any]:
    def room(*, out: Any = None) -> Any:
        return empty() if out is None else out

    return room


@lru_cache(maxsize=1024)
def _wrapper(
    count: int, arrays: int, numbers: int, fixed: int, rooms: int, single: bool
) -> Callable[..., Any]:
    """Return what makes the kernel of a group; a text, for a list of arguments costs 0.3 us."""
    given = [f"g{i}" for i in range(count)]
    constants = [f"f{i}" for i in range(fixed)]
    live = [f"{name}.item()" for name in given[arrays : arrays + numbers]]
    call = [*given[:arrays], *live, *constants, *given[count - rooms :], "y"]
    text = f"""\
def make({", ".join(["compiled", "ordinary", "empty", *constants])}):
    def fused_step({", ".join([*given, "*", "out=None"])}):
        loops = compiled.function
        if loops is not None:
            y = empty() if out is None else out
            try:
                if loops({", ".join(call)}):
                    return y{"[()]" if single else ""}
            except TypeError:
                pass  # an array of strides that loops do not take
        return ordinary({", ".join(given)})
    return fused_step
"""
    scope: dict[str, Any] = {}
    exec(text, scope)  # our own text, made from numbers only
    made: Callable[..., Any] = scope["make"]
    return made


def _sizes(group: Group, attrs: Sequence[Mapping[str, Any]]) -> list[float]:
    return [
        float(bound[name])
        for step, bound in zip(group.steps, attrs, strict=True)
        for name in open_sizes(step)
    ]
