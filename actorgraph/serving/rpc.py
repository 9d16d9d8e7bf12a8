"""`grpc`: a server's models over gRPC, beside or instead of HTTP.

The services are those of the Open Inference Protocol and of the health checking protocol.  A call
that is cancelled or late ends its request in any state, as an HTTP client that disconnects does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import anyio
import numpy as np

from actorgraph.errors import GraphError, NodeError
from actorgraph.serving import about, protocol
from actorgraph.serving.access import logged
from actorgraph.serving.errors import (
    InvalidInput,
    ModelNotFound,
    ServingError,
    Unsupported,
    check_token,
    code_of,
)
from actorgraph.serving.messages import message, methods
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server
from actorgraph.serving.signature import Array
from actorgraph.serving.spans import parent_of

Context: TypeAlias = Any
"""The `grpc.aio.ServicerContext` of a call."""

_INFERENCE, _HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"
_EXHAUSTED = ("PAYLOAD_TOO_LARGE", "RATE_LIMITED", "OVERLOADED")
"""Codes of errors that gRPC all calls RESOURCE_EXHAUSTED."""

_CONTENTS = {
    "BOOL": "bool_contents", "INT64": "int64_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
}  # fmt: skip
"""The field of a datatype's values where they are not raw."""

_ENVELOPE = 1 << 16  # bytes of a message besides its tensors
_PENDING = 1 << 20  # calls that the event loop has not taken yet
_WATCH_S = 0.5


def grpc(
    server: Server, *, admit: Callable[[Context], object] | None = None,
    repository_token: str | None = None, options: Iterable[tuple[str, Any]] = (),
) -> Any:  # fmt: skip
    """Return a `grpc.aio.Server` with the models of `server`, for the running asyncio loop.

    The caller runs it: ``add_insecure_port`` or ``add_secure_port``, ``await start()``, and at the
    end ``await server.drain()``, then ``await stop(1.0)``.  Models are warmed up by
    ``await server.start()``.

    Parameters
    ----------
    server : Server
    admit : callable, optional
        Called with the context of each inference request.  An error that it raises is the answer,
        such as ``RateLimited("100 a minute")``.
    repository_token : str, optional
        Switches on the calls that load and unload models, for clients whose metadata have
        ``authorization: Bearer TOKEN``.
    options : list of tuple, optional
        Channel arguments of gRPC, as pairs of name and value.  By default a port is for one process
        (``grpc.so_reuseport``), and messages may be as large as models accept.

    Raises
    ------
    GraphError
        grpcio is not installed, or no loop of asyncio runs.

    Examples
    --------
    >>> import actorgraph as ag
    >>> async def main(server):
    ...     rpc = ag.serving.grpc(server)
    ...     rpc.add_insecure_port("127.0.0.1:8001")
    ...     async with server:
    ...         await rpc.start()
    ...         await rpc.wait_for_termination()
    """
    try:
        from grpc import aio
    except ImportError:
        raise GraphError(
            'gRPC needs grpcio; install it with: pip install "actorgraph[grpc]"'
        ) from None
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise GraphError("gRPC needs asyncio; call this inside a running asyncio loop") from None
    most = max((model.config.max_request_bytes for model in server.models), default=64 << 20)
    limits = {
        "grpc.so_reuseport": 0,
        "grpc.max_receive_message_length": min(most + _ENVELOPE, (1 << 31) - 1),
        "grpc.max_send_message_length": -1,
        # With its default of some thousand, gRPC reports further calls as cancelled by the client.
        "grpc.server.max_pending_requests": _PENDING,
        "grpc.server.max_pending_requests_hard_limit": _PENDING,
    }
    rpc_server = aio.server(options=list((limits | dict(options)).items()))
    rpc_server.add_generic_rpc_handlers(_Servicer(server, admit, repository_token).handlers())
    return rpc_server


@dataclass(frozen=True, slots=True)
class _Servicer:
    """The calls of both services."""

    server: Server
    admit: Callable[[Context], object] | None
    token: str | None

    def handlers(self) -> list[Any]:
        """Return the handlers of gRPC."""
        import grpc

        return [
            grpc.method_handlers_generic_handler(
                service, {method.name: self._handler(method) for method in methods(service)}
            )
            for service in (_INFERENCE, _HEALTH)
        ]

    def _handler(self, method: Any) -> Any:
        import grpc

        parsed = message(method.input_type.full_name)
        answered = message(method.output_type.full_name)
        codec = {
            "request_deserializer": partial(_read_message, parsed),
            "response_serializer": answered.SerializeToString,
        }
        if method.name == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, answered), **codec)
        if method.name == "Watch":
            return grpc.unary_stream_rpc_method_handler(partial(self._watch, answered), **codec)
        call = self._infer if method.name == "ModelInfer" else self._unary(method.name, answered)
        return grpc.unary_unary_rpc_method_handler(partial(_reply_or_abort, call), **codec)

    # -- calls with one answer ------------------------------------------------------------------

    def _unary(self, name: str, answer: Any) -> Callable[[Any, Context], Awaitable[Any]]:
        """Return a call whose answer is the message for an object of `_UNARY_CALLS`."""
        from google.protobuf.json_format import ParseDict

        async def call(request: Any, context: Context) -> Any:
            if name.startswith("Repository"):
                self._check_token(context)
            content = _UNARY_CALLS[name](self, request)
            if not isinstance(content, Mapping):  # a model is loaded or unloaded
                await content
                content = {}
            return ParseDict(content, answer())

        return call

    def _metadata(self, request: Any) -> Mapping[str, Any]:
        model = self.model(request)
        versions = [request.version] if request.version else self.server.versions(request.name)
        return protocol.metadata(model, versions)

    def _statistics(self, request: Any) -> Mapping[str, Any]:
        return about.statistics([self.model(request)] if request.name else self.server.models)

    def model(self, request: Any) -> ServedModel:
        """Return the model that a request names."""
        return self.server.model(request.name, request.version or None)

    # -- loading and unloading ------------------------------------------------------------------

    def _index(self, request: Any) -> Mapping[str, Any]:
        return {"models": self.server.index(ready=request.ready)}

    def _change(self, call: Callable[[str], Awaitable[Any]], request: Any) -> Awaitable[Any]:
        return protocol.change_repository(request.model_name, call, _parameters(request.parameters))

    def _check_token(self, context: Context) -> None:
        if self.token is None:
            raise Unsupported("loading and unloading models needs a server with repository_token=")
        header = dict(context.invocation_metadata() or ()).get("authorization")
        check_token(header.encode() if isinstance(header, str) else header, self.token)

    # -- health ---------------------------------------------------------------------------------

    def _check(self, request: Any) -> Mapping[str, Any]:
        status = self._health(request.service)
        if status == "SERVICE_UNKNOWN":
            raise ModelNotFound(f"there is no service or model {request.service!r}")
        return {"status": status}

    async def _watch(self, answer: Any, request: Any, context: Context) -> AsyncIterator[Any]:
        last = None
        while not isinstance(request, InvalidInput):
            status = self._health(request.service)
            if status != last:
                yield answer(status=status)
            last = status
            if self.server.draining:  # was just sent; an open call would delay the server's end
                return
            await anyio.sleep(_WATCH_S)

    def _health(self, service: str) -> str:
        serves = self.server.ready
        if service not in ("", _INFERENCE):
            if not any(model.name == service for model in self.server.models):
                return "SERVICE_UNKNOWN"
            serves = self.server.is_ready(self.server.model(service))
        return "SERVING" if serves else "NOT_SERVING"

    # -- inference ------------------------------------------------------------------------------

    async def _infer(self, request: Any, context: Context) -> Any:
        from asyncio import shield

        with self._logged(request) as log_fields:
            model, parsed, options = self._parse(request, context, log_fields)
            call = model.infer(parsed.inputs, **options)
            stays = model.config.on_disconnect == "ignore"
            with parent_of(model.config.tracing, context.invocation_metadata() or ()):
                results = await (shield(call) if stays else call)
        return _response(model, parsed, results, raw=bool(request.raw_input_contents))

    async def _stream(
        self, answer: Any, requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Any]:
        """Answer requests one after another; an error is an answer, and ends only its request."""
        async for request in requests:
            if isinstance(request, InvalidInput):
                yield answer(error_message=str(request))
                continue
            try:
                with self._logged(request) as log_fields:
                    async with aclosing(self._steps(request, context, log_fields)) as steps:
                        async for part in steps:
                            yield answer(infer_response=part)
            except GraphError as error:
                yield answer(error_message=str(error), infer_response={"id": request.id})

    async def _steps(
        self, request: Any, context: Context, log_fields: dict[str, Any]
    ) -> AsyncGenerator[Any]:
        model, parsed, options = self._parse(request, context, log_fields)
        options["max_steps"] = parsed.parameters.get("max_steps")
        raw = bool(request.raw_input_contents)
        async with aclosing(model.stream(parsed.inputs, **options)) as parts:
            while True:
                with parent_of(model.config.tracing, context.invocation_metadata() or ()):
                    part = await anext(parts, None)
                if part is None:
                    break
                yield _response(model, parsed, part, raw=raw)
        if parsed.parameters.get("triton_enable_empty_final_response"):
            final = _response(model, parsed, {})
            final.parameters["triton_final_response"].bool_param = True
            yield final

    def _logged(self, request: Any) -> AbstractContextManager[dict[str, Any]]:
        return logged("grpc", self.server, request.model_name, request.model_version or None)

    def _parse(
        self, request: Any, context: Context, log_fields: dict[str, Any]
    ) -> tuple[ServedModel, protocol.ParsedRequest, dict[str, Any]]:
        """Return the model, the parsed request, and the keywords of `ServedModel.infer`."""
        if self.admit is not None:
            self.admit(context)
        model = self.server.taking(request.model_name, request.model_version or None)
        with model.reading():
            parsed = _read(model, request)
            options = parsed.keywords(context.time_remaining(), request_id=None)
        log_fields |= {"version": model.version, "request_id": options["request_id"]}
        return model, parsed, options


_UNARY_CALLS: dict[str, Callable[[_Servicer, Any], Mapping[str, Any] | Awaitable[Any]]] = {
    "ServerLive": lambda rpc, request: {"live": True},
    "ServerReady": lambda rpc, request: {"ready": rpc.server.ready},
    "ModelReady": lambda rpc, request: {"ready": rpc.server.is_ready(rpc.model(request))},
    "ServerMetadata": lambda rpc, request: about.extensions(rpc.token is not None),
    "ModelMetadata": _Servicer._metadata,
    "ModelConfig": lambda rpc, request: {"config": about.configuration(rpc.model(request))},
    "ModelStatistics": _Servicer._statistics,
    "Check": _Servicer._check,
    "RepositoryIndex": _Servicer._index,
    "RepositoryModelLoad": lambda rpc, request: rpc._change(rpc.server.load, request),
    "RepositoryModelUnload": lambda rpc, request: rpc._change(rpc.server.unload, request),
}
"""Calls whose answer is an object, by name."""


async def _reply_or_abort(
    call: Callable[[Any, Context], Awaitable[Any]], request: Any, context: Context
) -> Any:
    """Return the answer of a call, or abort it with the status of the error it raised."""
    import grpc

    try:
        if isinstance(request, InvalidInput):
            raise request
        return await call(request, context)
    except GraphError as error:
        code = code_of(error)
        more: list[tuple[str, str | bytes]] = [("actorgraph-code", code)]
        if isinstance(error, ServingError) and error.retry_after_s is not None:
            more.append(("grpc-retry-pushback-ms", str(error.retry_after_s * 1000)))
        elif isinstance(error, NodeError):
            more.append(("actorgraph-node-bin", error.node.encode()))
        status = "RESOURCE_EXHAUSTED" if code in _EXHAUSTED else code
        status_code = getattr(grpc.StatusCode, status, grpc.StatusCode.INTERNAL)
        await context.abort(status_code, str(error), tuple(more))
    except Exception:
        logging.getLogger("actorgraph").exception("a request could not be answered")
        await context.abort(grpc.StatusCode.INTERNAL, "internal error")


def _read_message(kind: Any, body: bytes) -> Any:
    """Return the message, or an error as a value: gRPC logs at length what is raised here."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(body)
    except DecodeError as error:
        return InvalidInput(f"the message cannot be read: {error}")


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a map of `InferParameter`."""
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in given.items()}
    return {name: getattr(given[name], kind) for name, kind in kinds.items() if kind is not None}


def _read(model: ServedModel, request: Any) -> protocol.ParsedRequest:
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise InvalidInput(
            f"raw_input_contents have to be for all inputs or for none, got {len(raw)} of them and "
            f"{len(request.inputs)} inputs"
        )
    given = {
        "id": request.id or None,
        "parameters": _parameters(request.parameters),
        "inputs": [
            {
                "name": one.name, "datatype": one.datatype, "shape": list(one.shape),
                "data": raw[index] if raw else one.contents,
            }
            for index, one in enumerate(request.inputs)
        ],
        "outputs": [
            {"name": one.name, "parameters": _parameters(one.parameters)}
            for one in request.outputs
        ],
    }  # fmt: skip
    return protocol.parse_request(model, given, _array)


def _array(name: str, tensor: Mapping[str, Any], dtype: protocol.Dtype, shape: list[int]) -> Array:
    data, datatype = tensor["data"], tensor["datatype"]
    if isinstance(data, bytes):
        return protocol.from_bytes(name, data, dtype, shape)
    field = _CONTENTS.get(datatype)
    if field is None:
        raise InvalidInput(f"input {name!r} is {datatype}, which comes in raw_input_contents only")
    return protocol.cast(name, np.array(getattr(data, field)), dtype, shape)


def _response(
    model: ServedModel, parsed: protocol.ParsedRequest, results: Mapping[str, Array], *,
    raw: bool = False,
) -> Any:  # fmt: skip
    """Return the results as a message: raw if the inputs were, or if a datatype needs it."""
    response = message("inference.ModelInferResponse")(
        model_name=model.name, model_version=model.version, id=parsed.identity or ""
    )
    arrays = {name: results[name] for name in parsed.outputs if results}
    types = [protocol.datatype_of(name, array.dtype) for name, array in arrays.items()]
    raw = raw or any(datatype not in _CONTENTS for datatype in types)
    for (name, array), datatype in zip(arrays.items(), types, strict=True):
        output = response.outputs.add(name=name, datatype=datatype, shape=array.shape)
        if raw:
            response.raw_output_contents.append(protocol.little(array).tobytes())
        else:
            getattr(output.contents, _CONTENTS[datatype]).extend(array.ravel().tolist())
    return response
