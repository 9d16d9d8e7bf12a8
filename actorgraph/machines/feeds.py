"""Checking what is given to a run, before anything starts: feeds, seeds and tangents.

The symbols of the graph are bound here, once per run, and the equations between dims that could
not be decided while the graph was built are decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph import devices
from actorgraph.devices import Handed, get
from actorgraph.errors import FeedError, GraphTypeError, near_names, shown
from actorgraph.graph import Node, is_weak
from actorgraph.node import Variable
from actorgraph.options import is_masked
from actorgraph.types import UNKNOWN, UnboundDim, bind_dims, bind_shape

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents
    from actorgraph.machines.binding import Binding
    from actorgraph.machines.plan import Plan

Array = np.ndarray[Any, Any]
_KINDS = "biufc"


def resolve(key: object, known: Mapping[str, Node], what: str) -> Node:
    """Return which of the `known` nodes a name or a node stands for, or raise `FeedError`."""
    if isinstance(key, Node):
        if known.get(key.name) is key:
            return key
        why = ""
        if any(node.graph is not key.graph for node in known.values()):
            why = " (it belongs to another graph)"
        elif what == "feed" and isinstance(key, Variable):
            why = " (its value is set by node.value = array)"
        raise FeedError(f"{key!r} is no {what} of this machine{why}; they are {_list(known)}")
    if isinstance(key, str) and key in known:
        return known[key]
    if not isinstance(key, str):
        raise FeedError(f"a {what} is named by a str or a node, got {key!r}")
    raise FeedError(f"unknown {what} {key!r}{near_names(key, known)}; known are {_list(known)}")


def _list(known: Iterable[str]) -> str:
    return ", ".join(map(repr, known)) or "none"


def checked(
    plan: Plan, feeds: Any, known: Mapping[str, Node], placing: Residents | None
) -> tuple[Sequence[Array], Binding, bool]:
    """Return the arrays of a plan's inputs, their binding, and whether all are C-contiguous.

    `known` are the inputs of the graph, by name.
    """
    given = {} if feeds is None else by_node(feeds, known, "feed")
    _settle(given, placing)
    symbols: dict[str, int] = {}
    arrays = bind_feeds(plan.compiled.inputs, given, symbols)
    if len(given) > len(arrays):
        # Feeds that this mode does not need are checked too, and may bind symbols.
        needed = set(plan.compiled.inputs)
        bind_feeds([node for node in given if node not in needed], given, symbols)
    check_dims(plan.compiled.checked, symbols)
    binding = plan.bind(symbols)
    if len(given) == len(arrays):
        plan.repeats.keep(arrays, binding)
    return arrays, binding, all(array.flags.c_contiguous for array in arrays)


def by_node(given: Any, known: Mapping[str, Node], what: str) -> dict[Node, Any]:
    """Return a mapping of names or nodes as a mapping of nodes."""
    if not isinstance(given, Mapping):
        raise FeedError(f"{what}s are a dict of name or node to array, got {type(given).__name__}")
    found: dict[Node, Any] = {}
    for key, value in given.items():
        node = resolve(key, known, what)
        if node in found:
            raise FeedError(f"{what} {node.name!r} is given twice, by name and by node")
        found[node] = value
    return found


def bind_feeds(
    inputs: Sequence[Node], feeds: Mapping[Node, Any], symbols: dict[str, int]
) -> list[Array]:
    """Return the arrays for `inputs` in order, binding symbols on the way, or raise `FeedError`."""
    arrays = []
    bound_by: dict[str, str] = {}
    for node in inputs:
        if node not in feeds:
            raise FeedError(
                f"missing feed {node.name!r} ({node.type}); "
                f"got {_list(given.name for given in feeds)}"
            )
        array = as_array(feeds[node], node, "feed")
        if array.ndim != node.ndim:
            raise _wrong(array, node, "feed", f"rank {array.ndim}, not {node.ndim}")
        for dim, size in zip(node.dims, array.shape, strict=True):
            if isinstance(dim, int):
                if dim != size:
                    raise _wrong(array, node, "feed", f"a dim {size}, not {dim}")
            elif dim is not UNKNOWN:
                name = str(dim)
                if symbols.setdefault(name, size) != size:
                    raise _wrong(
                        array, node, "feed",
                        f"{name} = {size}, but {bound_by.get(name)!r} has {name} = {symbols[name]}",
                    )  # fmt: skip
                bound_by.setdefault(name, node.name)
        arrays.append(array)
    return arrays


def as_array(value: Any, node: Node, what: str) -> Any:
    """Return `value` as an array of the node's dtype; only scalars are converted.

    A value of a device stays where it is.
    """
    array: Any
    if type(value) is np.ndarray or isinstance(value, Handed):
        array = value
    elif isinstance(value, Node):
        raise FeedError(f"{what} {node.name!r} is the node {value!r}; feed an array")
    elif is_masked(value):
        raise FeedError(f"{what} {node.name!r} is a masked array; use .filled(...)")
    elif is_weak(value) and not node.ndim:
        return _scalar(value, node, what)
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise FeedError(f"{what} {node.name!r} is no array: {error}") from None
    if array.dtype.kind in "OSU" and not isinstance(value, np.ndarray):
        raise FeedError(
            f"{what} {node.name!r} should be {node.type}, "
            f"got {type(value).__name__} {shown(value, 60)}"
        )
    if array.dtype != node.dtype:
        convert = node.graph.convert
        on_host = not isinstance(array, Handed)  # else it is fed as it is
        if on_host and convert is not None and np.can_cast(array.dtype, node.dtype, convert):
            return array.astype(node.dtype)
        raise _wrong(
            array, node, what,
            f"dtype {array.dtype}, not {node.dtype}; convert it with "
            + (".astype(" if isinstance(value, np.ndarray) else "np.asarray(..., ")
            + f"{node.dtype.name!r})",
        )  # fmt: skip
    return array


def _check_device(value: Handed, name: str, placing: Residents | None) -> None:
    """Raise `FeedError` where a feed lies on none of the devices that a machine runs on."""
    root, used = value.lane.device.root, [get("cpu")] if placing is None else placing.used
    if all(one.root is not root for one in used):
        here = ", ".join([one.name for one in used])
        raise FeedError(
            f"feed {name!r} lies on {value.device}, and this machine runs on {here}: feed its "
            f".fetch(), make the machine with device={root.name!r}, or place the node that takes "
            f"it there, by ag.ops.to_device(node, {root.name!r}) or node.on({root.name!r})"
        )


def _settle(given: dict[Node, Any], placing: Residents | None) -> None:
    """Have feeds that lie on devices be values of those that a machine runs on, or raise."""
    for node, value in given.items():
        if isinstance(value, Handed):
            _check_device(value, node.name, placing)
        elif type(value) is not np.ndarray and _is_away(value):
            given[node] = _adopted(value, node.name, placing)


def _is_away(value: Any) -> bool:
    """Return whether an array of another library says that it lies on a device."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) not in _HOSTS
    return hasattr(value, "__cuda_array_interface__")


def _where(value: Any) -> str:
    """Return what an error calls the device where an array lies."""
    if not hasattr(value, "__dlpack_device__"):
        return next((name for name in devices.list() if get(name).holds(value)), "cuda:0")
    kind, number = value.__dlpack_device__()
    return f"cuda:{number}" if kind == _CUDA else f"a device of DLPack's kind {int(kind)}"


def _adopted(value: Any, name: str, placing: Residents | None) -> Handed:
    """Return an array of a device that a machine runs on, without a copy, or raise `FeedError`."""
    used = [get("cpu")] if placing is None else placing.used
    for device in used:
        if device.root.holds(value):
            made = device.root.adopt(value)
            if device.root is not device:
                assert made.event is not None
                made.event.block()  # lanes of a wrapper know no tokens of the device inside
            return made
    here = ", ".join([one.name for one in used])
    there = _where(value)
    raise FeedError(
        f"feed {name!r} is an array of {type(value).__module__.split('.')[0]} on {there}, and this "
        f"machine runs on {here}: copy it there, or make the machine with device={there!r}"
    )


_CUDA = 2
_HOSTS = (1, 3)  # memory of the host, pinned or not, as DLPack counts


def _scalar(value: Any, node: Node, what: str) -> Array:
    array = np.asarray(value)
    try:
        if _KINDS.index(array.dtype.kind) <= _KINDS.index(node.dtype.kind.replace("V", "f")):
            return np.asarray(value, node.dtype)
    except (ValueError, OverflowError):
        pass  # an int beyond 64 bits, or beyond the node's dtype
    raise _wrong(array, node, what, f"the scalar {shown(value)} does not fit {node.dtype}")


def _wrong(array: Array | Handed, node: Node, what: str, problem: str) -> FeedError:
    shape = ", ".join(map(str, array.shape))
    return FeedError(
        f"{what} {node.name!r} should be {node.type}, got {array.dtype}[{shape}]: {problem}"
    )


def check_dims(nodes: Iterable[Node], symbols: Mapping[str, int]) -> None:
    """Decide the open equations of `nodes` for the symbols of a run, or raise `FeedError`."""
    for node in nodes:
        for left, right in node.checks:
            try:
                one, other = bind_dims(left, symbols), bind_dims(right, symbols)
            except UnboundDim:
                continue  # a dim that only NumPy will see
            if one != other:
                what = ", ".join(f"{name} = {size}" for name, size in symbols.items())
                raise FeedError(
                    f"node {node.name!r} ({node.op.name}, built at {node.where_built()}) needs "
                    f"{left} == {right}, but this run has {one} and {other} ({what})"
                )


def check_like(value: Any, node: Node, symbols: Mapping[str, int], what: str) -> Array:
    """Return a seed or tangent of `node` as an array of its dtype and shape, or raise."""
    if node.dtype.kind not in "fcV":
        raise GraphTypeError(
            f"{what} of {node!r}: only float and complex nodes have one; convert with .astype"
        )
    dims = bind_shape(node.dims, symbols, None)
    if is_weak(value) and dims:
        if None in dims:
            raise FeedError(
                f"{what} {node.name!r}: its shape {node.type} is known only in a run; "
                "give an array instead of a scalar"
            )
        return np.full([d for d in dims if d is not None], _scalar(value, node, what), node.dtype)
    array: Array = as_array(value, node, what)
    fits = array.ndim == len(dims) and all(
        want is None or want == got for want, got in zip(dims, array.shape, strict=False)
    )
    if not fits:
        raise _wrong(array, node, what, "another shape")
    return array
