"""How large the batch is at each update, and what that does to the learning rate and its schedule."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Protocol

from torch.optim import Optimizer
from typing_extensions import override

from slaq.core.errors import ElasticError
from slaq.elastic_training.options import Settings
from slaq.elastic_training.update import Work
from slaq.torch import DynamicRate

#: The noise of the gradients is measured in every so many updates.
MEASURED_EVERY = 4
#: What the micro-batches of an update count, the squared norms of their mean gradients, and that of the whole.
Norms = tuple[Sequence[int], Sequence[float], float]


class Pace(Protocol):
    """Chooses the multiple of the base batch, and advances the schedule."""

    def multiple(self, workers: int, update: int) -> int:
        """Return how many base batches the coming update is made of."""
        ...

    def begins(self, work: Work, norms: Norms | None) -> None:
        """Take the coming update, and what was measured of its noise."""
        ...

    def stepped(self) -> None:
        """Advance the schedule after the optimizer's step."""
        ...

    @property
    def factor(self) -> float:
        """What multiplies the scheduled rate at the coming update."""
        ...

    @property
    def gain(self) -> float:
        """How many updates on base batches the coming one is worth."""
        ...

    @property
    def base_updates(self) -> float:
        """How many base batches the updates so far were made of."""
        ...

    @property
    def progress(self) -> float:
        """How many updates on base batches the updates so far were worth, as far as that is measured."""
        ...

    @property
    def most_gain(self) -> float | None:
        """What no batch is worth more than, in updates on base batches; None where it never grows, or unknown."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return where the pace stands, for a checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a checkpoint stood."""
        ...


class FixedPace(Pace):
    """Exact mode: every update is made of one base batch."""

    factor = gain = 1.0
    most_gain = None

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._updates = 0

    @override
    def multiple(self, workers: int, update: int) -> int:
        return 1

    @override
    def begins(self, work: Work, norms: Norms | None) -> None:
        pass

    @override
    def stepped(self) -> None:
        self._updates += 1
        _step(self._scheduler, 1)

    @property
    @override
    def base_updates(self) -> float:
        return self._updates

    @property
    @override
    def progress(self) -> float:
        return self._updates

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._updates = int(state["updates"])


class ScaledPace(Pace):
    """Scale mode: the batch follows the workers, and the rate the batch.

    It grows only once the rate has settled after the last change, and shrinks at once.
    """

    def __init__(self, optimizer: Optimizer, settings: Settings, parts: int) -> None:
        batch, most, replay = settings.batch_size, settings.max_scale, settings.replay
        # The norms of micro-batches are measured instead, by those who compute them.
        self._rate = DynamicRate(optimizer, batch, rule=settings.rate, max_scale=most, measure=False)
        self._scheduler = settings.scheduler
        self._batch, self._parts, self._most = batch, parts, most
        self._replay = None if replay is None else tuple(replay)
        if self._replay is not None and not all(1 <= k <= most for k in self._replay):
            raise ElasticError(
                f"replay holds multiples outside 1 to {most}",
                "give the trace of a training, and its max_scale",
            )
        self._k = 1
        #: The multiple of every update so far, from which the run can be repeated bit for bit.
        self.trace: list[int] = []

    @override
    def multiple(self, workers: int, update: int) -> int:
        if self._replay:
            return self._replay[min(update, len(self._replay) - 1)]
        wanted = max(1, min(workers // self._parts, self._most))
        return wanted if wanted < self._k or self._rate.settled else self._k

    @override
    def begins(self, work: Work, norms: Norms | None) -> None:
        if work.multiple != self._k:
            self._k = work.multiple
            self._rate.batch(self._k * self._batch)
        if work.samples < self._k * self._batch:
            # As many base updates as a plain loop makes of these samples: schedules end where they did there.
            self._rate.batch(ceil(work.samples / self._batch) * self._batch, once=True)
        if norms is not None:
            self._rate.measured(*norms)

    @override
    def stepped(self) -> None:
        self.trace.append(self._k)
        _step(self._scheduler, self._rate.scheduler_steps())

    @property
    @override
    def factor(self) -> float:
        return self._rate.factor

    @property
    @override
    def gain(self) -> float:
        return self._rate.gain

    @property
    @override
    def base_updates(self) -> float:
        return self._rate.base_updates

    @property
    @override
    def progress(self) -> float:
        return self._rate.progress

    @property
    @override
    def most_gain(self) -> float | None:
        return self._rate.most_gain

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"k": self._k, "trace": self.trace.copy(), "rate": self._rate.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._k, self.trace = int(state["k"]), list(state["trace"])
        self._rate.load_state_dict(state["rate"])


def _step(scheduler: Any, times: int) -> None:
    if scheduler is not None:
        # OneCycleLR refuses steps beyond its end, which the last batch of a pass may pass by a part of k.
        end = getattr(scheduler, "total_steps", None)
        for _ in range(times):
            if end is None or scheduler.last_epoch < end:
                scheduler.step()
