"""Every error of the package.

The tree::

    GraphError
    |-- GraphTypeError (also TypeError)    dtypes or kinds that do not fit
    |-- ShapeError     (also ValueError)   dims that do not fit
    |-- FeedError      (also ValueError)   arguments of a run do not fit the graph
    |-- ScheduleError  (also ValueError)   a pipeline's schedule cannot be made or executed
    |-- NodeError                          an op failed while a run was under way
    |-- DeadlockError                      a run cannot make progress
    |-- MachineClosedError                 the machine was closed
    |-- MemoryLimitError (also MemoryError) a run does not fit into `max_bytes`
    |-- RunCancelled                       the run was cancelled

A run past its deadline raises the built-in ``TimeoutError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from inspect import cleandoc
from typing import Any

__all__ = [
    "DeadlockError", "FeedError", "GraphError", "GraphTypeError", "MachineClosedError",
    "MemoryLimitError", "NodeError", "RunCancelled", "ScheduleError", "ShapeError", "counted",
    "near_names", "no_name", "printable", "shown", "text_of",
]  # fmt: skip
__dir__ = __all__.copy


class GraphError(Exception):
    """Root of every error that actorgraph raises on purpose.

    Attributes
    ----------
    reference : str
        Its section in ``docs/errors.md``, which ``actorgraph explain`` prints: a program that
        raises it, and the repair.  A cause may have a section other than the class.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (2, 3))
    >>> try:
    ...     ag.ActorMachine([x], device="tpu")
    ... except ag.GraphError as error:
    ...     print(error)
    unknown device 'tpu'; use 'cpu', 'cuda:0' (a GPU), or 'virtual:0' (host threads)
    """

    reference: str = "AG100"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            cls._add_example(f"ag.{cls.__name__}.reference", cls.reference)

    @classmethod
    def _add_example(cls, expression: str, value: object) -> None:
        """Append an example to the docstring: an expression and its value."""
        lines = [cleandoc(cls.__doc__ or ""), "", "Examples", "--------"]
        lines += [">>> import actorgraph as ag", f">>> {expression}", repr(value), ""]
        cls.__doc__ = "\n".join(lines)

    def __init__(self, *args: Any, reference: str | None = None) -> None:
        super().__init__(*args)
        if reference is not None:
            self.reference = reference
        self.add_note(f"more: actorgraph explain {self.reference}")

    def __str__(self) -> str:
        return "\n".join(map(printable, super().__str__().split("\n")))


class GraphTypeError(GraphError, TypeError):
    """Dtypes, kinds or ranks that do not unify; raised in the line that builds the node."""

    reference = "AG101"


class ShapeError(GraphError, ValueError):
    """Dims that can be shown not to fit, when a node is built or when a run binds symbols."""

    reference = "AG102"


class FeedError(GraphError, ValueError):
    """A feed, seed or tangent is missing, unknown, or of the wrong dtype or shape."""

    reference = "AG103"


class ScheduleError(GraphError, ValueError):
    """A pipeline's schedule, or an argument of making or simulating it, is invalid."""

    reference = "AG104"


class NodeError(GraphError):
    """An op raised while a run was under way; the cause is chained.

    Attributes
    ----------
    node : str
        Name of the node whose op failed (for backward: the forward node).
    op : str
        Name of the op.
    inputs : tuple of str
        Dtype and shape of each input, as ``"float32[3, 4]"``.
    device : str
        Where it ran.
    line : str
        The user's line that built the node, as ``"file.py:12 in main"``.
    phase : str
        ``"forward"`` or ``"backward"``.
    iteration : tuple of int
        For a node in the body of loops: the iteration of each, from 0, the outermost first.
    """

    reference = "AG105"

    def __init__(
        self, message: str, *, node: str = "", op: str = "", inputs: tuple[str, ...] = (),
        device: str = "cpu", line: str = "", phase: str = "forward",
        iteration: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.node, self.op, self.inputs, self.device = node, op, inputs, device
        self.line, self.phase, self.iteration = line, phase, iteration


class DeadlockError(GraphError):
    """No task can run, and outputs are missing; the text says which task waits for what."""

    reference = "AG106"


class MachineClosedError(GraphError):
    """The machine was closed before the run ended, or before it was started."""

    reference = "AG107"


class MemoryLimitError(GraphError, MemoryError):
    """A run needs more than the machine's `max_bytes` even alone and in sequential order."""

    reference = "AG108"


class RunCancelled(GraphError):
    """Raised by ``Run.result()`` of a run that was cancelled."""

    reference = "AG109"


def near_names(wanted: object, known: Iterable[str], limit: int = 3) -> str:
    """Return ``"; did you mean 'a' or 'b'?"`` for the nearest known names, or ``""``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.errors.near_names("wieght", ["weight", "bias"])
    "; did you mean 'weight'?"
    """
    close = _nearest(wanted, tuple(known), limit) if isinstance(wanted, str) else ()
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


@lru_cache(64)  # pytest and notebooks ask a module again and again for what it does not have
def _nearest(wanted: str, known: tuple[str, ...], limit: int) -> list[str]:
    from difflib import get_close_matches  # only errors pay for it

    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in get_close_matches(wanted.lower(), by_lower, limit)]


def no_name(
    where: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> AttributeError:
    """Return the error of a module for a name that it does not have.

    Parameters
    ----------
    where : str
        The module, such as ``"ag.nn"``.
    name : str
    known : iterable of str
        The names that it has.
    elsewhere : mapping, optional
        Advice for names of other libraries.

    Examples
    --------
    >>> import actorgraph as ag
    >>> print(ag.errors.no_name("ag.nn", "Conv2D", ["Conv1d", "Conv2d"]))
    ag.nn has no 'Conv2D'; did you mean 'Conv2d' or 'Conv1d'?
    """
    advice = (elsewhere or {}).get(name)
    return AttributeError(
        f"{where} has no {name!r}{f'; {advice}' if advice else near_names(name, known)}"
    )


def printable(text: str) -> str:
    r"""Return a name or text with all characters escaped that are not printable.

    All output goes through here, so that newlines, escape sequences, bidirectional controls and
    lone surrogates in names reach no terminal or generated code.

    Examples
    --------
    >>> import actorgraph as ag
    >>> print(ag.errors.printable("red\x1b[31m and\nblue"))
    red\x1b[31m and\nblue
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def counted(count: int, noun: str) -> str:
    """Return a number and what it counts, such as ``"1 argument"`` or ``"2 branches"``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.errors.counted(1, "argument"), ag.errors.counted(2, "branch")
    ('1 argument', '2 branches')
    """
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def shown(value: object, width: int = 80) -> str:
    """Return the `repr` of any value in one line of at most `width` characters.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.errors.shown(list(range(1000)), width=20)
    '[0, 1, 2, 3, 4, 5...'
    """
    try:
        text = printable(repr(value))
    except Exception:  # noqa: BLE001 - such as an int of too many digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def text_of(error: BaseException) -> str:
    """Return ``"ValueError: the text"``, also for an error whose `str` raises.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.errors.text_of(ValueError("too large"))
    'ValueError: too large'
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error itself
        text = "(its text could not be made)"
    return f"{type(error).__name__}: {text}"
