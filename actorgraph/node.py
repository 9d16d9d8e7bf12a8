"""`Node`, an op applied to nodes, and `Variable`, the leaf that holds its value.

Nodes are immutable; comparison operators build nodes, so a node is never compared with ``==`` in
this package, and its hash is its identity.  The operators are attached by `actorgraph.ops`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self, final

import numpy as np

from actorgraph.devices import Device, Placement, placement
from actorgraph.dims import Size
from actorgraph.errors import GraphError, GraphTypeError, near_names, printable, shown
from actorgraph.op import LEAVES, REGISTRY, Op
from actorgraph.options import several
from actorgraph.store import Held
from actorgraph.types import Checks, Dim, Shape, Tensor, public_shape, size_of

if TYPE_CHECKING:
    from actorgraph.graph import Graph

Line = tuple[str, int, str]
"""File, line number and function of the user's line that built a node."""


_dtype_of = lru_cache(np.dtype)  # which NumPy looks up anew in twice the time

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


_ELSEWHERE = {
    "backward": "give machine.run(feeds, backward=True), or build ag.gradients(loss, parameters)",
    "cpu": "place a machine: device=",
    "cuda": "place a machine: device=",
    "data": "run[node].value is the array of a run, parameter.value that of a parameter",
    "detach": "ag.stop_gradient(node)",
    "dim": "node.ndim",
    "double": "node.astype('float64')",
    "expand": "ag.ops.broadcast_to(node, shape)",
    "float": "node.astype('float32')",
    "grad": "run[node].grad is the gradient of a run, ag.gradients(loss, [node]) builds its node",
    "half": "node.astype('float16')",
    "int": "node.astype('int32')",
    "item": "float(run[node].value) in a run",
    "long": "node.astype('int64')",
    "masked_fill": "ag.ops.masked_fill(node, mask, value)",
    "numel": "node.size",
    "numpy": "run[node].value is the array of a run",
    "permute": "node.transpose(axes)",
    "requires_grad": "wrt= of a machine says what is differentiated",
    "requires_grad_": "wrt= of a machine says what is differentiated",
    "to": "node.astype(dtype), and device= of a machine",
    "tolist": "run[node].value.tolist() in a run",
    "type": "node.dtype",
    "unsqueeze": "ag.ops.expand_dims(node, axis)",
    "value": "run[node].value is the array of a run, parameter.value that of a parameter",
    "values": "run[node].value is the array of a run",
    "view": "node.reshape(shape)",
    "zero_grad": "gradients never accumulate over runs",
}
"""Attributes that users of PyTorch and NumPy may look for on a node, and what to use instead."""


def _needs_value(message: str) -> GraphTypeError:
    return GraphTypeError(message, reference="AG112")


class _Unfinished:
    """The fields of a node, and its class while it is made: attributes can be set."""

    __slots__ = (
        "__weakref__", "_name", "attrs", "checks", "dims", "dtype", "graph", "id", "inputs", "line",
        "op", "owner", "type",
    )  # fmt: skip

    graph: Graph
    id: int
    op: Op
    inputs: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Tensor
    dims: Shape
    dtype: np.dtype[Any]
    checks: Checks
    line: Line
    owner: Node | None
    _name: str | None


class Node(_Unfinished):
    """An op applied to nodes, or a leaf.

    Nodes are made by a `Graph` and by ops, never by hand.

    Attributes
    ----------
    graph : Graph
    id : int
        Build number in the graph; inputs have smaller ones.
    op : Op
    inputs : tuple of Node
    attrs : mapping
        Attributes of the application, such as ``axis``.
    type : Tensor
        Dtype and dims as a Hindley-Milner term.
    dims : tuple of int or Dim
        Dims as shape rules see them, with `types.UNKNOWN` where only a run knows.
    dtype : np.dtype
        NumPy dtype of the values.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("batch", 3))
    >>> y = (x * 2).named("y")
    >>> y, y.shape, y.op.name
    (<y: float32[batch, 3]>, (batch, 3), 'multiply')
    """

    __slots__ = ()

    def __new__(
        cls,
        graph: Graph,
        id: int,  # noqa: A002 - the attribute's name
        op: Op,
        inputs: tuple[Node, ...],
        attrs: Mapping[str, Any],
        type: Tensor,  # noqa: A002
        checks: Checks,
        line: Line,
        owner: Node | None = None,
        name: str | None = None,
    ) -> Self:
        # In a class that can be written: `object.__setattr__` for each field takes twice as long.
        self: Any = object.__new__(_Unfinished)
        self.graph = graph
        self.id = id
        self.op = op
        self.inputs = inputs
        self.attrs = attrs if attrs.__class__ is MappingProxyType else MappingProxyType(attrs)
        self.type = type
        self.dims = type.row.dims
        self.dtype = _dtype_of(type.dtype.name)
        self.checks = checks
        self.line = line
        self.owner = owner
        self._name = name
        self.__class__ = Node
        return self  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse, unless the class declares a property of that name with a setter."""
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"nodes are immutable; cannot set {name!r} of {self!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"nodes are immutable; cannot delete {name!r} of {self!r}")

    @property
    def name(self) -> str:
        """Name in the graph: the given one, or one made of the op's name and the id."""
        return self.graph.automatic_name(self) if self._name is None else self._name

    @property
    def shape(self) -> tuple[int | Dim | None, ...]:
        """Dims: int, symbolic `Dim` (which equals its text), or None if only a run knows."""
        return public_shape(self.dims)

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.dims)

    @property
    def size(self) -> int | Dim | None:
        """Number of entries: int, symbolic `Dim`, or None if only a run knows."""
        (found,) = public_shape((size_of(self.dims),))
        return Size(found) if isinstance(found, int) else found

    @property
    def is_leaf(self) -> bool:
        """Whether it is an input, constant, parameter, buffer or run number."""
        return not self.inputs and self.op in LEAVES

    def named(self, name: str) -> Self:
        """Give the node a name that is unique in its graph, and return the node.

        Raises
        ------
        GraphError
            The name is taken, or the node has another one already.
        """
        if self._name is not None and self._name != name:
            raise GraphError(f"{self!r} has a name already; a node is named once")
        self.graph.claim_name(name, self)
        object.__setattr__(self, "_name", name)
        return self

    @property
    def placement(self) -> Placement | None:
        """The device and the lane that the user has chosen for it, or None."""
        return self.graph.placements.get(self.id)

    def on(
        self, device: str | Device, lane: int | None = None, priority: int | None = None
    ) -> Self:
        """Place the node on a device, optionally on one of its lanes, and return the node.

        Placement is not part of the node's identity.  Machines that exist already do not see it.
        `priority` is that of the lane, as in `ag.device`.

        Raises
        ------
        GraphError
            There is no such device or lane, or the lane has another priority.
        """
        self.graph.placements[self.id] = placement(device, lane, priority)
        return self

    def where_built(self) -> str:
        """Return the user's line that built the node, as ``"file.py:12 in main"``."""
        file, number, function = self.line
        return printable(f"{file}:{number} in {function}")

    def __repr__(self) -> str:
        return f"<{printable(self.name)}: {self.type}>"

    def __copy__(self) -> Self:
        return self  # it is immutable, and belongs to its graph

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the node of a copy of its graph, which all nodes in one deep copy share."""
        deepcopy(self.graph, memo)
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise GraphTypeError(
            f"{self!r} is not pickled: build its graph by a function that the other process calls "
            "as well, and name nodes by str there: graph[name], run[name]"
        )

    def __getattr__(self, name: str) -> NoReturn:
        advice = _ELSEWHERE.get(name, "")
        if not advice and not name.startswith("_"):  # NumPy often looks for its protocols
            near = near_names(name, [one for one in dir(type(self)) if one[0] != "_"]).removeprefix(
                "; "
            )
            advice = f"ag.ops.{name} takes nodes" if name in REGISTRY else near
        raise AttributeError(f"a node has no {name!r}" + (f": {advice}" if advice else ""))

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise GraphTypeError(
            f"{self!r} is immutable; ag.ops.index_put(node, index, values) returns a node that has "
            "other values there, ag.ops.where and ag.ops.masked_fill one by a mask"
        )

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise _needs_value(
            f"the truth value of {self!r} is known only in a run; to choose between values inside "
            "the graph use ag.ops.where, to test two nodes for identity use 'is'"
        )

    def __len__(self) -> NoReturn:
        raise _needs_value(f"len() of {self!r} is not defined; use node.shape[0]")

    def __iter__(self) -> Iterator[Any]:
        # The first item raises, not `iter`: NumPy replaces an error of `iter` by its own.
        return map(self._no_item, [None])

    def _no_item(self, _: None) -> NoReturn:
        raise _needs_value(
            f"{self!r} cannot be iterated; index it, node[0], or use node.shape (what functions of "
            "NumPy take nodes, docs/numpy.md lists)"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise _needs_value(
            f"'in' on {self!r} would need its value; for nodes in a list compare with 'is'"
        )

    def _no_value(self, *_: object, **__: object) -> NoReturn:
        raise _needs_value(
            f"{self!r} has no value outside a run; run a machine and read run[node].value"
        )

    __float__ = __int__ = __complex__ = __index__ = _no_value

    def __format__(self, spec: str) -> str:
        if spec.endswith(tuple("bcdeEfFgGnoxX%")):  # formats of numbers
            self._no_value()
        return format(repr(self), spec)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise _needs_value(
            f"{self!r} has no value outside a run; run a machine and read run[node].value "
            "(to join nodes use ag.ops.array([x, y]), or np.array([x, y], like=x))"
        )

    if TYPE_CHECKING:
        # Attached by actorgraph.ops, which declares the ops behind them.
        __eq__: Any
        __ne__: Any
        __array_ufunc__: Any
        __array_function__: Any
        T: Node
        mT: Node
        real: Node
        imag: Node

        def _unary(self) -> Node: ...
        def _binary(self, other: Any) -> Node: ...
        def _reduction(self, axis: Any = None, keepdims: bool = False) -> Node: ...
        def _cumulative(self, axis: Any = None) -> Node: ...
        def _moment(self, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node: ...

        __neg__ = __pos__ = __abs__ = __invert__ = conj = copy = ravel = _unary
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _binary
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _binary
        __rpow__ = __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = _binary
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _binary
        sum = mean = max = min = prod = any = all = argmax = argmin = _reduction
        cumsum = cumprod = _cumulative
        var = std = _moment

        def __getitem__(self, index: Any) -> Node: ...
        def round(self, decimals: int = 0) -> Node: ...
        def reshape(self, *shape: Any) -> Node: ...
        def transpose(self, *axes: Any) -> Node: ...
        def astype(self, dtype: Any) -> Node: ...
        def argsort(self, axis: int | None = -1) -> Node: ...
        def clip(self, low: Any = None, high: Any = None) -> Node: ...
        def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node: ...
        def dot(self, y: Any) -> Node: ...
        def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Node: ...
        def repeat(self, repeats: Any, axis: int | None = None) -> Node: ...
        def sort(self, axis: int | None = -1, descending: bool = False) -> Node: ...
        def squeeze(self, axis: Any = None) -> Node: ...
        def swapaxes(self, axis1: int, axis2: int) -> Node: ...
        def take(self, indices: Any, axis: int | None = None) -> Node: ...
        def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node: ...


class Variable(Node):
    """A leaf that has a value; `value` reads and sets it."""

    __slots__ = ("held", "place")

    held: Held
    place: int

    def __new__(cls, *args: Any, **more: Any) -> Self:
        self, made = object.__new__(cls), Node(*args, **more)
        for name in _Unfinished.__slots__[1:]:  # which has no room for the fields of this class
            object.__setattr__(self, name, getattr(made, name))
        return self

    @property
    def value(self) -> np.ndarray[Any, Any]:
        """The current array, which may be written; see `store.Held.value`."""
        return self.held.value

    @value.setter
    def value(self, value: Any) -> None:
        self.held.value = value


@final
class Parameter(Variable):
    """A trainable leaf: solvers update it, and `wrt` means all of them by default.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> w = ag.Graph().parameter("w", np.ones(2, "float32"))
    >>> w.value = w.value * 2
    >>> w.value
    array([2., 2.], dtype=float32)
    """

    __slots__ = ()


@final
class Buffer(Variable):
    """A leaf that runs read at their start and may replace at their end; see `Graph.assign`."""

    __slots__ = ()


def as_nodes(outputs: Any, graph: Graph | None = None) -> list[Node]:
    """Return a node, an iterable of nodes or a dict of nodes as a list.

    With a graph, a parameter or buffer that it has bound may stand for its node.
    """
    if isinstance(outputs, (Node, Held)):
        outputs = [outputs]
    values = outputs.values() if isinstance(outputs, Mapping) else outputs
    if isinstance(values, str):
        values = [values]
    nodes = several("a node, a list or a dict of nodes", values)
    if graph is not None:
        nodes = [graph.bound(one) if isinstance(one, Held) else one for one in nodes]
    for node in nodes:
        if not isinstance(node, Node):
            advice = "; look it up in the graph: graph[name]" if isinstance(node, str) else ""
            raise GraphTypeError(
                f"expected a node, got {type(node).__name__} {shown(node)}{advice}"
            )
    return nodes


def topological_order(
    outputs: Iterable[Node], inputs_of: Callable[[Node], Iterable[Node]] | None = None
) -> tuple[Node, ...]:
    """Return `outputs` and the nodes they depend on in build order, without recursion.

    `inputs_of` returns the inputs of a node that count; default all.
    """
    found: dict[int, Node] = {}
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node.id not in found:
            found[node.id] = node
            stack.extend(node.inputs if inputs_of is None else inputs_of(node))
    return tuple([found[number] for number in sorted(found)])


def user_line(skipped: int = 2) -> Line:
    """Return the innermost line outside this package on the stack, above `skipped` own frames.

    Looking at a frame makes an object of it, so frames known to be ours are skipped.
    """
    frame = sys._getframe(skipped)
    while (code := frame.f_code).co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return code.co_filename, frame.f_lineno, code.co_name
