"""What every section of a config has in common, and keys that take one of some words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

__all__ = ["OneOf", "Section"]


class Section(BaseModel):
    """Keys with defaults. Unknown keys, impossible values, and true or false for a number are not.

    A key's validator says what is expected: `raise ValueError("'euclidean' where ...")`.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """Python takes True for 1; as the word that it is, a number refuses it by its key."""
        if not isinstance(given, Mapping):
            return given
        wrong = {k for k, v in given.items() if isinstance(v, bool) and cls._is_number(k)}
        return {k: str(v).lower() if k in wrong else v for k, v in given.items()}

    @classmethod
    def _is_number(cls, key: str) -> bool:
        kind = cls.model_fields[key].annotation if key in cls.model_fields else None
        return bool({int, float} & {kind, *get_args(kind)})


@dataclass(frozen=True)
class OneOf:
    """For `Annotated[str, OneOf(words)]`: a `Literal` whose words another module owns."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Nothing but the words."""
        return core_schema.literal_schema(list(self.words))
