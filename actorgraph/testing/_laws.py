"""A table of laws, and how a law says that it is broken.

Laws raise `AssertionError` by functions of this file and of `numpy.testing`, never by an
``assert``: no test runner explains those of a library, and ``python -O`` leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from actorgraph.errors import text_of

__all__ = ["Laws", "claim", "raises", "same_bits"]

Law = Callable[..., None]


@final
class Laws(list[Law]):
    """What has to be true of every op, every solver or every machine.

    A list of functions of what is on trial, whose names state the laws.  Each raises where it is
    broken, so that a test of each is one line for pytest:
    ``@pytest.mark.parametrize("law", ag.testing.SOLVER_LAWS)``.

    Examples
    --------
    >>> laws = Laws()
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

    def check(self, *tried: Any) -> None:
        """Raise at the first law that what is tried breaks.

        Raises
        ------
        AssertionError
            The text says which law, where, what was got and what was expected.
        """
        for law in self:
            try:
                law(*tried)
            except Exception as error:
                text = str(error) if isinstance(error, AssertionError) else text_of(error)
                name = law.__name__.replace("_", " ")
                raise AssertionError(f"broken law: {name}: {text}") from error


def claim(holds: object, text: str) -> None:
    """Raise with the text where a law does not hold."""
    if not holds:
        raise AssertionError(text)


def same_bits(got: Any, wanted: Any, what: str) -> None:
    """Raise where two arrays differ in dtype, shape or any bit."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    kinds = [f"{one.dtype} of shape {one.shape}" for one in (got, wanted)]
    claim(kinds[0] == kinds[1], f"{what}: got {kinds[0]}, expected {kinds[1]}")
    if got.tobytes() != wanted.tobytes():
        raise AssertionError(f"{what}: got {got}, expected to the bit {wanted}")


@contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[list[Any]]:
    """Raise where the body does not raise that error, with a text that matches the pattern.

    What it gives is a list, which holds the error in the end.
    """
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        claim(re.search(text, str(error)), f"got the error {error}, expected /{text}/ in its text")
        caught.append(error)
    else:
        raise AssertionError(f"nothing was raised, expected {kind.__name__} with /{text}/")
