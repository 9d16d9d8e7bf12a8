"""Which steps may be rows of a table, and which are views; see `table` and `table_rows`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from actorgraph.devices.listed import CASTS, MOST_ARGUMENTS, may_have_loop
from actorgraph.graph import Node
from actorgraph.lower.kernels import class_numbers
from actorgraph.lower.matmul import is_small
from actorgraph.memory.buffers import is_view, regular
from actorgraph.op import REGISTRY, Op
from actorgraph.ops._arrays import are_columns
from actorgraph.rewrite.exact import is_pure
from actorgraph.tiles import CUT_FLOPS
from actorgraph.types import UNKNOWN, bind_shape

LARGEST_BYTES, READ_BYTES = 512 * 1024, 1024 * 1024
"""Most bytes of a result, and of operands.  Calls from Python cost next to nothing for such arrays.
But rows keep values in memory that stays in the cache, and need no GIL: with 512 kB, not 128, a
transformer block took 0.87 of the time forward and 0.93 both ways, a residual net 0.95 both ways.
With 2 MB nothing more was gained."""

_OWN_BYTES = 64 * 1024
"""Most bytes of a product of a matrix with its own transpose: `np.matmul`, of which rows call the
loop, copies one triangle of a larger one to the other in up to 1.5 times the time of `dot`."""

_MATRIX_BYTES = 16 * 1024 * 1024
"""Most bytes that a product reads or a view shows: a call from Python would release the GIL, and
wait for it while other threads run Python.  Ctrl-C waits for the end of a walk."""

SUM = REGISTRY["sum"]
_ASTYPE = REGISTRY["astype"]
AS_INTEGERS = str.maketrans("fdI", "ili")  # floats are copied more slowly
RESHAPE = REGISTRY["reshape"]
"""The op whose result is a view of an operand in C order, else a copy."""
GETITEM, _TRANSPOSE = REGISTRY["getitem"], REGISTRY["transpose"]
_SHOWING = frozenset({GETITEM, RESHAPE})  # mostly; the result decides
_UNKNOWN: tuple[Op | None, Any, str] = (None, None, "")


def kinds(
    steps: Sequence[Node], symbols: Mapping[str, int], ordered: Collection[int] | None = None,
    largest: int | None = None, others: Collection[Op] = (),
    known: dict[int, tuple[Op, Any, str]] | None = None,
    layout_of: Callable[[Node], Any] | None = None,
    classes: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:  # fmt: skip
    """Return for each step ``"row"``, ``"view"``, or ``""`` if it can be neither.

    `ordered` are the ids that `regular` returns; `others` are ops for which the caller writes the
    rows; `known` is a cache that calls with the same settings and `classes` may share (see
    `kernels.class_numbers`).  With `layout_of`, which returns None for an unknown layout, values
    need not be in C order.
    """
    if known is None or not classes:
        known, classes = {}, classes or class_numbers(steps)
    in_order = regular(steps) if ordered is None else ordered

    def lies(node: Node) -> bool:
        """Return whether the layout of a value is known."""
        return node.id in in_order or (layout_of is not None and layout_of(node) is not None)

    found, most = list[str](), largest or LARGEST_BYTES
    for step in steps:  # a hot loop
        if others and step.op in others:
            found.append("row" if has_size(step, symbols, most) else "")
            continue
        number = classes.get(step.id, -1)
        op, attrs, kind = known.get(number, _UNKNOWN)
        # Late rewriting may put other steps in the places of nodes.
        if op is not step.op or attrs is not step.attrs:
            kind = kind_of(step, symbols, most)
            if op is None and number >= 0:
                known[number] = step.op, step.attrs, kind
        if kind == "row":
            found.append(kind if step.id in in_order or lies(step) else "")
        elif kind and step.op is RESHAPE:
            of = step.inputs[0]  # if that is not in C order, the result is a copy
            found.append(kind if of.is_leaf or lies(of) else "")
        else:
            found.append(kind)
    return found


def kind_of(step: Node, symbols: Mapping[str, int], largest: int) -> str:
    """Return ``"row"`` if a step may be one, ``"view"`` if it is one, else ``""``."""
    if not is_pure(step.op) or step.op.kernel is not None:
        return ""
    is_shown, multiplies = is_view(step), step.op.ufunc == "matmul"
    read = _MATRIX_BYTES if is_shown or multiplies else READ_BYTES
    if not has_size(step, symbols, read if is_shown else largest, read):
        return ""
    if is_shown:
        return "view" if shows(step) and len(step.inputs) == 1 else ""
    return "row" if _has_loop(step, symbols) else ""


def shows(step: Node) -> bool:
    """Return whether tables support a step's op as a view."""
    return step.op.memory.is_view or step.op in _SHOWING


def has_size(step: Node, symbols: Mapping[str, int], largest: int, read: int = READ_BYTES) -> bool:
    """Return whether a step reads and writes few enough bytes for a row to pay off."""
    operands = [_is_small(one, symbols, max(read, largest)) for one in step.inputs]
    return all(operands) and _is_small(step, symbols, largest)


def _is_small(node: Node, symbols: Mapping[str, int], most: int) -> bool:
    """Return whether a value is of known size, not empty, and at most `most` bytes."""
    if UNKNOWN in node.dims:
        return False
    return 0 < prod(bind_shape(node.dims, symbols, 0)) * node.dtype.itemsize <= most


def _has_loop(step: Node, symbols: Mapping[str, int]) -> bool:
    if step.op is SUM:
        return bool(step.attrs["axis"]) and step.dtype.char in "fd"
    if step.op.ufunc == "matmul":
        if step.dtype.char not in "fd" or not is_small(step, symbols):
            return False
        return not _is_of_one_matrix(step) or _is_small(step, symbols, _OWN_BYTES)
    if _may_be_traced(step, symbols):
        return True
    return bool(has_loop(step, may_have_loop))


def _is_of_one_matrix(step: Node) -> bool:
    """Return whether a product is of a matrix with its own transpose."""
    x, y = step.inputs
    return x.ndim == y.ndim == 2 and (_is_turned(x, y) or _is_turned(y, x))


def _is_turned(view: Node, of: Node) -> bool:
    return view.op is _TRANSPOSE and view.inputs[0] is of


def _may_be_traced(step: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether a step's kernel may be traced, and is too short to be cut into tiles."""
    op = step.op
    if step.dtype.char not in "?fdil" or not (
        op.traced(step) if callable(op.traced) else op.traced
    ):
        return False
    if op is _ASTYPE and step.inputs[0].dtype.char + step.dtype.char not in CASTS:
        return False
    shapes = tuple([bind_shape(part.dims, symbols, 1) for part in step.inputs])
    result = bind_shape(step.dims, symbols, 1)
    return not op.in_blas or op.flops(shapes, result, step.attrs) < CUT_FLOPS


def sums_columns(step: Node) -> bool:
    """Return whether a step is a sum over all axes but the last."""
    if step.op is not SUM:
        return False
    of = step.inputs[0]
    return are_columns(len(of.dims), step.dtype, step.attrs["axis"], step.attrs["keepdims"])


def has_loop(step: Node, of: Callable[[str, str], Any] | None = None) -> Any:
    """Return the loop of a step, or what `of` says of its ufunc and dtypes."""
    if step.op.ufunc is None or step.attrs or len(step.inputs) >= MOST_ARGUMENTS:
        return None
    if of is None:
        from actorgraph.devices.loops import loop_of  # first runs do without it

        of = loop_of
    chars = "".join([one.dtype.char for one in (*step.inputs, step)])
    return of(step.op.ufunc, chars.translate(AS_INTEGERS if step.op.ufunc == "positive" else {}))


def may_overwrite(step: Node, views: Container[int]) -> bool:
    """Return whether the row of a step may write over an operand of its layout.

    `views` are the ids of values that may show the memory of others.
    """
    if step.op.ufunc in (None, "matmul") or step.op.traced or step.dtype.kind == "c":
        return False
    return not [one for one in step.inputs if one.id in views]
