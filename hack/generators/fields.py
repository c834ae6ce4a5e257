"""The field reference in `docs/reference/`, read off the CRDs' schemas."""

from collections.abc import Iterator
from typing import Any

from namedqueue.api import API_VERSION
from namedqueue.api.crd import NO_FRACTION, Json, named_queue_crd, queue_redrive_crd

_HEADER = "<!-- Made by `make generate` from crds/namedqueue/api. Do not edit. -->\n\n"


def files() -> dict[str, str]:
    """Return one page for both kinds."""
    pages = "\n".join(_page(crd) for crd in (named_queue_crd(), queue_redrive_crd()))
    title = f"# Fields of `{API_VERSION}`\n\n"
    intro = (
        "Durations are one whole number and one of `ms`, `s`, `m`, `h`, `d`. "
        "Sizes are Kubernetes quantities.\n\n"
    )
    return {"docs/reference/fields.md": _HEADER + title + intro + pages}


def _page(crd: Json) -> str:
    kind = crd["spec"]["names"]["kind"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    parts = [f"## {kind}\n", f"{schema['description']}\n"]
    for part in ("spec", "status"):
        rows = list(_rows(schema["properties"][part], part))
        parts += [
            f"### {kind} {part}\n",
            "| field | type | default | meaning |",
            "|---|---|---|---|",
        ]
        parts += [f"| {' | '.join(row)} |" for row in rows]
        rules = list(_rules(schema["properties"][part]))
        if rules:
            parts += ["", "Rules:\n", *(f"- {rule}" for rule in rules)]
        parts.append("")
    return "\n".join(parts)


def _rows(schema: Json, at: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        path = f"{at}.{name}"
        default = "required" if name in required else _default(field)
        yield f"`{path}`", _type(field), default, field.get("description", "").replace("|", "\\|")
        yield from _rows(field, path)
        yield from _rows(field.get("items", {}), f"{path}[]")


def _default(field: Json) -> str:
    default = field.get("default")
    return "" if default in (None, {}, []) else f"`{default}`"


def _type(field: Json) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or text"
    if field.get("pattern", "").endswith("(ms|s|m|h|d)$"):
        return "duration"
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    kind = "text" if field["type"] == "string" else field["type"]
    return f"{kind}{_range(field)}"


def _range(field: Json) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is None or most is None:
        return ""
    above = " above" if field.get("exclusiveMinimum") else ""
    return f",{above} {least:g} to {most:g}" if most < 10**6 else f",{above} from {least:g}"


def _rules(schema: Any) -> Iterator[str]:
    """Collect the sentences of every rule, the ranges of single fields included."""
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations", []):
            if rule["rule"] != NO_FRACTION:  # the column of types says so
                yield rule["message"]
        for value in schema.values():
            yield from _rules(value)
