"""The measures of a run: name, definition, format and comparison with the baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a run's summary."""

    #: Where it stands in the JSON object of a run: a key, or a key in an inner object.
    path: tuple[str, ...]
    name: str
    definition: str
    unit: str = ""
    #: Whether a change against the baseline says anything about the policy.
    compared: bool = True

    def value(self, summary: Mapping[str, Any]) -> float:
        """Return the number in the summary; NaN if the run has none."""
        found: Any = summary
        for key in self.path:
            found = found[key]
        return math.nan if found is None else float(found)

    def text(self, summary: Mapping[str, Any]) -> str:
        """Return the number as a reader wants it: three digits and its unit."""
        value = self.value(summary)
        if math.isnan(value):
            return "–"
        if self.unit == "%":
            return f"{100 * value:.0f}%"
        digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
        return f"{digits} {self.unit}".rstrip()

    def change(self, summary: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
        """Return the change against the baseline in percent, empty if there is none."""
        before, after = self.value(baseline), self.value(summary)
        if not self.compared or before == 0.0 or math.isnan(before) or math.isnan(after):
            return ""
        change = round(100.0 * (after - before) / before)
        return f"{'−' if change < 0 else '+'}{abs(change)}%" if change else "±0%"


TIME_TO_90 = Measure(
    path=("time_to_90",),
    name="time to 90%",
    unit="s",
    definition="Mean seconds from a job's arrival until it has reached 90% of its whole loss reduction.",
)

COMPLETION = Measure(
    path=("completion",),
    name="completion",
    unit="s",
    definition="Mean seconds from a job's arrival to its end.",
)

MAKESPAN = Measure(
    path=("makespan",),
    name="makespan",
    unit="s",
    definition="Seconds from the first arrival to the last end.",
)

LOSS_SECONDS = Measure(
    path=("loss_seconds",),
    name="loss seconds",
    unit="s",
    definition=(
        "Mean over the jobs of the integral of a job's normalised loss from its arrival to its end: the seconds "
        "that it stood at its first loss, where seconds half-way down count half."
    ),
)

#: What jobs pay for being good early: how they stood over their whole lives, and when they ended.
BESIDE = (LOSS_SECONDS, COMPLETION, MAKESPAN)

MEASURES = (
    TIME_TO_90,
    Measure(
        path=("time_to_95",),
        name="time to 95%",
        unit="s",
        definition="The same for 95% of the reduction.",
    ),
    Measure(
        path=("mean_normalised_loss",),
        name="mean normalised loss",
        definition=(
            "Over all epochs, the mean over the active jobs of (best loss so far − final best) / "
            "(first loss − final best): 1 when training starts, 0 once nothing more is gained."
        ),
    ),
    *BESIDE,
    Measure(
        path=("mean_active",),
        name="active jobs",
        definition="Mean number of jobs that have arrived and not ended.",
    ),
    Measure(
        path=("share_by_group", "high"),
        name="cores, high loss",
        unit="%",
        compared=False,
        definition=(
            "Share of the cores held by the quarter of the active jobs whose normalised loss is highest; the "
            "next quarter is the medium group, the other half the low one."
        ),
    ),
    Measure(
        path=("share_by_group", "low"),
        name="cores, low loss",
        unit="%",
        compared=False,
        definition="Share of the cores held by the half of the active jobs whose normalised loss is lowest.",
    ),
    Measure(
        path=("decision_ms", "median"),
        name="decision, median",
        unit="ms",
        compared=False,
        definition="Milliseconds of computing that one decision of the scheduler took, at the median.",
    ),
    Measure(
        path=("decision_ms", "p99"),
        name="decision, p99",
        unit="ms",
        compared=False,
        definition="The same at the 99th percentile: one decision in a hundred took longer.",
    ),
)
