"""`Server`: models by name and version, which start and stop together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any, Self, TypeAlias, final

import anyio
import anyio.to_thread

from actorgraph.errors import GraphError, near_names, shown, text_of
from actorgraph.keywords import answering
from actorgraph.machines import ActorMachine, Machine
from actorgraph.options import seconds
from actorgraph.serving.building import built
from actorgraph.serving.config import Config, ConfigFile, ConfigLayers
from actorgraph.serving.errors import ModelNotFound, NotReady, Unsupported
from actorgraph.serving.model import ServedModel
from actorgraph.serving.signature import Signature
from actorgraph.serving.statistics import Histogram

Find: TypeAlias = Callable[[str, "str | None"], "tuple[str | None, Any]"]
"""Returns the version of a model to load and its outputs, None if unknown."""

_UNLOADED = "unloaded"
"""The reason why an unloaded model is not available."""

_LOGGER = logging.getLogger("actorgraph")
_LOGGER.addHandler(logging.NullHandler())


@dataclass(eq=False, slots=True)
class _Entry:
    """A name and version, with the model that serves it, if one does."""

    make: Callable[[Any], ServedModel]
    outputs: Any  # as given to `Server.add`
    model: ServedModel | None = None
    reason: str = "not loaded yet"
    changes: int = 0  # the number of loads and unloads so far
    current_change: int = 0  # the one that `model` comes from
    loads: Histogram = field(default_factory=Histogram)  # seconds to make a model

    def built(self, outputs: Any) -> ServedModel:
        """Return a new model, and record how long it took."""
        began = monotonic()
        model = self.make(outputs)
        self.loads.observe(monotonic() - began)
        return model

    @property
    def is_ready(self) -> bool:
        """Whether its model takes requests, or was unloaded on purpose."""
        return self.reason == _UNLOADED if self.model is None else self.model.ready

    def state(self) -> dict[str, str]:
        """Return its state for the extension `model_repository`."""
        if self.model is not None:
            return {"state": "READY", "reason": ""}
        return {"state": "UNAVAILABLE", "reason": self.reason}

    async def made(self, outputs: Any) -> ServedModel:
        """Return a new model, warmed up, without blocking the event loop."""
        model = await anyio.to_thread.run_sync(self.built, outputs)
        try:
            await model.warm_up()
        except BaseException:
            await model.aclose()
            raise
        return model


@answering
@final
class Server:
    """Models that answer requests, within bounds.

    Parameters
    ----------
    config : path of a TOML file, or dict, optional
        Defaults of keywords: fields of `ServerConfig`, fields of `Config` for all models, and
        tables ``[models.NAME]`` for one.  Then come the environment, such as
        ``ACTORGRAPH_MAX_QUEUED=50``, and `configured`.
    **settings
        Fields of `ServerConfig`.

    Attributes
    ----------
    config : ServerConfig
    draining : bool
        Whether the server has stopped taking requests, for good.

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

    def __init__(self, config: ConfigFile | None = None, **settings: Any) -> None:
        self._layers = ConfigLayers(config)
        self.config = self._layers.server(settings)
        self._find: Find | None = None
        self._entries: dict[str, dict[str, _Entry]] = {}
        self._starting = self._leaving = self.draining = self._closed = False

    def add(
        self, name: str, outputs: Any, *, inputs: Any = None,
        example: Mapping[str, Any] | None = None, version: str = "1",
        feedback: Mapping[str, str] | None = None, until: str | None = None,
        mask: str | None = None, **config: Any,
    ) -> ServedModel:  # fmt: skip
        """Serve a model and return it.

        Parameters
        ----------
        name : str
        outputs : dict of nodes, node, list of nodes, Machine, Module, callable, or path
            What to serve.  A machine is not closed by the server.  A module is served in evaluation
            mode, and needs an example.  A callable returns one of the others, or it and an example;
            it is called here, and again when the model is reloaded.  A path is a folder with a
            file ``model.py``, whose function ``model`` is called likewise.
        inputs : dict of name to node, or list of nodes, optional
            Public names of the inputs; default the names of their nodes.
        example : dict of name to array, optional
            Inputs with which the model is warmed up when the server starts.
        version : str
            A request without a version gets the one added last.
        feedback : dict of output to input, optional
            Outputs of a step of `ServedModel.stream` that become inputs of the next.
        until : str, optional
            The output that ends a stream when all of it is true.
        mask : str, optional
            The input, of the batch dim and another, that is 1 where a request has data.  Requests
            of several lengths are padded with zeros along the other dim to be batched; the server
            fills the mask in, and cuts results to the request's length.
        **config
            Fields of `Config`.

        Raises
        ------
        GraphError, ShapeError, TypeError, ValueError
            The version exists already, or outputs, inputs, example or config do not fit.
        """
        if version in self._entries.get(name, ()):
            raise GraphError(f"version {version!r} of model {name!r} is already served")
        entry = self._new_entry(
            name, version, outputs, example, config,
            inputs=inputs, feedback=feedback, until=until, mask=mask,
        )  # fmt: skip
        model = entry.model = entry.built(outputs)
        self._keep(name, version, entry)
        return model

    def _keep(self, name: str, version: str, entry: _Entry) -> None:
        # Replaced, not changed: other threads, such as that of a metrics port, iterate over it.
        self._entries = {**self._entries, name: {**self._entries.get(name, {}), version: entry}}

    def _new_entry(
        self, name: str, version: str, outputs: Any, example: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] = MappingProxyType({}), **shaped: Any,
    ) -> _Entry:  # fmt: skip
        for what, text in (("name", name), ("version", version)):
            if not isinstance(text, str) or not text or "/" in text or not text.isprintable():
                raise GraphError(f"the {what} of a model is a word without '/', got {shown(text)}")
        configure = self._layers.of_model(name, config)
        return _Entry(partial(_made, name, version, example, shaped, configure), outputs)

    @property
    def ready(self) -> bool:
        """Whether a balancer should send requests here.

        The server takes them and, unless ``readiness="lenient"``, all models are ready.
        """
        lenient = self.config.readiness == "lenient"
        all_ready = all(entry.is_ready for _, _, entry in self._all_entries())
        return self._stays and (lenient or all_ready)

    def is_ready(self, model: ServedModel) -> bool:
        """Return whether a balancer should send a model's requests here."""
        return self._stays and model.ready

    @property
    def _stays(self) -> bool:
        """Whether requests are taken and the server is not about to drain."""
        return self.accepting and not self._leaving

    @property
    def accepting(self) -> bool:
        """Whether requests are taken: the server is neither warming models up nor draining."""
        return not (self._starting or self.draining)

    def _all_entries(self) -> Iterator[tuple[str, str, _Entry]]:
        for name, versions in self._entries.items():
            for version, entry in versions.items():
                yield name, version, entry

    @property
    def models(self) -> list[ServedModel]:
        """All models, in the order in which they were added."""
        entries = self._all_entries()
        return [entry.model for _, _, entry in entries if entry.model is not None]

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model."""
        versions = self._entries.get(name, {})
        return [version for version, entry in versions.items() if entry.model is not None]

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model.

        Raises
        ------
        ModelNotFound
            There is none of that name or version, or it is not loaded.
        """
        if version is None:
            for entry in reversed(self._entries.get(name, {}).values()):
                if entry.model is not None:
                    return entry.model
        entry = self._entry(name, version)
        if entry.model is None:
            raise ModelNotFound(f"model {name!r} is not loaded: {entry.reason}")
        return entry.model

    def taking(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model, or raise `NotReady` or `Overloaded` if it refuses requests now."""
        if not self.accepting:
            error = NotReady("the server takes no requests: it is starting or stopping")
            if self.draining:
                with suppress(ModelNotFound):
                    self.model(name, version).refused(error)
            raise error
        model = self.model(name, version)
        if (full := model.refusal()) is not None:
            model.refused(full)
            raise full
        return model

    def logs(self, name: str, version: str | None = None) -> bool:
        """Return whether requests for a model are logged."""
        try:
            config = self.model(name, version).config
        except ModelNotFound:
            config = self._layers.of_model(name, {})({})
        return config.access_log == "on"

    def _entry(self, name: str, version: str | None) -> _Entry:
        versions = self._entries.get(name)
        if versions is None:
            raise ModelNotFound(f"there is no model {name!r}{near_names(name, self._entries)}")
        if version is None:
            return versions[next(reversed(versions))]
        if version not in versions:
            known = ", ".join(map(repr, versions))
            raise ModelNotFound(f"model {name!r} has no version {version!r}; it has {known}")
        return versions[version]

    # -- loading and unloading --------------------------------------------------------------------

    def expect(self, models: Mapping[tuple[str, str], Any], find: Find | None) -> None:
        """Have models, by name and version, made when the server starts; `find` serves `load`."""
        self._find = find
        for (name, version), outputs in models.items():
            self._keep(name, version, self._new_entry(name, version, outputs))

    async def start(self) -> None:
        """Warm up all models that have an example; `asgi` and ``async with`` do it.

        Raises
        ------
        GraphError
            A model cannot be made, or does not run its example.
        """
        failed: list[Exception] = []
        free = anyio.CapacityLimiter(self.config.load_threads)

        async def begin(entry: _Entry) -> None:
            async with free:
                try:
                    if entry.model is None:
                        entry.model = await entry.made(entry.outputs)
                    else:
                        await entry.model.warm_up()
                except Exception as error:  # noqa: BLE001 - raised below, outside an ExceptionGroup
                    failed.append(error)
                    tasks.cancel_scope.cancel()

        self._starting = True
        try:
            async with anyio.create_task_group() as tasks:
                for _, _, entry in self._all_entries():
                    tasks.start_soon(begin, entry)
        finally:
            self._starting = False
        if failed:
            raise failed[0]

    async def load(
        self, name: str, version: str | None = None, *, outputs: Any = None
    ) -> ServedModel:
        """Reload a model and return it: warm up a new one, put it in place, drain the old one.

        On failure the old model stays.  If a later `load` of it has finished first, that one stays.

        Parameters
        ----------
        name : str
        version : str, optional
            Default the version added last.
        outputs : as of `add`, optional
            Replaces the outputs that it was added with; other settings stay.  An unknown model is
            added.

        Raises
        ------
        ModelNotFound
            No such model was added, or it was unloaded meanwhile.
        """
        self._check_reloads()
        if outputs is None and self._find is not None:
            version, outputs = self._find(name, version)
        if outputs is None:
            entry = self._entry(name, version)
            outputs = entry.outputs
        else:
            if (version or "1") not in self._entries.get(name, ()):
                self.expect({(name, version or "1"): outputs}, self._find)
            entry = self._entry(name, version or "1")
        entry.changes += 1
        change = entry.changes
        try:
            new = await entry.made(outputs)
        except Exception as error:
            if entry.model is None:
                entry.reason = text_of(error)
            raise
        if self.draining or change < entry.current_change:
            await new.aclose()
            if self.draining:
                raise NotReady("the server takes no more models: it is stopping")
            if entry.model is None:
                raise ModelNotFound(f"model {name!r} was unloaded while it was loaded")
            return entry.model
        old, entry.model, entry.outputs, entry.current_change = entry.model, new, outputs, change
        if old is not None:
            await _drain_and_close(old)
        return new

    async def unload(self, name: str, version: str | None = None) -> None:
        """Remove a model, and wait until the requests that it has admitted have ended.

        Raises
        ------
        ModelNotFound
            It is not loaded.
        """
        self._check_reloads()
        model = self.model(name, version)
        entry = self._entry(name, model.version)
        entry.changes += 1
        entry.model, entry.reason, entry.current_change = None, _UNLOADED, entry.changes
        await _drain_and_close(model)

    def _check_reloads(self) -> None:
        if self.config.reload_mode == "none":
            raise Unsupported("models of this server cannot be reloaded (reload_mode='none')")

    def loads(self) -> Iterator[tuple[str, str, Histogram]]:
        """Yield the name, the version and the load times of each model, in seconds."""
        for name, version, entry in self._all_entries():
            yield name, version, entry.loads

    def index(self, *, ready: bool = False) -> list[dict[str, str]]:
        """Return name, version, state and reason of each model, or of the ready ones alone."""
        return [
            {"name": name, "version": version, **entry.state()}
            for name, version, entry in self._all_entries()
            if entry.model is not None or not ready
        ]

    # -- shutdown -------------------------------------------------------------------------------

    async def drain(self, grace_s: float | None = None, *, delay_s: float | None = None) -> None:
        """Admit no more requests, and wait until those admitted have ended.

        Models are drained in reverse order, since a later one may call an earlier one.

        Parameters
        ----------
        grace_s : float, optional
            Seconds after which the rest gets `NotReady`; default each model's `shutdown_grace_s`.
        delay_s : float, optional
            Seconds before that in which the server is not `ready` but still takes requests, so that
            balancers send new ones elsewhere.  Default `drain_delay_s`.
        """
        given_s = self.config.drain_delay_s if delay_s is None else delay_s
        delay_s = 0.0 if given_s is None else seconds("delay_s", given_s)
        if not self._leaving:
            _LOGGER.info("not ready any more; requests are taken for %g s", delay_s)
        self._leaving = True
        if delay_s and not self.draining:  # with no delay no other task may run in between
            await anyio.sleep(delay_s)
        until = None if grace_s is None else monotonic() + seconds("grace_s", grace_s)
        first = not self.draining
        if first:
            left = sum(model.inflight + model.queued for model in self.models)
            _LOGGER.info("no request is taken any more; %d are to be answered", left)
        self.draining = True
        for model in reversed(self.models):
            await model.drain(None if until is None else max(0.0, until - monotonic()))
        if first:
            _LOGGER.info("all admitted requests are answered")

    async def aclose(self) -> None:
        """Refuse the requests that have not ended, and close the machines that the server made."""
        self.draining = True
        for model in reversed(self.models):
            await model.aclose()
            if not self._closed:
                _LOGGER.info("model %r is closed", model.name)
        self._closed = True

    def close(self) -> None:
        """Close as `aclose` does, from a plain thread."""
        self.draining = True
        for model in reversed(self.models):
            model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        try:
            if raised[0] is None:
                await self.drain()
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        return f"<Server of {', '.join(self._entries) or 'nothing'}>"


def _made(
    name: str, version: str, example: Mapping[str, Any] | None, shaped: Mapping[str, Any],
    configure: Callable[[Mapping[str, Any]], Config], outputs: Any,
) -> ServedModel:  # fmt: skip
    outputs, example, declared = built(outputs, example)
    config = configure(declared)
    owned = not isinstance(outputs, Machine)
    new_machine = partial(ActorMachine, wrt=[], capacity=config.channel_capacity)
    machine = new_machine(outputs) if owned else outputs
    try:
        signature = Signature(
            machine.outputs, batched=config.max_batch_size > 1, dim=config.batch_by,
            buckets=config.buckets, **shaped,
        )  # fmt: skip
        if config.exact_batches:
            if not owned:
                raise GraphError("exact_batches=True needs outputs of a graph, not a machine")
            machine = new_machine(signature.by_blocks())
        return ServedModel(name, version, machine, signature, config, example, owned=owned)
    except BaseException:
        if owned:
            machine.close()
        raise


async def _drain_and_close(model: ServedModel) -> None:
    try:
        await model.drain()
    finally:
        await model.aclose()
