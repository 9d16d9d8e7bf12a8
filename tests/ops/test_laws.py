"""Every op of the registry obeys the laws of `actorgraph.testing`, on its own samples.

A new op is found by itself: it needs `samples`, and nothing here.  `test_drawn_laws` tries the
same laws on shapes, axes and options that hypothesis chooses.
"""

from itertools import product

import pytest

import actorgraph as ag
from actorgraph.op import REGISTRY
from actorgraph.testing import OP_LAWS, _ops, evaluate
from actorgraph.testing._cases import Case
from actorgraph.testing._laws import on
from tests._each import each
from tests._soak import SOAK

LIBRARY = [op for op in REGISTRY.values() if not op.checked]  # the others are ops of tests

BY_DESIGN = {
    # The derivatives of ctc_loss end at the second.
    "second_order_agrees_with_differences_of_the_gradient": ("ctc_pull", "ctc_curvature"),
    # Complex vectors are defined up to phases: see test_decompositions_singular.py.
    "rules_hold_for_complex_numbers_where_the_type_admits_them": (
        "eigh", "svd", "complement", "turn_free",
    ),
    # Of x against x these make a tie or a step, where differences say nothing.
    "one_node_may_be_every_argument": (
        "maximum", "minimum", "clip", "mod", "fmod", "floor_divide",
    ),
}  # fmt: skip
"""Laws that do not hold of these ops."""


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
def test_every_op_obeys_the_laws_of_ops(op, monkeypatch):
    for law in OP_LAWS:
        if op.name not in BY_DESIGN.get(law.__name__, ()):
            with on(f"law {law.__name__}"):
                if law is of_machines and not SOAK:
                    machines_take_turns(op, monkeypatch)
                else:
                    law(op)


of_machines = next(law for law in OP_LAWS if law.__name__.startswith("every_machine"))


def machines_take_turns(op, monkeypatch):
    """Check the law of machines with one on each sample, and with two where there is one sample."""
    machines, first = [*_ops._MACHINES.items()], LIBRARY.index(op)
    for number, sample in enumerate(op.samples):
        one = (2 * number + number // 2 + first) % 4  # of two, one has memory and one has actors
        step = 4 if len(op.samples) > 1 else 2
        monkeypatch.setattr(_ops, "_MACHINES", dict((machines * 2)[one : one + 4 : step]))
        with on(f"{op.name!r} on its sample {number}, {sample}"):
            of_machines.__wrapped__(op, sample)


def test_what_does_not_hold_by_design_is_named_right():
    assert BY_DESIGN.keys() <= {law.__name__ for law in OP_LAWS}
    assert {name for names in BY_DESIGN.values() for name in names} <= set(REGISTRY)


def test_every_op_says_what_it_is_where_no_function_does():
    assert [op for op in LIBRARY if op.name not in ag.ops.__all__ and op.doc[-1:] != "."] == []


@each("op", LIBRARY)
def test_floats_are_as_long_as_those_of_the_arguments(op):
    for sample, dtype in product(op.samples, ("float64", "float32")):
        case = Case(op, sample, dtype)
        (value,) = evaluate([case.y], case.feeds)
        if value.dtype.kind == "f" and "dtype" not in sample.attrs:
            assert value.dtype == dtype


def test_float_results_of_floats_have_both_rules():
    def is_differentiable(op):
        case = Case(op, op.samples[0])
        return case.y.dtype.kind == "f" and any(x.dtype.kind == "f" for x in case.xs)

    assert [
        op for op in LIBRARY if is_differentiable(op) and (op.vjp is None or op.jvp is None)
    ] == []
