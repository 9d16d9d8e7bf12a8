"""`Graph`: typed, immutable, hash-consed nodes in the order they were built.

Guarantees: a node's inputs are older than the node, so build order is a topological order and no
walk here recurses; two applications of one op with equal attributes to the same inputs are one
node, by complete structural keys; every error is raised in the line that builds the node.
Building is not thread-safe; reading is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from numbers import Integral
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar, get_args

from actorgraph import drawing
from actorgraph.devices import PLACED, Placement
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, counted, near_names, shown
from actorgraph.keywords import answering
from actorgraph.legality import check_nodes
from actorgraph.node import (
    Buffer,
    Line,
    Node,
    Parameter,
    Variable,
    as_nodes,
    topological_order,
    user_line,
)
from actorgraph.op import (
    BUFFER,
    CONSTANT,
    INPUT,
    NO_ATTRS,
    NO_ATTRS_KEY,
    PARAMETER,
    RUN_NUMBER,
    Attrs,
    Op,
    attrs_key,
    frozen,
    infer,
)
from actorgraph.operands import (
    Convert,
    as_array,
    converted,
    explained,
    foreign,
    is_weak,
    lifted,
    partner_of,
    promoted,
    weak_constant,
)
from actorgraph.options import MOST, choice, text
from actorgraph.parameters import Buffer as HeldBuffer
from actorgraph.parameters import Parameter as HeldParameter
from actorgraph.store import Held, Store
from actorgraph.types import Checks, Dim, Tensor, dtype_of, shape_from

__all__ = ["Graph", "Node", "Parameter", "as_nodes", "build", "is_weak", "topological_order"]

_N = TypeVar("_N", bound=Node)
_V = TypeVar("_V", bound=Variable)
_HELD: dict[Op, type[Held]] = {PARAMETER: HeldParameter, BUFFER: HeldBuffer}


class Graph:
    """A differentiable array graph.

    Only one thread at a time may build it; any number may run machines of it meanwhile.

    Parameters
    ----------
    name : str
        For errors and drawings.
    seed : int
        Key of the graph's random ops, together with the number of the draw and of the run.
    convert : {"safe", "same_kind"}, optional
        Which dtypes are converted implicitly.  By default none are: operands of two dtypes, and
        feeds of another dtype than the input's, raise.  With ``"safe"`` operands are promoted as in
        NumPy, and feeds are converted if that preserves every value.  With ``"same_kind"`` operands
        take the dtype of those of the highest kind, so that ``int64 * float32`` is float32, and
        feeds are converted to any dtype of their kind or a higher one, so that float64 is rounded
        to float32.  The same rule holds for feeds that are lists.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> g = ag.Graph("line")
    >>> x = g.input("x", shape=("batch", 3), dtype="float32")
    >>> w = g.parameter("w", np.ones(3, "float32"))
    >>> x * w
    <multiply_2: float32[batch, 3]>
    """

    @answering
    def __init__(
        self, name: str = "graph", seed: int = 0, *, convert: Convert | None = None
    ) -> None:
        if not isinstance(seed, (int, Integral)) or not 0 <= seed < 2**64:
            raise ValueError(f"a graph's seed is an int in [0, 2**64), got {shown(seed)}")
        self.name = text("a graph's name", name)
        self.seed = int(seed)
        if convert is not None:
            choice("convert", convert, get_args(Convert))
        self.convert: Convert | None = convert
        self.assignments: list[tuple[Variable, Node, Node]] = []
        self.store = Store()
        self._bound: dict[Held, Variable] = {}
        self._nodes: list[Node] = []
        self._names: dict[str, Node] = {}
        self._consed: dict[Any, Node] = {}
        self._attrs: dict[Any, Attrs] = {}  # one object for equal attributes
        self.weak: dict[Any, Node] = {}
        self._owner: Node | None = None
        self._run_number: Node | None = None
        self._draws = 0
        self.inside: Graph | None = None  # the body that is being traced in this graph
        self._line: Line | None = None
        self._scope = ""
        self._scopes: dict[int, str] = {}
        self._stage: int | None = None
        self.stages: dict[int, int] = {}
        self.placements: dict[int, Placement] = {}

    @property
    def outermost(self) -> Graph:
        """This graph, or for the graph of a body the outermost one around it."""
        return self

    # -- leaves -------------------------------------------------------------------------------

    @answering
    def input(self, name: str, shape: Any = (), dtype: Any = "float32") -> Node:
        """Add a placeholder that every run has to feed.

        Parameters
        ----------
        name : str
            Unique in the graph; feeds use it.
        shape : tuple of int, str or None
            A str is a symbol, bound once per run; None is known only at run time.
        dtype : dtype
        """
        return self._leaf(INPUT, name, Tensor.of(dtype, shape_from(shape)), Node)

    @answering
    def parameter(self, name: str, value: Any) -> Parameter:
        """Add a trainable leaf that starts as a copy of the array `value`.

        The node's ``held`` is an `nn.Parameter` with the value, which other graphs may `bind`, too.
        """
        return self._variable(Parameter, PARAMETER, name, value)

    @answering
    def buffer(self, name: str, value: Any) -> Buffer:
        """Add a leaf that is not trained and starts as a copy of the array `value`.

        Runs read it at their start, and replace it at their end if `assign` says so.
        """
        return self._variable(Buffer, BUFFER, name, value)

    def assign(self, buffer: Node, value: Node, on: Node) -> None:
        """Make every run that computes `on` set `buffer` to the value of the node `value`.

        Runs that fail change nothing.  Runs in flight at the same time commit in the order of
        their numbers, and each reads what was committed when it started.  If a parameter is
        assigned, as by a solver's step (`AbstractSolver.as_graph`), runs execute one at a time.

        Raises
        ------
        GraphTypeError, ShapeError
            `value` does not have the buffer's dtype and dims.
        """
        if self.inside is not None:
            raise GraphError(
                f"{buffer!r} cannot be assigned in {self.inside.name}, which may run any "
                "number of times; return the value as a result and assign it outside (batch "
                "normalisation: .eval(), or track_running_stats=False)"
            )
        if not isinstance(buffer, Variable):
            raise GraphTypeError(
                f"only buffers and parameters are assigned by runs, got {buffer!r}"
            )
        for node in (self.lift(buffer), self.lift(value), self.lift(on)):
            if node is value and node.type.dtype != buffer.type.dtype:
                raise GraphTypeError(
                    f"{buffer.name!r} is {buffer.dtype}, but {value!r} would be assigned; "
                    f"convert it with .astype({buffer.dtype.name!r})"
                )
        if value.dims != buffer.dims:
            raise ShapeError(f"{buffer!r} cannot take the shape of {value!r}")
        self.assignments.append((buffer, value, on))

    @property
    def run_number(self) -> Node:
        """The leaf that is the number of the run, an int64 scalar."""
        if self._run_number is None:
            type_ = Tensor.of("int64", ())
            self._run_number = self._add(Node, RUN_NUMBER, (), NO_ATTRS, type_, Checks())
        return self._run_number

    def next_draw(self) -> int:
        """Return the number of the next random draw; rewriting preserves these numbers."""
        self._draws += 1
        return self._draws - 1

    def _variable(self, kind: type[_V], op: Op, name: str, value: Any) -> _V:
        what = f"{op.name} {shown(name)}"
        held = value if isinstance(value, Held) else _HELD[op](as_array(value, what))
        if type(held) is not _HELD[op]:
            raise GraphTypeError(f"{what} cannot hold {held!r}")
        if held in self._bound:
            raise GraphError(f"{held!r} is bound already, as {self._bound[held]!r}; use that node")
        array = held.array
        node = self._leaf(op, name, Tensor.of(array.dtype, array.shape), kind)
        object.__setattr__(node, "held", held)
        object.__setattr__(node, "place", self.store.bind(held))
        if held.name is None:
            held.name = name
        self._bound[held] = node
        return node

    def bind(self, held: Held, name: str | None = None) -> Variable:
        """Return the leaf of this graph for an `nn.Parameter` or `nn.Buffer`; add one if needed.

        Parameters
        ----------
        held : nn.Parameter or nn.Buffer
        name : str, optional
            Name of a new leaf; default the name of `held`.
        """
        node = self._bound.get(held)
        if node is not None:
            return node
        if name is None:
            name = held.name or f"{held.what}_{len(self._nodes)}"
        trained = type(held) is HeldParameter
        return self.parameter(name, held) if trained else self.buffer(name, held)

    def bound(self, held: Held) -> Variable:
        """Return the leaf of this graph for an `nn.Parameter` or `nn.Buffer`, or raise."""
        node = self._bound.get(held)
        if node is None:
            raise GraphError(
                f"{held!r} is not bound by graph {self.name!r}, which has "
                f"{', '.join(repr(one.name) for one in self._bound.values()) or 'none'}; "
                "call its module on a node of the graph, or graph.bind(it, name)"
            )
        return node

    def constant(self, value: Any, dtype: Any = None, name: str | None = None) -> Node:
        """Add a fixed array (copied); equal constants of equal dtype are one node.

        Raises
        ------
        GraphTypeError
            Values would change as `dtype`; only floats may be rounded.
        """
        array = as_array(value, "constant")
        array = array.copy() if dtype is None else converted(array, dtype_of(dtype))
        array.flags.writeable = False
        attrs = {"value": array}
        key = (CONSTANT, attrs_key(attrs), -1)
        node = self._consed.get(key)
        if node is None:
            if name is not None:
                self._check_free(name)
            type_ = Tensor.of(array.dtype, array.shape)
            node = self._consed[key] = self._add(Node, CONSTANT, (), attrs, type_, Checks())
        return node if name is None else node.named(name)

    def _leaf(self, op: Op, name: str, type_: Tensor, kind: type[_N]) -> _N:
        if not isinstance(name, str) or not name:
            raise GraphError(f"an {op.name} needs a name, got {shown(name)}")
        self._check_free(name)
        return self._add(kind, op, (), NO_ATTRS, type_, Checks()).named(name)

    # -- building -----------------------------------------------------------------------------

    def apply(self, op: Op, args: Sequence[Any], attrs: Attrs | None = None) -> Node:
        """Return the node that applies `op`, an existing one if there is an equal node.

        Parameters
        ----------
        op : Op
        args : sequence
            Nodes of this graph, arrays (which become constants), and weak scalars: Python and
            NumPy scalars, which take the dtype of the operand that they meet.
        attrs : mapping

        Raises
        ------
        GraphTypeError, ShapeError
            The types do not unify, or the shape rule rejects them.
        """
        if self.inside is not None:
            return self.inside.apply(op, args, attrs)
        attrs = frozen(attrs) if attrs else NO_ATTRS
        for arg in args:
            if not isinstance(arg, Node) or arg.graph is not self:
                inputs = self._operands(op, args, attrs)
                break
        else:
            inputs = tuple(args)
        key_of_attrs = attrs_key(attrs) if attrs else NO_ATTRS_KEY
        owner = -1 if self._owner is None else self._owner.id
        key: Any
        types: tuple[Tensor, ...]
        if len(inputs) == 1:  # the usual cases, without the call of a comprehension
            [x] = inputs
            key, types = (op, key_of_attrs, owner, x.id), (x.type,)
        elif len(inputs) == 2:
            x, y = inputs
            key, types = (op, key_of_attrs, owner, x.id, y.id), (x.type, y.type)
        else:
            key = (op, key_of_attrs, owner, *[node.id for node in inputs])
            types = tuple([node.type for node in inputs])
        node = self._consed.get(key)
        if node is None:
            try:
                type_, checks = infer(op, types, attrs, key_of_attrs)
            except (GraphTypeError, ShapeError) as error:
                common = promoted(op, inputs, attrs, self.convert)
                if common is not None:
                    return self.apply(op, common, attrs)
                raise explained(error, op, inputs, attrs) from None
            if attrs:
                attrs = self._attrs.setdefault(key_of_attrs, MappingProxyType(attrs))
            node = self._consed[key] = self._add(Node, op, inputs, attrs, type_, checks)
        return node

    def _operands(self, op: Op, args: Sequence[Any], attrs: Attrs) -> tuple[Node, ...]:
        nodes: list[Any] = [
            lifted(arg, self, op)
            if isinstance(arg, Node) or not (is_weak(arg) or isinstance(arg, Dim))
            else None
            for arg in args
        ]
        scheme = op.signature(len(args), attrs).args
        if len(scheme) != len(args):
            taken = counted(len(scheme), "argument")
            raise GraphTypeError(f"{op.name} takes {taken}, got {len(args)}")
        for position, arg in enumerate(args):
            if nodes[position] is None:
                wanted = getattr(scheme[position], "dtype", None)
                partner = partner_of(wanted, scheme, nodes)
                nodes[position] = weak_constant(arg, partner, self, op)
        return tuple(nodes)

    def lift(self, value: Any) -> Node:
        """Return `value` as a node of this graph: a node as it is, an array as a constant."""
        if self.inside is not None:
            return self.inside.lift(value)
        if isinstance(value, Node):
            if value.graph is not self:
                raise foreign(value, self)
            return value
        return self.bind(value) if isinstance(value, Held) else self.constant(value)

    def _add(
        self, kind: type[_N], op: Op, inputs: tuple[Node, ...], attrs: Attrs, type_: Tensor,
        checks: Checks,
    ) -> _N:  # fmt: skip
        line = self._line or user_line(3)
        # No message carries a constant, so owners share it.
        owner = None if op is CONSTANT else self._owner
        node = kind(self, len(self._nodes), op, inputs, attrs, type_, checks, line, owner)
        self._nodes.append(node)
        if self._scope:
            self._scopes[node.id] = self._scope
        if self._stage is not None:
            self.stages[node.id] = self._stage
        placed = PLACED.get()
        if placed is not None:
            self.placements[node.id] = placed
        return node

    def adopt(
        self, node: Node, inputs: tuple[Node, ...], leaf: bool = False, name: str | None = None
    ) -> Node:
        """Add a copy of another graph's node with the given inputs, its line and name kept.

        `leaf` makes the copy a placeholder of the same type; a parameter's copy holds no value.
        """
        op, attrs = (INPUT, NO_ATTRS) if leaf else (node.op, node.attrs)
        name = node.name if name is None else name
        number = len(self._nodes)
        checks = Checks() if leaf else node.checks
        copy = Node(self, number, op, inputs, attrs, node.type, checks, node.line, name=name)
        self._names[name] = copy
        self._nodes.append(copy)
        return copy

    def building(
        self, line: Line | None = None, owner: Node | None = None
    ) -> AbstractContextManager[None]:
        """Give nodes built inside this line and this owner (the node whose rule builds them).

        The default line is the user's.  Nodes of different owners never merge, so that each
        owner's fragment stays whole.
        """
        return _Inside(self, line or self._line or user_line(), owner)

    def on_line(self, line: Line) -> AbstractContextManager[None]:
        """Give nodes built inside this line; their owner stays the current one."""
        return _Inside(self, line, self._owner)

    @contextmanager
    def _having(self, name: str, value: Any) -> Iterator[None]:
        before = getattr(self, name)
        setattr(self, name, value)
        try:
            yield
        finally:
            setattr(self, name, before)

    def stage(self, number: int) -> AbstractContextManager[None]:
        """Place the nodes built inside in this stage of a pipeline, counted from 0.

        Placement is not part of a node's identity: a node that exists already stays where it is.
        `stages` maps the id of each placed node to its stage.
        """
        if not isinstance(number, (int, Integral)) or not 0 <= number < MOST:
            raise GraphError(f"a stage is a whole number from 0 on, got {shown(number)}")
        return self._having("_stage", int(number))

    # -- names --------------------------------------------------------------------------------

    def scope(self, path: str) -> AbstractContextManager[None]:
        """Prefix the automatic names of nodes built inside with a path, such as a layer's.

        It replaces an outer scope; "" means none.  A node that exists already keeps its name.
        """
        return self._having("_scope", text("a scope", path))

    def scope_of(self, node: Node) -> str:
        """Return the scope in which a node of this graph was built, "" for none."""
        return self._scopes.get(node.id, "")

    def claim_name(self, name: str, node: Node) -> None:
        """Reserve a name for a node, or raise `GraphError` if it is taken."""
        self._check_free(name, node)
        self._names[name] = node

    def _check_free(self, name: str, node: Node | None = None) -> None:
        taken = self._find(text("the name of a node", name))
        if taken is not None and taken is not node:
            raise GraphError(f"the name {name!r} is taken by {taken!r}; use another one")

    def automatic_name(self, node: Node) -> str:
        """Return the name of a node that was given none: scope, op and id."""
        scope = self._scopes.get(node.id)
        name = f"{node.op.name}_{node.id}" if scope is None else f"{scope}.{node.op.name}_{node.id}"
        while name in self._names:
            name += "_"
        return name

    def _find(self, name: str) -> Node | None:
        node = self._names.get(name)
        if node is None:
            number = name.rstrip("_").rpartition("_")[2]
            if number.isdecimal() and int(number) < len(self._nodes):
                candidate = self._nodes[int(number)]
                node = candidate if candidate.name == name else None
        return node

    def node(self, name: str) -> Node:
        """Return the node of that name, or raise `KeyError` with similar names."""
        found = self._find(name) if isinstance(name, str) else None
        if found is None:
            near = near_names(name, {node.name for node in self._nodes})
            advice = near or "; print(graph) lists them"
            raise KeyError(f"graph {self.name!r} has no node {shown(name)}{advice}")
        return found

    __getitem__ = node

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Node):
            return item.graph is self
        return isinstance(item, str) and self._find(item) is not None

    # -- queries ------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in build order, which is a topological order."""
        return tuple(self._nodes)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The placeholders."""
        return tuple(node for node in self._nodes if node.op is INPUT)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The trainable leaves."""
        return tuple(node for node in self._nodes if isinstance(node, Parameter))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The leaves that runs may replace."""
        return tuple(node for node in self._nodes if isinstance(node, Buffer))

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes that no node consumes."""
        used = {node.id for consumer in self._nodes for node in consumer.inputs}
        return tuple(node for node in self._nodes if node.id not in used)

    def consumers(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that have `node` among their inputs, in build order."""
        self.lift(node)
        later = self._nodes[node.id + 1 :]
        return tuple(other for other in later if any(part is node for part in other.inputs))

    def topological_order(self, outputs: Any = None) -> tuple[Node, ...]:
        """Return the nodes that `outputs` (default: all) depend on, inputs before consumers."""
        if outputs is None:
            return self.nodes
        return topological_order([self.lift(node) for node in as_nodes(outputs)])

    def subgraph(self, outputs: Any) -> Graph:
        """Return a new graph with copies of what `outputs` depend on, under the same names.

        An assignment to a buffer is copied if all of its nodes are.
        """
        return self._copied(self.topological_order(outputs))[0]

    def _copied(self, nodes: Sequence[Node]) -> tuple[Graph, dict[Node, Node]]:
        """Return a graph of copies of the nodes, and the copy of each node."""
        copy = Graph(self.name, self.seed)
        copy.convert = self.convert
        copies: dict[Node, Node] = {}
        for node in nodes:
            if isinstance(node, Variable):
                with copy.building(node.line):
                    array = node.held.present()
                    copies[node] = copy._variable(type(node), node.op, node.name, array)
            elif node.op is RUN_NUMBER:
                copies[node] = copy.run_number
            else:
                made = copies[node] = copy.adopt(node, tuple(copies[part] for part in node.inputs))
                if node.op is not INPUT:
                    ids = [part.id for part in made.inputs]
                    copy._consed[node.op, attrs_key(node.attrs), -1, *ids] = made
        for buffer, value, on in self.assignments:
            held = copies.get(buffer)
            if isinstance(held, Variable) and value in copies and on in copies:
                copy.assign(held, copies[value], copies[on])
        copy.stages = {
            made.id: self.stages[node.id] for node, made in copies.items() if node.id in self.stages
        }
        copy._draws = self._draws
        return copy, copies

    def clone(self) -> Graph:
        """Return a copy of the whole graph, with the same names."""
        return self._copied(self._nodes)[0]

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """Return a clone; nodes in the same deep copy become nodes of the clone."""
        copy, copies = self._copied(self._nodes)
        memo[id(self)] = copy
        memo.update((id(node), made) for node, made in copies.items())
        return copy

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise GraphTypeError(
            f"{self!r} is not pickled: ops are functions; graph.clone() copies it in this process, "
            "for others build it by a function that they call too, and send values of parameters"
        )

    def check(self) -> None:
        """Raise `GraphError` if the graph is not legal, see `legality.check_nodes`.

        A graph as built is legal; a user's rewriting pass may break it.
        """
        check_nodes(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} of {len(self._nodes)} nodes>"

    def __str__(self) -> str:
        return drawing.text(self)

    def to_dot(self) -> str:
        """Return the graph in Graphviz's DOT language; no drawing program is needed."""
        return drawing.dot(self)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flow chart."""
        return drawing.mermaid(self)

    def to_svg(self) -> str:
        """Return the graph as an SVG picture, laid out by grandalf (``actorgraph[draw]``).

        Raises
        ------
        GraphError
            grandalf is not installed.
        """
        return drawing.svg(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return drawing.mimebundle(self)


class _Inside:
    """Gives nodes built inside a line and an owner.

    A `contextmanager` would take as long as building a node.
    """

    __slots__ = ("_before", "_given", "_graph")

    def __init__(self, graph: Graph, line: Line, owner: Node | None) -> None:
        self._graph, self._given = graph, (line, owner)

    def __enter__(self) -> None:
        graph = self._graph
        self._before = graph._line, graph._owner
        graph._line, graph._owner = self._given

    def __exit__(self, *error: object) -> None:
        self._graph._line, self._graph._owner = self._before


def build(op: Op, *args: Any, **attrs: Any) -> Node:
    """Apply `op` in the graph of the first node among `args`, or raise if there is none."""
    for arg in args:
        if isinstance(arg, Node):
            return arg.graph.apply(op, args, attrs)
    raise GraphTypeError(
        f"{op.name} needs at least one node among its arguments, got "
        f"{', '.join(type(arg).__name__ for arg in args) or 'none'}; for arrays use NumPy itself, "
        "for a constant in a graph graph.constant(value)"
    )
