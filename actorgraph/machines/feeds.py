"""Checking the arguments of a run before anything starts: feeds, seeds, tangents, and the mode.

Feeds bind the symbols of the graph, once per run.  Equations between dims that could not be decided
when the graph was built are checked for the sizes of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import numpy as np

from actorgraph import devices
from actorgraph.autodiff.reverse import check_differentiable
from actorgraph.devices import Handed, get
from actorgraph.errors import FeedError, GraphTypeError, ShapeError, near_names, shown
from actorgraph.graph import Graph, Node, is_weak
from actorgraph.lower.joint import Mode
from actorgraph.node import Variable
from actorgraph.options import is_masked
from actorgraph.store import Held
from actorgraph.types import UNKNOWN, UnboundDim, bind_dims, bind_shape

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents

Array = np.ndarray[Any, Any]
_T = TypeVar("_T")
_KINDS = "biufc"
_BY_ID = attrgetter("id")
_SHAPES_KEPT = 64
"""Half of a plan's limit: a hit here does not refresh the plan's entry, but this cache is cleared
now and then, so that sizes in use do not become the plan's oldest."""


def resolve(key: object, known: Mapping[str, Node], what: str) -> Node:
    """Return the one of the `known` nodes that a name or a node denotes, or raise `FeedError`."""
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


@final
class Repeats(Generic[_T]):
    """A cache by the shapes of feeds that have passed all checks, such as of `Binding`.

    What the checks find follows from dtypes and shapes, so equal ones pass again: a lookup takes
    0.4 us instead of 2.2 for one feed.
    """

    __slots__ = ("_known", "_wanted")

    def __init__(self, inputs: Iterable[tuple[str, Node]]) -> None:
        self._wanted = [(name, node, node.dtype) for name, node in inputs]
        self._known: dict[tuple[tuple[int, ...], ...], _T] = {}

    def find(self, feeds: Any) -> tuple[list[Array], _T, bool] | None:
        """Return the arrays in order, the cached value, and whether all are C-contiguous, or None.

        Only a dict from names or nodes to arrays of the nodes' dtypes, or scalars, is looked up.
        """
        wanted = self._wanted
        if type(feeds) is not dict or len(feeds) != len(wanted):
            return None
        arrays, shapes, regular = [], [], True
        for name, node, dtype in wanted:
            array = feeds.get(name)
            if array is None:
                array = feeds.get(node)
            if type(array) is not np.ndarray and not node.ndim and is_weak(array):
                try:
                    array = _scalar(array, node, "feed")
                except FeedError:  # the checks tell what is wrong first
                    return None
            if type(array) is not np.ndarray or array.dtype is not dtype:
                return None
            regular = regular and array.flags.c_contiguous
            arrays.append(array)
            shapes.append(array.shape)
        value = self._known.get(tuple(shapes))
        return None if value is None else (arrays, value, regular)

    def keep(self, arrays: Sequence[Array], value: _T) -> None:
        """Cache a value for the shapes of arrays that have passed all checks."""
        if len(self._known) >= _SHAPES_KEPT:
            self._known.clear()
        self._known[tuple([array.shape for array in arrays])] = value


def by_node(given: Any, known: Mapping[str, Node], what: str) -> dict[Node, Any]:
    """Return a mapping by names or nodes as a mapping by nodes, or raise `FeedError`."""
    if not isinstance(given, Mapping):
        raise FeedError(f"{what}s are a dict of name or node to array, got {type(given).__name__}")
    values: dict[Node, Any] = {}
    for key, value in given.items():
        node = resolve(key, known, what)
        if node in values:
            raise FeedError(f"{what} {node.name!r} is given twice, by name and by node")
        values[node] = value
    return values


def bind_feeds(
    inputs: Sequence[Node], feeds: Mapping[Node, Any], symbols: dict[str, int]
) -> list[Array]:
    """Return the arrays for `inputs` in order, and bind symbols, or raise `FeedError`."""
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
    """Return `value` as an array of the node's dtype, or raise `FeedError`.

    Only scalars are converted, unless the graph's `convert` allows more; a `Handed` never is.
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
        on_host = not isinstance(array, Handed)  # values on devices are never converted
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
    """Raise `FeedError` if a feed is on none of the devices that the machine uses."""
    root, used = value.lane.device.root, [get("cpu")] if placing is None else placing.used
    if all(one.root is not root for one in used):
        here = ", ".join([one.name for one in used])
        raise FeedError(
            f"feed {name!r} lies on {value.device}, and this machine runs on {here}: feed its "
            f".fetch(), make the machine with device={root.name!r}, or place the node that takes "
            f"it there, by ag.ops.to_device(node, {root.name!r}) or node.on({root.name!r})"
        )


def settle(feeds: dict[Node, Any], placing: Residents | None) -> None:
    """Make feeds that are on devices values of the machine's devices, or raise `FeedError`."""
    for node, value in feeds.items():
        if isinstance(value, Handed):
            _check_device(value, node.name, placing)
        elif type(value) is not np.ndarray and _is_away(value):
            feeds[node] = _adopted(value, node.name, placing)


def _is_away(value: Any) -> bool:
    """Return whether an array of another library says that it is on a device."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) not in _HOSTS
    return hasattr(value, "__cuda_array_interface__")


def _where(value: Any) -> str:
    """Return the name of an array's device for errors."""
    if not hasattr(value, "__dlpack_device__"):
        return next((name for name in devices.list() if get(name).holds(value)), "cuda:0")
    kind, number = value.__dlpack_device__()
    return f"cuda:{number}" if kind == _CUDA else f"a device of DLPack's kind {int(kind)}"


def _adopted(value: Any, name: str, placing: Residents | None) -> Handed:
    """Return an array on one of the machine's devices as a `Handed`, without a copy, or raise."""
    used = [get("cpu")] if placing is None else placing.used
    for device in used:
        if device.root.holds(value):
            made = device.root.adopt(value)
            if device.root is not device:
                assert made.event is not None
                made.event.block()  # a wrapper's lanes cannot wait for events of the device inside
            return made
    here = ", ".join([one.name for one in used])
    there = _where(value)
    raise FeedError(
        f"feed {name!r} is an array of {type(value).__module__.split('.')[0]} on {there}, and this "
        f"machine runs on {here}: copy it there, or make the machine with device={there!r}"
    )


_CUDA = 2
_HOSTS = (1, 3)  # DLPack's numbers of host memory, plain and pinned


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
    """Check the open equations of `nodes` for the symbols of a run, or raise `FeedError`."""
    for node in nodes:
        for left, right in node.checks:
            try:
                one, other = bind_dims(left, symbols), bind_dims(right, symbols)
            except UnboundDim:
                continue  # a dim of None, which NumPy checks
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


# -- modes ----------------------------------------------------------------------------------------


def mode_of(
    graph: Graph, outputs: Mapping[str, Node], backward: Any, tangents: Any
) -> tuple[Mode, dict[Node, Any]]:
    """Return the mode of ``backward=`` and ``tangents=``, and the seeds or tangents, or raise."""
    if backward is not False and tangents is not None:
        raise FeedError(
            "backward and tangents in one run would be a second derivative; use ag.hvp, or "
            "differentiate symbolically with ag.gradients and run with tangents"
        )
    if tangents is not None:
        directions = _directions(graph, tangents)
        return Mode("tangents", tuple(sorted(directions, key=_BY_ID))), directions
    if backward is False:
        return Mode(), {}
    if backward is True:
        return _first(outputs)
    if not isinstance(backward, Mapping):
        raise FeedError(f"backward is True or a dict of output to seed, got {backward!r}")
    by_name = {node.name: node for node in outputs.values()}
    seeds: dict[Node, Any] = {}
    for key, value in backward.items():
        # An output may be named by its key in the dict of outputs.
        node = outputs.get(key, key) if isinstance(key, str) else key
        seeds.update(by_node({node: value}, by_name, "seed"))
    if not seeds:
        raise FeedError("backward={} seeds nothing; name at least one output")
    check_differentiable(seeds, "seeded output")
    return Mode("backward", tuple(sorted(seeds, key=_BY_ID))), seeds


def trains(outputs: Mapping[str, Node], wrt: Sequence[Node]) -> bool:
    """Return whether ``backward=True`` fits: there is a wrt, and the first output is a loss."""
    first = next(iter(outputs.values()))
    return bool(wrt) and not first.ndim and first.dtype.kind in "fcV"


def _directions(graph: Graph, tangents: Any) -> dict[Node, Any]:
    if not isinstance(tangents, Mapping):
        raise FeedError(
            f"tangents are a dict of name or node to array, got {type(tangents).__name__}"
        )
    tangents = {
        graph.bound(key) if isinstance(key, Held) else key: value for key, value in tangents.items()
    }
    names = [key.name if isinstance(key, Node) else key for key in tangents]
    known: dict[str, Node] = {}
    for name in names:
        if isinstance(name, str):
            try:
                known[name] = graph.node(name)
            except KeyError:
                near = near_names(name, [node.name for node in graph.nodes])
                raise FeedError(f"unknown tangent {name!r}{near}") from None
    directions = by_node(tangents, known, "tangent")
    check_differentiable(directions, "tangent of")
    return directions


def _first(outputs: Mapping[str, Node]) -> tuple[Mode, dict[Node, Any]]:
    first = next(iter(outputs.values()))
    check_differentiable([first], "output")
    if first.ndim:
        raise ShapeError(
            f"backward=True differentiates the first output, which must be a scalar, but "
            f"it is {first!r}; seed it with backward={{{first.name!r}: array}} or make "
            "the first output a scalar such as its sum",
            reference="AG114",
        )
    return Mode("backward", (first,)), {first: 1}
