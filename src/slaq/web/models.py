"""What the API takes: strict models, with every size and number bounded."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from slaq.service.records import IfLost, Submission
from slaq.service.work import LONGEST_TEXT, MOST_TAGS, MOST_VARIABLES, MOST_WORDS, NAME, TAG

#: The kernel takes no longer path.
LONGEST_PATH = 4096
#: How deep the tables of a program may be nested.
DEEPEST = 20
NO_NUL = r"^[^\x00]*$"

Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
PathText = Annotated[str, Field(min_length=1, max_length=LONGEST_PATH, pattern=NO_NUL)]
Word = Annotated[str, Field(max_length=LONGEST_TEXT, pattern=NO_NUL)]
Variable = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^=\x00]+$")]
Tag = Annotated[str, Field(pattern=f"^{TAG.pattern}$")]
Tags = Annotated[list[Tag], Field(max_length=MOST_TAGS)]
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
Cores = Annotated[float, Field(gt=0, le=1e6)]
Seconds = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, lt=2**53)]


def _storable(value: Any, depth: int = 0) -> Any:
    """Return a JSON value as it is, if it can be stored and sent back as it is."""
    if depth > DEEPEST:
        raise ValueError(f"tables are nested more than {DEEPEST} deep; flatten them")
    if isinstance(value, dict):
        for key, inner in value.items():
            _storable(key, depth)
            _storable(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _storable(inner, depth + 1)
    elif isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("a text holds what no text can hold: NUL, or half of a surrogate pair")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number does not fit into 64 bits")
    return value


Table = Annotated[dict[str, Any], Field(min_length=1, max_length=1000), AfterValidator(_storable)]


class Body(BaseModel):
    """A JSON object in which nothing is guessed: no unknown keys, no texts for numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, given: Any) -> Any:
        """Take 3.0 for 3, which JSON does not tell apart."""
        if not isinstance(given, dict):
            return given
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


class SubmissionBody(Body):
    """One job as its owner asks for it. Exactly one of `command`, `program` and `external` is given."""

    model_config = ConfigDict(title="Submission", json_schema_extra={"oneOf": _KINDS})

    user: Name | None = Field(None, description="Whose job it is, where that is not you; for admins.")
    name: Name | None = Field(None, description="What to call it; a number is added where the name is taken.")
    command: Annotated[list[Word], Field(min_length=1, max_length=MOST_WORDS)] | None = Field(
        None, description="The program and its arguments, as they are: no shell reads them."
    )
    program: Table | None = Field(
        None, description="A `[[job]]` table of a jobs file, run by slaq in a process of its own."
    )
    external: bool = Field(
        False, description="It runs elsewhere: the service takes its reports and says what it may use."
    )
    python: PathText | None = Field(None, description="The interpreter for a `program`.")
    cwd: Annotated[str, Field(max_length=LONGEST_PATH, pattern=r"^/[^\x00]*$")] | None = Field(
        None, description="Where it runs; by default in the job's own directory."
    )
    env: Annotated[dict[Variable, Word], Field(max_length=MOST_VARIABLES)] = Field(
        default_factory=dict,
        description="Variables of its environment.",
        # Pydantic refuses names of another pattern, but does not say so.
        json_schema_extra={"additionalProperties": False},
    )
    weight: Weight = Field(1.0, description="Multiplies what it gains.")
    min_cores: Annotated[float, Field(ge=0, le=1e6)] = Field(0.0, description="Cores it holds at all times.")
    max_cores: Cores | None = Field(None, description="Cores beyond which it gets none.")
    target_loss: Annotated[float, Field(ge=-1e300, le=1e300)] | None = Field(
        None, description="The loss its owner is content with."
    )
    stop_at: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Ends it once this share of its whole reduction is done."
    )
    by: Seconds | None = Field(None, description="Seconds from now by which its target is wanted.")
    max_iterations: Count | None = Field(None, description="Ends it after so many iterations.")
    time_budget: Seconds | None = Field(None, description="Seconds it may run.")
    max_restarts: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="How often it is run again after it failed."
    )
    if_lost: Literal["resume", "restart", "fail"] = Field(
        "resume", description="What becomes of it when the service was lost while it ran."
    )
    loss_pattern: Annotated[str, Field(min_length=1, max_length=1000, pattern=NO_NUL)] | None = Field(
        None, description="A regular expression with one group that finds losses in what it prints."
    )
    loss_file: PathText | None = Field(None, description="A file it writes losses to: CSV or JSON lines.")
    loss_column: Annotated[str, Field(min_length=1, max_length=256, pattern=NO_NUL)] = Field(
        "loss", description="The column, or key, of the loss in that file."
    )
    trains: bool = Field(True, description="Whether it competes by its loss; other work gets its fair share.")
    tags: Tags = Field(default_factory=list, description="Words to find it by.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [self.command is not None, self.program is not None, self.external]
        if sum(given) != 1:
            raise ValueError("give one of command, program and external, and only one")
        return self

    def record(self) -> Submission:
        """Return it as the service takes it."""
        given = self.model_dump()
        given["command"] = None if self.command is None else tuple(self.command)
        given["tags"] = tuple(self.tags)
        given["if_lost"] = IfLost(self.if_lost)
        return Submission(**given)


class JobChange(Body):
    """What may be changed of a job; what is not given stays as it is."""

    weight: Weight | None = Field(None, description="Multiplies what it gains.")
    tags: Tags | None = Field(None, description="Words to find it by, in place of those it has.")
    max_cores: Cores | None = Field(None, description="Cores beyond which it gets none.")


class JobEnd(Body):
    """How an external job ended."""

    state: Literal["completed", "failed", "cancelled"]
    reason: Annotated[str, Field(max_length=1000, pattern=NO_NUL)] = Field("", description="One sentence.")


class ClusterChange(Body):
    """What admins may change of the cluster."""

    policy: Name = Field(description="Who gets the units from now on.")


class UserChange(Body):
    """What admins may change of a user; what is not given stays as it is, and null lifts a limit."""

    weight: Weight | None = Field(None, description="Their part in the sharing between users.")
    max_jobs: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(
        None, description="Jobs that have not ended; null for no limit."
    )
    max_cores: Cores | None = Field(None, description="Cores held at once; null for no limit.")


class WhatIfBody(Body):
    """Another course for the present cluster."""

    policy: Name | None = Field(None, description="In place of the present policy.")
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="In place of the present cores."
    )
    horizon: Annotated[float, Field(gt=0, le=7 * 86400)] = Field(3600.0, description="Seconds to look ahead.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        None, description="Draws what may happen from the forecasts; null plays what is expected."
    )


class PruneBody(Body):
    """What of ended jobs is removed."""

    before: Annotated[float, Field(ge=0, le=1e11)] | None = Field(
        None, description="Jobs that ended before this moment, in Unix seconds."
    )
    keep_jobs: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(
        None, description="Keeps so many of them, the newest."
    )
    keep_decisions: Annotated[int, Field(ge=1, lt=2**53)] | None = Field(
        None, description="Keeps so many decisions, the newest."
    )
    dry_run: bool = Field(False, description="Only count.")
