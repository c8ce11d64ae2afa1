"""What a job of a batch leaves in its folder: its model or result, its losses, and a summary."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle

from slaq.algorithms import Model
from slaq.config import AlgorithmWork, CommandWork, JobTable
from slaq.core.job import JobState
from slaq.durable import flush, flush_folder
from slaq.engines import checkpoints
from slaq.engines.packing import unpack
from slaq.handle import Job
from slaq.jobs.data import Dataset
from slaq.jobs.inline import InlineContext

MODEL, RESULT, LOSSES, SUMMARY = "model.npz", "result.pkl", "losses.csv", "summary.json"
#: A folder, as MLlib writes its models.
SPARK_MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was written of a job's result."""

    #: The file in its folder; None where there is nothing to keep.
    file: str | None = None
    #: What it holds, where that is not a finished model or result; a few words.
    note: str = ""
    #: Why the result could not be kept; one sentence.
    problem: str = ""

    @property
    def text(self) -> str:
        """The file and the note, for a person."""
        return f"{self.file or 'nothing'}{f' ({self.note})' if self.note else ''}"


def make_room(folder: Path) -> None:
    """Remove the files that an earlier batch left for a job of the same name."""
    for name in (MODEL, RESULT, LOSSES, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / SPARK_MODEL, ignore_errors=True)


def keep(job: Job, table: JobTable, summary: Callable[[], dict[str, Any]]) -> Kept:
    """Write the result, losses and summary of an ended job into its folder; they survive a loss of power."""
    job.directory.mkdir(parents=True, exist_ok=True)
    _write_losses(job)
    kept = _keep_result(job, table)
    text = json.dumps({**summary(), "result": kept.file}, indent=2, allow_nan=False)
    (job.directory / SUMMARY).write_text(f"{text}\n", encoding="utf-8")
    for name in (LOSSES, SUMMARY, kept.file):
        if name is not None and (job.directory / name).is_file():
            flush(job.directory / name)
    flush_folder(job.directory)
    return kept


def _write_losses(job: Job) -> None:
    metrics = job.metrics
    names = list(dict.fromkeys(name for row in metrics for name in row))
    with (job.directory / LOSSES).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["iteration", "loss", "cpu_seconds", "wall_seconds", *names])
        for one, beside in zip(job.observations, metrics, strict=False):
            numbers = (one.iteration, repr(one.loss), f"{one.cpu_seconds:.6f}", f"{one.wall_seconds:.6f}")
            writer.writerow([*numbers, *(repr(beside[name]) if name in beside else "" for name in names)])


def _keep_result(job: Job, table: JobTable) -> Kept:
    if isinstance(table.work, CommandWork):
        return Kept()
    try:
        value = job.result() if job.state is JobState.COMPLETED else _last_state(job)
        note = ""
        if isinstance(table.work, AlgorithmWork) and isinstance(value, dict):
            done = max(0, len(value["losses"]) - 1)
            value, note = _model_so_far(table.work, value, done), f"after {done} iterations"
        elif job.state is not JobState.COMPLETED and value is not None:
            return Kept(file=checkpoints.FILE, note="its last state")
        return Kept() if value is None else _written(value, job.directory, note)
    except Exception as error:
        # Whatever a program returned, the other jobs of the batch go on.
        return Kept(problem=f"its result cannot be kept: {type(error).__name__}: {error}")


def _written(value: Any, folder: Path, note: str) -> Kept:
    if isinstance(value, Model):
        value.save(folder / MODEL)
        return Kept(file=MODEL, note=note)
    if hasattr(value, "write") and hasattr(value, "transform"):
        # A model of MLlib lives in the JVM, and has a format of its own.
        value.write().overwrite().save((folder / SPARK_MODEL).absolute().as_uri())
        return Kept(file=SPARK_MODEL, note=note)
    # cloudpickle, because it includes what the program's own file defines.
    (folder / RESULT).write_bytes(cloudpickle.dumps(value, protocol=5))
    return Kept(file=RESULT, note=note)


def _last_state(job: Job) -> Any:
    """Return what the program last gave to `checkpoint`; None where it never did."""
    path = job.directory / checkpoints.FILE
    return unpack(checkpoints.read(path).state) if path.exists() else None


def _model_so_far(work: AlgorithmWork, state: Any, done: int) -> Model:
    """Return the model of a run that was ended early.

    A run that is resumed from a checkpoint ends as one that was never stopped; with no iteration left to do,
    it ends at once.
    """
    model = replace(work.program, iterations=done)(InlineContext(Dataset(*work.data), restored=state))
    assert isinstance(model, Model)
    return model
