"""How a model states a rule once and has it kept twice: here and in the API server.

A rule is a CEL expression beside a Python predicate, with one sentence for both. The CRD carries
the expression, so `kubectl apply` refuses what `nq validate` refuses, in the same words. A test
against a real API server proves that the two agree.

In expressions `ms(self.delay)` stands for the milliseconds of a duration. In sentences `{at}` is
where the model sits (`spec.retry`) and `{self.delay}` is the value that was written.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from namedqueue.api.durations import Duration

VALIDATIONS = "x-kubernetes-validations"

_MILLISECONDS = re.compile(r"ms\(([\w.]+)\)")
_PLACEHOLDER = re.compile(r"\{self((?:\.\w+)*)\}")
_VALUE = re.compile(r" \(?\{self[.\w]*\}\)?")


@dataclass(frozen=True)
class Rule:
    """Something that must hold between the fields of one model."""

    cel: str
    holds: Callable[[Any], bool]
    says: str

    def sentence(self, model: "Model") -> str:
        """Fill in the values; `{at}` stays, for the reader of the error knows the place."""
        return _PLACEHOLDER.sub(lambda found: str(_lookup(model, found[1])), self.says)


@dataclass(frozen=True)
class ChangeRule:
    """Something that must hold between a model and what it was before an update."""

    cel: str
    holds: Callable[[Any, Any], bool]
    says: str


class Model(BaseModel):
    """A part of a manifest: frozen, in camelCase, and nothing in it goes unnoticed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    change_rules: ClassVar[tuple[ChangeRule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _as_the_api_server_reads_it(cls, value: Any) -> Any:
        """Take a null in a known field for an absent one, and 5.0 for 5."""
        if not isinstance(value, Mapping):
            return value
        known = {info.alias for info in cls.model_fields.values()}
        return {
            key: _plain(item) for key, item in value.items() if item is not None or key not in known
        }

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = tuple(rule.sentence(self) for rule in self.rules if not rule.holds(self))
        if broken:
            raise PydanticCustomError("rules", "{sentences}", {"sentences": broken})
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        generated = handler.resolve_ref_schema(handler(schema))
        rules = [_validation(rule.cel, rule.says) for rule in cls.rules]
        rules += [_validation(rule.cel, rule.says) for rule in cls.change_rules]
        return generated | ({VALIDATIONS: rules} if rules else {})

    def forbidden_changes(self, before: Self, at: str = "spec") -> tuple[str, ...]:
        """Say what an update from `before` to this would change that can never change."""
        broken = (rule.says for rule in self.change_rules if not rule.holds(self, before))
        return tuple(says.replace("{at}", at) for says in broken)


class Check:
    """A limit on a field, put beside its type: what Python checks, and what the CRD says of it."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | self._limits()

    def _check(self, value: Any) -> Any:
        return value

    def _limits(self) -> JsonSchemaValue:
        return {}


@dataclass(frozen=True)
class Between(Check):
    """Bounds of a duration, both allowed."""

    least: str
    most: str

    def _limits(self) -> JsonSchemaValue:
        least, most = (Duration.parse(text).milliseconds for text in (self.least, self.most))
        rule = _validation(
            f"[ms(self)].all(span, span >= {least} && span <= {most})",
            f"{{at}} ({{self}}) {self._says}",
        )
        return {VALIDATIONS: [rule]}

    def _check(self, value: Duration) -> Duration:
        if not Duration.parse(self.least) <= value <= Duration.parse(self.most):
            raise PydanticCustomError("between", "{says}", {"says": self._says})
        return value

    @property
    def _says(self) -> str:
        return f"is out of range; write a duration from {self.least} to {self.most}"


@dataclass(frozen=True)
class Text(Check):
    """The shape of a string, with the words that help a person who got it wrong.

    The pattern is anchored and means the same to Python and to the API server's RE2.
    """

    pattern: str
    max_length: int
    hint: str

    def _limits(self) -> JsonSchemaValue:
        return {"pattern": self.pattern, "maxLength": self.max_length}

    def _check(self, value: Any) -> Any:
        text = str(value)
        if len(text) > self.max_length or not re.fullmatch(self.pattern[1:-1], text):
            raise PydanticCustomError("text", "{hint}", {"hint": self.hint})
        return value


@dataclass(frozen=True)
class Unique(Check):
    """No two entries of a list are the same, or have the same value in the field `key`."""

    key: str | None = None

    def _limits(self) -> JsonSchemaValue:
        if self.key is None:
            return {"x-kubernetes-list-type": "set"}
        return {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [self.key],
        }

    def _check(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        values = [entry if self.key is None else getattr(entry, self.key) for entry in entries]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise PydanticCustomError(
                "unique", "names {twice} twice; once is enough", {"twice": twice}
            )
        return entries


def cel(expression: str) -> str:
    """Expand `ms(x)` to plain CEL, which knows no days."""
    return _MILLISECONDS.sub(lambda found: _milliseconds_in_cel(found[1]), expression)


def cel_sentence(template: str) -> str:
    """Turn a sentence with `{self.field}` placeholders into a CEL string expression.

    By `format`, for the API server knows what that costs; a sum of strings it takes for endless.
    """
    literal = template.replace("\\", "\\\\").replace("'", "\\'").replace("%", "%%")
    values = ", ".join(f"self{path}" for path in _PLACEHOLDER.findall(template))
    return f"'{_PLACEHOLDER.sub('%s', literal)}'.format([{values}])"


def _validation(expression: str, says: str) -> dict[str, str]:
    """Make the CRD's form of a rule, `{at}` still open.

    `message` is the sentence without values: the API server's fallback when it cannot compute it.
    """
    plain = _VALUE.sub("", says)
    rule = {"rule": cel(expression), "message": plain}
    return rule if plain == says else rule | {"messageExpression": cel_sentence(says)}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return tuple(value) if isinstance(value, list) else value


def _milliseconds_in_cel(value: str) -> str:
    number = f"int({value}.substring(0, size({value}) - 1))"
    return (
        f"({value}.endsWith('ms') ? int({value}.substring(0, size({value}) - 2)) : {number} * "
        f"({value}.endsWith('s') ? 1000 : {value}.endsWith('m') ? 60000 : "
        f"{value}.endsWith('h') ? 3600000 : 86400000))"
    )


def _lookup(model: Model, path: str) -> Any:
    """Follow a path of camelCase names, as the manifest writes them."""
    value: Any = model
    for name in path.split(".")[1:]:
        fields = type(value).model_fields
        value = getattr(value, next(key for key, info in fields.items() if info.alias == name))
    return value
