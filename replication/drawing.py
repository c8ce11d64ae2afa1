"""The charts that several experiments share: a line per policy over time, an interval per setting."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from slaq.reports.style import BLUE, MUTED, few_ticks, pen

#: Seconds in the units of time that an axis may be marked in.
UNITS_OF_TIME = {"minutes": 60.0, "hours": 3600.0}


def draw_over_time(
    figure: Figure, series: Mapping[str, Any], what: str, unit: str = "minutes", top: float | None = None
) -> None:
    """Draw one line per policy, from {"times": seconds, "values": ...}; `what` names the vertical axis."""
    axes = figure.subplots()
    for policy, seen in series.items():
        times = np.array(seen["times"]) / UNITS_OF_TIME[unit]
        axes.plot(times, seen["values"], label=policy, color=pen(policy).color, ls=pen(policy).dash)
    axes.set(xlabel=f"time ({unit})", ylabel=what, ylim=(0, top))
    few_ticks(axes)
    figure.legend(loc="outside upper left", ncols=4)


def draw_changes(figure: Figure, changes: list[tuple[str, Any]]) -> None:
    """Draw one horizontal interval per setting, the first one as the yardstick."""
    axes = figure.subplots()
    place = np.arange(len(changes))[::-1]
    mean, low, high = (100 * np.array([each[key] for _, each in changes]) for key in ("mean", "low", "high"))
    axes.axvline(0, color=MUTED, lw=0.8)
    axes.axvline(mean[0], color=BLUE, lw=0.8, ls=":")
    axes.errorbar(
        mean, place, xerr=[mean - low, high - mean], fmt="o", ms=4, color=BLUE, elinewidth=1.2, capsize=2
    )
    axes.set_yticks(place, [name for name, _ in changes])
    axes.set(xlabel="change of time to 90% against fair (%)", ylim=(-0.7, len(changes) - 0.3))
    axes.grid(axis="x")
