"""The description of the API as a page: no script, nothing from elsewhere, every text escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any


def docs_page(document: dict[str, Any]) -> str:
    """Give the page for an OpenAPI document of ours."""
    return "".join(_page(document))


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>REST API · Onceward</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="./docs.css"></head><body><main>'
    )
    yield f"<h1>REST API</h1><p>Version {escape(info['version'])}. {escape(info['description'])} "
    yield 'The same for programs: <a href="./openapi.json">openapi.json</a>.</p>'
    calls = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in calls):
        yield f"<h2>{escape(tag.capitalize())}</h2>"
        for method, path, operation in calls:
            if operation["tags"][0] == tag:
                yield from _call(method, path, operation)
    yield "<h2>What is sent and given</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _schema(name, schema)
    yield "</main></body></html>"


def _call(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f'<section id="{escape(operation["operationId"])}"><h3><code>{method.upper()} .{escape(path)}</code></h3>'
    yield f"<p>{escape(operation['summary'])} Takes the role {escape(operation['x-role'])}.</p>"
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}</td><td>{_kind(one['schema'])}</td>"
        f"<td>{'needed' if one['required'] else ''}</td></tr>"
        for one in operation["parameters"]
    ]
    if rows:
        yield f"<table><tbody>{''.join(rows)}</tbody></table>"
    if "requestBody" in operation:
        yield f"<p>Body: {_kind(operation['requestBody']['content']['application/json']['schema'])}</p>"
    yield "<ul>"
    for status, response in operation["responses"].items():
        kinds = [_kind(content["schema"]) for content in response.get("content", {}).values()][:1]
        yield f"<li><code>{status}</code> {escape(response['description'])} {' '.join(kinds)}</li>"
    yield "</ul></section>"


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>'
    yield f"<p>{escape(schema.get('description', ''))}</p><table><tbody>"
    needed = schema.get("required", ())
    for field, kind in schema.get("properties", {}).items():
        said = "always" if field in needed else ""
        yield f"<tr><td><code>{escape(field)}</code></td><td>{_kind(kind)}</td><td>{said}</td></tr>"
    yield "</tbody></table></section>"


def _kind(schema: dict[str, Any]) -> str:
    """Give a schema in a few words, with links to those that have names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return escape(", ".join(map(str, schema["enum"])))
    kind = escape(str(schema.get("type", "any JSON")))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "default" in schema:
        kind += f", default {escape(json.dumps(schema['default']))}"
    return kind


STYLE = b"""
:root { color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; }
body { margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
section { border-top: 1px solid #8884; padding: .25rem 0 .75rem; }
h3 { margin: .75rem 0 .25rem; font-size: 1rem; }
code { font: .875em ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td { padding: .125rem 1rem .125rem 0; vertical-align: top; }
ul { margin: .25rem 0; padding-left: 1.25rem; }
"""
