"""Families that are imported when one of their functions is asked for."""

from importlib import import_module

import actorgraph as ag
from tests._child import printed_by

PROGRAM = """
import sys
import actorgraph as ag
late = {f"actorgraph.ops.{name}" for name in ag.ops.LATE}
assert not late & set(sys.modules), "one is imported with the package"
known = set(dir(ag.ops))
assert known >= {name for names in ag.ops.LATE.values() for name in names.split()}
assert ag.ops.max_pool1d.__name__ == "max_pool1d"
assert late & set(sys.modules) == {"actorgraph.ops.pooling"}
try:
    ag.ops.define("standardize", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x)
except ag.GraphTypeError as error:
    print(error)
assert late <= set(sys.modules)
assert "ctc_loss" in set(ag.op.REGISTRY)
assert set(dir(ag.ops)) == known
"""


def test_late_families_wait_until_a_function_is_asked_for_and_users_know_their_ops():
    assert "an op named 'standardize' is declared already" in " ".join(printed_by(PROGRAM))


def test_the_names_of_late_families_are_those_that_they_export():
    exported = {name: import_module(f"actorgraph.ops.{name}").__all__ for name in ag.ops.LATE}
    assert {name: names.split() for name, names in ag.ops.LATE.items()} == exported
    assert not set(ag.ops.LATE) & set(ag.ops.__all__)


def test_functions_of_late_families_explain_errors_and_call_others_unwrapped():
    for family, names in ag.ops.LATE.items():
        module = import_module(f"actorgraph.ops.{family}")
        for name in names.split():
            assert hasattr(getattr(ag.ops, name), "__wrapped__"), name
        imported = [one for name, one in vars(module).items() if name not in module.__all__]
        public = [getattr(ag.ops, name) for name in ag.ops.__all__]
        assert [one for one in imported if one in public and not isinstance(one, type)] == []
