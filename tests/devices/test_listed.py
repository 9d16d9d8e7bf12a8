"""Which loops of NumPy rows may call, before anything is read or proved."""

import numpy as np

from actorgraph.devices import listed
from tests._each import each

LISTED = (
    ("add", "ddd"), ("add", "lll"), ("sqrt", "ff"), ("isnan", "d?"), ("less", "ll?"),
    ("logical_and", "dd?"), ("logical_not", "??"), ("add", "LLL"), ("negative", "BB"),
    ("bitwise_and", "iii"),
)  # fmt: skip
OTHERS = {
    "no function": [("no_such_ufunc", "dd"), ("ndarray", "dd"), ("sum", "dd")],
    "of matrices": [("matmul", "ddd"), ("vecdot", "ddd")],
    "has no such loop": [("add", "dd?"), ("add", "ffd"), ("sqrt", "ll"), ("add", "dd")],
    "raises inside": [("power", "lll"), ("floor_divide", "lll"), ("remainder", "iii"),
                      ("left_shift", "lll"), ("ldexp", "dld"), ("divmod", "lll")],
    "of dtypes without rows": [("add", "DDD"), ("add", "eee"), ("add", "ggg"), ("add", "hhh"),
                               ("absolute", "Dd"), ("add", "OOO")],
}  # fmt: skip


@each("name, chars", LISTED)
def test_what_cannot_fail_but_by_flags_is_listed(name, chars):
    assert listed.may_have_loop(name, chars)
    assert listed.is_safe(name, chars)


@each("name, chars", [row for rows in OTHERS.values() for row in rows])
def test_what_may_fail_or_is_not_there_is_not_listed(name, chars):
    assert not listed.may_have_loop(name, chars)


def test_what_is_listed_raises_nothing_whatever_the_numbers_are():
    count = 0
    ufuncs = {name: one for name, one in vars(np).items() if isinstance(one, np.ufunc)}
    for name, ufunc in ufuncs.items():
        for chars in [one.replace("->", "") for one in ufunc.types]:
            if not listed.may_have_loop(name, chars):
                continue
            extremes = [
                np.array([np.iinfo(c).min, np.iinfo(c).max, 0] if c in "ilLB" else [0, 1, -1], c)
                for c in chars[: ufunc.nin]
            ]
            with np.errstate(all="ignore"):
                ufunc(*np.meshgrid(*extremes))
            count += 1
    assert count > 150


def test_a_ufunc_that_a_user_has_replaced_is_not_listed_meanwhile(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(np, "add", lambda x, y: x)
        assert not listed.may_have_loop("add", "ddd")
    assert listed.may_have_loop("add", "ddd")
