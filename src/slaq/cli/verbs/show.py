"""`slaq show`: shows everything about one job."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.spans import span
from slaq.cli.input.connection_options import JOB, JSON, connects, print_json
from slaq.core.errors import SlaqError
from slaq.core.progress import SHARES

if TYPE_CHECKING:
    from slaq.client import Client

#: The number of losses that the curve is drawn from, and its width in characters.
LOSSES, WIDTH = 5000, 60
#: The most numbers beside the loss whose course is drawn.
METRICS = 8
#: Options that are shown in lines of their own, or that `--json` alone has because they are long.
ELSEWHERE = frozenset((
    *("name", "user", "weight", "min_cores", "max_cores", "sizes", "memory", "deadline", "arrival", "after"),
    *("after_any", "tags", "group", "parameters", "cwd", "env", "python"),
))  # fmt: skip


@click.command("show")
@JOB
@JSON
@connects
def command(client: "Client", job: str, as_json: bool) -> None:
    """Show everything about JOB: its state, its submission, its forecast and its loss curve."""
    view = client.show_job(job)
    try:
        submission = client.submission(job)
    except SlaqError:
        # Commands of other users are private, even if everyone may see the state of all jobs.
        submission = None
    if as_json:
        print_json({**view, "submission": submission})
        return
    from rich.table import Table

    from slaq.cli.display.live import sparkline
    from slaq.cli.display.terminal import cell, show

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in _facts(view, submission or {}, time.time()):
        table.add_row(name, cell(text, lines=True))
    observed = list(client.observations(job, limit=LOSSES))
    for name, course in _courses(observed):
        line = sparkline([float("nan") if value is None else value for value in course], WIDTH)
        last = "" if name == "losses" or course[-1] is None else f"  {course[-1]:g}"
        table.add_row(cell(name), line + last)
    show(table)


def _courses(observed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the course of the losses, and of the other numbers that the job tells beside the last of them."""
    if not observed:
        return
    yield "losses", [one["loss"] for one in observed]
    for name in list(observed[-1]["metrics"])[:METRICS]:
        yield name, [one["metrics"].get(name) for one in observed]


def _facts(view: Mapping[str, Any], submission: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts as pairs of a name and a text."""
    from slaq.cli.display.job_columns import ENDED, parameters

    active = view["state"] not in ENDED
    yield "job", view["id"]
    yield "user", view["owner"]
    yield "state", view["state"] + (f" ({view['reason']})" if view["reason"] else "")
    yield view["work"], shlex.join(submission["command"]) if submission.get("command") else view["summary"]
    if submission.get("cwd"):
        yield "in", submission["cwd"]
    if view["group"]:
        yield "group", view["group"]
    if view["parameters"]:
        yield "parameters", parameters(view["parameters"])
    yield "submitted", _moment(view["submitted_at"], now)
    yield from _awaited(view, now)
    if view["started_at"] is not None:
        yield (
            "started",
            _moment(view["started_at"], now)
            + (f", {view['attempts']} times" if view["attempts"] > 1 else ""),
        )
    if view["ended_at"] is not None:
        yield "ended", _moment(view["ended_at"], now)
    if active:
        yield "holds", f"{view['cores']:.2f} cores"
    most = "" if view["max_cores"] is None else f", at most {_cores(view['max_cores'])}"
    least = f", at least {_cores(view['min_cores'])}" if view["min_cores"] else ""
    yield "weight", f"{view['weight']:g}{least}{most}"
    if view["sizes"] != "any":
        listed = view["sizes"] if isinstance(view["sizes"], list) else []
        yield "sizes", ", ".join(f"{size:g}" for size in listed) + " cores" if listed else "whole cores"
    if said := _can_use(view["can_use"]):
        yield "can use", said
    if view["threads"] is not None:
        yield "threads", f"{view['threads']}: {view['threads_reason']}"
    yield from _memory(view)
    yield "CPU", span(view["cpu_seconds"])
    yield from _losses(view)
    yield from _prospects(view, now) if active and view["trains"] else ()
    if asked := _asked(view, submission):
        yield "options", asked
    if view["standing"] is not None:
        from slaq.core.explanation import Standing

        yield "search", Standing(**view["standing"]).sentence
    if view["tags"]:
        yield "tags", ", ".join(view["tags"])
    yield "files", view["directory"]


def _asked(view: Mapping[str, Any], submission: Mapping[str, Any]) -> str:
    """Return the options that differ from what is usual and have no line of their own."""
    from slaq.service.records import OPTION_SETS

    usual = {name: option.default for name, option in OPTION_SETS[view["work"]].options.items()}
    told = (
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {shlex.quote(str(value))}"
        for name, value in submission.items()
        if name in usual and name not in ELSEWHERE and value != usual[name]
    )
    return ", ".join(told)


def _can_use(said: Mapping[str, Any] | None) -> str:
    """Return what the job last said that it can use, and what more of it is worth; empty where it said nothing."""
    if said is None:
        return ""
    told = [] if said["max_cores"] is None else [f"at most {_cores(said['max_cores'])}"]
    if said["min_cores"]:
        told.insert(0, f"at least {_cores(said['min_cores'])}")
    if said["sizes"] != "any":
        sizes = said["sizes"]
        told.append(
            "whole workers" if sizes == "whole" else ", ".join(f"{size:g}" for size in sizes) + " cores"
        )
    if said["worth"] is not None:
        told.append(f"all of its workers advance it like {said['worth']:.3g} single ones at most")
    if said["change_seconds"] is not None:
        told.append(f"a change of size costs it {said['change_seconds']:.2g} s")
    return "; ".join(told)


def _cores(count: float) -> str:
    return f"{count:g} core" if count == 1 else f"{count:g} cores"


def _memory(view: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    told = [] if view["memory"] is None else [f"{view['memory'] / 1e9:.3g} GB declared"]
    if view["memory_peak"]:
        told.append(f"{view['memory_peak'] / 1e9:.3g} GB at most")
    if told:
        yield "memory", ", ".join(told)


def _losses(view: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from slaq.cli.display.job_columns import done, number

    if view["loss_source"]:
        yield "reads", view["loss_source"]
    if view["loss_trouble"]:
        yield "trouble", view["loss_trouble"]
    if view["iteration"] >= 0:
        last = "not a number any more" if view["diverged"] else number(view["loss"])
        others = f"first {number(view['first_loss'])}, best {number(view['best_loss'])}"
        higher = "; higher is better" if view["maximize"] else ""
        yield "loss", f"{last}; {others}{higher}"
        yield "iteration", _iterations(view["iteration"], view["total"])
        if view["trains"]:
            made = done(view["reduction"], view["iteration"])
            yield (
                "done",
                "not known before a second loss" if made == "–" else f"{made} of its whole reduction",
            )


def _awaited(view: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Yield what has to come before the job starts."""
    if view["arrival"] > now:
        yield "due", f"{_clock(view['arrival'])} (in {span(view['arrival'] - now)})"
    if view["after"]:
        yield "after", ", ".join(view["after"])
    if view["after_any"]:
        yield "after the end of", ", ".join(view["after_any"])


def _prospects(view: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    from slaq.cli.display.job_columns import number, share

    prospect = view["prospect"]
    moments = zip(SHARES, (prospect["at_90"], prospect["at_95"]), strict=True)
    yield "expected", ", ".join(f"{share(good)} {_when(view, at, now, good)}" for good, at in moments)
    whole = (
        "its reduction" if view["target_loss"] is None else f"the way to loss {number(view['target_loss'])}"
    )
    if view["deadline"] is not None:
        wanted = 1.0 if view["target_loss"] is not None else view["stop_at"] or 0.95
        left = view["deadline"] - now
        when = f"in {span(left)}" if left > 0 else f"{span(-left)} ago"
        odds = "out of reach" if prospect["out_of_reach"] else f"probability {share(prospect['chance'])}"
        yield "deadline", f"{share(wanted)} of {whole} by {_clock(view['deadline'])} ({when}): {odds}"
    if view["stop_at"] is not None:
        yield "stops at", f"{share(view['stop_at'])} of {whole}"


def _iterations(iteration: int, total: int | None) -> str:
    # Losses may come after the last one that was to come.
    if total is None or iteration > total:
        return str(iteration)
    return f"{iteration} of {total} ({iteration / total:.0%})"


def _when(view: Mapping[str, Any], moment: float | None, now: float, good: float) -> str:
    from slaq.cli.display.job_columns import expected

    told = expected(view, moment, now, good)
    return {"–": "not known yet", "reached": "reached"}.get(told, f"in {told}")


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"


def _moment(moment: float, now: float) -> str:
    return f"{_clock(moment)} ({span(now - moment)} ago)"
