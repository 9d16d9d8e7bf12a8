"""`Laws`, a list of laws, and the functions by which they raise.

Laws raise `AssertionError` by functions of this file and of `numpy.testing`, never by ``assert``:
test runners do not explain those of a library, and ``python -O`` removes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from actorgraph.errors import shown, text_of

Law = Callable[..., None]


@final
class Laws(list[Law]):
    """The laws of ops, of solvers, of machines or of devices.

    A list of functions of the thing under test, whose names state the laws.  Each raises if it is
    broken, so pytest runs each as a test by
    ``@pytest.mark.parametrize("law", ag.testing.SOLVER_LAWS)``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> laws = ag.testing.Laws()
    >>> @laws.law
    ... def numbers_are_positive(number):
    ...     claim(number > 0, f"got {number}")
    >>> laws.check(1)
    >>> laws.check(-1)
    Traceback (most recent call last):
    AssertionError: broken law: numbers are positive: got -1
    """

    def law(self, law: Law) -> Law:
        """Add a law, as a decorator."""
        self.append(law)
        return law

    def check(self, tried: Any, without: Iterable[str] = ()) -> None:
        """Raise for the first law that `tried` breaks; those in `without` are not tried.

        Raises
        ------
        AssertionError
            The text says which law, where, what was got and what was expected.
        ValueError
            There is no law of a name in `without`.
        """
        passed = set(without)
        unknown = passed - {law.__name__ for law in self}
        if unknown:
            known = ", ".join(law.__name__ for law in self)
            raise ValueError(f"there is no law {min(unknown)!r}; the laws are {known}")
        for law in self:
            if law.__name__ not in passed:
                with on(f"broken law: {law.__name__.replace('_', ' ')}"):
                    law(tried)


def check_made(laws: Laws, make: Any, what: str) -> None:
    """Check laws for the results of `make`; raise if it is no function."""
    if not callable(make):
        raise TypeError(f"got {shown(make)}, expected a function that makes {what}: lambda: ...")
    laws.check(make)


@contextmanager
def on(what: str) -> Iterator[None]:
    """Prefix the text of an error that is raised inside."""
    try:
        yield
    except Exception as error:
        told = str(error).lstrip() if isinstance(error, AssertionError) else ""
        text = told or text_of(error)
        raise AssertionError(f"{what}: {text}") from error


def claim(holds: object, text: str) -> None:
    """Raise with the text if a law does not hold."""
    if not holds:
        raise AssertionError(text)


def same_bits(got: Any, wanted: Any, what: str) -> None:
    """Raise if two arrays differ in dtype, shape or any bit."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    kinds = [f"{one.dtype} of shape {one.shape}" for one in (got, wanted)]
    claim(kinds[0] == kinds[1], f"{what}: got {kinds[0]}, expected {kinds[1]}")
    if got.tobytes() != wanted.tobytes():
        raise AssertionError(f"{what}: got {got}, expected to the bit {wanted}")


@contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[list[Any]]:
    """Raise unless the body raises that error, with a text that matches the pattern.

    It yields a list, to which the error is appended.
    """
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        claim(re.search(text, str(error)), f"got the error {error}, expected /{text}/ in its text")
        caught.append(error)
    else:
        raise AssertionError(f"nothing was raised, expected {kind.__name__} with /{text}/")
