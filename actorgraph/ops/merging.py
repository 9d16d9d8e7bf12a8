"""Merging of adjacent dims into one, for contractions; dims may be known only to the run."""

from __future__ import annotations

from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.ops._rules import declare
from actorgraph.ops.reshaping import reshape_like
from actorgraph.types import Checks, Shape, size_of

__all__: list[str] = []


def _merged(dims: Any, groups: tuple[int, ...]) -> tuple[Any, ...]:
    sizes, start = [], 0
    for count in groups:
        sizes.append(size_of(tuple(dims[start : start + count])))
        start += count
    return tuple(sizes)


def _merge_shape(checks: Checks, x: Shape, *, groups: tuple[int, ...]) -> Shape:
    return _merged(x, groups)


def _merge_flops(shapes: Any, result: Any, attrs: Attrs) -> float:
    return 1.0


_MERGE: Op = declare(
    "merge_dims", "a[*s] -> a[*out]", lambda xp, x, groups: xp.reshape(x, _merged(x.shape, groups)),
    shape=_merge_shape, vjp=(lambda ct, y, x, groups: reshape_like(ct, x),),
    linear=(0,), cost=_merge_flops,
    samples=(Sample(((2, 3, 4),), {"groups": (1, 2)}), Sample(((2, 0),), {"groups": (2, 0)})),
    doc="Merge groups of adjacent dims into one dim each.",
)  # fmt: skip


def merge_dims(x: Node, groups: tuple[int, ...]) -> Node:
    """Merge adjacent dims: ``groups`` says how many of them make each dim of the result."""
    return x if all(count == 1 for count in groups) else build(_MERGE, x, groups=groups)
