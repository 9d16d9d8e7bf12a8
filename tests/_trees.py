"""The syntax trees of files, parsed once for all tests of a process."""

import ast
import gc
from functools import cache


@cache
def tree(path):
    """Return the tree of a file; garbage collections, which would take as long, pass over it."""
    found = ast.parse(path.read_text(encoding="utf-8"))
    gc.freeze()
    return found


@cache
def nodes(path):
    """Return all nodes of the tree of a file."""
    return list(ast.walk(tree(path)))
