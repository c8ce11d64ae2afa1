"""CPU seconds of each pool's tasks, read from Spark's status store incrementally."""

from typing import Protocol

_NANO = 1e-9
_OVER = frozenset({"COMPLETE", "FAILED", "SKIPPED"})


class Stages(Protocol):
    """The stages of an application, as Spark's REST API words them."""

    def next_stage(self) -> int:
        """Return the id of the first stage that is not known yet."""
        ...

    def stages_from(self, stage_id: int) -> list[dict[str, object]]:
        """Return every stage from that id on."""
        ...

    def stages(self, ids: list[int]) -> list[dict[str, object]]:
        """Return these stages, as far as they are known."""
        ...


class Usage:
    """Total executor CPU seconds by pool; each stage is read until it is over."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._next = stages.next_stage()
        #: CPU nanoseconds accounted for of every stage that is not over.
        self._open: dict[tuple[int, int], float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def read(self) -> None:
        """Read what was used since the last call."""
        fresh = self._stages.stages_from(self._next)
        # Stages that are missing now were dropped by Spark, or replaced by another attempt.
        before, self._open = self._open, {}
        for stage in [*self._stages.stages(sorted({stage_id for stage_id, _ in before})), *fresh]:
            self._account(stage, before)
        self._next = max([self._next, *(int(str(stage["stageId"])) + 1 for stage in fresh)])

    def _account(self, stage: dict[str, object], open_before: dict[tuple[int, int], float]) -> None:
        key = (int(str(stage["stageId"])), int(str(stage["attemptId"])))
        pool = str(stage["schedulingPool"])
        used = float(str(stage["executorCpuTime"])) + float(str(stage["executorDeserializeCpuTime"]))
        before = open_before.get(key, 0.0)
        self.cpu_seconds[pool] = self.cpu_seconds.get(pool, 0.0) + max(used - before, 0.0) * _NANO
        if stage["status"] not in _OVER:
            self._open[key] = max(used, before)
