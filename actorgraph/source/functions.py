"""`function`: Python's control flow on nodes, as branches and loops of the graph."""

from __future__ import annotations

import ast
import inspect
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import update_wrapper, wraps
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from actorgraph.autodiff.trees import flatten
from actorgraph.errors import GraphError, GraphTypeError, shown
from actorgraph.graph import Node
from actorgraph.keywords import answering
from actorgraph.source.deciding import BUILDING, CHANGED, FLOAT, LISTS, setting
from actorgraph.source.emitting import codes_in, compiled
from actorgraph.source.looping import Converted
from actorgraph.source.reading import UnsupportedSyntax, read
from actorgraph.source.staging import HELPER, staged

_NOT_OURS = (
    str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"),
)  # fmt: skip
"""Folders whose functions are called without conversion."""
_KEPT = "_converted_by_actorgraph"
_TEXTS: set[CodeType] = set()
"""The code of converted functions and of those that they define."""


@answering
def function(func: Callable[..., Any], convert: bool = True) -> Callable[..., Any]:
    """Return a function whose ``if``, ``while`` and ``for`` on nodes become part of the graph.

    A test or an iterable that is a node becomes `cond`, `while_loop`, `scan` or `fori_loop`;
    everything else stays Python and runs while nodes are built.  ``break``, ``continue``, early
    ``return``, ``and``, ``or``, ``not``, chained comparisons, conditional expressions, list
    comprehensions, ``assert``, ``match`` on values and writes ``x[i] = v`` are converted as well,
    and so are the user's functions that it calls.

    A name that is read after a branch needs a value in both branches.  One that a loop carries
    needs a value before it, and keeps its dtype and dims.  A Python number takes the dtype of the
    node that it meets.

    Parameters
    ----------
    func : function
        A plain function or method, with source.
    convert : bool
        False returns it unchanged: loops are unrolled, and the truth value of a node raises.

    Returns
    -------
    callable
        A function of the same signature, for nodes; without nodes it behaves like `func`.

    Raises
    ------
    UnsupportedSyntax
        There is no source, or a construct has no form in a graph; with file, line and column.

    Examples
    --------
    >>> import actorgraph as ag
    >>> @ag.function
    ... def halvings(x):
    ...     count = 0
    ...     while x > 1:
    ...         x, count = x / 2, count + 1
    ...     return count
    >>> x = ag.Graph().input("x", (), "float64")
    >>> count = halvings(x)
    >>> ag.LispMachine([count]).run_sync({"x": 100.0})[count].value
    array(7)
    """
    if not isinstance(func, (FunctionType, MethodType)):
        raise GraphTypeError(f"ag.function takes a Python function, got {shown(func)}")
    staged_function = _bound(func) if convert else func

    @wraps(func)
    def converted(*args: Any, **kwargs: Any) -> Any:
        with _numbers_of((args, kwargs)):
            try:
                return staged_function(*args, **kwargs)
            except RecursionError:
                raise GraphError(
                    f"{func.__qualname__} recurses without end: the depth of a recursion must not "
                    "depend on a node; write a loop"
                ) from None

    return converted


@contextmanager
def _numbers_of(given: Any) -> Iterator[None]:
    """Let integers meet floats, and give Python's floats the dtype of the arguments."""
    nodes = [leaf for leaf in flatten(given)[0] if isinstance(leaf, Node)]
    floats = {node.dtype.name for node in nodes if node.dtype.kind == "f"}
    graph = nodes[0].graph if nodes else None
    before = None if graph is None else graph.convert
    if graph is not None and before is None:
        graph.convert = "same_kind"
    met = setting(FLOAT, floats.pop() if len(floats) == 1 else FLOAT.get())
    building = BUILDING.get() or bool(nodes)
    try:
        with met, setting(BUILDING, building), setting(CHANGED, []), setting(LISTS, []):
            yield
    finally:
        if graph is not None:
            graph.convert = before


def _bound(func: FunctionType | MethodType) -> Any:
    if isinstance(func, MethodType):
        return MethodType(_made(func.__func__), func.__self__)  # type: ignore[arg-type]
    return _made(func)


def _called(func: Any) -> Any:
    """Return a user's function converted, any other as it is."""
    plain = func.__func__ if isinstance(func, MethodType) else func
    code = getattr(plain, "__code__", None)
    if code is None or code in _TEXTS or code.co_filename.startswith(_NOT_OURS):
        return func
    if inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain):
        return func
    try:
        return _bound(func)
    except UnsupportedSyntax:
        return func  # it may never meet a node


def _made(func: FunctionType) -> FunctionType:
    # An attribute of the function, since they refer to each other; wrappers may have copied it.
    staged_function: FunctionType
    of, staged_function = vars(func).get(_KEPT, (None, func))
    if of is not func:
        staged_function = _compiled(func)
        setattr(func, _KEPT, (func, staged_function))
    return staged_function


def _compiled(func: FunctionType) -> FunctionType:
    """Return the converted function, with the file, lines, globals and cells of the user's."""
    places: list[ast.AST] = []
    definition = staged(func, deepcopy(read(func)), places)
    code = func.__code__
    cells = dict(zip(code.co_freevars, func.__closure__ or (), strict=True))
    cells[HELPER] = CellType(Converted(func, places, _called))
    args: Any = definition.args  # its defaults are set below, from the user's function
    args.defaults = [ast.Constant(None) for _ in args.defaults]
    args.kw_defaults = [one and ast.Constant(None) for one in args.kw_defaults]
    definition.name = (
        f"{HELPER}function"  # its own would hide the global that it may call itself by
    )
    body = compiled([definition], cells, code.co_filename)[definition.name]
    body = body.replace(co_name=code.co_name)
    closure = tuple([cells[name] for name in body.co_freevars])
    converted = FunctionType(body, func.__globals__, func.__name__, func.__defaults__, closure)
    converted.__kwdefaults__ = func.__kwdefaults__
    update_wrapper(converted, func)
    waiting = [body]
    while waiting:
        one = waiting.pop()
        _TEXTS.add(one)
        waiting += codes_in(one)
    return converted
