"""The charts: each function draws one chart, or assembles a figure of several."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from slaq.core.arrays import Floats
from slaq.core.forecast import Forecast
from slaq.core.outcome import REDUCTIONS, Outcome
from slaq.reports.measures import BESIDE
from slaq.reports.story import Story
from slaq.reports.style import GROUPS, INK, MUTED, few_ticks, pen, styled, time_scale

DOTS_PER_INCH = 160

#: Width in inches: narrow enough that the labels are readable on a phone without scrolling.
COLUMN = 5.0

#: A series over time is drawn with this many points at most, each the mean of a run of epochs: every
#: arrival lifts the mean loss, and more points would show nothing but that.
POINTS = 150

#: A curve is drawn with a mark per loss up to this many losses.
MARKED = 40


def save(figure: Figure, path: Path) -> None:
    """Write the figure in the format that the path's suffix names; the same figure gives the same bytes."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with styled(), warnings.catch_warnings():
        # A job may be named in a script that the font lacks; a box in its place needs no comment.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=undated.get(path.suffix.lower(), {}))


def overview(outcomes: Mapping[str, Outcome], story: Story | None) -> Figure:
    """Return the 2x2 picture: loss over time, time to reach, who held the cores, and one job's story."""
    with styled():
        figure = _figure(10.5, 7.6)
        ((top_left, top_right), (bottom_left, bottom_right)) = figure.subplots(2, 2)
        draw_mean_loss(top_left, outcomes)
        top_left.set_title("Mean normalised loss of the active jobs")
        draw_time_to_reach(top_right, outcomes)
        top_right.set_title("Mean time to a share of the reduction")
        draw_share_by_group(bottom_left, outcomes)
        bottom_left.set_title("Who held the cores")
        if story is None:
            draw_active(bottom_right, outcomes)
            bottom_right.set_title("Active jobs")
        else:
            draw_story_losses(bottom_right, story)
            bottom_right.set_title(f"One job: {_short(story.job_id)}", parse_math=False)
        _legend_above(figure, bottom_right, columns=8)
        figure.supxlabel("\n".join(_whole_runs(outcomes)), x=0.01, ha="left", fontsize=9.5, color=MUTED)
    return figure


def _whole_runs(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each policy: how its jobs stood over their whole lives, and when they ended."""
    summaries = {policy: outcome.as_json() for policy, outcome in outcomes.items()}
    return [
        f"{policy}: " + ", ".join(f"{measure.name} {measure.text(summary)}" for measure in BESIDE)
        for policy, summary in summaries.items()
    ]


def _picture(
    draw: Callable[[Axes, Mapping[str, Outcome]], None], outcomes: Mapping[str, Outcome], height: float
) -> Figure:
    """Return a chart of a column's width with its legend above."""
    with styled():
        figure = _figure(COLUMN, height)
        axes = figure.subplots()
        draw(axes, outcomes)
        _legend_above(figure, axes)
    return figure


def mean_loss_picture(outcomes: Mapping[str, Outcome]) -> Figure:
    """Return the mean normalised loss over time, one line per policy."""
    return _picture(draw_mean_loss, outcomes, 2.7)


def time_to_reach_picture(outcomes: Mapping[str, Outcome]) -> Figure:
    """Return the mean time to reach each reduction, one line per policy."""
    return _picture(draw_time_to_reach, outcomes, 2.8)


def active_picture(outcomes: Mapping[str, Outcome]) -> Figure:
    """Return the number of active jobs over time, one line per policy."""
    return _picture(draw_active, outcomes, 2.3)


def cores_picture(outcomes: Mapping[str, Outcome]) -> Figure:
    """Return the cores of each group of jobs over time, one stacked panel per policy, all to one scale."""
    with styled():
        figure = _figure(COLUMN, 0.7 + 1.35 * len(outcomes))
        rows = figure.subplots(len(outcomes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (policy, outcome) in zip(rows, outcomes.items(), strict=True):
            draw_cores(axes, outcome, _longest(outcomes))
            axes.set_title(policy)
        for axes in rows[:-1]:
            axes.set_xlabel("")
        _legend_above(figure, rows[0])
    return figure


def story_picture(story: Story) -> Figure:
    """Return one job's losses over time against what was forecast, and the cores it held."""
    with styled():
        figure = _figure(COLUMN, 4.2)
        losses, cores = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        draw_story_losses(losses, story)
        draw_story_cores(cores, story)
        losses.set_xlabel("")
        _legend_above(figure, losses)
    return figure


def forecast_picture(losses: Sequence[float], forecast: Forecast) -> Figure:
    """Return a loss curve with its forecast and the forecast's interval."""
    with styled():
        figure = _figure(7.2, 4.0)
        draw_forecast(figure.subplots(), np.asarray(losses, dtype=np.float64), forecast)
    return figure


def draw_mean_loss(axes: Axes, outcomes: Mapping[str, Outcome]) -> None:
    """Draw the mean over active jobs of the normalised loss, over time."""
    longest = _longest(outcomes)
    seconds, unit = time_scale(longest)
    for policy, outcome in outcomes.items():
        times, loss = _thinned(outcome.times, outcome.loss)
        axes.plot(times / seconds, loss, label=policy, **_line(policy))
    axes.set_xlabel(unit)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(0.0, longest / seconds)
    few_ticks(axes)


def draw_time_to_reach(axes: Axes, outcomes: Mapping[str, Outcome]) -> None:
    """Draw the mean seconds from arrival until each share of the loss reduction was reached, and to the end."""
    waits = {policy: np.append(each.time_to, each.completion) for policy, each in outcomes.items()}
    seconds, unit = time_scale(float(np.nanmax(np.concatenate([[0.0], *waits.values()]))))
    places = np.arange(len(REDUCTIONS) + 1)
    for policy, wait in waits.items():
        axes.plot(places, wait / seconds, label=policy, marker="o", ms=4.5, **_line(policy))
    axes.set_xticks(places, [*(f"{100 * share:g}%" for share in REDUCTIONS), "end"])
    axes.set_xlabel("share of a job's whole loss reduction, and its end")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.05)


def draw_active(axes: Axes, outcomes: Mapping[str, Outcome]) -> None:
    """Draw how many jobs were active over time."""
    longest = _longest(outcomes)
    seconds, unit = time_scale(longest)
    for policy, outcome in outcomes.items():
        times, active = _thinned(outcome.times, outcome.active.astype(np.float64))
        axes.plot(times / seconds, np.nan_to_num(active), label=policy, **_line(policy))
    axes.set_xlabel(unit)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(0.0, longest / seconds)
    few_ticks(axes, whole=True)


def draw_cores(axes: Axes, outcome: Outcome, longest: float) -> None:
    """Draw the cores that each group of jobs held over time, stacked."""
    seconds, unit = time_scale(longest)
    times, cores = _thinned(outcome.times, outcome.cores_by_group)
    axes.stackplot(
        times / seconds,
        np.nan_to_num(cores).T,
        colors=list(GROUPS.values()),
        labels=[_group_label(group) for group in GROUPS],
        step="post",
        linewidth=0.0,
    )
    axes.set_ylabel("cores")
    axes.set_xlabel(unit)
    axes.set_xlim(0.0, longest / seconds)
    axes.set_ylim(bottom=0.0)
    few_ticks(axes, whole=True)


def draw_share_by_group(axes: Axes, outcomes: Mapping[str, Outcome]) -> None:
    """Draw the mean share of the cores that each group of jobs held, one bar per policy."""
    places = np.arange(len(outcomes))[::-1]
    left = np.zeros(len(outcomes))
    shares = np.nan_to_num([list(outcome.share_by_group.values()) for outcome in outcomes.values()])
    for column, (group, color) in enumerate(GROUPS.items()):
        width = shares[:, column]
        bars = axes.barh(places, width, left=left, color=color, height=0.6, label=_group_label(group))
        texts = [f"{100 * share:.0f}%" if share >= 0.06 else "" for share in width]
        axes.bar_label(
            bars, texts, label_type="center", color="#10151a" if group == "low" else "white", fontsize=9
        )
        left = left + width
    axes.set_yticks(places, list(outcomes))
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(-0.6, len(outcomes) - 0.4)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.1), ncols=len(GROUPS), borderpad=0.0)


def draw_story_losses(axes: Axes, story: Story) -> None:
    """Draw one job's losses under each policy, and what one policy forecast for the end of each epoch."""
    seconds, unit = time_scale(story.until)
    for policy, chapter in story.chapters.items():
        few = chapter.losses.size <= MARKED
        axes.plot(
            chapter.times / seconds,
            chapter.losses,
            label=policy,
            drawstyle="steps-post",
            marker="o" if few else None,
            ms=3.0,
            **_line(policy),
        )
    told = story.chapters.get(story.forecast_by)
    if told is not None and told.forecast_times.size:
        shown = np.flatnonzero(told.forecast_times <= story.until)
        shown = shown[:: -(-shown.size // MARKED) or 1]
        x = told.forecast_times[shown] / seconds
        color = pen(story.forecast_by).color
        axes.vlines(x, told.low[shown], told.high[shown], color=color, alpha=0.3, linewidth=3.0)
        axes.plot(x, told.expected[shown], color=color, marker="x", ms=4.5, ls="none", label="forecast")
    axes.set_xlabel(f"{unit} since the job arrived")
    axes.set_ylabel("loss")
    axes.set_ylim(*_sane_limits(story))
    axes.set_xlim(0.0, story.until / seconds)
    few_ticks(axes)


def draw_story_cores(axes: Axes, story: Story) -> None:
    """Draw the cores that one job held over time under each policy."""
    seconds, unit = time_scale(story.until)
    for policy, chapter in story.chapters.items():
        axes.plot(
            chapter.decided / seconds, chapter.cores, drawstyle="steps-post", label=policy, **_line(policy)
        )
    axes.set_xlabel(f"{unit} since the job arrived")
    axes.set_ylabel("cores")
    axes.set_ylim(bottom=0.0)
    few_ticks(axes, whole=True)


def draw_forecast(axes: Axes, losses: Floats, forecast: Forecast) -> None:
    """Draw the losses so far, and beyond them the forecast with its interval."""
    iterations = np.arange(losses.size)
    finite = np.isfinite(losses)
    style: dict[str, Any] = {"marker": "o", "ms": 3.0} if losses.size <= MARKED else {}
    axes.plot(iterations[finite], losses[finite], color=INK, label="losses so far", linewidth=1.3, **style)
    last = iterations[finite][-1]
    ahead = np.concatenate(([last], losses.size - 1 + np.asarray(forecast.horizons)))
    now = losses[last]
    color = pen("total-quality").color
    low, high, mean = (np.concatenate(([now], v)) for v in (forecast.low, forecast.high, forecast.mean))
    axes.fill_between(ahead, low, high, color=color, alpha=0.18, linewidth=0.0, label="80% interval")
    axes.plot(ahead, mean, color=color, marker="o" if mean.size <= MARKED else None, ms=3.0, label="forecast")
    for place in forecast.restarts:
        axes.axvline(place, color=MUTED, linewidth=0.9, linestyle=":")
    if forecast.restarts:
        axes.plot([], [], color=MUTED, linewidth=0.9, linestyle=":", label="the curve bends")
    axes.set_xlabel("iteration")
    axes.set_ylabel("loss")
    axes.margins(x=0.02)
    few_ticks(axes)
    axes.legend(loc="best")


def _longest(outcomes: Mapping[str, Outcome]) -> float:
    ends = [outcome.times[-1] + outcome.epoch_seconds for outcome in outcomes.values() if outcome.times.size]
    return float(max(ends, default=1.0))


def _thinned(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return means over equal stretches of time, at most `POINTS`; NaN where nothing was decided in one."""
    if times.size < 2:
        return times, values
    gaps = np.diff(times)
    usual = float(np.quantile(gaps, 0.9))
    # A live cluster decides early where jobs come and go: stretches of two epochs then leave none empty.
    even = float(gaps.min()) > 0.99 * usual
    step = max(float(times[-1] - times[0]) / POINTS, usual if even else 2 * usual, 1e-9)
    place = np.floor((times - times[0]) / step + 1e-9).astype(np.int64)
    known = np.isfinite(values)
    count = np.zeros((int(place[-1]) + 1, *values.shape[1:]))
    total = np.zeros_like(count)
    np.add.at(count, place, known)
    np.add.at(total, place, np.where(known, values, 0.0))
    means: Floats = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return times[0] + step * np.arange(len(count)), means


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _line(policy: str) -> dict[str, Any]:
    color, dash = pen(policy)
    return {"color": color, "linestyle": dash}


def _legend_above(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Explain the lines of the axes above them all, where they cannot run through the text."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.4)


def _group_label(group: str) -> str:
    return {"high": "highest loss, 25%", "medium": "next 25%", "low": "lowest loss, 50%"}[group]


def _sane_limits(story: Story) -> tuple[float, float]:
    """Return vertical limits set by the losses, so that one early, wild interval flattens nothing."""
    losses = np.concatenate([chapter.losses for chapter in story.chapters.values()])
    low, high = float(np.nanmin(losses)), float(np.nanmax(losses))
    margin = 0.08 * (high - low) or 0.5
    return low - margin, high + margin


def _short(text: str, most: int = 32) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
