"""Losses of Keras: `model.fit(..., callbacks=[KerasCallback()])`."""

from collections.abc import Mapping
from typing import Any

from slaq.integrations.callbacks import LossReports, framework

with framework("Keras", "keras"):
    from keras.callbacks import Callback


class KerasCallback(Callback):
    """Reports the loss of every batch, as the mean since the batch that was reported before.

    Keras tells the mean since the start of the pass over the data, from which that of the last batches is computed;
    of batches of one size it is exact. With `metric`, such as `val_loss`, the number of that name is reported
    instead, at the end of each pass.
    """

    def __init__(self, metric: str | None = None) -> None:
        super().__init__()
        self._metric = metric
        self._reports = LossReports("Keras", metric or "loss", remedy="compile the model with a loss")
        #: Batches of the passes before this one; batches of this one and the sum of their losses.
        self._before = self._done = 0
        self._sum = 0.0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Begin a pass over the data."""
        steps = self.params.get("steps")
        # Of data whose length Keras does not know, a pass has as many batches as the one before.
        self._before = epoch * steps if steps else self._before + self._done
        self._done, self._sum = 0, 0.0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report the loss of the batches since the last time."""
        if self._metric is not None or not logs or "loss" not in logs:
            return
        count, total = batch + 1, float(logs["loss"]) * (batch + 1)
        mean = (total - self._sum) / max(count - self._done, 1)
        self._done, self._sum = count, total
        steps = self.params.get("steps")
        ends = None if not steps else steps * self.params["epochs"]
        self._reports.tell({**logs, "loss": mean}, step=self._before + count, total=ends)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report the metric after a pass over the data."""
        if self._metric is not None:
            self._reports.tell(logs or {}, step=epoch + 1, total=self.params["epochs"])

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Warn where nothing was reported."""
        self._reports.close()
