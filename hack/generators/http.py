"""The reference of the HTTP API in `docs/reference/`, read off the OpenAPI document."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from namedqueue_sidecar.api.exchange import PROBLEM
from namedqueue_sidecar.api.openapi import document
from namedqueue_sidecar.api.routes import OBSERVATION_ROUTES, ROUTES

_INTRO = """\
<!-- Made by `make generate` from sidecar/namedqueue_sidecar/api. Do not edit. -->

# HTTP API

Beside an app, in its pod, the API is at `http://127.0.0.1:3550`; `nq run` serves the same. It
describes itself at `/openapi.json`, which this page is made from. Health, metrics and the wait for
a drain are also on the pod's address at port 3551, for the kubelet and Prometheus.

"""


def files() -> dict[str, str]:
    """Return one page for all calls and the documents that they take and give."""
    described = document(ROUTES + OBSERVATION_ROUTES)
    calls = (
        line
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        for line in _call(f"{method.upper()} {path}", operation)
    )
    documents = (
        line
        for name, schema in sorted(described["components"]["schemas"].items())
        for line in _document(name, schema)
    )
    about = textwrap.fill(described["info"]["description"], 100) + "\n"
    lines = [about, *_errors(described), "## Calls\n", *calls, "## Documents\n", *documents]
    return {"docs/reference/http.md": _INTRO + "\n".join(lines).rstrip() + "\n"}


def _call(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{title}`\n"
    yield f"{operation['summary']}\n"
    asked = [(each["in"], each) for each in operation["parameters"] if each["in"] != "path"]
    if asked:
        yield from _table("parameter", "type", "meaning")
        for place, each in asked:
            name = f"{place} `{each['name']}`"
            yield _row(name, _type(each["schema"]), each["description"])
        yield ""
    if "requestBody" in operation:
        yield f"Body: {_content(operation['requestBody']['content'])}.\n"
    answers = operation["responses"]
    told = {status: each for status, each in answers.items() if not _is_problem(each)}
    yield from _table("answer", "means", "with")
    for status, each in told.items():
        yield _row(status, each["description"], _content(each.get("content", {})))
    errors = [status for status in answers if status not in told and status.isdigit()]
    yield f"\nErrors: {', '.join(errors)}.\n" if errors else ""


def _errors(described: Mapping[str, Any]) -> Iterator[str]:
    """Say once what each status means that comes with a Problem."""
    yield "An error comes with a [Problem](#problem):\n"
    yield from _table("error", "means")
    operations = [each for methods in described["paths"].values() for each in methods.values()]
    meanings = {
        status: answer["description"]
        for operation in operations
        for status, answer in operation["responses"].items()
        if status.isdigit() and _is_problem(answer)
    }
    for status, meaning in sorted(meanings.items()):
        yield _row(status, meaning)
    yield ""


def _is_problem(answer: Mapping[str, Any]) -> bool:
    return PROBLEM in answer.get("content", {})


def _content(content: Mapping[str, Any]) -> str:
    """Say what a body may be."""
    return " or ".join(
        f"{each['schema'].get('description') or _type(each['schema']) or 'anything'} as `{media}`"
        for media, each in content.items()
    )


def _document(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if "properties" not in schema:
        yield f"{_type(schema)}\n"
        return
    required = schema.get("required", [])
    yield from _table("field", "type", "meaning")
    for field, each in schema["properties"].items():
        optional = "" if field in required else "optional"
        said = each.get("description", "")
        yield _row(f"`{field}`", _type(each), "; ".join(filter(None, (optional, said))))
    yield ""
    for example in schema.get("examples", []):
        yield f"```json\n{json.dumps(example, ensure_ascii=False)}\n```\n"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum") or [schema["const"]])
    if "oneOf" in schema:
        return " or ".join(_type(each) for each in schema["oneOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items']) or 'anything'}"
    if "properties" in schema:
        fields = schema["properties"].items()
        return f"object: {', '.join(f'`{name}` {_type(each)}' for name, each in fields)}"
    return f"{_plain(schema)}{_range(schema)}"


def _plain(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type", [])
    named = [kinds] if isinstance(kinds, str) else kinds
    text = schema.get("format", "text")
    if schema.get("pattern", "").endswith("(ms|s|m|h|d)$"):
        text = "duration"
    return " or ".join(text if kind == "string" else kind for kind in named)


def _range(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    said = "" if most is None else f", {least or 0:g} to {most:g}"
    return said + (f", `{schema['default']}` by default" if "default" in schema else "")


def _table(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield f"|{'---|' * len(titles)}"


def _row(*cells: str) -> str:
    safe = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(safe)} |"
