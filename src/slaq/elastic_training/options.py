"""What `slaq.elastic` can be told, with what holds where nothing is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Required, TypedDict

from slaq.core.errors import ElasticError, UnknownNameError
from slaq.core.learning_rate import RULE_NAMES
from slaq.engines.processes import cores_here

#: By default a micro-batch has so many samples at least: smaller ones waste what a core can do.
SMALLEST = 16
MODES = ("exact", "scale")


class ElasticOptions(TypedDict, total=False):
    """The options of `slaq.elastic`; docs/elastic.md says what each does."""

    batch_size: Required[int]
    passes: Required[int]
    mode: str
    micro_batches: int | None
    workers: int
    scheduler: Any
    rate: str
    max_scale: int
    clip_norm: float | None
    collate: Callable[[list[Any]], Any] | None
    transform: Callable[[Any], Any] | None
    seed: int
    amp: Any
    device: Any
    checkpoint: str | PathLike[str] | None
    checkpoint_every: float
    replay: Sequence[int] | None
    context: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of one training, checked."""

    batch_size: int
    passes: int
    mode: str = "exact"
    #: None for as many as the training can ever hold workers.
    micro_batches: int | None = None
    #: Outside slaq; inside, the job's share says how many.
    workers: int = 1
    scheduler: Any = None
    rate: str = "auto"
    #: How many base batches an update may be made of.
    max_scale: int = 16
    clip_norm: float | None = None
    collate: Callable[[list[Any]], Any] | None = None
    transform: Callable[[Any], Any] | None = None
    seed: int = 0
    amp: Any = None
    device: Any = None
    checkpoint: str | PathLike[str] | None = None
    #: In seconds.
    checkpoint_every: float = 5.0
    #: The multiples of an earlier run in scale mode, one for each update.
    replay: Sequence[int] | None = None
    #: The context of a program, whose share is followed and which is told the losses.
    context: Any = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UnknownNameError("mode of elastic training", self.mode, MODES)
        if self.rate not in RULE_NAMES:
            raise UnknownNameError("rate rule", self.rate, RULE_NAMES)
        for name in ("batch_size", "passes", "workers", "max_scale"):
            _check_whole(name, getattr(self, name), 1)
        _check_whole("seed", self.seed, 0)
        if self.micro_batches is not None:
            _check_whole("micro_batches", self.micro_batches, 1)
            if self.micro_batches > self.batch_size:
                raise ElasticError(
                    f"micro_batches is {self.micro_batches} and batch_size {self.batch_size}",
                    "give at most as many micro-batches as a batch has samples",
                )
        for name in ("clip_norm", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ElasticError(f"{name} is {value!r}", "give a number above 0")
        if self.replay is not None and self.mode != "scale":
            raise ElasticError(
                "replay is given with mode='exact'", "leave it out: exact mode gives the same bits anyway"
            )

    @property
    def default_parts(self) -> int:
        """As many micro-batches as the training can ever hold workers, if they are not too small then.

        In scale mode one: more workers then get more base batches.
        """
        if self.mode == "scale":
            return 1
        return max(self.workers, min(cores_here(), self.batch_size // SMALLEST), 1)

    @property
    def measures(self) -> bool:
        """Whether the noise of the gradients is measured."""
        return self.mode == "scale" and self.rate in ("auto", "adascale")


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ElasticError(f"{name} is {value!r}", f"give a whole number from {least} on")
