"""Many small cases as one test, where to run a test each would cost more than what it checks."""

import inspect
from functools import wraps

import pytest


def each(names, cases):
    """Call a test for each of these cases, as `pytest.mark.parametrize` does, but as one test.

    What a case raises says in a note which case it was.  Where some are skipped, the others run.
    """
    names = names.split(", ") if isinstance(names, str) else names
    rows = [tuple(case) if len(names) > 1 else (case,) for case in cases]
    assert rows

    def decorator(test):
        @wraps(test)
        def of_each(**others):
            skipped = []
            for number, row in enumerate(rows):
                case = dict(zip(names, row, strict=True))
                try:
                    test(**others, **case)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as error:  # pytest's "did not raise" is no Exception
                    error.add_note(f"case {number} of {len(rows)}: {case!r:.1000}")
                    raise
            if len(skipped) == len(rows):
                raise skipped[0]

        found = inspect.signature(test)
        left = [one for name, one in found.parameters.items() if name not in names]
        of_each.__signature__ = found.replace(parameters=left)
        return of_each

    return decorator
