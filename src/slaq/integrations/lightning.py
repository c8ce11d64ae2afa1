"""Losses of Lightning: nothing to do where slaq is installed, or `Trainer(callbacks=[LightningCallback()])`.

Lightning asks `callbacks` for what to add to each Trainer, through an entry point of slaq's distribution.
"""

import sys
from collections.abc import Mapping
from typing import Any

from slaq.integrations.callbacks import LossReports, framework
from slaq.reporting import heard

with framework("Lightning", "lightning"):
    # Lightning is published under two names; what the script has loaded is what its Trainer is of.
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback


class LightningCallback(Callback):
    """Reports the loss of every training step: what `training_step` returns.

    With `metric`, such as `val_loss`, the number that the module logs under that name is reported instead, at the
    end of each pass over the data. Only the first of several processes reports.
    """

    def __init__(self, metric: str | None = None) -> None:
        self._metric = metric
        self._reports = LossReports(
            "the module", metric or "loss", remedy="return the loss from training_step"
        )
        self._total: float | None = None
        #: Whether the script has a callback of its own, beside the one that the entry point adds.
        self._second = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Note how many steps there will be."""
        self._total = trainer.estimated_stepping_batches
        own = [one for one in trainer.callbacks if isinstance(one, LightningCallback)]
        self._second = own[0] is not self

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the loss of a step."""
        if self._metric is None:
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            if loss is not None:
                # Lightning divides the loss by the number of batches whose gradients it adds up.
                parts = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
                self._tell(trainer, {"loss": loss * parts})

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metric after a pass over the data, and after its validation."""
        if self._metric is not None:
            self._tell(trainer, trainer.callback_metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Warn where nothing was reported."""
        if trainer.is_global_zero and not self._second:
            self._reports.close()

    def _tell(self, trainer: Any, numbers: Mapping[str, Any]) -> None:
        if trainer.is_global_zero and not self._second:
            self._reports.tell(numbers, step=trainer.global_step, total=self._total)


def callbacks() -> list[Any]:
    """Return what Lightning adds to each Trainer: nothing outside slaq."""
    return [LightningCallback()] if heard() else []
