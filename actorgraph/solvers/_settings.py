"""Settings of solvers: how they are checked and documented, and `solver`, which declares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from inspect import cleandoc, signature
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from actorgraph.errors import shown
from actorgraph.options import flag, positive, real

Rate = float | Callable[[int], float]
"""A learning rate: a number, or a function of the number of steps before."""

_Class = TypeVar("_Class", bound=type)


def _rate(what: str, lr: Any) -> Rate:
    return lr if callable(lr) else real(what, lr)


def _betas(what: str, betas: Any) -> tuple[float, float]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"{what} are {shown(betas)}, expected two numbers from 0 to below 1")
    one, two = [real(f"{what}[{i}]", beta, below=1.0) for i, beta in enumerate(betas)]
    return one, two


def _optional(what: str, value: Any) -> float | None:
    return None if value is None else real(what, value)


def _divisor(what: str, value: Any) -> float | None:
    number = _optional(what, value)
    if number == 0:
        raise ValueError(f"{what} divides gradients, so it is not 0")
    return number


_share = partial(real, below=1.0)


class SolverSetting(NamedTuple):
    """How a setting is checked and documented."""

    check: Callable[[str, Any], Any]
    kind: str = ""
    meaning: str = ""


SETTINGS = {
    "lr": SolverSetting(
        _rate, "float or callable",
        r"Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.",
    ),
    "betas": SolverSetting(
        _betas, "tuple of two floats", "Decay of the two moments, each from 0 to below 1."
    ),
    "eps": SolverSetting(
        real, "float",
        r":math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.",
    ),
    "weight_decay": SolverSetting(real, "float", r":math:`\lambda \ge 0`, an L2 penalty."),
    "amsgrad": SolverSetting(
        flag, "bool",
        "Take the largest :math:`v` so far: S. Reddi, S. Kale, S. Kumar, \"On the Convergence of "
        "Adam\n    and Beyond\", ICLR 2018.",
    ),
    "momentum": SolverSetting(_share, "float", r":math:`\mu`, from 0 to below 1."),
    "nesterov": SolverSetting(flag, "bool", "Look ahead along the velocity; needs a momentum."),
    "l1": SolverSetting(
        real, "float",
        r":math:`\lambda_1 \ge 0`, a penalty of :math:`\lambda_1 |p|`, whose gradient at 0 is 0; a"
        "\n    complex sign is :math:`p / |p|`.",
    ),
    "lr_decay": SolverSetting(real, "float", r":math:`\eta_d \ge 0`."),
    "initial_accumulator_value": SolverSetting(real, "float", "What :math:`s` starts with."),
    "alpha": SolverSetting(_share, "float", "Decay of the means, from 0 to below 1."),
    "rho": SolverSetting(_share, "float", "Decay of the means, from 0 to below 1."),
    "centered": SolverSetting(flag, "bool", "Divide by the root of the variance."),
    "momentum_decay": SolverSetting(real, "float", r":math:`\psi \ge 0`."),
    "clip_norm": SolverSetting(_optional),
    "clip_value": SolverSetting(_optional),
    "skip_nonfinite": SolverSetting(flag),
    "accumulate": SolverSetting(positive),
    "batch_size": SolverSetting(_divisor),
    "loss_scale": SolverSetting(_divisor),
    "growth_interval": SolverSetting(positive),
}  # fmt: skip
"""Settings by name; those that all solvers share are documented where they are declared."""

DIRECT_DECAY = r":math:`\lambda \ge 0`, of the parameter itself."
"""The meaning of `weight_decay` where it is no L2 penalty."""

_EXAMPLE = """
>>> import types
>>> import numpy as np
>>> import actorgraph as ag
>>> weight = types.SimpleNamespace(value=np.array({value}), grad=np.array({grad}))
>>> ag.solvers.{call}.step([weight])
>>> weight.value.round(6)
array({stepped})
"""


def check_settings(solver: Any) -> None:
    """Check all settings that are not the defaults, and convert them.

    Fields that are no `SETTINGS` are those of a user's own solver.
    """
    for field in fields(solver):
        setting = SETTINGS.get(field.name) if field.init else None
        if setting is not None and (value := getattr(solver, field.name)) is not field.default:
            setattr(solver, field.name, setting.check(field.name, value))


@dataclass_transform()
def solver(
    call: str, stepped: str, value: str = "[1.0]", grad: str = "[3.0]", **meanings: str
) -> Callable[[_Class], _Class]:
    """Declare a solver: fields are settings, of which ``__init__`` and documentation are made.

    Parameters
    ----------
    call, stepped, value, grad : str
        Of the example: how it is made, and the parameter after a step from a value by a gradient.
    **meanings
        What settings mean here, where `SETTINGS` says something else.
    """

    def declare(cls: _Class) -> _Class:
        declared: Any = dataclass(eq=False, repr=False)(cls)
        listed = signature(declared.__init__)
        names = [name for name in listed.parameters if name != "self"]
        if unknown := [name for name in names if name not in SETTINGS]:
            raise TypeError(
                f"{cls.__name__} has the new settings {', '.join(unknown)}: add to SETTINGS of "
                f"{__name__} how each is checked and documented"
            )
        own = [name for name in names if SETTINGS[name].meaning]
        shared = [name for name in names if name not in own]
        order = [listed.parameters[name] for name in ("self", *own, *shared)]
        declared.__init__.__signature__ = listed.replace(parameters=order)
        declared.__init_subclass__()  # which changes `__init__`, that is there only now
        lines = [
            f"{name} : {SETTINGS[name].kind}\n    {meanings.get(name, SETTINGS[name].meaning)}"
            for name in own
        ]
        lines.append(f"{', '.join(shared)}\n    Settings of all solvers, see `AbstractSolver`.")
        example = _EXAMPLE.format(call=call, stepped=stepped, value=value, grad=grad)
        declared.__doc__ = "\n".join([
            cleandoc(cls.__doc__ or ""), "", "Parameters", "----------", *lines, "", "Examples",
            f"--------{example}",
        ])  # fmt: skip
        return declared  # type: ignore[no-any-return]

    return declare
