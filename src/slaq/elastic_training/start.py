"""`slaq.elastic`: checks what it is given, and starts an elastic training, or takes it up again."""

from typing import Any, Unpack

from torch import nn
from torch.optim import Optimizer

from slaq.elastic_training.checks import check_course, device_of, devices_of
from slaq.elastic_training.loop import ElasticTraining
from slaq.elastic_training.options import ElasticOptions, Settings
from slaq.elastic_training.pace import MEASURED_EVERY
from slaq.elastic_training.precision import Precision, prepare
from slaq.elastic_training.progress import TrainingProgress, saved_state
from slaq.elastic_training.replica import Course, Loss, modes_of
from slaq.elastic_training.samples import samples_of


def elastic(
    loss: Loss,
    model: nn.Module,
    optimizer: Optimizer,
    dataset: Any,
    **options: Unpack[ElasticOptions],
) -> ElasticTraining:
    """Return an iterator that trains the model by one update a turn, on as many workers as it holds then.

        def loss(model, batch):
            x, y = batch
            return F.cross_entropy(model(x), y)     # a mean over the samples, or (sum, count)

        for update in slaq.elastic(loss, model, optimizer, train_set, batch_size=256, passes=10):
            if update.ends_pass:
                print(update.number, update.loss, evaluate(model))

    Each update is made of micro-batches, computed by this process and its workers, and summed in a fixed order: how
    many workers there are, and whether some of them are killed, changes no bit of the result. `dataset` is a
    tensor, an array, a tuple of them, or any dataset with __len__ and __getitem__. With `mode="scale"` the batch
    follows the workers, and the learning rate the batch. With `checkpoint=PATH` a run that is killed goes on where
    it stood when the script is run again. Raises ElasticError for what cannot be trained in this way.
    """
    settings = Settings(**options)
    check_course(loss, model, optimizer, settings.scheduler)
    devices = devices_of(settings.device)
    if devices:
        model.to(devices[0])
    device = device_of(model)
    prepare(device)
    precision = Precision(settings.amp, device)
    course = Course(
        loss=loss,
        model=model,
        samples=samples_of(dataset, settings.collate),
        seed=settings.seed,
        transform=settings.transform,
        amp=precision.dtype,
        modes=modes_of(model),
        device=device,
        others=devices[1:],
        measured_every=MEASURED_EVERY if settings.measures else 0,
    )
    saved = saved_state(settings.checkpoint, settings.context)
    progress = TrainingProgress(course, optimizer, settings, precision, saved)
    return ElasticTraining(progress, max(settings.workers, len(devices)), settings.context)
