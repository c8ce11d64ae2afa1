"""Tells slaq of a training while it runs: losses over its progress, what workers are worth, what changes cost."""

import time
from dataclasses import dataclass, field

from slaq.elastic_training.holding import Holding
from slaq.elastic_training.progress import TrainingProgress
from slaq.elastic_training.update import Update
from slaq.jobs.options import MOST_CORES

#: What workers are worth is told anew where it has changed by this factor, after so many seconds at least.
CHANGED, TELL_SECONDS = 1.1, 1.0


@dataclass(slots=True)
class Telling:
    """Tells the losses of a training over its progress, so that a change of the batch does not bend the curve.

    One loss is told for each stride of progress, the mean over its updates. Progress is counted in updates on base
    batches that the updates were worth (AdaScale's gain), so that the forecast of the curve holds for any batch.
    """

    holding: Holding
    progress: TrainingProgress
    #: Sum of the losses of the present stride over its samples, and their number.
    _losses: float = 0.0
    _samples: int = 0
    #: The batch of the last update, and what was last told of its workers and of changes, and when.
    _batch: int = 0
    _told: tuple[float, float] = (0.0, 0.0)
    _told_at: float = field(default=float("-inf"))

    def tell(self, update: Update, before: float, change_seconds: float) -> None:
        """Tell of an update that was just made; `before` is the progress that there was before it."""
        if self._batch and update.batch > self._batch:
            # The rate climbs on a ramp, and losses may rise for a while.
            self.holding.announce(update.rate)
        self._batch = update.batch
        self._losses += update.loss * update.samples
        self._samples += update.samples
        stride = self.progress.stride
        number = int(before / stride)
        if int(self.progress.pace.progress / stride) > number or update.ends:
            told = {
                "workers": update.workers,
                "batch": update.batch,
                "factor": update.factor,
                "gain": update.gain,
            }
            loss, self._losses, samples, self._samples = self._losses, 0.0, self._samples, 0
            total = max(round(self._foreseen(update) / stride), number + 1)
            self.holding.report(loss / samples, step=number, total=total, **told)
        self._tell_use(change_seconds)

    def _foreseen(self, update: Update) -> float:
        """Return the progress at the end of the training, if a sample stays worth what it is now."""
        pace = self.progress.pace
        multiple = update.batch / self.progress.batch_size
        return pace.progress + max(self.progress.total - pace.base_updates, 0.0) * update.gain / multiple

    def _tell_use(self, change_seconds: float) -> None:
        worth = (self.progress.pace.most_gain or 0.0) * self.progress.parts
        worth = worth if worth < MOST_CORES else 0.0
        now = time.monotonic()
        if now - self._told_at < TELL_SECONDS or not any(map(_differs, (worth, change_seconds), self._told)):
            return
        self._told, self._told_at = (worth, change_seconds), now
        self.holding.tell_use(worth=worth or None, change_seconds=change_seconds or None)


def _differs(value: float, told: float) -> bool:
    return not told / CHANGED <= value <= told * CHANGED
