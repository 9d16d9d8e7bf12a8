"""`stop_gradient` and `hook_gradient`: nodes that change what flows backward, not the value."""

from __future__ import annotations

from collections.abc import Callable

from actorgraph.autodiff.checkpointing import first_of_many
from actorgraph.autodiff.reverse import fitting
from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, build
from actorgraph.op import VIEW, Memory, Op, Sample
from actorgraph.ops._rules import declare

_STOP: Op = declare(
    "stop_gradient", "a[*s] -> a[*s]", lambda xp, x: x, vjp=(None,), jvp=lambda tans, y, x: None,
    samples=(Sample(((3, 4),)), Sample(((),))), memory=VIEW,
    doc="The value, through which neither cotangents nor tangents flow.",
)  # fmt: skip


def stop_gradient(node: Node) -> Node:
    """Return the value of `node` as one that depends on nothing.

    Type ``a[*s] -> a[*s]``.  Cotangents and tangents are symbolic zeros.

    Parameters
    ----------
    node : node

    Raises
    ------
    GraphTypeError
        If `node` is no node.

    Examples
    --------
    >>> import actorgraph as ag
    >>> from actorgraph.autodiff import gradients
    >>> x = ag.Graph().input("x", dtype="float64")
    >>> gradients(x * ag.stop_gradient(x), [x])[0].op  # x, not 2 x
    <op multiply>
    """
    return build(_STOP, node)


def _hooked(ct: Node, y: Node, x: Node, *others: Node, fn: Callable[..., Node | None]) -> Node:
    result = fn(ct, *others)
    if result is None:
        return ct
    if not isinstance(result, Node):
        raise GraphTypeError(
            f"the hook {fn!r} of the gradient of {x!r} returned {result!r}; return a node built "
            "from its argument, or None to leave the gradient as it is"
        )
    return fitting(result, x, "hooked gradient")


_HOOK: Op = declare(
    "hook_gradient", first_of_many, lambda xp, x, *others, fn: x, vjp=(_hooked,),
    jvp=lambda tans, y, *xs, fn: tans[0],
    samples=(
        Sample(((3, 4),), {"fn": lambda ct: ct}), Sample(((), (2,)), {"fn": lambda ct, y: ct}),
    ),
    memory=Memory(is_view=True),
    doc="The value; the cotangent that arrives goes through a function.",
)  # fmt: skip


def hook_gradient(node: Node, fn: Callable[..., Node | None], *others: Node) -> Node:
    """Return the value of `node`; the gradient that flows back to it goes through `fn`.

    It serves to look at a gradient, clip it or replace it, as Tangent's ``insert_grad_of`` does.
    `fn` is called while the backward pass is built, by `ag.gradients` and by machines; to do
    something with arrays in a run, such as printing, it uses an op (`ag.ops.opaque`).  Tangents of
    forward mode are not hooked.  Only uses of the result are hooked.

    Parameters
    ----------
    node : node
        Of any float or complex type.
    fn : callable
        ``fn(ct, *others) -> node or None``: builds the new cotangent, of the shape and dtype of
        `node`; None leaves it as it is.
    *others : node
        Further nodes that `fn` uses.  It must not use nodes from elsewhere: a machine
        differentiates a copy of the graph.

    Raises
    ------
    GraphTypeError, ShapeError
        When the backward pass is built, if `fn` returns no node, or one of another type.

    Examples
    --------
    >>> import actorgraph as ag
    >>> from actorgraph import ops
    >>> x = ag.Graph().input("x", shape=(3,), dtype="float64")
    >>> y = ops.exp(ag.hook_gradient(x, lambda ct: ops.clip(ct, -1.0, 1.0))).sum()
    """
    return build(_HOOK, node, *others, fn=fn)
