"""`Config` and `ServerConfig`: the settings of a served model and of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeAlias, TypeVar

from actorgraph.errors import GraphTypeError, near_names, shown, text_of
from actorgraph.keywords import answering
from actorgraph.options import choice, flag, positive, seconds, several, text, whole
from actorgraph.serving.errors import InvalidInput

_T = TypeVar("_T")

ConfigFile: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
"""The path of a TOML file, or the contents of one."""

_PREFIX = "ACTORGRAPH_"


@answering
@dataclass(frozen=True, slots=True)
class Config:
    """The keywords of `Server.add`.

    Attributes
    ----------
    max_inflight : int
        Requests in runs at once.
    max_queued : int
        Requests that wait; with 0, a request that cannot start at once is refused.
    max_queued_cost : int, optional
        The cost of all waiting requests together; a single one may wait whatever it costs.
    cost_fn : callable, optional
        Returns the cost of a request's inputs; default its rows.
    overflow : "reject", "wait" or "shed_oldest"
        What happens to a request that exceeds `max_queued`: it is refused; or it waits all the same
        (callers then have to bound the queue); or the oldest of the least urgent is refused for it.
    request_timeout_s : float
        The longest deadline of a request.
    allow_timeout_override : "lower" or "none"
        Whether a request may ask for a shorter deadline.
    drop_expired_before_run : bool
        Whether a request whose deadline passes in the queue is refused, and costs no run; otherwise
        it goes on waiting, without a deadline.
    max_batch_size : int
        Rows of a batch; 1 switches batching off.  A request of more rows runs by itself.
    batch_wait_s : float
        How long a request may wait for others to join it while a worker is free, at most half of
        the time to its deadline.
    batch_by : str, optional
        The symbolic dim of the batch; default the first dim of the inputs.
    buckets : tuple of int
        Lengths to which requests are padded if there is a mask; a longer request keeps its length.
        If empty, requests are padded to the longest of their batch.
    exact_batches : bool
        Whether an answer has the same bits whatever else is in its batch: ops whose rounding
        depends on that are applied to each request by itself.
    max_concurrent_batches : int, optional
        Runs at once; default 1 with batching, else the machine's `max_in_flight`.
    preserve_order : bool
        Whether runs go one after another, so that requests of one priority are answered in order of
        arrival.
    channel_capacity : int, optional
        Messages in a channel between two nodes; None for as many as runs in flight.  Ignored for a
        machine of your own.
    in_place_s : float
        Shorter runs are computed in the event loop's own thread, which blocks meanwhile; 0 for
        none.  Runs with user ops never are.
    priority_levels, default_priority : int
        Levels count from 1, the most urgent.
    on_disconnect : "cancel" or "ignore"
        What happens to a request whose client has left.
    shutdown_grace_s : float
        How long `drain` waits before it refuses the requests that have not ended.
    cancel_grace_s : float
        How long closing waits for running ops whose results nobody needs; after that they are left,
        and their machine is closed when they return.
    max_request_bytes : int
        Bytes of the inputs, and of an HTTP body.
    max_steps : int
        Steps of a stream; a request may ask for fewer.
    warmup : int
        Runs of the example before the first request; 0 for none.
    metrics : "off", "on" or "nodes"
        Whether Prometheus metrics cover the model, and also the times and queues of its nodes.
    tracing : "off", "on" or "nodes"
        Whether requests, their time in the queue and their batches are OpenTelemetry spans, and
        also turns of actors.  With "nodes", here or in `metrics`, no single thread computes a run.
    access_log : "off" or "on"
        Whether inference requests are logged by ``actorgraph.access``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.Config(max_batch_size=8).max_batch_size
    8
    """

    max_inflight: int = 64
    max_queued: int = 100
    max_queued_cost: int | None = None
    cost_fn: Callable[[Mapping[Any, Any]], float] | None = None
    overflow: str = "reject"
    request_timeout_s: float = 30.0
    allow_timeout_override: str = "lower"
    drop_expired_before_run: bool = True
    max_batch_size: int = 1
    batch_wait_s: float = 0.0
    batch_by: str | None = None
    buckets: tuple[int, ...] = ()
    exact_batches: bool = False
    max_concurrent_batches: int | None = None
    preserve_order: bool = False
    channel_capacity: int | None = 2
    in_place_s: float = 0.001
    priority_levels: int = 1
    default_priority: int = 1
    on_disconnect: str = "cancel"
    shutdown_grace_s: float = 30.0
    cancel_grace_s: float = 5.0
    max_request_bytes: int = 64 << 20
    max_steps: int = 1000
    warmup: int = 1
    metrics: str = "on"
    tracing: str = "off"
    access_log: str = "on"

    def __post_init__(self) -> None:
        _check(self)
        if self.cost_fn is not None and not callable(self.cost_fn):
            raise ValueError(f"cost_fn has to be a function of inputs, got {shown(self.cost_fn)}")
        buckets = several("a tuple of lengths", self.buckets)
        object.__setattr__(self, "buckets", tuple(positive("a bucket", one) for one in buckets))
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets have to increase, got {shown(self.buckets)}")
        if self.default_priority > self.priority_levels:
            raise ValueError(
                f"default_priority is {self.default_priority}, but there are only "
                f"{self.priority_levels} priority_levels"
            )
        if self.preserve_order and (self.max_concurrent_batches or 1) > 1:
            raise ValueError(
                "preserve_order=True is for one run at a time: set max_concurrent_batches=1"
            )

    # -- what a request may ask for -------------------------------------------------------------

    def limit_s(self, deadline_s: float | None) -> float:
        """Return the seconds until the deadline of a request."""
        if deadline_s is None:
            return self.request_timeout_s
        limit_s = _checked(seconds, "deadline_s", deadline_s)
        may_lower = self.allow_timeout_override == "lower"
        return min(self.request_timeout_s, limit_s) if may_lower else self.request_timeout_s

    def level(self, priority: int) -> int:
        """Return the priority level of a request."""
        level = _checked(whole, "priority", priority) or self.default_priority
        if not 1 <= level <= self.priority_levels:
            raise InvalidInput(
                f"priority is {shown(priority)}, but the model has the levels 1 to "
                f"{self.priority_levels}, and 0 for its default"
            )
        return level

    def steps(self, max_steps: int | None) -> int:
        """Return the limit of a stream's steps."""
        if max_steps is None:
            return self.max_steps
        return min(self.max_steps, _checked(positive, "max_steps", max_steps))


def _checked(check: Callable[[str, Any], _T], name: str, value: Any) -> _T:
    try:
        return check(name, value)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


@answering
@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The keywords of `Server`.

    Attributes
    ----------
    load_threads : int
        Models that are made and warmed up at once when the server starts.
    reload_mode : "none", "explicit" or "watch"
        When models are loaded and unloaded: never; by `Server.load` and `Server.unload` (over HTTP
        and gRPC for clients with the token); or also when files of a served folder change.
    reload_policy : "switch"
        The new model is made and warmed up, then replaces the old one, which finishes its requests;
        if that fails, the old one stays.
    readiness : "strict" or "lenient"
        Whether the server is ready only when all models are (but for unloaded ones), or whenever it
        takes requests.
    drain_delay_s : float, optional
        How long `Server.drain` still takes requests after the server has stopped being ready.  None
        for 0, or for 5 if ``actorgraph serve`` runs under Kubernetes, whose balancers need that.

    Examples
    --------
    >>> import actorgraph as ag
    >>> config = ag.serving.Server({"load_threads": 2}, reload_mode="none").config
    >>> config.load_threads, config.reload_mode, config.readiness
    (2, 'none', 'strict')
    """

    load_threads: int = 4
    reload_mode: str = "explicit"
    reload_policy: str = "switch"
    readiness: str = "strict"
    drain_delay_s: float | None = None

    def __post_init__(self) -> None:
        _check(self)


def _at_least(what: str, value: Any, *, least: int) -> None:
    if whole(what, value) < least:
        raise ValueError(f"{what} must be at least {least}, got {value}")


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "int": positive, "float": seconds, "bool": flag, "str": text,
    **dict.fromkeys(("max_queued", "warmup"), partial(_at_least, least=0)),
    "max_request_bytes": partial(_at_least, least=1),
    "allow_timeout_override": partial(choice, known=("lower", "none")),
    "overflow": partial(choice, known=("reject", "wait", "shed_oldest")),
    "on_disconnect": partial(choice, known=("cancel", "ignore")),
    "reload_mode": partial(choice, known=("none", "explicit", "watch")),
    "reload_policy": partial(choice, known=("switch",)),
    "readiness": partial(choice, known=("strict", "lenient")),
    "access_log": partial(choice, known=("off", "on")),
    **dict.fromkeys(("metrics", "tracing"), partial(choice, known=("off", "on", "nodes"))),
}  # fmt: skip
"""The check of a field by its name, or else by its type."""


def _check(config: Config | ServerConfig) -> None:
    for field in fields(config):
        value, kind = getattr(config, field.name), str(field.type).removesuffix(" | None")
        check = _CHECKS.get(field.name, _CHECKS.get(kind))
        if check is not None and not (value is None and kind != field.type):
            check(field.name, value)


def json_fields(config: Config | ServerConfig) -> dict[str, Any]:
    """Return the fields as values of JSON."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {name: shown(value) if callable(value) else value for name, value in values.items()}


def _kinds(config: type[Config | ServerConfig]) -> dict[str, str]:
    return {field.name: str(field.type).removesuffix(" | None") for field in fields(config)}


_OF_MODEL, _OF_SERVER = _kinds(Config), _kinds(ServerConfig)


_READ: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    "tuple[int, ...]": lambda text: tuple(map(int, text.split(","))),
    "int": int, "float": float, "str": str,
}  # fmt: skip


class ConfigLayers:
    """Where settings come from: a call, a file, the environment, a decorator; the first one wins.

    A file has fields of `ServerConfig`, fields of `Config` for all models, and tables
    ``[models.NAME]`` for one model.  An unknown field raises `TypeError`, a bad value `ValueError`.
    """

    def __init__(self, file: ConfigFile | None = None) -> None:
        self._where = "the config" if isinstance(file, Mapping) else str(file)
        given = {} if file is None else dict(file) if isinstance(file, Mapping) else _read(file)
        self._models = given.pop("models", {})
        if not isinstance(self._models, Mapping):
            raise ValueError(f"models in {self._where} has to be tables, got {shown(self._models)}")
        self._common = given
        _check_names(given, _OF_MODEL | _OF_SERVER, "setting", f" in {self._where}")
        for table in self._models.values():
            if not isinstance(table, Mapping):
                raise ValueError(f"a model in {self._where} has to be a table, got {shown(table)}")
            _check_names(table, _OF_MODEL, "setting", f" of a model in {self._where}")

    def of_model(
        self, name: str, given: Mapping[str, Any]
    ) -> Callable[[Mapping[str, Any]], Config]:
        """Return the config of a model added with these keywords, as a function.

        It takes the settings with which the model's own function was decorated.
        """
        _check_names(given, _OF_MODEL, "keyword", " of a model")

        def config(declared: Mapping[str, Any]) -> Config:
            own = self._models.get(name, {})
            return Config(**{**declared, **self._shared(_OF_MODEL), **own, **given})

        return config

    def server(self, given: Mapping[str, Any]) -> ServerConfig:
        """Return the config of a server that is made with these keywords."""
        _check_names(given, _OF_SERVER, "keyword", " of a server")
        return ServerConfig(**{**self._shared(_OF_SERVER), **given})

    def _shared(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of these fields from the environment and the file."""
        from_file = {name: value for name, value in self._common.items() if name in kinds}
        return {**_environment(kinds), **from_file}


def _check_names(given: Mapping[str, Any], known: Mapping[str, str], what: str, where: str) -> None:
    for name in given:
        if name not in known:
            near = near_names(name, known)
            raise GraphTypeError(
                f"unknown {what} {name!r}{where}{near}; known are {', '.join(known)}"
            )


def _environment(kinds: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, kind in kinds.items():
        variable = _PREFIX + name.upper()
        if (text := os.environ.get(variable)) is None:
            continue
        try:
            values[name] = _READ[kind](text)
        except (KeyError, ValueError):
            raise ValueError(f"{variable} in the environment is no {kind}: {shown(text)}") from None
    return values


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    import tomllib

    try:
        with open(file, "rb") as stream:
            return tomllib.load(stream)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read the config {os.fspath(file)!r}: {text_of(error)}") from error
