"""One number of one named series, as a line of output or a file tells it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value of a series at a step, already bounded: whoever makes one has checked what the job wrote."""

    #: The name of the series, such as "loss", "train/loss" or "validation_0-logloss".
    series: str
    value: float
    #: The step that the value belongs to, where the source says so.
    step: int | None = None
    #: The number of steps after which the training ends, where the source says so.
    total: int | None = None
    #: Unix time of the value, where the source says so.
    at: float | None = None
