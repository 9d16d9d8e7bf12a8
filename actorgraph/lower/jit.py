"""Fusing elementwise steps and the sums at rows into one compiled step (``jit=True``).

It comes last, when tasks have their steps.  A *group* is a step with all that only it needs, as far
as `loops` knows the ops: it becomes one step in the place of its last, with that one's number,
type, owner and line, so that programs, buffers and errors treat it like any other.  Its kernel runs
the compiled loops where they are there and worth it, and else the ordinary kernels as a program of
its own, whose lines tell which of them failed.

Loops raise no floating-point error and warn of none; so they are left out under an `np.errstate`
that does more than warn.  Where something is watched nothing is fused.

Tolerance: each element is computed by the same operations, rounded alike, so elementwise steps
differ from NumPy's in the last bit at most; sums are taken in float64 and rounded once.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from actorgraph.devices.jit import COMPILER
from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.loops import DTYPES, REDUCTIONS, VALUES, VIEWS, Level, Source, write
from actorgraph.lower.program import Program, lower_directly
from actorgraph.lower.rates import path
from actorgraph.lower.regions import TaskSpec
from actorgraph.op import CONSTANT, Op, bind_attrs
from actorgraph.rewrite.exact import restated
from actorgraph.types import UNKNOWN, Dim, Shape, bind_shape

__all__ = ["CALL_US", "FEWEST", "FUSED", "fuse", "fused", "fused_kernel"]

CALL_US = 2.0
"""What a call of loops costs more than a ufunc's."""

FEWEST = 256
"""Elements below which loops are never worth it."""

_STEP_US, _BYTE_US = 0.25, 2e-5
"""What a step that is spared costs, and a byte of its result: with these three numbers loops begin
where they are measured to be faster, at 20,000 float32 elements for 2 steps and 3,000 for 5."""


_MOST_STEPS = 64
_USUAL = frozenset({"warn", "ignore"})
_MOST_ARRAYS = 8
"""More would need more comparisons of addresses than LLVM makes before it gives up vectors."""


def _never(xp: Any, *arrays: Any, **attrs: Any) -> Any:
    raise AssertionError("a fused step has a kernel of its own")


FUSED = Op("fused", "a[*s]", _never, layout="c", takes_out=True, doc="A group of steps.")
"""The op of groups; its attributes are not for users."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Steps in order, the last of which is the result, and their loops.

    Of the inputs the first are arrays that loops read, the next `numbers` are single, constants
    with the values `fixed` follow, and last comes what only has a shape.  The array at `full` has
    an element for each of the loops; there have to be `least` of them.
    """

    steps: tuple[Node, ...]
    source: Source
    arrays: int
    numbers: int
    fixed: tuple[float, ...]
    full: int
    least: int


def fused(
    parts: Sequence[Sequence[Node]], results: Iterable[Node], symbols: Mapping[str, int]
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
    """
    kept = {node.id for node in results}
    part_of = {step.id: index for index, steps in enumerate(parts) for step in steps}
    uses: dict[int, list[Node]] = {}
    for steps in parts:
        for step in steps:
            for operand in step.inputs:
                uses.setdefault(operand.id, []).append(step)
    inside = {
        number
        for number, users in uses.items()
        if number not in kept
        and number in part_of
        and all(part_of[user.id] == part_of[number] for user in users)
    }
    return [_fused(steps, inside, uses, symbols) for steps in parts]


def fuse(
    tasks: Sequence[TaskSpec], results: Iterable[Node], symbols: Mapping[str, int]
) -> list[Node]:
    """Give the tasks, fresh from the cut, their steps with groups fused; return all steps."""
    parts = fused([spec.steps for spec in tasks], results, symbols)
    for spec, steps in zip(tasks, parts, strict=True):
        spec.steps = steps
    return [step for steps in parts for step in steps]


def _fused(
    steps: Sequence[Node],
    inside: set[int],
    uses: Mapping[int, list[Node]],
    symbols: Mapping[str, int],
) -> list[Node]:
    """Return the steps of one task; takes what it has fused out of `inside`."""
    at = {step.id: position for position, step in enumerate(steps)}
    found: dict[int, Node] = {}
    gone: set[int] = set()
    for root in reversed(steps):
        if root.id in gone or root.op.name in VIEWS or not _is_known(root):
            continue
        shape = root.inputs[0].dims if root.op.name in REDUCTIONS else root.dims
        size = prod(bind_shape(shape, symbols, 0))
        if size < FEWEST:
            continue
        barred: set[int] = set()
        made: Node | int | None = -1
        while isinstance(made, int):
            members = _members(root, steps, at, inside, barred, uses)
            made = _grouped(members, shape, size)
            if isinstance(made, int):
                barred.add(made)
                made = None if made == root.id else made
        if made is not None:
            found[root.id] = made
            taken = [step.id for step in members]
            gone.update(taken)
            inside.difference_update(taken)
    return [found.get(step.id, step) for step in steps if step.id in found or step.id not in gone]


def _is_known(node: Node) -> bool:
    name = node.op.name
    dtypes = {node.dtype.name, *(part.dtype.name for part in node.inputs)}
    return (
        (name in VALUES or name in VIEWS or name in REDUCTIONS)
        and not node.op.checked
        and dtypes <= DTYPES.keys()
        and not (name in REDUCTIONS and node.dtype.kind != "f")
        and all(dim is not UNKNOWN for part in (node, *node.inputs) for dim in part.dims)
    )


def _members(
    root: Node,
    steps: Sequence[Node],
    at: Mapping[int, int],
    inside: Collection[int],
    barred: Collection[int],
    uses: Mapping[int, list[Node]],
) -> list[Node]:
    """Return, in order, `root` and the known steps `inside` that only it needs, from the latest."""
    members = {root.id}
    waiting = [-at[part.id] for part in root.inputs if part.id in at]
    heapq.heapify(waiting)
    while waiting and len(members) < _MOST_STEPS:
        step = steps[-heapq.heappop(waiting)]
        if step.id in members or step.id not in inside or step.id in barred:
            continue
        if not _is_known(step) or any(user.id not in members for user in uses[step.id]):
            continue
        members.add(step.id)
        for part in step.inputs:
            if part.id in at:
                heapq.heappush(waiting, -at[part.id])
    return [steps[position] for position in sorted(at[number] for number in members)]


def _grouped(steps: Sequence[Node], shape: Shape, size: int) -> Node | int | None:
    """Return the fused step, the id of a step that does not fit, or None for no group."""
    spared = sum(step.op.name not in VIEWS for step in steps) - 1
    if spared < 1:
        return None
    longest = max(part.dtype.itemsize for part in steps)
    least = max(FEWEST, int((CALL_US / spared - _STEP_US) / (_BYTE_US * longest)))
    if size < least:
        return None
    root, own = steps[-1], {step.id for step in steps}
    inputs: dict[int, Node] = {}
    read: dict[int, Node] = {}
    for step in steps:
        for place, part in enumerate(step.inputs):
            if part.id not in own:
                inputs[part.id] = part
                if not (place and step.op.name in VIEWS):  # of `like` only the shape counts
                    read[part.id] = part
    levels: dict[int, Level] = {}
    for part in inputs.values():
        level = _level_of_input(part, shape)
        if part.id in read and level is None:
            return next(step.id for step in steps if any(p.id == part.id for p in step.inputs))
        levels[part.id] = level or "whole"
    for step in steps:
        level = _level(step, shape, levels, step is root)
        if level is None:
            return step.id
        levels[step.id] = level
    arrays = [part for part in read.values() if levels[part.id] != "whole"]
    full = [i for i, part in enumerate(arrays) if levels[part.id] == "element"]
    if len(arrays) > _MOST_ARRAYS or not full:
        return steps[0].id if len(steps) > 2 else None
    single = [part for part in read.values() if levels[part.id] == "whole"]
    numbers = [part for part in single if part.op is not CONSTANT]
    constants = [part for part in single if part.op is CONSTANT]
    loaded = [*arrays, *numbers, *constants]
    source = write(steps, levels, loaded)
    operands = [*loaded, *(part for part in inputs.values() if part.id not in read)]
    fixed = [part.attrs["value"].item() for part in constants]
    group = _Group(
        tuple(steps), source, len(arrays), len(numbers), tuple(fixed), full[0], least
    )  # fmt: skip
    attrs = {
        "group": group,
        "program": lower_directly(steps, operands, [root]),
        "attrs": tuple([step.attrs for step in steps]),  # which may hold what a run binds
    }
    return restated(root, FUSED, tuple(operands), attrs)


def _level_of_input(node: Node, shape: Shape) -> Level | None:
    dims = node.dims
    if dims == shape:
        return "element"
    if all(dim == 1 for dim in dims):
        return "whole"
    if len(dims) <= len(shape) and dims[-1] == shape[-1] and all(dim == 1 for dim in dims[:-1]):
        return "column"
    return "row" if dims == (*shape[:-1], 1) else None


def _level(step: Node, shape: Shape, levels: Mapping[int, Level], is_root: bool) -> Level | None:
    """Return where the value of a step stands, None where loops cannot compute it."""
    first = step.inputs[0]
    if step.op.name in REDUCTIONS:
        axis = step.attrs["axis"]
        fits = axis == (len(shape) - 1,)
        if is_root:
            whole = tuple(range(len(shape)))
            fits = fits or axis in (whole, whole[:-1])
        fits = fits and bool(axis) and first.dims == shape and levels[first.id] == "element"
        return "row" if fits else None
    parts = [first] if step.op.name in VIEWS else list(step.inputs)
    found = {levels[part.id] for part in parts}
    if step.dims == shape:
        if is_root or found & {"element", "column"}:
            return "element"
        return "row" if "row" in found else "whole"
    if found == {"whole"}:
        return "whole" if all(dim == 1 for dim in step.dims) else None
    flat, kept = shape[:-1], (*shape[:-1], 1)
    if found - {"whole", "row"} or step.dims not in (flat, kept):
        return None
    rows = {part.dims for part in parts if levels[part.id] == "row"}
    if step.op.name in ("expand_dims", "squeeze"):
        return "row" if rows <= {flat, kept} else None
    return "row" if rows == {step.dims} else None


def fused_kernel(node: Node, symbols: Mapping[str, int], *, wait: bool) -> Callable[..., Any]:
    """Return the kernel of a fused step; with `wait` blocks until its loops are compiled."""
    group: _Group = node.attrs["group"]
    program: Program = node.attrs["program"]
    source = group.source
    one_by_one = program.make(*[kernel(step, np, symbols) for step in group.steps])
    compiled = COMPILER.request(source.text, source.parameters, os.path.dirname(path()))
    if wait:
        compiled.done.wait()
    arrays, numbers = group.arrays, group.arrays + group.numbers
    fixed = [*group.fixed, *_sizes(group, bind_attrs(node.attrs["attrs"], symbols))]
    shape_of, dtype = _result_shape(group.steps[-1]), node.dtype
    first, least = group.full, group.least

    def ordinary(given: Sequence[Any]) -> Any:
        (result,) = one_by_one(*given)
        return np.ascontiguousarray(result) if result.ndim else result

    def fused_step(*given: Any, out: Any = None) -> Any:
        loops, full = compiled.function, given[first]
        if loops is None or full.size < least or not _USUAL.issuperset(np.geterr().values()):
            return ordinary(given)
        if out is None:
            out = np.empty(shape_of(full.shape), dtype)
        live = [one.item() for one in given[arrays:numbers]]
        try:
            done = loops(*given[:arrays], *live, *fixed, out)
        except TypeError:
            done = False  # an array of strides that loops do not take
        if not done:
            return ordinary(given)
        return out if out.ndim else out[()]

    return fused_step


def _sizes(group: _Group, attrs: Sequence[Mapping[str, Any]]) -> list[float]:
    return [
        float(bound["size"])
        for step, bound in zip(group.steps, attrs, strict=True)
        if step.op.name == "divide_by_size" and isinstance(step.attrs["size"], Dim)
    ]


def _result_shape(root: Node) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return what tells the shape of the result from that of the elements."""
    if root.op.name not in REDUCTIONS:
        return tuple
    axis, keepdims = root.attrs["axis"], root.attrs["keepdims"]

    def reduced(shape: tuple[int, ...]) -> tuple[int, ...]:
        sizes = enumerate(shape)
        return tuple([1 if i in axis else n for i, n in sizes if keepdims or i not in axis])

    return reduced
