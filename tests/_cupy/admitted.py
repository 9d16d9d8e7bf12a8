"""What CuPy admits of a call, by the committed snapshot: names, parameters, dtypes of ufuncs.

`snapshot.json` is written by `snapshot.py`, from an installed wheel.
"""

import inspect
import json
from functools import cache
from pathlib import Path

import numpy as np

SNAPSHOT = json.loads(Path(__file__).with_name("snapshot.json").read_text(encoding="utf-8"))
OTHERS = frozenset(SNAPSHOT["others"].split())
REDUCING = frozenset(("add", "multiply"))
used = set()
"""Names that were called in this process."""


@cache
def signature(listing):
    return inspect.signature(eval(f"lambda {listing}: None"))


def check_call(kind, name, args, options):
    """Raise where a function or method of CuPy does not take these arguments."""
    listing = SNAPSHOT[kind].get(name)
    used.add((kind, name))
    if listing is not None:
        try:
            signature(listing).bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"cupy {kind} {name}({listing}): {error}") from None


def check_ufunc(name, args, options):
    """Raise where a ufunc of CuPy has no loop for these operands, or not these keywords."""
    used.add(("ufuncs", name))
    extra = set(options) - {"out", "dtype", "casting"}
    loops = SNAPSHOT["ufuncs"][name].split()
    inputs = len(loops[0].split("->")[0])
    if extra:
        raise TypeError(f"cupy.{name}: wrong arguments {sorted(extra)}")
    dtypes = [getattr(one, "dtype", None) for one in args[:inputs]]
    known = [one for one in dtypes if one is not None]
    if any(one.kind == "V" for one in known) or not known:
        return
    if not any(fits(loop, dtypes) for loop in loops):
        raise TypeError(f"cupy.{name} has no loop for {[str(one) for one in known]}: {loops}")


def fits(loop, dtypes):
    codes = loop.split("->")[0]
    return all(
        one is None or (code != "E" and np.can_cast(one, np.dtype(code)))
        for code, one in zip(codes, dtypes, strict=False)
    )
