"""`EMA`: a moving average of the weights, which often does better than the final ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from actorgraph.errors import GraphError
from actorgraph.nn import Module
from actorgraph.options import flag, real
from actorgraph.store import copies, take
from actorgraph.train.callbacks import Callback

if TYPE_CHECKING:
    from actorgraph.train.trainer import Trainer

Array = np.ndarray[Any, Any]


@final
class EMA(Callback):
    r"""Exponential moving average of the parameters, taken after each step.

    .. math:: a \leftarrow \beta a + (1 - \beta) p, \qquad a = p \text{ at first}

    Parameters
    ----------
    decay : float
        :math:`\beta`, from 0 to below 1.
    keep : bool
        Whether the model gets the averages at the end of the training.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> net, average = ag.nn.Linear(1, 1, bias=False, dtype="float64"), ag.train.EMA(0.5)
    >>> for weight in (4.0, 2.0):
    ...     net.weight.value = np.full((1, 1), weight)
    ...     average.update(net)
    >>> with average.applied(net):
    ...     print(net.weight.value)
    [[3.]]
    >>> net.weight.value
    array([[2.]])
    """

    def __init__(self, decay: float = 0.999, *, keep: bool = False) -> None:
        self.decay, self.keep = real("decay", decay, below=1.0), flag("keep", keep)
        self._averages: dict[str, Array] = {}

    def update(self, model: Module) -> None:
        """Update the averages by the weights of a model."""
        averages = {}
        for name, parameter in model.named_parameters():
            before, now = self._averages.get(name), parameter.present()
            averages[name] = (
                np.array(now) if before is None else before * self.decay + now * (1.0 - self.decay)
            )
        self._averages = averages

    @contextmanager
    def applied(self, model: Module) -> Iterator[None]:
        """Give the model the averages inside a ``with`` block, and its own weights back after."""
        own = [(parameter, np.array(parameter.present())) for parameter in model.parameters()]
        self.apply(model)
        try:
            yield
        finally:
            take(copies(own))

    def apply(self, model: Module) -> None:
        """Give the model the averages.

        Raises
        ------
        GraphError
            The averages are of other parameters; the model is unchanged.
        """
        named = dict(model.named_parameters())
        if named.keys() != self._averages.keys():
            odd = ", ".join(sorted(named.keys() ^ self._averages.keys()))
            raise GraphError(f"the averages are of other parameters; they differ in {odd}")
        take(copies([(named[name], one) for name, one in self._averages.items()]))

    def on_step(self, trainer: Trainer) -> None:
        """Update the averages after a step."""
        self.update(trainer.model)

    def on_end(self, trainer: Trainer) -> None:
        """Give the model the averages, with `keep`."""
        if self.keep and self._averages:
            self.apply(trainer.model)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return dict(self._averages)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self._averages = {name: np.array(one) for name, one in state.items()}
