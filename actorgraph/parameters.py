"""`Parameter` and `Buffer`, the values of graphs and modules: see `store.Held`."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from actorgraph.errors import FeedError
from actorgraph.keywords import answering
from actorgraph.options import is_masked
from actorgraph.store import Held
from actorgraph.types import dtype_of


@answering
class _Typed(Held):
    """A `Held` of a dtype that graphs support."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        if is_masked(value):
            raise FeedError(
                f"a {self.what} is no masked array, whose mask would be lost; use .filled(...)"
            )
        array = np.asarray(value)
        dtype_of(array.dtype)
        super().__init__(array)


@final
class Parameter(_Typed):
    """A trainable value, which solvers update.

    A module has it as an attribute, a graph binds it as a leaf (`Graph.bind`).  All graphs that
    bind it read the same value, and it is a key of results of their runs: ``run[parameter].grad``.

    Parameters
    ----------
    value : array_like
        It is copied; reading `value` gives the current array.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> w = ag.nn.Parameter(np.ones(2))
    >>> train, serve = ag.Graph("train"), ag.Graph("serve")
    >>> loss, y = (train.bind(w, "w") ** 2).sum(), serve.bind(w, "w") * 3
    >>> run = ag.TapeMachine(loss).run_sync(backward=True)
    >>> ag.solvers.SGD(lr=0.25).step([run[w]])
    >>> ag.TapeMachine(y).run_sync()[y].value
    array([1.5, 1.5])
    """

    __slots__ = ()
    what = "parameter"


@final
class Buffer(_Typed):
    """A value that is not trained, such as a running mean; runs may replace it at their end.

    Parameters
    ----------
    value : array_like
        It is copied.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> seen = ag.nn.Buffer(np.zeros(2, "float32"))
    >>> seen.value
    array([0., 0.], dtype=float32)
    """

    __slots__ = ()
    what = "buffer"
