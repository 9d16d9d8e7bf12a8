"""The ops: functions on nodes, and the operators of `Node`.

Each family exports what its ``__all__`` lists.  Editors and type checkers read names and signatures
in ``__init__.pyi``, which ``docs/generate.py`` writes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from actorgraph.errors import no_name
from actorgraph.op import Sample, Together
from actorgraph.ops import _foreign, _numpy, _operators
from actorgraph.ops.activations import *
from actorgraph.ops.arithmetic import *
from actorgraph.ops.assignment import *
from actorgraph.ops.attention import *
from actorgraph.ops.broadcasting import *
from actorgraph.ops.clipping import *
from actorgraph.ops.comparison import *
from actorgraph.ops.convolution import *
from actorgraph.ops.counting import *
from actorgraph.ops.creation import *
from actorgraph.ops.criteria import *
from actorgraph.ops.ctc import *
from actorgraph.ops.decompositions import *
from actorgraph.ops.define import *
from actorgraph.ops.einsum import *
from actorgraph.ops.elementwise import *
from actorgraph.ops.embedding import *
from actorgraph.ops.fourier import *
from actorgraph.ops.gathering import *
from actorgraph.ops.indexing import *
from actorgraph.ops.inverses import *
from actorgraph.ops.linalg import *
from actorgraph.ops.losses import *
from actorgraph.ops.lu import *
from actorgraph.ops.matrices import *
from actorgraph.ops.matrix_norms import *
from actorgraph.ops.normalisation import *
from actorgraph.ops.placement import *
from actorgraph.ops.pooling import *
from actorgraph.ops.random import *
from actorgraph.ops.rearranging import *
from actorgraph.ops.recurrent import *
from actorgraph.ops.reductions import *
from actorgraph.ops.resampling import *
from actorgraph.ops.reshaping import *
from actorgraph.ops.sampled import *
from actorgraph.ops.scatter_reductions import *
from actorgraph.ops.shaping import *
from actorgraph.ops.sorting import *
from actorgraph.ops.special import *
from actorgraph.ops.spectral import *
from actorgraph.ops.statistics import *
from actorgraph.ops.windows import *

_FAMILIES = [
    family
    for path, family in [*sys.modules.items()]
    if path.startswith(f"{__name__}.") and not path.startswith(f"{__name__}._")
]
_foreign.install(_FAMILIES)
_FUNCTIONS = {name: getattr(family, name) for family in _FAMILIES for name in family.__all__}
globals().update(_FUNCTIONS)
ABOVE: dict[str, Callable[[], Any] | None] = dict.fromkeys(("gru", "lstm", "rnn"))
"""Functions that are built of loops, which know ops: the root tells what imports their module."""

__all__ = ["Sample", "Together", *sorted([*_FUNCTIONS, *ABOVE])]  # noqa: PLE0604 - the families' names
__dir__ = __all__.copy

_operators.attach(_FUNCTIONS)
_numpy.attach({
    name: function for name, function in _FUNCTIONS.items() if name not in ("define", "opaque")
})  # fmt: skip


def __getattr__(name: str) -> Any:
    if (module := ABOVE.get(name)) is not None:
        return getattr(module(), name)
    ours = {"cat": "concatenate", "mul": "multiply", "sub": "subtract", "div": "divide"}
    said = {other: f"it is ag.ops.{one}" for other, one in ours.items()}
    raise no_name("ag.ops", name, __all__, said)
