"""Einstein summation, lowered to transposes, products of matrices and sums.

No op of its own: `einsum` builds nodes whose gradients are known.  Operands are contracted in
pairs; the order is that of opt_einsum where it is installed, and else from left to right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.ops._rules import raises
from actorgraph.ops.arithmetic import multiply
from actorgraph.ops.broadcasting import conj, expand_dims, squeeze
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.linalg import OPEN_SIZE, all_lifted, matmul, vecdot
from actorgraph.ops.matrices import matrix_diagonal
from actorgraph.ops.reshaping import merge_dims, reshape
from actorgraph.ops.shaping import transpose
from actorgraph.types import UNKNOWN, Checks, Dim

__all__ = ["einsum"]

Labels: TypeAlias = tuple[str, ...]
"""One label per dim; those of an ellipsis are ``...0`` (the last dim), ``...1`` and so on."""

Part: TypeAlias = tuple[Node, Labels]


@raises(
    types="The subscripts cannot be read or do not fit the operands, dtypes differ, or a "
    "strategy is asked for and opt_einsum is not installed.",
    shapes="Dims of one label differ and neither is 1.",
)  # fmt: skip
def einsum(subscripts: str, *operands: Any, optimize: bool | str = True) -> Node:
    """Sum products by Einstein's convention, as ``numpy.einsum``.

    Parameters
    ----------
    subscripts : str
        Such as ``"bij,bjk->bik"``.  A label that stands twice in an operand takes its diagonal;
        ``...`` stands for dims that broadcast; without ``->`` the result has the labels that
        stand once, in alphabetical order, after those of the ellipsis.
    *operands : node or array
        At least one node; of one dtype, any number.
    optimize : bool or str
        True takes the order of opt_einsum where it is installed, and else goes from left to
        right, as False does; a str is a strategy of opt_einsum, such as ``"optimal"``.  The order
        changes the rounding.
    """
    nodes = all_lifted(operands)
    inputs, output = _parse(subscripts, nodes)
    sizes = _sizes(nodes, inputs)
    parts = [_prepared(*pair, sizes) for pair in zip(nodes, inputs, strict=True)]
    for group in _order(parts, output, sizes, optimize):
        chosen = [parts[place] for place in group]
        parts = [part for place, part in enumerate(parts) if place not in group]
        for count, other in enumerate(chosen[1:], 2):
            later = [labels for _, labels in (*parts, *chosen[count:])]
            keep = {*output, *(label for labels in later for label in labels)}
            chosen[0] = _contracted(chosen[0], other, keep)
        parts.append(chosen[0])
    node, labels = _summed(parts[0], set(output))
    return transpose(node, tuple(labels.index(label) for label in output))


def _parse(subscripts: Any, nodes: list[Node]) -> tuple[list[Labels], Labels]:
    if not isinstance(subscripts, str):
        raise GraphTypeError(f"subscripts are a str such as 'ij,jk->ik', got {subscripts!r}")
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(nodes):
        raise GraphTypeError(f"{subscripts!r} names {len(terms)} operands, got {len(nodes)}")
    inputs = [_labels(term, node.ndim, subscripts) for term, node in zip(terms, nodes, strict=True)]
    seen = Counter(label for labels in inputs for label in labels)
    rank = len([label for label in seen if label.startswith("...")])
    if not arrow:
        once = sorted(label for label, count in seen.items() if count == 1 and len(label) == 1)
        return inputs, (*_ellipsis(rank), *once)
    bare = len(right.replace("...", ""))
    output = _labels(right, bare + (rank if "..." in right else 0), subscripts)
    for label in output:
        if label not in seen:
            raise GraphTypeError(f"einsum: no operand has the label {label!r} of {subscripts!r}")
    if len(set(output)) != len(output):
        raise GraphTypeError(f"einsum: the result of {subscripts!r} names a label twice")
    return inputs, output


def _ellipsis(rank: int) -> Labels:
    return tuple(f"...{place}" for place in range(rank - 1, -1, -1))


def _labels(term: str, ndim: int, subscripts: str) -> Labels:
    before, dots, after = term.partition("...")
    names = before + after
    if not all(name.isalpha() for name in names):
        raise GraphTypeError(f"einsum: cannot read {term!r} in {subscripts!r}; labels are letters")
    rest = ndim - len(names)
    if rest < 0 or (rest and not dots):
        raise GraphTypeError(
            f"einsum: {term!r} in {subscripts!r} names {len(names)} dims of an operand of {ndim}"
        )
    return (*before, *_ellipsis(rest), *after)


def _sizes(nodes: list[Node], inputs: list[Labels]) -> dict[str, int | Dim]:
    """Return the dim of each label; a literal 1 gives way to any other."""
    sizes: dict[str, int | Dim] = {}
    for node, labels in zip(nodes, inputs, strict=True):
        for label, dim in zip(labels, node.dims, strict=True):
            known = sizes.setdefault(label, dim)
            if known == 1:
                sizes[label] = dim
            elif dim != 1:
                sizes[label] = Checks().equal(known, dim, f"einsum: dims of the label {label!r}")
    return sizes


def _prepared(node: Node, labels: Labels, sizes: dict[str, int | Dim]) -> Part:
    """Take diagonals of repeated labels, and drop dims of 1 that broadcast."""
    stretched = [i for i, label in enumerate(labels) if node.dims[i] == 1 and sizes[label] != 1]
    node = squeeze(node, tuple(stretched))
    labels = tuple(label for i, label in enumerate(labels) if i not in stretched)
    while len(set(labels)) < len(labels):
        label = next(label for label, count in Counter(labels).items() if count > 1)
        pair = [i for i, other in enumerate(labels) if other == label][:2]
        rest = [i for i in range(len(labels)) if i not in pair]
        node = matrix_diagonal(transpose(node, (*rest, *pair)), square=True)
        labels = (*(labels[i] for i in rest), label)
    return node, labels


def _summed(part: Part, keep: set[str]) -> Part:
    """Sum over the labels that nothing needs."""
    node, labels = part
    lone = tuple(i for i, label in enumerate(labels) if label not in keep)
    if not lone:
        return part
    return sum_over(node, lone), tuple(label for label in labels if label in keep)


def _contracted(left: Part, right: Part, keep: set[str]) -> Part:
    left = _summed(left, keep | set(right[1]))
    right = _summed(right, keep | set(left[1]))
    shared = [label for label in left[1] if label in right[1]]
    batch = tuple(label for label in shared if label in keep)
    inner = tuple(label for label in shared if label not in keep)
    rows = tuple(label for label in left[1] if label not in shared)
    columns = tuple(label for label in right[1] if label not in shared)
    if not inner:
        labels = (*batch, *rows, *columns)
        return multiply(_spread(left, labels), _spread(right, labels)), labels
    if not rows and not columns:
        x, y = (
            merge_dims(_spread(part, (*batch, *inner)), (*[1] * len(batch), len(inner)))
            for part in (left, right)
        )
        return vecdot(conj(x), y), batch
    return _matrix_product(left, right, batch, inner, rows, columns)


def _spread(part: Part, labels: Labels) -> Node:
    """Transpose to the order of `labels`, with dims of 1 for those that the part lacks."""
    node, own = part
    node = transpose(node, tuple(own.index(label) for label in labels if label in own))
    return expand_dims(node, tuple(i for i, label in enumerate(labels) if label not in own))


def _matrix_product(
    left: Part, right: Part, batch: Labels, inner: Labels, rows: Labels, columns: Labels
) -> Part:
    """Multiply as batches of matrices, with the row and the column labels merged into one dim each.

    Where dims of the result are known to the run only, all but the last of those labels count as
    batch dims instead, of size 1 in the other operand.
    """
    sizes = dict(zip(left[1] + right[1], left[0].dims + right[0].dims, strict=True))
    is_open = any(sizes[label] is UNKNOWN for label in (*batch, *rows, *columns))
    loose_rows, loose_columns = (labels[:-1] if is_open else () for labels in (rows, columns))
    merged_rows, merged_columns = rows[len(loose_rows) :], columns[len(loose_columns) :]
    lead = (*batch, *loose_rows, *loose_columns)
    ones = [1] * len(lead)
    x = _spread(left, (*lead, *merged_rows, *inner))
    y = _spread(right, (*lead, *inner, *merged_columns))
    x = merge_dims(x, (*ones, len(merged_rows), len(inner)))
    y = merge_dims(y, (*ones, len(inner), len(merged_columns)))
    product = _split(matmul(x, y), len(lead), [sizes[label] for label in merged_rows])
    place = len(lead) + len(merged_rows)
    product = _split(product, place, [sizes[label] for label in merged_columns])
    return product, (*lead, *merged_rows, *merged_columns)


def _split(node: Node, axis: int, dims: list[int | Dim]) -> Node:
    """Give the dim at `axis` the dims that were merged into it."""
    if len(dims) == 1:
        return node
    if not dims:
        return squeeze(node, axis)
    return reshape(node, (*node.dims[:axis], *dims, *node.dims[axis + 1 :]))


def _order(
    parts: list[Part], output: Labels, sizes: dict[str, int | Dim], optimize: bool | str
) -> Iterable[tuple[int, ...]]:
    """Return which parts to contract in each step; a result goes to the end of the list."""
    last = len(parts) - 1
    left_to_right = [(0, 1) if step == 0 else (last - step, 0) for step in range(last)]
    if optimize is False or (len(parts) < 3 and optimize is True):
        return left_to_right
    try:
        import opt_einsum
    except ImportError:
        if optimize is True:
            return left_to_right
        raise GraphTypeError(
            f"einsum: the strategy {optimize!r} needs opt_einsum; pip install actorgraph[einsum]"
        ) from None
    symbols = {label: opt_einsum.get_symbol(i) for i, label in enumerate(sizes)}
    terms = ["".join(symbols[label] for label in labels) for _, labels in parts]
    known = {i: d if isinstance(d, int) else OPEN_SIZE for i, d in sizes.items()}
    shapes = [tuple(known[label] for label in labels) for _, labels in parts]
    equation = ",".join(terms) + "->" + "".join(symbols[label] for label in output)
    strategy = "auto" if optimize is True else optimize
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=strategy)
    return [tuple(group) for group in path]
