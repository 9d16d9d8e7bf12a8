"""Trees: nested tuples, lists, dicts and named tuples, flattened to leaves and put together again.

Everything else is a leaf; None is a tree without leaves.  A structure is hashable and has all but
the leaves.  Dicts are flattened in the order of their sorted keys, so equal dicts have equal
structures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Structure(NamedTuple):
    """A tree without its leaves; `kind` is the container, None for None, Structure for a leaf."""

    kind: Any
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        texts = list(map(str, self.parts))
        if self.kind is Structure:
            return "*"
        if self.kind is dict:
            pairs = [f"{key!r}: {text}" for key, text in zip(self.keys, texts, strict=True)]
            return f"{{{', '.join(pairs)}}}"
        if self.kind is list:
            return f"[{', '.join(texts)}]"
        if self.kind is tuple:
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        return "None" if self.kind is None else f"{self.kind.__name__}({', '.join(texts)})"


LEAF = Structure(Structure)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree and its structure.

    Examples
    --------
    >>> leaves, structure = flatten({"b": (1.0, [2.0]), "a": 3.0})
    >>> leaves, str(structure)
    ([3.0, 1.0, 2.0], "{'a': *, 'b': (*, [*])}")
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    if tree is None:
        return Structure(None)
    if kind is dict:
        keys = tuple(sorted(tree, key=repr))
        return Structure(dict, keys, tuple([_flatten(tree[key], leaves) for key in keys]))
    if kind in (tuple, list) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return Structure(kind, (), tuple([_flatten(part, leaves) for part in tree]))
    leaves.append(tree)
    return LEAF


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Return the tree with that structure and these leaves."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    kind = structure.kind
    if kind is Structure:
        return next(leaves)
    if kind is None:
        return None
    parts = [_unflatten(part, leaves) for part in structure.parts]
    if kind is dict:
        return dict(zip(structure.keys, parts, strict=True))
    return kind(parts) if kind in (tuple, list) else kind(*parts)


def map_leaves(function: Any, tree: Any) -> Any:
    """Return the tree with `function` applied to each leaf."""
    leaves, structure = flatten(tree)
    return unflatten(structure, map(function, leaves))
