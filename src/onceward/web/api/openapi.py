"""The description of the API by OpenAPI 3.1, made of the table of calls and the structs themselves."""

from __future__ import annotations

import functools
from typing import Any, get_args

import msgspec

from onceward.console.port import PAGE_MAX
from onceward.core.access_errors import Forbidden, Unauthorized
from onceward.core.errors import StoreUnavailable
from onceward.core.states import RunState
from onceward.version import __version__
from onceward.web.api.calls import ENDPOINTS, Endpoint
from onceward.web.api.reading import INT_MAX

_STATUSES = {
    400: "What was asked cannot be read, or can never work.",
    401: Unauthorized.title,
    403: Forbidden.title,
    404: "There is no such thing.",
    409: "As things stand it does not go; nothing was changed.",
    413: "The body, or a value in it, is too large.",
    415: "The body is no JSON.",
    421: "The request came under a host that is not one of the server's.",
    422: "A value cannot be stored.",
    429: "Too much of it is under way.",
    503: StoreUnavailable.title,
}
_ALWAYS = (400, 401, 421, 503)
_OF_BODIES = (413, 415, 422)

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "What went wrong (RFC 9457). Programs compare `code`; texts may change.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "what": {"type": "string", "description": "what happened, with the values"},
        "means": {"type": "string", "description": "what that means"},
        "todo": {"type": "string", "description": "what to do about it"},
    },
    "required": ["type", "title", "status", "detail", "code"],
}


@functools.lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """Give the description."""
    types = [one.gives for one in ENDPOINTS if one.gives is not None]
    types += [one.body for one in ENDPOINTS if one.body is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Onceward",
            "version": __version__,
            "description": "Times are Unix milliseconds; `since` and `until` go by when an event was accepted. "
            "Lists come in pages, newest first: pass the `next` of one as `after` of the next. Who asks "
            "shows a token, `Authorization: Bearer owt_…`.",
        },
        # Relative to this document, so that it is right behind any prefix.
        "servers": [{"url": "."}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**{name: _plain(found) for name, found in components.items()}, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    names = endpoint.names
    found: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.does,
        "tags": [endpoint.tag],
        "x-role": endpoint.role.value,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _PART} for name in names),
            *_parameters(endpoint.query),
            *([_KEY] if endpoint.body is not None and "request_id" in _fields(endpoint.body) else []),
        ],
        "responses": {"200": _given(endpoint, schema_of)},
    }
    statuses = {*_ALWAYS, *endpoint.errors, *(() if endpoint.role == "viewer" else (403,))}
    if endpoint.body is not None:
        statuses |= set(_OF_BODIES)
        is_needed = any(field.required for field in msgspec.structs.fields(endpoint.body))
        content = {"application/json": {"schema": schema_of[str(endpoint.body)]}}
        found["requestBody"] = {"required": is_needed, "content": content}
    if endpoint.method == "GET" and endpoint.gives is not None:
        found["responses"]["304"] = {"description": "The reply is that of the `ETag` in `If-None-Match`."}
    for status in sorted(statuses):
        found["responses"][str(status)] = {
            "description": _STATUSES[status],
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return found


def _given(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    if endpoint.gives is None:
        return {"description": "Events until the stream ends; ask again then.", "content": stream}
    content = {"application/json": {"schema": schema_of[str(endpoint.gives)]}}
    is_bulk = "bulk" in endpoint.path
    return {"description": "Done.", "content": {**content, **(stream if is_bulk else {})}}


_PART = {"type": "string", "minLength": 1}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "As `request_id`: the same one does it once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


def _parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    found = []
    for field in msgspec.structs.fields(query):
        schema = _schema_of_parameter(field.name, field.type)
        if field.default is not msgspec.NODEFAULT and field.default is not None:
            schema["default"] = field.default
        found.append({"name": field.name, "in": "query", "required": field.required, "schema": schema})
    return found


def _schema_of_parameter(name: str, kind: Any) -> dict[str, Any]:
    kinds = (kind, *get_args(kind))
    if list[str] in kinds:
        return {"type": "array", "items": {"type": "string"}}
    if bool in kinds:
        return {"type": "boolean"}
    if int in kinds:
        low, high = (1, PAGE_MAX) if name == "limit" else (0, INT_MAX)
        return {"type": "integer", "minimum": low, "maximum": high}
    if name == "state":
        return {"type": "string", "enum": [state.value for state in RunState]}
    return {"type": "string"}


def _operation_id(endpoint: Endpoint) -> str:
    words = [part.strip("{}") for part in endpoint.path.split("/")[1:]]
    return "_".join([endpoint.method.lower(), *words])


def _fields(body: type[msgspec.Struct]) -> tuple[str, ...]:
    return body.__struct_fields__


def _plain(schema: Any) -> Any:
    """Give a schema whose descriptions are one paragraph."""
    if isinstance(schema, dict):
        found = {name: _plain(value) for name, value in schema.items()}
        if isinstance(found.get("description"), str):
            found["description"] = " ".join(found["description"].split("\n\n")[0].split())
        return found
    return [_plain(one) for one in schema] if isinstance(schema, list) else schema
