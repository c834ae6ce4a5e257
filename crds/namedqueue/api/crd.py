"""The CustomResourceDefinitions, made from the models.

Pydantic's JSON Schema becomes the structural schema that the API server wants: references
inlined, optional fields without null, defaults as a manifest writes them, rules as CEL. Nothing is
written here that a model already says.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from namedqueue.api import GROUP, VERSION
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.redrive import QueueRedrive
from namedqueue.api.rules import Model, cel, cel_sentence

Json: TypeAlias = dict[str, Any]

_KEPT = (
    "type",
    "description",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "maxItems",
    "required",
)
_VALUE = re.compile(r" \(?\{self[.\w]*\}\)?")
_ANY_VALUE = TypeAdapter(Any)


def named_queue_crd() -> Json:
    """Return the CRD of `NamedQueue`."""
    columns = [
        _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        _column("Type", "string", ".spec.type"),
        _column("Ready-jobs", "integer", ".status.depth.ready"),
        _column("In-flight", "integer", ".status.depth.inFlight"),
        _column("Waiting", "integer", ".status.depth.waiting"),
        _column("Dead", "integer", ".status.depth.dead"),
        _column("Workers", "integer", ".status.replicas"),
        _column("Broker", "string", ".status.broker", wide=True),
        _column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        _column("Age", "date", ".metadata.creationTimestamp"),
    ]
    scale = {
        "specReplicasPath": ".spec.scaling.minReplicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _crd(NamedQueue, "namedqueues", "nq", columns, {"status": {}, "scale": scale})


def queue_redrive_crd() -> Json:
    """Return the CRD of `QueueRedrive`."""
    columns = [
        _column("Queue", "string", ".spec.queue"),
        _column("Phase", "string", ".status.phase"),
        _column("Matched", "integer", ".status.matched"),
        _column("Redriven", "integer", ".status.redriven"),
        _column("Remaining", "integer", ".status.remaining"),
        _column("Age", "date", ".metadata.creationTimestamp"),
    ]
    return _crd(QueueRedrive, "queueredrives", "nqr", columns, {"status": {}})


def _crd(
    model: type[Model], plural: str, short: str, columns: list[Json], subresources: Json
) -> Json:
    kind = model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": structural_schema(model)},
                    "subresources": subresources,
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> Json:
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if wide else {})


def structural_schema(model: type[Model]) -> Json:
    """Return the schema of a whole resource; Kubernetes itself knows its metadata."""
    schema = _object(model, at="")
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    schema["required"] = [name for name in schema["required"] if name != "metadata"]
    if not schema["required"]:
        del schema["required"]
    return schema


def _object(model: type[Model], at: str) -> Json:
    generated = model.model_json_schema(by_alias=True)
    schema: Json = {
        "type": "object",
        "description": generated["description"],
        "properties": {
            str(info.alias): _field(model, name, generated, at)
            for name, info in model.model_fields.items()
        },
        "required": generated.get("required", []),
    }
    if not schema["required"] and at:
        del schema["required"]
    rules = [_validation(rule.cel, rule.says, at) for rule in model.rules]
    rules += [_change_validation(rule.cel, rule.says, at) for rule in model.change_rules]
    return schema | ({"x-kubernetes-validations": rules} if rules else {})


def _field(model: type[Model], name: str, generated: Json, at: str) -> Json:
    info = model.model_fields[name]
    alias = str(info.alias)
    here = f"{at}.{alias}" if at else alias
    raw = _without_null(generated["properties"][alias])
    schema = _value(raw, info.annotation, here)
    if info.description:
        schema["description"] = info.description
    schema.pop("default", None)
    default = info.get_default(call_default_factory=True, validated_data={})
    if not info.is_required() and default is not None and alias != "metadata":
        schema["default"] = {} if isinstance(default, Model) else _plain(default)
    return schema


def _value(raw: Json, annotation: Any, at: str) -> Json:
    """Translate one generated schema; models inside are taken from their own class."""
    below = next(_models_in(annotation), None)
    if raw.get("type") == "array":
        items = _object(below, f"{at}[]") if below else _value(raw["items"], None, f"{at}[]")
        return {"type": "array", "items": items} | _limits(raw, at, skip=("type",))
    if below is not None:
        return _object(below, at)
    return _limits(raw, at)


def _limits(raw: Json, at: str, skip: tuple[str, ...] = ()) -> Json:
    """Keep what a structural schema knows, and put the place into every sentence."""
    kept = {key: raw[key] for key in _KEPT if key in raw and key not in skip}
    if "const" in raw:
        kept |= {"type": "string", "enum": [raw["const"]]}
    if "exclusiveMinimum" in raw:
        kept |= {"minimum": raw["exclusiveMinimum"], "exclusiveMinimum": True}
    kept |= {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
    if "x-kubernetes-validations" in kept:
        kept["x-kubernetes-validations"] = [
            {key: text.replace("{at}", at) for key, text in rule.items()}
            for rule in kept["x-kubernetes-validations"]
        ]
    return kept


def _validation(expression: str, says: str, at: str) -> Json:
    sentence = says.replace("{at}.", f"{at}." if at else "").replace("{at}", at)
    plain = _without_values(sentence)
    rule = {"rule": cel(expression), "message": plain}
    if plain != sentence:
        rule["messageExpression"] = cel_sentence(sentence)
    return rule


def _change_validation(expression: str, says: str, at: str) -> Json:
    return {"rule": cel(expression), "message": says.replace("{at}", at)}


def _without_values(sentence: str) -> str:
    """Leave out the values; the API server falls back to this when it cannot compute them."""
    return _VALUE.sub("", sentence)


def _without_null(raw: Json) -> Json:
    """Take the one real member of an optional field."""
    members = [member for member in raw.get("anyOf", []) if member != {"type": "null"}]
    return raw | members[0] if len(members) == 1 else raw


def _models_in(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)


def _plain(value: Any) -> Any:
    plain = _ANY_VALUE.dump_python(value, mode="json")
    return str(value) if isinstance(plain, Mapping) else plain
