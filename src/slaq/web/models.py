"""The bodies of requests: strict models, with bounds on every size and number."""

import math
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from typing_extensions import override

from slaq.jobs.option_types import NO_NUL
from slaq.jobs.options import CHANGES, LIMITS, LONGEST_TEXT, NAME, SERVICE, Option, OptionSet, ServiceOptions
from slaq.kinds.command import MOST_WORDS
from slaq.kinds.program import PROGRAM_KEYS
from slaq.service.records import Submission

#: How deep the tables of a program may be nested, and how many values they may hold.
DEEPEST, MOST_VALUES = 20, 100_000
#: Keys of a body; none has as many. Refusing each by itself would take long.
MOST_KEYS = 100

Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Word = Annotated[str, Field(max_length=LONGEST_TEXT, pattern=NO_NUL)]


def _storable(value: Any) -> Any:
    """Return a JSON value; raises ValueError if it could not be stored and sent back unchanged, or is too large."""
    left = MOST_VALUES
    line = [(value, 0)]
    while line:
        one, depth = line.pop()
        _check_value(one, depth)
        if isinstance(one, dict | list):
            left -= len(one)
            if left < 0:
                raise ValueError(f"tables hold more than {MOST_VALUES} values; put them into a file")
            line += [(inner, depth + 1) for inner in (one.values() if isinstance(one, dict) else one)]
            line += [(key, depth) for key in one] if isinstance(one, dict) else []
    return value


def _check_value(value: Any, depth: int) -> None:
    """Raise ValueError if the value, or one inside it, cannot be stored and sent back unchanged."""
    if depth > DEEPEST:
        raise ValueError(f"tables are nested more than {DEEPEST} deep; flatten them")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("a text holds NUL or half of a surrogate pair; remove it")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number does not fit into 64 bits")


Table = Annotated[dict[str, Any], Field(min_length=1, max_length=1000), AfterValidator(_storable)]


class Body(BaseModel):
    """A JSON object without unknown keys; texts are not taken for numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, given: Any) -> Any:
        """Read 3.0 as 3, because JSON does not distinguish them."""
        if not isinstance(given, dict):
            return given
        if len(given) > MOST_KEYS:
            raise ValueError(f"there are {len(given)} keys, and no request has more than {MOST_KEYS}")
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in given.items()
        }


#: One of these is given; said in JSON schema, which pydantic cannot do by itself.
_KINDS: list[Any] = [
    {"required": ["command"], "properties": {"command": {"type": "array"}}},
    {"required": ["program"], "properties": {"program": {"type": "object"}}},
    {"required": ["external"], "properties": {"external": {"const": True}}},
]


class OptionsBody(Body):
    """A JSON object with options as fields, which the definition of the options reads and describes."""

    model_config = ConfigDict(extra="allow")
    options: ClassVar[OptionSet[Any]]
    #: Whether an option that is not given has its default; else it stays as it is.
    completes: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """Have the definition check the options. Its errors pass through pydantic as they are."""
        if not isinstance(given, dict):
            return given
        own = {name: value for name, value in given.items() if name in cls.model_fields}
        rest = {name: value for name, value in given.items() if name not in own}
        return {**own, **cls.options.read(rest)}

    @classmethod
    @override
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        described = {name: _described(option) for name, option in cls.options.options.items()}
        if cls.completes:
            for name, option in cls.options.options.items():
                described[name] |= {"description": option.described, "default": option.default}
        schema["properties"] = {**schema.get("properties", {}), **described}
        schema["additionalProperties"] = False
        return schema

    def given(self) -> dict[str, Any]:
        """Return the options that are given."""
        return self.model_extra or {}


def _described(option: Option) -> dict[str, Any]:
    """Return an option as JSON schema."""
    schema = dict(option.type.schema)
    if option.default is None:
        schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    return {"title": option.name, "description": option.help, **schema}


class SubmissionBody(OptionsBody):
    """One job as its owner asks for it. Exactly one of `command`, `program` and `external` is given."""

    model_config = ConfigDict(title="Submission", json_schema_extra={"oneOf": _KINDS})
    options = SERVICE
    completes = True

    command: Annotated[list[Word], Field(min_length=1, max_length=MOST_WORDS)] | None = Field(
        None, description="The program and its arguments, as they are: no shell reads them."
    )
    program: Table | None = Field(
        None,
        description="What a `[[job]]` table of a jobs file says of an algorithm or a program: "
        f"{', '.join(PROGRAM_KEYS)}. Run by slaq in a process of its own.",
    )
    external: bool = Field(
        False, description="The job runs elsewhere: the service takes its reports and says what it may use."
    )

    def record(self) -> Submission:
        """Return the submission."""
        return Submission(
            command=None if self.command is None else tuple(self.command),
            program=self.program,
            external=self.external,
            options=cast(ServiceOptions, self.given()),
        )


class JobChange(OptionsBody):
    """What may be changed of a job; what is not given stays as it is."""

    options = CHANGES


class JobEnd(Body):
    """How an external job ended."""

    state: Literal["completed", "diverged", "failed", "cancelled"]
    reason: Annotated[str, Field(max_length=1000, pattern=NO_NUL)] = Field("", description="One sentence.")


class ClusterChange(Body):
    """What admins may change of the cluster."""

    policy: Name = Field(description="The name of the policy to decide by from now on.")


class UserChange(OptionsBody):
    """What admins may change of a user; what is not given stays as it is, and null lifts a limit."""

    options = LIMITS


class WhatIfBody(Body):
    """A simulation of the present jobs under other conditions."""

    policy: Name | None = Field(None, description="The policy to simulate; by default the present one.")
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="The number of cores to simulate; by default the present one."
    )
    horizon: Annotated[float, Field(gt=0, le=7 * 86400)] = Field(3600.0, description="Seconds to look ahead.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        None,
        description="A seed with which losses are drawn from the forecasts; null follows the mean forecast.",
    )


class PruneBody(Body):
    """Which ended jobs and old decisions to remove."""

    before: Annotated[float, Field(ge=0, le=1e11)] | None = Field(
        None, description="Jobs that ended before this moment, in Unix seconds."
    )
    keep_jobs: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(
        None, description="Keep the newest jobs, so many of them."
    )
    keep_decisions: Annotated[int, Field(ge=1, lt=2**53)] | None = Field(
        None, description="Keep the newest decisions, so many of them."
    )
    dry_run: bool = Field(False, description="Count what would be removed, and remove nothing.")
