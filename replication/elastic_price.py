"""The price of a resize and of a kill: slaq.elastic, torchrun, and checkpoints by hand, in one run.

The same small network learns the same images with the same batch in three ways. In each, a worker joins, leaves
and joins again, a worker is killed, and then the process that leads: slaq's driver, or that of rank 0. Every way
writes a checkpoint every few seconds. What is measured comes from the trainings' own diaries: when each update
was made, a checksum of the weights after it, and how often they have learned from each sample.

    python -m replication --only elastic_price
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.elastic_ways import ByHand, ElasticWay, Line, SlaqElastic, Torchrun
from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
    SkippedError,
)
from replication.intervals import estimate, listed, number, sentences, table
from replication.quiet import busy_share, noise
from slaq.reports.style import BLUE, MUTED

HEADING = "The price of a resize"
#: Samples of an update, in all ways.
BATCH = 256
JOIN, LEAVE, KILL, KILL_LEADER = "a join", "a leave", "a worker killed", "the leader killed"
EVENTS = (JOIN, LEAVE, KILL, KILL_LEADER)
SLAQ, HAND, TORCHRUN = "slaq.elastic", "by hand", "torchrun"
#: By name: how it is run, and how often in a full run; those that start anew take a minute.
WAYS: Mapping[str, tuple[type[ElasticWay], int]] = {
    SLAQ: (SlaqElastic, 2),
    HAND: (ByHand, 1),
    TORCHRUN: (Torchrun, 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happens to each training, and how long it goes on in between."""

    events: tuple[str, ...]
    #: Updates between two events.
    between: int
    #: Seconds between two checkpoints.
    every: float


FULL = Course(events=(JOIN, LEAVE, JOIN, KILL, KILL_LEADER), between=40, every=3.0)
QUICK = Course(events=(JOIN, KILL, KILL_LEADER), between=5, every=1.0)
QUICK_EVENTS_BY_HAND = (KILL_LEADER,)


def run(settings: Settings) -> Results:
    """Disturb the training in every way, and then train as far without disturbing it."""
    if find_spec("torch") is None:
        raise SkippedError("it needs PyTorch: pip install slaq[torch]")
    course = QUICK if settings.quick else FULL
    found: dict[str, list[dict[str, Any]]] = {}
    diaries: dict[str, list[list[Line]]] = {}
    busy = []
    with tempfile.TemporaryDirectory(prefix="slaq-price-") as home:
        for name, (kind, times) in WAYS.items():
            if settings.quick and name == TORCHRUN:
                continue
            found[name], diaries[name] = [], []
            for turn in range(1 if settings.quick else times):
                busy.append(busy_share(0.1 if settings.quick else 1.0))
                way = kind(settings.python, Path(home, f"{name}-{turn}"), course.every)
                events = QUICK_EVENTS_BY_HAND if settings.quick and name == HAND else course.events
                found[name].append({"events": disturbed(way, events, course)})
                diaries[name].append(way.diary.lines)
            settings.progress(0.8 * len(found) / len(WAYS))
        undisturbed = _undisturbed(settings, Path(home), diaries, course)
    for name, runs in found.items():
        plain = undisturbed[name]
        for place, lines in enumerate(diaries[name]):
            runs[place] = told(lines, runs[place]["events"], plain)
    return {
        "ways": found,
        "undisturbed": {name: {"gaps": gaps_of(lines)} for name, lines in undisturbed.items()},
        "every": course.every,
        "busy": busy,
    }


def disturbed(way: ElasticWay, events: Sequence[str], course: Course) -> list[dict[str, Any]]:
    """Train with all events one after another; return when each came, and when the next could."""
    done = []
    try:
        workers = 1 if events[0] == JOIN else 2
        _go_on(way, workers, course.between, lambda: way.resize(workers))
        for event in events:
            workers = 1 if event == LEAVE else 2
            at = _go_on(way, workers, course.between, _deed(way, event))
            done.append({"event": event, "at": at, "until": time()})
    finally:
        way.end()
    return done


def _deed(way: ElasticWay, event: str) -> Callable[[], None]:
    deeds: dict[str, Callable[[], None]] = {
        JOIN: lambda: way.resize(2),
        LEAVE: lambda: way.resize(1),
        KILL: way.kill_worker,
        KILL_LEADER: way.kill_leader,
    }
    return deeds[event]


def _go_on(way: ElasticWay, workers: int, updates: int, deed: Callable[[], None]) -> float:
    """Do this and wait until so many updates more are made by so many workers; return when it was done."""
    reached, at = way.diary.reached, time()
    deed()
    way.follow(
        lambda lines: any(
            line.at > at and line.number > reached and line.workers == workers for line in lines[-200:]
        )
    )
    reached = way.diary.reached
    way.follow(lambda lines: lines[-1].number >= reached + updates)
    return at


def _undisturbed(
    settings: Settings, home: Path, diaries: Mapping[str, Sequence[Sequence[Line]]], course: Course
) -> dict[str, list[Line]]:
    """Return the diaries of one worker that nobody disturbs, as far as the others came."""
    farthest = {name: max(lines[-1].number for lines in runs) for name, runs in diaries.items()}
    plain = max(farthest.get(name, 0) for name in (HAND, TORCHRUN))
    found: dict[str, list[Line]] = {}
    for kind, updates, names in ((SlaqElastic, farthest[SLAQ], (SLAQ,)), (ByHand, plain, (HAND, TORCHRUN))):
        way: ElasticWay = kind(settings.python, home / f"undisturbed-{kind.__name__}", course.every, updates)
        try:
            way.resize(1)
            last = updates
            way.follow(lambda lines, last=last: bool(lines) and lines[-1].number >= last)  # type: ignore[misc]
        finally:
            way.end()
        found |= {name: way.diary.lines for name in names if name in diaries}
    return found


# What the diaries say.


def told(
    lines: Sequence[Line], events: Sequence[Mapping[str, Any]], undisturbed: Sequence[Line]
) -> dict[str, Any]:
    """Return what each event cost, and whether the weights at the end are those of the undisturbed run."""
    checksums = {line.number: line.checksum for line in undisturbed}
    last = lines[-1]
    return {
        "events": [{"event": each["event"], **price(lines, each["at"], each["until"])} for each in events],
        "updates": last.number,
        "same_bits": checksums.get(last.number) == last.checksum,
        "lost": last.lost,
        "twice": last.twice,
    }


def price(lines: Sequence[Line], at: float, until: float) -> dict[str, float]:
    """Return what an event cost: the time without an update, until all was regained, and what was redone."""
    before = [line for line in lines if line.at <= at]
    stream = [before[-1], *(line for line in lines if at < line.at <= until)]
    moments = np.array([line.at for line in stream])
    gaps = np.diff(moments)
    place = int(gaps.argmax())
    highest = np.maximum.accumulate([line.number for line in [*before, *stream[1:]]])[len(before) - 1 :]
    redone = [k for k in range(1, len(stream)) if stream[k].number <= highest[k - 1]]
    regained = max([moments[place + 1], *(moments[k] for k in redone)])
    return {
        "silence": float(gaps[place]),
        "usual": float(np.median(np.diff([line.at for line in before[-30:]]))),
        "regained": float(regained - moments[place]),
        "redone": float(BATCH * len(redone)),
    }


def gaps_of(lines: Sequence[Line]) -> dict[str, float]:
    """Return the median and the longest time between two updates, without the first few."""
    gaps = np.diff([line.at for line in lines])[3:]
    return {"median": float(np.median(gaps)), "longest": float(gaps.max())}


# The report.


def sections(results: Results) -> list[Section]:
    """Say what a change of workers and a kill cost in each way."""
    ways = results["ways"]
    names = [name for name in WAYS if name in ways]
    present = [event for event in EVENTS if any(_each(ways[name], event, "silence") for name in names)]
    return [
        Section(
            heading=HEADING,
            title="a worker that joins, leaves or is killed, and the end of the process that leads",
            ours="\n\n".join(_tables(results, names, present)),
            made=f"A small convolutional network on generated images, SGD with momentum, batch {BATCH}, one or two "
            "workers of one thread, in all ways; a checkpoint every "
            f"{results['every']:g} s. slaq.elastic is told its share as every job is, and started again by "
            "the same command when its driver is killed. torchrun has one agent for each worker, which comes and "
            "goes with it, and is told to miss an agent after 3 s and to wait 3 s for latecomers (its defaults "
            "are 15 s and 30 s). By hand means that the script saves and ends when it is told to, "
            "and is started again at once with another number of processes: no person is that fast. "
            "torchrun and the restarts run one script, which takes up a pass in its middle; "
            "the workers of both average their gradients. Times are between the moments after two updates.",
            falls_short=_falls_short(results),
            pictures=(
                Picture(
                    name="price-of-a-resize",
                    alt="Seconds without an update after a join, a leave and kills, by way, on a log scale.",
                    draw=lambda figure: draw(figure, ways, names, present),
                ),
            ),
            readme=tuple(
                Comparison(
                    what=f"an elastic PyTorch job: seconds without an update after {event}",
                    paper="–",
                    ours="; ".join(
                        [f"{_mean(ways[SLAQ], event, 'silence')} s"]
                        + [
                            f"{name} {_mean(ways[name], event, 'silence')} s"
                            for name in names
                            if name != SLAQ
                        ]
                    ),
                )
                for event in present
                if all(_each(ways[name], event, "silence") for name in names)
            ),
        )
    ]


def _tables(results: Results, names: Sequence[str], present: Sequence[str]) -> Iterator[str]:
    ways, undisturbed = results["ways"], results["undisturbed"]
    yield "The longest time between two updates after each event, in seconds:"
    plain = ("no event", *(number(undisturbed[name]["gaps"]["longest"], 2) for name in names))
    yield table(
        ("", *names),
        [plain, *((event, *(_mean(ways[name], event, "silence") for name in names)) for event in present)],
    )
    yield "Seconds until all was regained that had been done before, and samples whose work was done again:"
    rows = []
    for event in present:
        cells = []
        for name in names:
            again = _mean(ways[name], event, "redone", 0)
            cells.append(f"{_mean(ways[name], event, 'regained')} s, {again}")
        rows.append((event, *cells))
    yield table(("", *names), rows)
    ends = []
    for name in names:
        runs = ways[name]
        same = sum(each["same_bits"] for each in runs)
        wrong = sum(each["lost"] + each["twice"] for each in runs)
        ends.append((name, str(runs[0]["updates"]), f"{same} of {len(runs)}", number(wrong)))
    yield table(
        (
            "",
            "updates",
            "runs that end in the bits of the undisturbed run",
            "samples not learned once a pass",
        ),
        ends,
    )


def _falls_short(results: Results) -> str:
    ways, undisturbed = results["ways"], results["undisturbed"]
    usual = undisturbed[SLAQ]["gaps"]
    mine = {event: estimate(_each(ways[SLAQ], event, "silence"))["mean"] for event in EVENTS}
    # Two usual updates without one in between are one update lost.
    slow = [event for event, seconds in mine.items() if seconds > max(2 * usual["median"], usual["longest"])]
    others = [name for name in ways if name != SLAQ and any(not each["same_bits"] for each in ways[name])]
    return sentences(
        f"Under slaq.elastic it takes longer than an update to the next one after {listed(slow)}; "
        f"its usual update takes {number(usual['median'], 3)} s and its longest without any event "
        f"{number(usual['longest'], 3)} s."
        if slow
        else "",
        "A driver that is killed is started again as any script is: most of that time Python imports PyTorch.",
        f"Sums over another number of workers are rounded differently, so {listed(others)} end in other bits."
        if others
        else "",
        noise(results["busy"]),
    )


def _each(runs: Sequence[Mapping[str, Any]], event: str, name: str) -> list[float]:
    return [each[name] for one in runs for each in one["events"] if each["event"] == event]


def _mean(runs: Sequence[Mapping[str, Any]], event: str, name: str, digits: int = 2) -> str:
    return number(estimate(_each(runs, event, name))["mean"], digits)


def draw(figure: Figure, ways: Mapping[str, Any], names: Sequence[str], present: Sequence[str]) -> None:
    """Draw the seconds without an update by event and way."""
    axes = figure.subplots()
    place = np.arange(len(present))[::-1].astype(float)
    height = 0.8 / len(names)
    colors = (BLUE, "#9db4c0", MUTED)
    for k, (name, color) in enumerate(zip(names, colors, strict=False)):
        means = [estimate(_each(ways[name], event, "silence"))["mean"] for event in present]
        at = place + 0.4 - height * (k + 0.5)
        axes.barh(at, means, 0.9 * height, color=color, label=name)
        for y, mean in zip(at, means, strict=True):
            if np.isfinite(mean):
                axes.text(1.06 * mean, y, f"{mean:.2g} s", va="center", fontsize=7)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_yticks(place, list(present))
    axes.set(xlabel="longest time between two updates (s)")
    figure.legend(loc="outside upper left", ncols=len(names))


def key_figures(results: Results) -> list[KeyFigure]:
    """Return what must not get worse: slaq's times without an update."""
    return [
        KeyFigure(
            name=f"seconds without an update after {event}, slaq.elastic",
            value=estimate(_each(results["ways"][SLAQ], event, "silence")),
        )
        for event in EVENTS
    ]


EXPERIMENT = Experiment(
    name="elastic_price", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
