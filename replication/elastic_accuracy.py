"""Elastic training: what each rule for the learning rate makes of a batch that grows and shrinks, at equal samples.

`elastic_rules` makes the runs: on a GPU in full, else smaller nets with fewer samples; without outside data on
scikit-learn's digits and a made-up language.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

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
from replication.intervals import Estimate, estimate, number, sentences, table
from slaq.core.errors import MissingExtraError
from slaq.core.extras import needs
from slaq.reports.style import BLUE, MUTED

HEADING = "Learning rates of elastic training"
FIXED = "fixed"
RULES = ("none", "linear-at-once", "linear", "sqrt", "adascale", "auto")
#: By kind: the measure that a run is judged by, its factor and digits, and what the report calls it.
MEASURES: Mapping[str, tuple[str, float, int, str]] = {
    "images": ("accuracy", 100.0, 1, "accuracy (%)"),
    "text": ("loss", 1.0, 3, "held-out loss"),
}
PENS: Mapping[str, tuple[str, str]] = {
    FIXED: (MUTED, ":"),
    "none": ("#e69f00", "-."),
    "linear-at-once": ("#d55e00", "--"),
    "linear": ("#009e73", "-"),
    "sqrt": ("#cc79a7", "-."),
    "adascale": ("#56b4e9", "--"),
    "auto": (BLUE, "-"),
}


def run(settings: Settings) -> Results:
    """Make every run that this machine has the time for."""
    try:
        with needs("torch"):
            from replication import elastic_rules
    except MissingExtraError as error:
        raise SkippedError(str(error)) from None
    device = elastic_rules.best_device()
    size = "quick" if settings.quick else "full" if device == "cuda" else "reduced"
    seeds = settings.seeds[:1] if settings.quick else settings.seeds[:4]
    data = None if settings.quick else settings.data
    if data is not None:
        settings.outside("fashion_mnist")
        settings.outside("tinyshakespeare")
    cases = elastic_rules.cases(size, seeds, data, device)
    # Without a GPU each core trains a net.
    cores = os.cpu_count() or 1
    processes = 1 if settings.quick else max(1, cores - 2) if device == "cuda" else cores
    runs = elastic_rules.run_all(cases, processes, settings.progress)
    return elastic_rules.collected(runs, size, data, device)


Runs = Sequence[Mapping[str, Any]]


def chosen(results: Results, **named: str) -> Runs:
    """Return the runs of this kind, trace or rule."""
    return [one for one in results["runs"] if all(one[name] == value for name, value in named.items())]


def traces(results: Results) -> list[str]:
    """Return the traces, in the order of the runs, without that of the fixed batch."""
    return [name for name in dict.fromkeys(one["trace"] for one in results["runs"]) if name != FIXED]


def values(runs: Runs, name: str, scale: float = 1.0) -> list[float]:
    """Return a number of each run; nan where a run has none."""
    return [math.nan if one[name] is None else scale * one[name] for one in runs]


def behind(results: Results, kind: str, trace: str, rule: str) -> Estimate:
    """Return how far a rule stays behind the fixed small batch, in points or in loss, paired by seed."""
    measure, scale, _, _ = MEASURES[kind]
    sign = 1.0 if measure == "loss" else -1.0
    fixed = {one["seed"]: one[measure] for one in chosen(results, kind=kind, rule=FIXED)}
    return estimate(
        math.nan
        if one[measure] is None or fixed[one["seed"]] is None
        else sign * scale * (one[measure] - fixed[one["seed"]])
        for one in chosen(results, kind=kind, trace=trace, rule=rule)
    )


def shown_with_spread(found: Sequence[float], digits: int) -> str:
    """Return "mean ± deviation" of the finite values."""
    known = np.array([value for value in found if math.isfinite(value)])
    if not known.size:
        return "–"
    return f"{number(float(known.mean()), digits)} ± {number(float(known.std()), digits)}"


def ends(results: Results, kind: str) -> str:
    """Return the table of how the runs of a kind ended."""
    measure, scale, digits, _ = MEASURES[kind]

    def cell(runs: Runs) -> str:
        lost = sum(one["diverged"] for one in runs)
        text = shown_with_spread(values(runs, measure, scale), digits)
        return f"{text}, {lost} of {len(runs)} diverged" if lost else text

    names = traces(results)
    rows = [
        (rule, *(cell(chosen(results, kind=kind, trace=trace, rule=rule)) for trace in names))
        for rule in RULES
    ]
    fixed = cell(chosen(results, kind=kind, rule=FIXED))
    return table(("", *names), [*rows, ("small batch throughout", fixed, *([""] * (len(names) - 1)))])


def shaken(results: Results, kind: str) -> str:
    """Return the table of how the runs took the changes of their batch."""
    names = [
        trace for trace in traces(results) if chosen(results, kind=kind, trace=trace)[0]["worst"] is not None
    ]

    def cell(runs: Runs) -> str:
        worst, back = (
            np.array([one for one in values(runs, name) if math.isfinite(one)])
            for name in ("worst", "recovery")
        )
        if len(worst) < len(runs):
            return "lost"
        return f"{number(float(worst.max()), 2)}; {number(float(back.mean()))}"

    rows = [
        (rule, *(cell(chosen(results, kind=kind, trace=trace, rule=rule)) for trace in names))
        for rule in RULES
    ]
    return table(("", *names), rows)


def sections(results: Results) -> list[Section]:
    """Say what each rule makes of each trace."""
    kinds = list(dict.fromkeys(one["kind"] for one in results["runs"]))
    return [_section(results, kind) for kind in kinds]


def _section(results: Results, kind: str) -> Section:
    size = results["sizes"][kind]
    seeds = sorted({one["seed"] for one in results["runs"]})
    what, optimizer = {
        "images": (
            "Fashion-MNIST" if results["outside_data"] else "scikit-learn's digits",
            "SGD with momentum 0.9 on a small residual net with group norm",
        ),
        "text": (
            "tinyshakespeare" if results["outside_data"] else "a made-up language",
            "AdamW on a small GPT over characters",
        ),
    }[kind]
    return Section(
        heading=HEADING,
        title={"images": "images, SGD with momentum", "text": "text, AdamW"}[kind],
        ours="\n\n".join(
            (
                f"The {MEASURES[kind][3]} at the end of equally many samples, mean and deviation over the seeds:",
                ends(results, kind),
                "The worst loss after a change, as a multiple of the loss before it, and the mean number of "
                "updates until the loss before the change is there again:",
                shaken(results, kind),
            )
        ),
        made=f"{what}, {optimizer}; {size['samples']:,} samples, a base batch of {size['base_batch']} and a base "
        f"rate of {size['rate']:g}, near the best of a few for the small batch on another seed; warm-up "
        f"and cosine over base updates. Seeds {', '.join(map(str, seeds))}. A trace names "
        "the multiples of the base batch; the walk "
        f"doubles or halves 24 times between 1 and 16. {results['device']}, PyTorch {results['torch']}; "
        "the rate is scaled by slaq.torch.DynamicRate.",
        falls_short=sentences(*_short(results, kind)),
        pictures=(
            Picture(
                name=f"elastic-rules-{kind}",
                alt="Training loss and factor on the rate, by rule, where the batch grows from 1 to 16",
                draw=lambda figure: draw(figure, results, kind),
                height=3.2,
            ),
        ),
        readme=tuple(_readme(results, kind)),
    )


def _short(results: Results, kind: str) -> Iterator[str]:
    """Yield where `auto` is behind the best rule by more than a point, or by more than 0.04 of loss."""
    bar, unit = (1.0, "points") if kind == "images" else (0.04, "of loss")
    for trace in traces(results):
        means = {rule: behind(results, kind, trace, rule)["mean"] for rule in RULES}
        known = {rule: mean for rule, mean in means.items() if mean is not None and math.isfinite(mean)}
        if "auto" not in known:
            continue
        best = min(known, key=lambda rule: known[rule])
        gap = known["auto"] - known[best]
        if gap > bar:
            yield f"On {trace}, auto is {gap:.2g} {unit} behind {best}."


def _readme(results: Results, kind: str) -> Iterator[Comparison]:
    if results["size"] != "full":
        return
    unit, digits = ("points", 1) if kind == "images" else ("of loss", 3)
    for trace in ("1 → 16", "walk"):
        once, ours = (behind(results, kind, trace, rule)["mean"] for rule in ("linear-at-once", "auto"))
        yield Comparison(
            what=f"{kind}, batch {trace}: behind the small batch throughout, linear at once / auto",
            paper="–",
            ours=f"{number(once, digits)} / {number(ours, digits)} {unit}",
        )


def draw(figure: Figure, results: Results, kind: str) -> None:
    """Draw loss and factor over the samples, of the first seed and the trace that grows to sixteen."""
    losses, factors = figure.subplots(1, 2)
    trace = traces(results)[0]
    for rule in (FIXED, *RULES):
        runs = [
            one
            for one in chosen(results, kind=kind, trace=FIXED if rule == FIXED else trace, rule=rule)
            if "curve" in one
        ]
        if not runs:
            continue
        curve = runs[0]["curve"]
        color, dash = PENS[rule]
        drawn = [math.nan if value is None else value for value in curve["loss"]]
        losses.plot(curve["share"], drawn, color=color, ls=dash, label=rule, lw=1.2)
        factors.plot(curve["share"], curve["factor"], color=color, ls=dash, lw=1.2)
    top = max(
        value for value in chosen(results, kind=kind, rule=FIXED)[0]["curve"]["loss"] if value is not None
    )
    losses.set(xlabel="share of the samples", ylabel="training loss", ylim=(0, 1.1 * top))
    factors.set(xlabel="share of the samples", ylabel="factor on the rate", ylim=(0, 17))
    figure.legend(loc="outside upper left", ncols=4)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return what must not get worse: how far `auto` stays behind the small batch."""
    kinds = list(dict.fromkeys(one["kind"] for one in results["runs"]))
    return [
        KeyFigure(
            name=f"auto behind the small batch, {kind}, {trace}", value=behind(results, kind, trace, "auto")
        )
        for kind in kinds
        for trace in traces(results)
    ]


EXPERIMENT = Experiment(
    name="elastic_rules", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
