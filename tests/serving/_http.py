"""A client of ASGI: scope, receive and send alone."""

import json

import anyio
import pytest

from tests.serving._models import rows


class Client:
    """One request, and what came back."""

    def __init__(self, method, path, body=b"", headers=(), **scope):
        named = [
            (name.lower().encode(), str(value).encode()) for name, value in dict(headers).items()
        ]
        self.scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path,
            "headers": named, **scope,
        }  # fmt: skip
        middle = len(body) // 2
        self._chunks = [body[:middle], body[middle:]]
        self._gone = anyio.Event()
        self.sent = []

    async def receive(self):
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    def leave(self):
        self._gone.set()

    async def asked(self, app):
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self):
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """What came as server-sent events: kind, and data."""
        found = []
        for event in self.body.decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in event.splitlines())
            found.append((fields.get("event"), json.loads(fields["data"])))
        return found


def tensor(*values, **more):
    data = rows(*values)["x"]
    return {
        "name": "x", "shape": list(data.shape), "datatype": "FP64", "data": data.ravel().tolist(),
        **more,
    }  # fmt: skip


def post(content, path="/v2/models/double/infer", **options):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Client("POST", path, body, **options)


def check(document, path, method, status, content):
    """Raise unless the document of OpenAPI has an answer like this one."""
    jsonschema = pytest.importorskip("jsonschema")
    responses = document["paths"][path][method]["responses"]
    told = responses.get(str(status), responses["default"])
    schema = told["content"]["application/json"]["schema"]
    jsonschema.validate(content, {**schema, "components": document["components"]})
