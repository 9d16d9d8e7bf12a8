"""The op ``branch``: one of several bodies, chosen by an index, applied to operands.

Its result is a record.  Only the chosen body runs, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actorgraph.autodiff.forward import push_forward
from actorgraph.autodiff.reverse import or_zeros, pull_back, seeded
from actorgraph.control.bodies import Body, agreed, copied, is_float, leaf_of
from actorgraph.devices import structs
from actorgraph.errors import GraphError
from actorgraph.graph import Graph, Node
from actorgraph.lower.inner import Dead, InBody, Inner, between
from actorgraph.op import Attrs, Op, Together
from actorgraph.ops._records import any_types, cotangents, item, tangent_of
from actorgraph.types import Checks, Record, Tensor
from actorgraph.warned import runs_steps


@dataclass(frozen=True)
class Cases:
    """The bodies of a branch, and the operands (without the index) that are the inputs of each."""

    bodies: tuple[Body, ...]
    places: tuple[tuple[int, ...], ...]
    what: str = "cond"

    def __str__(self) -> str:
        return self.what

    @property
    def titles(self) -> list[tuple[str, Body]]:
        """The bodies, with their names in drawings."""
        return [(f"{self.what} {number}", body) for number, body in enumerate(self.bodies)]


def branch_name(what: str, number: int) -> str:
    """Return the name of a branch in errors; for `cond` that of the argument."""
    return ("false_fun", "true_fun")[number] if what == "cond" else f"branch {number}"


def branch(graph: Graph, cases: Cases, operands: Iterable[Node]) -> Node:
    """Return the record of a branch; the first operand is the index."""
    return graph.apply(BRANCH, tuple(operands), {"cases": cases})


def _typing(checks: Checks, types: tuple[Tensor, ...], attrs: Attrs) -> Tensor:
    cases: Cases = attrs["cases"]
    first, *others = cases.bodies
    fields = [node.type for node in first.results]
    for number, body in enumerate(others, 1):
        body_types = [node.type for node in body.results]
        here, there = branch_name(cases.what, 0), branch_name(cases.what, number)
        for place, (one, other) in enumerate(zip(fields, body_types, strict=True)):
            fields[place] = agreed(
                checks, one, other,
                f"result {place} of {cases.what} is {one} in {here} and {other} in {there}",
                cast=f".astype({str(other.dtype)!r}) in {here} or .astype({str(one.dtype)!r}) in "
                f"{there}", way="branches give results of one shape",
            )  # fmt: skip
    for body in cases.bodies:
        body.check_into(checks)
    return Record.of_fields(tuple(fields))


class _BranchKernel:
    """A branch compiled for one binding: called with the run and the operands."""

    def __init__(self, node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> None:
        self.cases: Cases = node.attrs["cases"]
        self.name = node.name
        self.calls = [
            (Inner(body.inputs, body.results, symbols, watch), places)
            for body, places in zip(self.cases.bodies, self.cases.places, strict=True)
        ]

    @runs_steps("inner")
    def __call__(self, run: Any, index: Any, *operands: Any) -> list[Any]:
        chosen, calls = int(index), self.calls
        if not 0 <= chosen < len(calls):
            raise GraphError(
                f"{self.cases.what} {self.name!r} got the index {chosen}; it has {len(calls)} "
                f"branches, 0 to {len(calls) - 1}"
            )
        inner, places = calls[chosen]
        try:
            return inner.call(
                structs.IDLE if run is None else run, (), *[operands[i] for i in places]
            )
        except Dead:
            raise
        except Exception as error:
            raise InBody(inner.program, None, error) from error


def _predicted(node: Node, symbols: Mapping[str, int]) -> float:
    cases: Cases = node.attrs["cases"]
    return 1.0 + max([body.predicted_us(symbols) for body in cases.bodies])


# -- derivatives ----------------------------------------------------------------------------------


_Copies = dict[Node, Node]


def _rebuilt(
    cases: Cases, operands: Sequence[Node], extra: Sequence[Node], made: Any, what: str
) -> tuple[Cases, list[Node]]:
    """Return cases with new bodies, whose results ``made(graph, body, copies, leaves)`` returns.

    A new body has copies of the old body's nodes, and leaves for the operands and `extra` nodes
    that it uses.
    """
    all_operands = [*operands, *extra]
    bodies, places = [], []
    for body, body_places in zip(cases.bodies, cases.places, strict=True):
        graph = Graph(what)
        leaves = [leaf_of(graph, node.name, node.type) for node in all_operands]
        results = made(graph, body, copied(body, graph, [leaves[i] for i in body_places]), leaves)
        seen = {node.id for node in between(leaves, results)}
        used = [i for i, leaf in enumerate(leaves) if leaf.id in seen]
        bodies.append(Body([leaves[i] for i in used], results))
        places.append(tuple(used))
    return Cases(tuple(bodies), tuple(places), cases.what), all_operands


def _pull(
    argnums: Sequence[int], ct: Node, y: Node, index: Node, *operands: Node, cases: Cases
) -> list[Node | None]:
    arrived = cotangents(ct)
    wrt_places = [argnum - 1 for argnum in argnums]

    def made(graph: Graph, body: Body, copies: _Copies, leaves: list[Node]) -> list[Node]:
        results = [copies[body.results[field]] for field in arrived]
        seeds = seeded(zip(results, leaves[len(operands) :], strict=True))
        wrt = [leaves[i] for i in wrt_places]
        order = between(leaves, [*seeds, *leaves])
        return or_zeros(pull_back(graph, order, seeds, wrt, owned=True), wrt)

    reverse, all_operands = _rebuilt(
        cases, operands, list(arrived.values()), made, f"reverse of {cases}"
    )
    record = branch(y.graph, reverse, [index, *all_operands])
    return [item(record, field) for field in range(len(wrt_places))]


def _push(tans: Sequence[Node | None], y: Node, index: Node, *operands: Node, cases: Cases) -> Node:
    assert isinstance(y.type, Record)
    moved = [i for i, tan in enumerate(tans[1:]) if tan is not None]
    fields = [i for i, type_ in enumerate(y.type.fields) if is_float(type_)]

    def made(graph: Graph, body: Body, copies: _Copies, leaves: list[Node]) -> list[Node]:
        seeds = dict(zip([leaves[i] for i in moved], leaves[len(operands) :], strict=True))
        results = [copies[body.results[field]] for field in fields]
        return or_zeros(push_forward(graph, between(leaves, results), seeds, owned=True), results)

    extra = [tan for tan in tans[1:] if tan is not None]
    forward, given = _rebuilt(cases, operands, extra, made, f"tangents of {cases}")
    record = branch(y.graph, forward, [index, *given])
    return tangent_of(y, record, {field: place for place, field in enumerate(fields)})


BRANCH = Op(
    "branch", any_types, lambda xp, *arrays, **attrs: None, typing=_typing,
    vjp=Together(_pull, first=1), jvp=_push, kernel=_BranchKernel, predicted=_predicted,
    doc="One of several bodies.",
)  # fmt: skip
"""The op of all branches."""
