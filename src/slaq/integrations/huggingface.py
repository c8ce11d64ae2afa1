"""Losses of Hugging Face's Trainer: `Trainer(..., callbacks=[HuggingFaceCallback()])`."""

from typing import Any

from slaq.integrations.callbacks import LossReports, framework

with framework("Transformers", "transformers"):
    from transformers import TrainerCallback


class HuggingFaceCallback(TrainerCallback):
    """Reports what the Trainer logs: its `loss`, or the number that `metric` names, such as `eval_loss`.

    The Trainer logs the mean loss every `logging_steps` steps, and that is how often slaq hears of it: set it so
    that there is one every second or so. Steps and their number in all are the Trainer's own.
    """

    def __init__(self, metric: str = "loss") -> None:
        self._reports = LossReports("the Trainer", metric, remedy="have it log more often with logging_steps")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Report what is logged, in the first of all processes."""
        if state.is_world_process_zero:
            self._reports.tell(logs or {}, step=state.global_step, total=state.max_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Warn where nothing was reported."""
        if state.is_world_process_zero:
            self._reports.close()
