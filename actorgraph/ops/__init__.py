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
from actorgraph.ops.broadcasting import *
from actorgraph.ops.comparison import *
from actorgraph.ops.convolution import *
from actorgraph.ops.counting import *
from actorgraph.ops.creation import *
from actorgraph.ops.criteria import *
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
from actorgraph.ops.placement import *
from actorgraph.ops.random import *
from actorgraph.ops.rearranging import *
from actorgraph.ops.recurrent import *
from actorgraph.ops.reductions import *
from actorgraph.ops.reshaping import *
from actorgraph.ops.sampled import *
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
LATE = {
    "attention": "multi_head_attention scaled_dot_product_attention",
    "clipping": "clip_by_global_norm clip_by_norm",
    "ctc": "ctc_loss",
    "normalisation":
        "batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm "
        "running_batch_norm",
    "pooling":
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d "
        "fractional_max_pool2d fractional_max_pool3d global_avg_pool global_max_pool lp_pool1d "
        "lp_pool2d lp_pool3d max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d "
        "max_unpool3d",
    "resampling":
        "affine_grid channel_shuffle grid_sample interpolate pixel_shuffle pixel_unshuffle "
        "upsample yolo_decode",
    "scatter_reductions":
        "aminmax block_diag bucketize cartesian_prod dist histc index_copy index_fill "
        "index_reduce index_select kthvalue lerp masked_fill masked_select narrow renorm "
        "scatter_reduce segment_reduce select_scatter slice_scatter",
}  # fmt: skip
"""What families export that no other module needs: they are imported when a name is asked for.

None is called like one of its functions, which the import of a module would replace.
"""
ABOVE: dict[str, Callable[[], Any] | None] = dict.fromkeys(
    ["gru", "lstm", "rnn", *" ".join(LATE.values()).split()]
)
"""Functions of these, and those built of loops: the root tells what imports their module."""

__all__ = ["Sample", "Together", *sorted([*_FUNCTIONS, *ABOVE])]  # noqa: PLE0604 - the families' names
__dir__ = __all__.copy

_operators.attach(_FUNCTIONS)
_numpy.attach({
    name: function for name, function in _FUNCTIONS.items() if name not in ("define", "opaque")
})  # fmt: skip


def __getattr__(name: str) -> Any:
    if (module := ABOVE.get(name)) is not None:
        found = globals()[name] = getattr(module(), name)
        return found
    ours = {"cat": "concatenate", "mul": "multiply", "sub": "subtract", "div": "divide"}
    said = {other: f"it is ag.ops.{one}" for other, one in ours.items()}
    raise no_name("ag.ops", name, __all__, said)
