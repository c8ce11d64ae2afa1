"""How every chart looks: colours that colour-blind readers tell apart, thin rules, no decoration."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

#: Stand-ins that the page replaces by CSS variables, so that an inline picture follows light and dark.
INK = "#1c2126"
MUTED = "#68707a"
RULE = "#dfe3e8"
BLUE = "#0072b2"

#: From most to least loss: one hue in three lightnesses.
GROUPS = {"high": "#0b4f8a", "medium": "#56a0d3", "low": "#c3dcee"}

MINUTE = 60.0
HOUR = 3600.0


class Pen(NamedTuple):
    """The line style of one policy, the same in every picture."""

    color: str
    dash: str


# The palette of Okabe and Ito; the baseline that others are measured against is grey.
PENS = {
    "fair": Pen("#7d858f", "--"),
    "total-quality": Pen(BLUE, "-"),
    "clairvoyant": Pen("#009e73", ":"),
    "min-quality": Pen("#d55e00", "-"),
    "fifo": Pen("#e69f00", "-."),
    "shortest-first": Pen("#cc79a7", "-"),
    "least-attained": Pen("#56b4e9", "-."),
    "deadline": Pen("#b8860b", "-"),
}
SPARE = Pen("#a06cd5", "-")

# Keys are typed as literals in some versions of matplotlib, as plain text in others.
SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.major.size": 0.0,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "slaq",
    "pdf.fonttype": 42,
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style inside the block."""
    with matplotlib.rc_context(SETTINGS):
        yield


def pen(policy: str) -> Pen:
    """Return how the policy is drawn."""
    return PENS.get(policy, SPARE)


def time_scale(longest: float) -> tuple[float, str]:
    """Return the seconds in the unit that suits a span of time, and that unit's name."""
    if longest > 3 * HOUR:
        return HOUR, "hours"
    if longest > 10 * MINUTE:
        return MINUTE, "minutes"
    return 1.0, "seconds"


def few_ticks(axes: Axes, *, whole: bool = False) -> None:
    """Keep the marks on both axes few and round; `whole` where the vertical axis counts things."""
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
