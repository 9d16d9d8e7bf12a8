"""Kernels: the callables that a program applies to arrays, one for each node.

A kernel is an op's forward with array module and attributes bound; for a ufunc it is the ufunc
itself, for a matrix product a function of `lower.matmul`.  A wrapper is added only where it is
needed: for user ops (read-only operands, checked results), a limit of concurrent calls, an
`np.errstate` other than the default, and the watch for NaN and Inf.  The kernel of an op that waits
is a `Waiting`, which no worker calls.
"""

from __future__ import annotations

import inspect
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.gates import Gate
from actorgraph.graph import Node
from actorgraph.lower.matmul import product
from actorgraph.op import Op, bind_attrs, is_symbolic
from actorgraph.ops._arrays import by_host, is_half, raise_if
from actorgraph.options import in_child_of_fork, is_masked
from actorgraph.types import Dim, bind_shape
from actorgraph.warned import reporting_errors

Kernel = Callable[..., Any]

_OF_SCALARS: dict[str, Kernel] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
"""Operators of NumPy's scalars: the same bits in a tenth of a ufunc's time, 0.04 us, not 0.4."""

_SILENT = frozenset({"warn", "ignore"})


def _square_of_number(x: Any, out: Any = None) -> Any:
    """Multiply a complex number by itself.

    From its second call on, NumPy's `square` rounds the square of a complex scalar otherwise than
    that of an array of one element.
    """
    return np.multiply(x, x, out)


class Waiting(NamedTuple):
    """The kernel of an op that waits: the callable, where it runs, and its gate."""

    call: Kernel
    runs_on: str
    gate: Gate | None


_gates: WeakKeyDictionary[Op, Gate] = WeakKeyDictionary()
_gates_lock = threading.Lock()


def _gate_of(op: Op) -> Gate | None:
    if op.concurrency is None:
        return None
    with _gates_lock:
        return _gates.setdefault(op, Gate(op.concurrency))


@in_child_of_fork
def _after_fork_in_child() -> None:
    # Threads of the parent may have held the locks; they do not exist here.
    global _gates_lock
    _gates_lock = threading.Lock()
    for gate in _gates.values():
        gate.reset()


def alike(node: Node) -> tuple[Any, ...]:
    """Return a key that is equal for nodes of one op with identical types and attributes.

    A graph has one object for equal types, and for equal attributes.  Nodes that are alike may
    share a kernel, and have the same predicted cost.
    """
    inputs = node.inputs
    if len(inputs) == 1:  # a hot function, so frequent cases are written out
        return node.op, id(node.attrs), id(node.type), id(inputs[0].type)
    if len(inputs) == 2:
        return node.op, id(node.attrs), id(node.type), id(inputs[0].type), id(inputs[1].type)
    return (node.op, id(node.attrs), id(node.type), *[id(part.type) for part in inputs])


def class_numbers(nodes: Iterable[Node]) -> dict[int, int]:
    """Return by id of each node the number of its class, in which all are `alike`.

    A step that was made of a node, with its id and op, is of its class.
    """
    numbers: dict[Any, int] = {}
    return {node.id: numbers.setdefault(alike(node), len(numbers)) for node in nodes}


def depends_on_symbols(node: Node) -> bool:
    """Return whether the node's kernel differs between bindings of the symbols."""
    if node.op.kernel is not None or (node.attrs and is_symbolic(node.attrs)):
        return True
    return node.op.checked and any(isinstance(dim, Dim) for dim in node.dims)


def kernel(node: Node, xp: Any, symbols: Mapping[str, int], *, watch: tuple[str, ...] = ()) -> Any:
    """Return the kernel of a node, a `Waiting` if no worker may call it.

    `xp` is NumPy or CuPy, `symbols` the binding of the dims.  With "nan" or "inf" in `watch` the
    kernel raises `FloatingPointError` if its result has one.
    """
    op = node.op
    if op.kernel is not None:
        return op.kernel(node, symbols, watch)
    attrs = bind_attrs(node.attrs, symbols) if node.attrs else {}
    half = is_half(node.dtype)
    bare = op.ufunc is not None and not attrs and not half
    if bare and op.ufunc == "matmul" and xp is np:
        function: Kernel = product(node, symbols)
    elif bare and xp is np and op.ufunc in _OF_SCALARS and _are_float_scalars(node):
        function = _OF_SCALARS[op.ufunc]
    elif bare and xp is np and op.ufunc == "square" and node.dtype.kind == "c" and not node.dims:
        function = _square_of_number
    elif bare:
        name = str(op.ufunc)
        function = getattr(xp, name, None) or partial(by_host, xp, getattr(np, name))
    elif op.quick is not None and (quick := op.quick(node, xp, attrs)) is not None:
        function = quick
    else:
        # Skip the wrapper that widens two-byte floats: it costs 0.3 us for nothing.
        forward = op.forward if half else getattr(op.forward, "own", op.forward)
        function = partial(forward, xp, **attrs)
    gate = _gate_of(op)
    if op.runs_on == "loop":
        return Waiting(_checked_async(function, node, symbols, watch), "loop", gate)
    if op.checked:
        function = _checked(function, node, symbols)
    if gate is not None and not op.waits:
        function = _limited(function, gate)
    if watch:
        function = _watched(xp, function, watch)
    return Waiting(function, op.runs_on, gate) if op.waits else function


def _are_float_scalars(node: Node) -> bool:
    # On integers the operators warn of overflow where ufuncs wrap around.
    return not any([part.dims or part.dtype.char not in "fd" for part in node.inputs])  # noqa: C419


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
        return value
    return np.asarray(value) if isinstance(value, np.generic) else value  # a device's array


def _check(result: Any, operands: Sequence[Any], node: Node, shape: tuple[int | None, ...]) -> Any:
    usual = type(result) is np.ndarray and result.shape == shape and not node.op.memory.is_view
    if usual and result.dtype == node.dtype:
        return result
    if is_masked(result):
        raise GraphTypeError(f"op {node.op.name!r} returned a masked array; use .filled(...)")
    if inspect.iscoroutine(result):
        result.close()
        raise GraphTypeError(
            f"op {node.op.name!r} returned a coroutine; make its forward an `async def`"
        )
    on_host = not operands or isinstance(operands[0], np.ndarray)
    if on_host and not isinstance(result, np.generic):
        result = np.asarray(result)
    elif not on_host and not isinstance(result, type(operands[0])):
        raise GraphTypeError(
            f"op {node.op.name!r} returned {type(result).__name__} on a device, where its operands "
            f"are {type(operands[0]).__name__}; use the module xp that it is given"
        )
    if result.dtype != node.dtype:
        raise GraphTypeError(
            f"op {node.op.name!r} returned {result.dtype}, but its type scheme says {node.type}"
        )
    got = tuple(result.shape)
    if len(got) != len(shape) or any(
        want is not None and want != have for want, have in zip(shape, got, strict=True)
    ):
        raise ShapeError(
            f"op {node.op.name!r} returned shape {got}, but its type scheme says {node.type}"
        )
    if (
        on_host
        and node.op.memory.is_view
        and got
        and 0 not in got
        and not np.may_share_memory(result, operands[0])
    ):
        raise GraphTypeError(
            f"op {node.op.name!r} is declared with is_view=True, but returned an array of its own; "
            "return a view of the first argument, or declare it without"
        )
    return result


def _checked(forward: Kernel, node: Node, symbols: Mapping[str, int]) -> Kernel:
    shape = bind_shape(node.dims, symbols, None)

    def checked(*arrays: Any) -> Any:
        operands = [*map(_read_only, arrays)]
        return _check(forward(*operands), operands, node, shape)

    return checked


def _checked_async(
    forward: Kernel, node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]
) -> Kernel:
    shape = bind_shape(node.dims, symbols, None)

    async def checked_async(*arrays: Any) -> Any:
        operands = [*map(_read_only, arrays)]
        return _watch(np, _check(await forward(*operands), operands, node, shape), watch)

    return checked_async


def _limited(forward: Kernel, gate: Gate) -> Kernel:
    def limited(*arrays: Any, **out: Any) -> Any:
        with gate.occupied:
            return forward(*arrays, **out)

    return limited


def _watched(xp: Any, forward: Kernel, watch: tuple[str, ...]) -> Kernel:
    def watched(*arrays: Any, **out: Any) -> Any:
        return _watch(xp, forward(*arrays, **out), watch)

    return watched


def _watch(xp: Any, result: Any, watch: tuple[str, ...]) -> Any:
    if watch and result.dtype.kind in "fcV":
        if "nan" in watch:
            raise_if(xp, xp.isnan(result).any(), FloatingPointError, "the result has NaN")
        if "inf" in watch:
            raise_if(xp, xp.isinf(result).any(), FloatingPointError, "the result has Inf")
    return result


def is_silent(errors: Mapping[str, Any]) -> bool:
    """Return whether an `np.errstate` does no more than warn."""
    return _SILENT.issuperset(errors.values())


def with_errstate(forward: Any, errors: Mapping[str, Any]) -> Any:
    """Return `forward` under ``np.errstate(**errors)``, which does not cross threads by itself.

    Compiled loops raise nothing, so a kernel of these is replaced by its ordinary one (see `jit`).
    """
    if isinstance(forward, Waiting):
        return forward._replace(call=with_errstate(forward.call, errors))
    if not is_silent(errors):
        forward = getattr(forward, "ordinary", forward)
    errors = reporting_errors(errors)

    def guarded(*arrays: Any, **out: Any) -> Any:
        with np.errstate(**errors):
            return forward(*arrays, **out)

    async def guarded_async(*arrays: Any) -> Any:
        with np.errstate(**errors):  # of this task only
            return await forward(*arrays)

    return guarded_async if inspect.iscoroutinefunction(forward) else guarded
