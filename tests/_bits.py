"""NaNs in drawn graphs."""

from contextlib import contextmanager

import numpy as np
import pytest

from actorgraph.testing import _examples


@contextmanager
def nans():
    """Let drawn graphs compute NaNs without a warning, and have all NaNs the same bits.

    Where two NaNs meet, NumPy returns the first or the second, by the length of the call: a sum of
    two rows of 24 float32 has other NaNs than the sums of their first 16 and last 8 elements, on
    AVX-512.  So no machine promises which one comes.
    """
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(_examples, "bits", _bits)
        yield


def _bits(value):
    if value is None:
        return None
    made = np.array(value)
    if made.dtype.kind in "fc":
        for part in (made.real, made.imag) if made.dtype.kind == "c" else (made,):
            part[np.isnan(part)] = np.nan
    return value.dtype, value.shape, made.tobytes()
