"""The columns of a table of jobs, shared by `slaq ls` and `slaq top`."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slaq.cli.display.spans import ago, span
from slaq.core.direction import turned
from slaq.core.errors import AmbiguousNameError, UnknownNameError
from slaq.core.job import JobState
from slaq.core.progress import GOOD_ENOUGH, seconds_left
from slaq.jobs.ranking import rank

#: A job as the API returns it.
Shown = Mapping[str, Any]

STYLES = {
    "queued": "dim",
    "running": "",
    "paused": "cyan",
    "completed": "green",
    "diverged": "magenta",
    "failed": "red",
    "cancelled": "yellow",
    "beaten": "yellow",
}
#: Marks a job whose losses cannot be read as its owner expects; `slaq show` says why.
TROUBLED = "!"
#: Letters of a job's parameters that a table shows.
LONGEST = 60
#: Characters of a command that a table shows.
WIDEST = 60
#: What stands before the end of a log in a reason.
LOG_END = "; the end of its log: "
_INTERPRETER = re.compile(r"(^|/)python[\d.]*$")
ENDED = tuple(str(state) for state in JobState if state.ended)
ACTIVE = tuple(str(state) for state in JobState if not state.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table of jobs."""

    name: str
    text: Callable[[Shown, float], str]
    #: The sort key; small values come first.
    key: Callable[[Shown], Any]
    numeric: bool = True
    #: Whether it is shown where nobody chooses columns.
    usual: bool = True


def number(value: float | None) -> str:
    """Return a number with four digits; a dash for None."""
    return "–" if value is None else f"{value:.4g}"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return "–" if value is None else f"{100 * value:.0f}%"


def _loss(job: Shown, now: float) -> str:
    shown = "diverged" if job["diverged"] else number(job["loss"])
    return f"{shown} {TROUBLED}" if job["loss_trouble"] else shown


def done(made: float, iteration: int) -> str:
    """Return the share of its reduction that a job has made; a dash before its second loss."""
    return share(made) if iteration > 0 else "–"


def expected(job: Shown, at: float | None, now: float, good: float = GOOD_ENOUGH) -> str:
    """Return in how long a job is expected to have made a share; a dash if that is not known."""
    left = seconds_left(job["reduction"], at, now, good)
    return "–" if left is None else span(left) if left else "reached"


def _done(job: Shown, now: float) -> str:
    return done(job["reduction"], job["iteration"]) if job["trains"] else "–"


def _cores(job: Shown, now: float) -> str:
    return f"{job['cores']:.2f}" if job["state"] in ACTIVE else "–"


def _expected(job: Shown, now: float) -> str:
    return "–" if job["state"] in (*ENDED, "paused") else expected(job, job["prospect"]["at_90"], now)


def _chance(job: Shown, now: float) -> str:
    prospect = job["prospect"]
    if job["deadline"] is None or job["state"] in ENDED:
        return "–"
    return "out of reach" if prospect["out_of_reach"] else share(prospect["chance"])


def _expected_first(job: Shown) -> tuple[int, float]:
    """Sort by the moment of 90%: first the jobs that have reached it, last those of which no moment is told."""
    told, at = _expected(job, 0.0), job["prospect"]["at_90"]
    return (0, 0.0) if told == "reached" else (2, 0.0) if told == "–" else (1, at)


def _likely_first(job: Shown) -> tuple[int, float]:
    told, chance = _chance(job, 0.0), job["prospect"]["chance"]
    return (2, 0.0) if told == "–" else (1, 0.0) if told == "out of reach" else (0, -chance)


def _since(job: Shown) -> float:
    """Return the moment from which the age of a job counts."""
    return float(job["ended_at"] or job["submitted_at"])


def _reason(job: Shown, now: float) -> str:
    """Return why a job does not run, or has ended, in one line; the end is cut off where it is long."""
    text = " ".join(in_short(str(job["reason"])).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def in_short(reason: str) -> str:
    """Return how a job ended in one line: with the end of a log, or a traceback, only its last line."""
    lines = reason.strip().splitlines() or [""]
    how, ends, _ = lines[0].partition(LOG_END)
    return f"{how}{LOG_END}{lines[-1]}" if ends and len(lines) > 1 else lines[-1]


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Return the key by which net-2 comes before net-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _best_first(name: str) -> Callable[[Shown], float]:
    """Return the key by which the best of these numbers comes first, and a job without one last."""

    def key(job: Shown) -> float:
        loss: float | None = job[name]
        return math.inf if loss is None else turned(loss, job["maximize"])

    return key


def runs(job: Shown, most: int = WIDEST) -> str:
    """Return what a job runs, without the path of its interpreter; the end is cut off where it is long."""
    program, *rest = str(job["summary"]).split(" ") or [""]
    text = " ".join([*([] if _INTERPRETER.search(program) and rest else [program.rpartition("/")[2]]), *rest])
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _moment(name: str) -> Column:
    """Return the column of a moment, the latest first."""

    def text(job: Shown, now: float) -> str:
        return "–" if job[name] is None else f"{datetime.fromtimestamp(job[name]):%Y-%m-%d %H:%M:%S}"

    return Column(
        name=name.removesuffix("_at"),
        text=text,
        key=lambda job: -_last(job[name], when_missing=-math.inf),
        numeric=False,
        usual=False,
    )


def _parameters(job: Shown, now: float) -> str:
    text = parameters(job["parameters"])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def parameters(named: Mapping[str, Any]) -> str:
    """Return parameters in one line; a dash for none."""
    return " ".join(f"{name}={value}" for name, value in named.items()) or "–"


def _parameters_first(job: Shown) -> tuple[bool, list[tuple[str, bool, float, str]]]:
    """Sort by the parameters in their order, numbers as numbers; jobs without any come last."""
    values = [
        (name, isinstance(value, str), 0.0 if isinstance(value, str) else float(value), str(value))
        for name, value in job["parameters"].items()
    ]
    return not values, values


def _last(value: float | None, *, when_missing: float) -> float:
    return when_missing if value is None else value


#: All columns in the order in which they are shown.
COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column(name="job", text=lambda job, now: job["id"], key=lambda job: _natural(job["id"]),
               numeric=False),
        Column(name="user", text=lambda job, now: job["owner"], key=lambda job: job["owner"], numeric=False),
        Column(name="group", text=lambda job, now: job["group"] or "–", key=lambda job: job["group"] or "~",
               numeric=False),
        Column(name="state", text=lambda job, now: job["state"], key=lambda job: job["state"], numeric=False),
        Column(name="weight", text=lambda job, now: f"{job['weight']:g}", key=lambda job: -job["weight"]),
        Column(name="cores", text=_cores, key=lambda job: -job["cores"]),
        Column(name="iteration", text=lambda job, now: str(job["iteration"]) if job["iteration"] >= 0 else "–",
               key=lambda job: -job["iteration"]),
        Column(name="loss", text=_loss, key=_best_first("loss")),
        Column(name="best", text=lambda job, now: number(job["best_loss"]), key=rank),
        Column(name="done", text=_done, key=lambda job: -job["reduction"]),
        Column(name="90% in", text=_expected,
               key=_expected_first),
        Column(name="chance", text=_chance, key=_likely_first),
        Column(name="CPU", text=lambda job, now: span(job["cpu_seconds"]), key=lambda job: -job["cpu_seconds"]),
        Column(name="age", text=lambda job, now: ago(_since(job), now), key=lambda job: -_since(job)),
        Column(name="parameters", text=_parameters, key=_parameters_first, numeric=False),
        Column(name="reason", text=_reason, key=lambda job: (not job["reason"], job["reason"]),
               numeric=False),
        Column(name="command", text=lambda job, now: runs(job), key=lambda job: job["summary"], numeric=False),
        Column(name="tags", text=lambda job, now: ",".join(job["tags"]), key=lambda job: job["tags"],
               numeric=False, usual=False),
        Column(name="starts", text=lambda job, now: str(job["attempts"]), key=lambda job: -job["attempts"],
               usual=False),
        *(_moment(name) for name in ("submitted_at", "started_at", "ended_at")),
    )
}  # fmt: skip


def chosen(names: str) -> list[Column]:
    """Return the columns of these names, which commas separate; the beginning of a name will do."""
    return [_named(name.strip()) for name in names.split(",")]


def _named(name: str) -> Column:
    alike = [column for column in COLUMNS if column.lower().startswith(name.lower())] if name else []
    if name not in COLUMNS and len(alike) > 1:
        raise AmbiguousNameError("column", name, alike)
    if name not in COLUMNS and not alike:
        raise UnknownNameError("column", name, COLUMNS)
    return COLUMNS[name if name in COLUMNS else alike[0]]


def suited(jobs: Sequence[Shown], always: str = "") -> list[Column]:
    """Return the columns that differ between these jobs or from their defaults, and the one that is named."""
    # The ids of a group's jobs begin with its name.
    left_out = {"group", *(column.name for column in COLUMNS.values() if not column.usual)}
    if not any(job["parameters"] for job in jobs):
        left_out.add("parameters")
    if len({job["owner"] for job in jobs}) < 2:
        left_out.add("user")
    if all(job["weight"] == 1.0 for job in jobs):
        left_out.add("weight")
    if all(job["deadline"] is None for job in jobs):
        left_out.add("chance")
    if not any(job["reason"] and job["ended_at"] is None for job in jobs):
        left_out.add("reason")
    if all(job["best_loss"] is None for job in jobs):
        left_out.add("best")
    if not any(job["summary"] for job in jobs):
        left_out.add("command")
    return [column for name, column in COLUMNS.items() if name not in left_out - {always}]
