"""Values that are written as text in a manifest and remember how."""

from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema


class Written:
    """A value that a model reads from text and writes back as it came."""

    text: str
    hint: ClassVar[str]
    json_schema: ClassVar[JsonSchemaValue]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text; what cannot be read is a ValueError."""
        raise ValueError(text)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(cls.json_schema)

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        numbers_pass = "x-kubernetes-int-or-string" in cls.json_schema
        try:
            return cls.parse(str(value) if numbers_pass and type(value) is int else value)
        except (TypeError, ValueError):
            raise PydanticCustomError("written", "{hint}", {"hint": cls.hint}) from None
