"""The training loop that absorbs any change of workers: an iterator of updates, in the user's own process."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack

import torch
from torch import nn
from torch.optim import Optimizer
from typing_extensions import override

from slaq.core.errors import ElasticError
from slaq.elastic_training.board import Board
from slaq.elastic_training.checks import check_course, device_of
from slaq.elastic_training.crew import Crew
from slaq.elastic_training.options import ElasticOptions, Settings
from slaq.elastic_training.position import Position
from slaq.elastic_training.replica import Course, Loss, modes_of, one_thread
from slaq.elastic_training.samples import samples_of
from slaq.elastic_training.seeds import kept_generators
from slaq.elastic_training.update import Update, Work
from slaq.engines.processes import cores_here

#: By default a micro-batch has so many samples at least: smaller ones waste what a core can do.
SMALLEST = 16


def elastic(
    loss: Loss,
    model: nn.Module,
    optimizer: Optimizer,
    dataset: Any,
    *,
    batch_size: int,
    passes: int,
    **options: Unpack[ElasticOptions],
) -> "ElasticTraining":
    """Return an iterator that trains the model by one update a turn, on as many workers as it holds then.

        def loss(model, batch):
            x, y = batch
            return F.cross_entropy(model(x), y)     # a mean over the samples, or (sum, count)

        for update in slaq.elastic(loss, model, optimizer, train_set, batch_size=256, passes=10):
            if update.ends_pass:
                print(update.number, update.loss, evaluate(model))

    Each update is made of fixed micro-batches, computed by this process and its workers, and summed in a fixed
    order: how many workers there are, and whether some of them are killed, changes no bit of the result.
    `dataset` is a tensor, an array, a tuple of them, or any dataset with __len__ and __getitem__.
    """
    settings = Settings(batch_size=batch_size, passes=passes, **options)
    check_course(loss, model, optimizer, settings.scheduler)
    course = Course(
        loss=loss,
        model=model,
        samples=samples_of(dataset, settings.collate),
        seed=settings.seed,
        transform=settings.transform,
        modes=modes_of(model),
        device=device_of(model),
    )
    return ElasticTraining(course, optimizer, settings)


class ElasticTraining(Iterator[Update]):
    """A training under way: an iterator of its updates.

    A loop that needs the gradients makes each update in two parts:

        while training.gradients():
            ...                                     # parameter.grad is that of the whole batch
            update = training.apply()
    """

    def __init__(self, course: Course, optimizer: Optimizer, settings: Settings) -> None:
        self._course = course
        self._optimizer = optimizer
        self._settings = settings
        self._parts = settings.micro_batches or _default_parts(settings)
        self._samples = len(course.samples)
        self._position = Position()
        self._workers = settings.workers
        parameters, buffers = list(course.model.parameters()), list(course.model.buffers())
        self._board = Board(parameters, buffers, self._parts)
        self._crew = Crew(course, self._board)
        #: The update whose gradients were computed and not applied.
        self._work: Work | None = None
        self._loss = 0.0

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._course.model

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a whole batch is cut into."""
        return self._parts

    @property
    def workers(self) -> int:
        """How many workers the next update is computed by, this process among them."""
        return self._workers

    @property
    def processes(self) -> tuple[int, ...]:
        """The process ids of the workers besides this process."""
        return self._crew.pids

    def resize(self, workers: int) -> None:
        """Compute with so many workers from the next update on, whatever the job's share is."""
        if workers < 1:
            raise ElasticError(f"workers is {workers}", "give a whole number from 1 on")
        self._workers = workers

    @override
    def __next__(self) -> Update:
        if not self.gradients():
            raise StopIteration
        return self.apply()

    def gradients(self) -> bool:
        """Compute the gradients of the next update; return False where the last pass has ended."""
        if self._work is not None:
            raise ElasticError("gradients() was called twice", "call apply() in between")
        if self._position.passes >= self._settings.passes:
            self.close()
            return False
        batch = self._settings.batch_size
        work = self._position.work(self._samples, batch=batch, size=-(-batch // self._parts))
        with self._computing():
            found = self._crew.compute(work, self.workers)
            loss, count, summed = self._summed(work)
            if summed:
                torch._foreach_mul_([one for one in found if one is not None], 1.0 / count)
            for parameter, gradient in zip(self._course.model.parameters(), found, strict=True):
                parameter.grad = gradient
        self._work, self._loss = work, loss
        return True

    def _summed(self, work: Work) -> tuple[float, float, bool]:
        """Return the mean loss of an update, how much it counts, and whether it was given in sums."""
        records = self._board.records[: work.micro_batches]
        kinds = set(records[:, 2].tolist())
        if len(kinds) > 1:
            raise ElasticError(
                "the loss is now a mean and now (sum, count)", "return the same for every micro-batch"
            )
        total, count = sum(records[:, 0].tolist()), sum(records[:, 1].tolist())
        if count <= 0:
            raise ElasticError(
                "the loss counted nothing in a whole batch", "return (sum, count) with a count above 0"
            )
        return total / count, count, bool(kinds.pop())

    def apply(self) -> Update:
        """Step the optimizer with the gradients as they are now, and return the update."""
        work = self._work
        if work is None:
            raise ElasticError("apply() was called before gradients()", "call gradients() first")
        rate = float(self._optimizer.param_groups[0]["lr"])
        with self._computing():
            self._step()
        self._work = None
        self._position = self._position.after(work, self._samples)
        return self._told(work, rate)

    def _step(self) -> None:
        if self._settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._course.model.parameters(), self._settings.clip_norm)
        self._optimizer.step()
        if self._settings.scheduler is not None:
            self._settings.scheduler.step()

    def _told(self, work: Work, rate: float) -> Update:
        position = self._position
        return Update(
            number=position.updates,
            pass_number=work.passed + 1,
            loss=self._loss,
            samples=work.samples,
            workers=self._crew.used,
            batch=self._settings.batch_size,
            factor=1.0,
            rate=rate,
            ends_pass=position.offset == 0,
            ends=position.passes >= self._settings.passes,
        )

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with kept_generators(), one_thread():
            yield

    def close(self) -> None:
        """End the workers; the model keeps its weights, and the training can go on all the same."""
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _default_parts(settings: Settings) -> int:
    """Return as many micro-batches as the training can ever hold workers, if they are not too small then."""
    return max(settings.workers, min(cores_here(), settings.batch_size // SMALLEST), 1)
