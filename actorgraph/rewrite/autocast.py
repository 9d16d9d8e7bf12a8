"""`autocast`: matrix products and convolutions of a part of the graph in a smaller float.

Source: P. Micikevicius et al., Mixed precision training, 2018.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actorgraph.errors import GraphError, GraphTypeError, near_names
from actorgraph.graph import Node, as_nodes
from actorgraph.op import REGISTRY
from actorgraph.ops._arrays import is_half
from actorgraph.ops.elementwise import astype
from actorgraph.rewrite._graph import rebuilt, restored
from actorgraph.types import dtype_of

_PRODUCTS = tuple("conv conv_transpose matmul outer tensordot vecdot".split())
"""The ops that compute on cast operands."""

_ASTYPE = REGISTRY["astype"]


def autocast(
    outputs: Any, dtype: Any = "float16", *, keep: Iterable[Node | str] | Node = ()
) -> Any:
    """Return nodes like `outputs` whose matrix products and convolutions compute in `dtype`.

    Every ``conv``, ``conv_transpose``, ``matmul``, ``outer``, ``tensordot`` and ``vecdot`` of
    float32 gets its operands through ``astype`` nodes, and its result is cast back to float32; a
    cast and its inverse cancel.  So attention, recurrent steps and ``einsum`` of such products are
    cast too, while sums, softmax, normalisation, losses and everything elementwise stay in float32.
    Parameters stay float32 leaves, and their gradients are float32.  Products of two-byte floats
    are summed in float32 and rounded once.

    In the backward pass cotangents are cast as well, and small ones become 0, as the smallest
    float16 is 6e-8.  So scale the loss through the seed and divide the gradients:
    ``machine.run(feeds, backward={loss: 1024.0})``, then ``run[W].grad / 1024``.  A power of two
    only changes the values that would have been lost.  bfloat16 has the range of float32 and needs
    no scale.

    Parameters
    ----------
    outputs : node, or list, tuple or dict of nodes
        They and everything that they depend on are cast.
    dtype : "float16" or "bfloat16"
    keep : node, name of an op, or iterable of them
        Nodes that stay in float32, and ops whose nodes all do.

    Returns
    -------
    node, or list, tuple or dict of nodes
        As `outputs`, of the same types, in the same graph; the node itself where nothing was cast.

    Raises
    ------
    GraphTypeError
        If `dtype` is no float of two bytes, or is bfloat16 without ml_dtypes installed.
    GraphError
        If `keep` names an op that is never cast.

    Examples
    --------
    >>> import actorgraph as ag
    >>> import numpy as np
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=("batch", 4), dtype="float32")
    >>> W = g.parameter("W", np.ones((4, 2), "float32"))
    >>> ag.rewrite.autocast(x @ W)
    <astype_6: float32[batch, 2]>
    """
    target = dtype_of(dtype)
    if not is_half(target):
        raise GraphTypeError(f"autocast casts to float16 or bfloat16, got {target.name}")
    targets = as_nodes(outputs)
    if not targets:
        return outputs
    kept = set(as_nodes([one for one in _several(keep) if not isinstance(one, str)]))
    products = {REGISTRY[name] for name in _PRODUCTS} - {
        REGISTRY[_known(one)] for one in _several(keep) if isinstance(one, str)
    }

    def settled(made: Node, node: Node) -> Node:
        if node.op not in products or node in kept or node.dtype.name != "float32":
            return made
        with node.graph.building(node.line):
            operands = [_cast(part, target.name) for part in made.inputs]
            return astype(node.graph.apply(made.op, operands, made.attrs), "float32")

    return restored(outputs, rebuilt(targets[0].graph, targets, settled))


def _several(keep: Iterable[Node | str] | Node) -> list[Node | str]:
    return [keep] if isinstance(keep, (Node, str)) else list(keep)


def _known(name: str) -> str:
    if name not in _PRODUCTS:
        raise GraphError(
            f"autocast never casts an op {name!r}{near_names(name, _PRODUCTS)}; "
            f"it casts {', '.join(_PRODUCTS)}"
        )
    return name


def _cast(node: Node, dtype: str) -> Node:
    """Return the node in `dtype`; a node that was cast from it gives its operand, bit for bit."""
    if node.op is _ASTYPE and node.inputs[0].dtype.name == dtype:
        return node.inputs[0]
    return astype(node, dtype)
