"""Numbers with their intervals, and how the report writes them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

#: JSON-able: {"mean", "low", "high", "n"}, as `estimate` makes them; None where nothing could be measured.
Estimate = Mapping[str, Any]


def estimate(values: Iterable[float]) -> dict[str, float]:
    """Return the mean with its 95% t-interval; with fewer than two finite values the interval is the mean."""
    from scipy.stats import t

    known = np.array([value for value in values if math.isfinite(value)], dtype=np.float64)
    if not known.size:
        return {"mean": math.nan, "low": math.nan, "high": math.nan, "n": 0}
    mean = float(known.mean())
    half = 0.0
    if known.size > 1:
        half = float(t.ppf(0.975, known.size - 1) * known.std(ddof=1) / math.sqrt(known.size))
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": int(known.size)}


def changes(values: Iterable[float], baselines: Iterable[float]) -> dict[str, float]:
    """Return the estimate of value / baseline - 1, paired by seed."""
    return estimate(a / b - 1.0 if b else math.nan for a, b in zip(values, baselines, strict=True))


def number(value: float | None, digits: int = 0) -> str:
    """Return the number with a true minus sign and thousands apart; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    # Adding zero makes a rounded −0 plain.
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def shown(value: Estimate, digits: int = 0, unit: str = "") -> str:
    """Return an estimate as "mean (low to high)"."""
    mean, low, high = (number(value[key], digits) for key in ("mean", "low", "high"))
    return f"{mean}{unit}" if value["n"] < 2 else f"{mean}{unit} ({low} to {high})"


def percent(value: Estimate, digits: int = 0) -> str:
    """Return an estimate of a share as "mean% (low to high)"."""
    scaled = {key: each if key == "n" or each is None else 100.0 * each for key, each in value.items()}
    return shown(scaled, digits=digits, unit="%")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_of(what: str, ours: Estimate, paper: float) -> str:
    """Return the sentence to write where a change, of which lower is better, is less than the paper's; else ""."""
    if ours["mean"] is None or ours["mean"] <= paper:
        return ""
    within = ", though the paper's lies inside our interval" if ours["low"] <= paper else ""
    return (
        f"Our change of {what}, {percent(ours)}, falls short of the paper's {number(100 * paper)}%{within}."
    )


def sentences(*each: str) -> str:
    """Return the sentences that there are, as one paragraph."""
    return " ".join(one for one in each if one)


def listed(names: Sequence[str]) -> str:
    """Return the names as a sentence has them: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
