"""The training loop that absorbs any change of workers: an iterator of updates, in the user's own process."""

import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from typing_extensions import override

from slaq.core.errors import ElasticError
from slaq.elastic_training.board import Board
from slaq.elastic_training.crew import Crew
from slaq.elastic_training.holding import Holding
from slaq.elastic_training.notice import LeavingNotice
from slaq.elastic_training.precision import reproducible
from slaq.elastic_training.progress import TrainingProgress
from slaq.elastic_training.replica import one_thread
from slaq.elastic_training.seeds import kept_generators
from slaq.elastic_training.telling import Telling
from slaq.elastic_training.update import Update, Work

#: As shells tell a process that ended by SIGTERM.
LEFT = 128 + 15


class ElasticTraining(Iterator[Update]):
    """A training under way: an iterator of its updates.

    A loop that needs the gradients makes each update in two parts:

        while training.gradients():
            ...                                     # parameter.grad is that of the whole batch
            update = training.apply()

    Between two updates it looks how many workers it holds, saves a checkpoint where one is due, and leaves where it
    was told to.
    """

    def __init__(self, progress: TrainingProgress, workers: int, context: Any) -> None:
        self._progress = progress
        self._course = course = progress.course
        parameters, buffers = list(course.model.parameters()), list(course.model.buffers())
        shared = torch.device("cpu") if course.others else course.device
        self._board = Board(parameters, buffers, progress.rows, shared)
        self._crew = Crew(course, self._board)
        self._holding = Holding(workers, progress.rows, context, fixed=course.most_processes < sys.maxsize)
        self._telling = Telling(self._holding, progress)
        self._context = context
        self._notice = LeavingNotice(self._heard)
        #: The update whose gradients were computed and not applied, and its loss.
        self._work: Work | None = None
        self._loss = 0.0
        #: Whether gradients are being computed, or weights changed.
        self._inside = False
        #: The last update, until its turn of the loop has ended; from a checkpoint, an earlier run's.
        self._last = progress.restore(context)
        self._again = self._last
        if progress.file is not None:
            self._notice.listen()
        # Workers end with a training that is thrown away unfinished.
        self._finalizer = weakref.finalize(self, self._crew.close)

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._course.model

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a base batch is cut into."""
        return self._progress.parts

    @property
    def workers(self) -> int:
        """How many workers the training holds now, this process among them."""
        return self._holding.workers()

    @property
    def processes(self) -> tuple[int, ...]:
        """The process ids of the workers besides this process."""
        return self._crew.pids

    @property
    def trace(self) -> list[int]:
        """How many base batches each update so far was made of; `replay=` repeats it bit for bit."""
        return self._progress.trace

    def resize(self, workers: int | None) -> None:
        """Compute with so many workers from the next update on, whatever the share is; None follows it again."""
        if workers is not None and workers < 1:
            raise ElasticError(f"workers is {workers}", "give a whole number from 1 on, or None")
        self._holding.resize(workers)

    @override
    def __next__(self) -> Update:
        again, self._again = self._again, None
        if again is not None:
            return again
        if not self.gradients():
            raise StopIteration
        return self.apply()

    def gradients(self) -> bool:
        """Compute the gradients of the next update; return False where the last pass has ended."""
        if self._work is not None:
            raise ElasticError("gradients() was called twice", "call apply() in between")
        self._again = self._last = None
        self._between()
        progress = self._progress
        if progress.ended:
            progress.save(self._context, None, wait=True)
            self.close()
            return False
        workers = self.workers
        work = progress.next_work(workers)
        with self._computing():
            found = self._crew.compute(work, workers, progress.precision.scale)
            records = self._board.records[: work.micro_batches]
            self._loss = progress.take(work, records, found)
        self._work = work
        return True

    def apply(self) -> Update:
        """Step the optimizer with the gradients as they are now, and return the update."""
        work = self._work
        if work is None:
            raise ElasticError("apply() was called before gradients()", "call gradients() first")
        progress = self._progress
        before = progress.pace.progress
        with self._computing():
            factor, gain, rate = progress.step(work)
        self._work = None
        self._last = update = Update(
            number=progress.position.updates,
            pass_number=work.passed + 1,
            loss=self._loss,
            samples=work.samples,
            workers=self._crew.used,
            batch=progress.batch_size * work.multiple,
            factor=factor,
            gain=gain,
            rate=rate,
            ends_pass=progress.position.offset == 0,
            ends=progress.ended,
        )
        if self._notice.given:
            self._leave()
        self._telling.tell(update, before, self._crew.change_seconds)
        return update

    def _between(self) -> None:
        """Save what is due, and leave where the job was told to."""
        progress = self._progress
        if self._notice.given:
            self._leave()
        stopping = self._holding.leaves()
        if stopping or (progress.file is not None and progress.file.due):
            progress.save(self._context, None, wait=stopping)
        if stopping and progress.file is not None and self._context is None:
            self._leave()

    def _heard(self) -> None:
        """Take a notice to leave: at once in the body of the loop, else once the update is finished."""
        if not self._inside and self._work is None:
            self._leave()

    def _leave(self) -> None:
        self._progress.save(self._context, self._last, wait=True)
        self.close()
        sys.exit(LEFT)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        self._inside = True
        with ExitStack() as stack:
            stack.enter_context(kept_generators(self._course.device))
            stack.enter_context(one_thread())
            stack.enter_context(reproducible(self._course.device))
            try:
                yield
            finally:
                self._inside = False

    def close(self) -> None:
        """End the workers; the model keeps its weights, and the training can go on all the same."""
        self._notice.leave()
        self._crew.close()
        if self._progress.file is not None:
            self._progress.file.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
