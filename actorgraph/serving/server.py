"""`Server`: models by name and version, which start and end together."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Any, Self, final

from actorgraph.errors import GraphError, near_names, shown
from actorgraph.machines import ActorMachine, Machine
from actorgraph.options import seconds
from actorgraph.serving.config import Config
from actorgraph.serving.errors import ModelNotFound
from actorgraph.serving.model import ServedModel

__all__ = ["Server"]


@final
class Server:
    """Models that answer requests, within bounds.

    Examples
    --------
    >>> import anyio
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("rows", 2), "float64")
    >>> async def main():
    ...     async with ag.serving.Server() as server:
    ...         model = server.add("sums", {"sum": x.sum(axis=1)}, max_batch_size=8)
    ...         return await model.infer({"x": np.ones((3, 2))}, deadline_s=5.0)
    >>> anyio.run(main)
    {'sum': array([2., 2., 2.])}
    """

    def __init__(self) -> None:
        self._models: dict[str, dict[str, ServedModel]] = {}
        self._owned: list[Machine] = []
        self._draining = False

    def add(
        self, name: str, outputs: Any, *, inputs: Any = None, version: str = "1", **config: Any
    ) -> ServedModel:
        """Serve a model and return it.

        Parameters
        ----------
        name : str
        outputs : dict of nodes, node, list of nodes, or Machine
            What it answers.  A machine stays its owner's to close.
        inputs : dict of name to node, or list of nodes, optional
            Public names of its inputs; default those of the nodes.
        version : str
            A request that names none gets the version that was added last.
        **config
            Fields of `Config`.

        Raises
        ------
        GraphError, ShapeError, TypeError, ValueError
            The name is taken, or outputs, inputs or config do not fit.
        """
        for what, text in (("name", name), ("version", version)):
            if not isinstance(text, str) or not text or "/" in text or not text.isprintable():
                raise GraphError(f"the {what} of a model is a word without '/', got {shown(text)}")
        if version in self._models.get(name, ()):
            raise GraphError(f"version {version!r} of model {name!r} is served already")
        settings = Config.of(config)
        if isinstance(outputs, Machine):
            machine = outputs
        else:
            machine = ActorMachine(outputs, wrt=[])
            self._owned.append(machine)
        model = ServedModel(name, version, machine, inputs, settings)
        self._models.setdefault(name, {})[version] = model
        return model

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self._draining

    @property
    def models(self) -> list[ServedModel]:
        """All models, in the order in which they were added."""
        return [model for versions in self._models.values() for model in versions.values()]

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model."""
        return list(self._models.get(name, ()))

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model.

        Raises
        ------
        ModelNotFound
            There is none of that name or version.
        """
        versions = self._models.get(name)
        if versions is None:
            raise ModelNotFound(f"there is no model {name!r}{near_names(name, self._models)}")
        if version is None:
            return versions[next(reversed(versions))]
        if version not in versions:
            known = ", ".join(map(repr, versions))
            raise ModelNotFound(f"model {name!r} has no version {version!r}; it has {known}")
        return versions[version]

    # -- the end --------------------------------------------------------------------------------

    async def drain(self, grace_s: float | None = None) -> None:
        """Take no more requests, and wait until those that were taken have ended.

        Models end in reverse order, since a later one may ask an earlier one.

        Parameters
        ----------
        grace_s : float, optional
            Seconds after which the rest gets `NotReady`; default each model's `shutdown_grace_s`.
        """
        until = None if grace_s is None else monotonic() + seconds("grace_s", grace_s)
        self._draining = True
        for model in reversed(self.models):
            await model.drain(None if until is None else max(0.0, until - monotonic()))

    async def aclose(self) -> None:
        """Refuse what has not ended, and close the machines that the server has made."""
        self._stop()
        for machine in self._owned:
            await machine.aclose()

    def close(self) -> None:
        """End as `aclose` does, from a plain thread."""
        self._stop()
        for machine in self._owned:
            machine.close()

    def _stop(self) -> None:
        self._draining = True
        for model in self.models:
            model.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.drain()
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        return f"<Server of {', '.join(self._models) or 'nothing'}>"
