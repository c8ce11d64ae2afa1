"""Makes the tables of `slaq.core.evidence` from recorded curves, and checks them with whole sources left out."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from benchmarks.recorded_curves import (
    AHEAD,
    Cases,
    RecordedCurve,
    cut,
    macro,
    read_curves,
    read_runs,
    replay,
    truths,
)
from slaq.core import curves as families
from slaq.core import evidence
from slaq.core.arrays import Booleans, Floats, Integers, Singles
from slaq.core.baselines import LastLoss, Strawman, WeightedFit
from slaq.core.curve_forecaster import CurveForecaster, coming

#: Sources of one kind are left out together.
HELD_OUT: tuple[tuple[str, ...], ...] = (
    ("algoperf",),
    ("benchopt", "accspd"),
    ("deepobs",),
    ("taskset",),
    ("sync_switch", "kmeans_text", "lda_c_github"),
    ("modded_nanogpt", "catboost_github"),
    ("own",),
)
#: Horizons that are fitted, and how much each counts; the second is AHEAD.
HORIZONS = (3, AHEAD, 40)
COUNTS = (0.3, 1.0, 0.3)
#: How often the losses of a curve are kept, and the share of them that is left out at the start: the same curve as
#: a slower job, or one heard of late, would have shown it.
VIEWS = ((1, 0.0, 1.0), (3, 0.0, 0.5), (1, 0.125, 0.35))
#: The same curve with ever longer pauses: its losses at the powers of a number between these, cases relative to the
#: first view. So recorders and solvers that look ever less often show it; it falls faster and faster.
PAUSES, PAUSED = (1.08, 1.3), 0.35
#: What a sample of the other views counts.
MADE_UP = 0.3
#: The fewest losses of a curve in the other views.
SHORTEST = 14
#: Added to the prior of an accelerating curve before the first of `evidence.STAGES`: two or three losses fit any.
BARRED = -20.0
#: Samples that each step of the descent looks at, and the last part of the steps whose mean is the result, so that
#: it does not depend on which samples came last.
BATCH, SETTLING = 3000, 0.4
#: The numbers of losses known from which forecasts are judged.
EARLIEST = (4, 10, 20)
#: Cases of each family that are judged.
JUDGED = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What the forecaster knew at every case, in ranges of the whole curve; arrays have a row per case."""

    #: What each curve forecasts at HORIZONS, and its level, relative to the last loss in the window.
    said: Singles
    level: Singles
    #: What each curve missed at each of `families.PAST`: (cases, curves, pasts).
    missed: Singles
    #: `evidence.excess` of each error: (cases, curves, errors).
    errors: Singles
    #: NaN where the curve had ended.
    truth: Singles
    mixed: Singles
    #: So that every family counts alike at every stage, relative to what the last loss would have missed.
    importance: Singles
    source: np.ndarray

    def where(self, chosen: Booleans | Integers) -> "Samples":
        return Samples(**{field.name: getattr(self, field.name)[chosen] for field in fields(Samples)})

    @staticmethod
    def of(parts: "list[Samples]") -> "Samples":
        return Samples(
            **{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Samples)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The parameters: shapes as in `evidence`."""

    prior: Singles
    sharpness: Singles
    trust: Singles

    def parameters(self) -> tuple[Singles, ...]:
        return self.prior, self.sharpness, self.trust

    def weights(self, s: Samples) -> Singles:
        logits = s.mixed @ self.prior - np.einsum("nck,nk->nc", s.errors, s.mixed @ self.sharpness)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def forecast(self, s: Samples, weights: Singles) -> tuple[Singles, Singles, Singles]:
        """Return what is said at HORIZONS, the falls by which a bias comes in, and what share of them it takes."""
        said = np.einsum("nc,nch->nh", weights, s.said)
        falls = np.einsum("nc,nc->n", weights, s.level)[:, None] - said
        usual = np.maximum(falls[:, 1], 1e-9)
        past = np.einsum("nc,nck->nk", weights, s.missed)
        taken = ((s.mixed @ self.trust) * past).sum(axis=1) / usual
        return said + taken.clip(-1.0, 1.0)[:, None] * falls, falls / usual[:, None], taken


def barred() -> Singles:
    """Return what is added to the priors, so that no fall is said to grow before there are losses to show it."""
    found = np.zeros((evidence.COLUMNS, families.MANY), dtype=np.float32)
    grows = np.array([curve.family == "accelerating" for curve in families.CURVES])
    found[:: evidence.COLUMNS // 2, grows] = BARRED
    return found


def collect(curves: list[RecordedCurve], cases: Cases) -> Samples:
    """Replay the curves and note what every family member says at every case."""
    many, pasts = families.MANY, len(families.PAST)
    forecaster = CurveForecaster()
    said = np.zeros((len(cases), many, len(HORIZONS)), dtype=np.float32)
    level = np.zeros((len(cases), many), dtype=np.float32)
    missed, errors = (np.zeros((len(cases), many, n), dtype=np.float32) for n in (pasts, pasts + 2))
    mixed = np.zeros((len(cases), evidence.COLUMNS), dtype=np.float32)
    base = np.zeros(len(cases))
    table = families.falls(tuple(map(float, HORIZONS)))
    for due, rows in replay(forecaster, curves, cases):
        fits = forecaster.fits(rows)
        scale = (fits.size / cases.extent[due]).astype(np.float32)[:, None]
        base[due] = forecaster.window[rows, -1]
        falls = table[families.keys(forecaster.count[rows])] * fits.slope[:, :, None]
        level[due] = fits.level * scale
        said[due] = level[due][:, :, None] - falls * scale[:, :, None]
        missed[due] = np.stack(fits.missed, axis=2) * scale[:, :, None]
        mixed[due] = evidence.mixture(forecaster.count[rows], forecaster.noise(rows))
        for column, error in enumerate(forecaster.errors(rows, fits)):
            errors[due, :, column] = evidence.excess(error)
    truth = np.full((len(cases), len(HORIZONS)), np.nan)
    for place, (curve, known) in enumerate(zip(cases.curve.tolist(), cases.known.tolist(), strict=True)):
        losses = curves[curve].losses
        for column, horizon in enumerate(HORIZONS):
            if known - 1 + horizon < len(losses):
                truth[place, column] = losses[known - 1 + horizon]
    truth = (truth - base[:, None]) / cases.extent[:, None]
    return Samples(
        said=np.clip(said, -3, 3), level=np.clip(level, -3, 3),
        missed=np.clip(missed, -3, 3), errors=errors,
        truth=truth.astype(np.float32), mixed=mixed, importance=_importance(cases, mixed), source=cases.source,
    )  # fmt: skip


def _importance(cases: Cases, mixed: Singles) -> Singles:
    stages = evidence.COLUMNS // 2
    stage = (mixed[:, :stages] + mixed[:, stages:]).argmax(axis=1)
    _, family = np.unique(cases.family, return_inverse=True)
    cell = family * stages + stage
    members = np.bincount(cell)
    change = np.minimum(np.abs(cases.truth - cases.last) / cases.extent, 1)
    scale = np.maximum(np.bincount(cell, change) / np.maximum(members, 1), 0.003)
    usual = np.where(members < 5, 0.0, 1.0 / (scale * np.maximum(members, 1)))
    return np.asarray(usual[cell], dtype=np.float32)


def fit(s: Samples, *, steps: int, ridge: float = 0.003, rate: float = 0.1) -> Tables:
    """Minimise the absolute error by stochastic gradients (Adam), pulled towards flat tables that change slowly.

    The tables are the mean of those after each of the last steps.
    """
    rng = np.random.default_rng(0)
    everything = s
    usual = everything.importance.mean()
    shape = evidence.COLUMNS
    tables = Tables(
        prior=barred(),
        sharpness=np.full((shape, s.errors.shape[2]), 0.5, dtype=np.float32),
        trust=np.zeros((shape, s.missed.shape[2]), dtype=np.float32),
    )
    moments = [(np.zeros_like(p), np.zeros_like(p)) for p in tables.parameters()]
    kept, counted = [np.zeros_like(p) for p in tables.parameters()], 0
    for step in range(1, steps + 1):
        s = everything.where(
            rng.choice(len(everything.truth), min(BATCH, len(everything.truth)), replace=False)
        )
        importance = 10.0 / len(s.truth) * s.importance / usual
        truth, counts = np.nan_to_num(s.truth), np.isfinite(s.truth) * np.array(COUNTS, dtype=np.float32)
        weights = tables.weights(s)
        found, share, taken = tables.forecast(s, weights)
        miss = found - truth
        pull = importance[:, None] * np.sign(miss) * (np.abs(miss) < 1) * counts
        # How the forecast changes with the weight of each curve.
        capped = taken.clip(-1.0, 1.0) * (np.abs(taken) >= 1.0)
        each = np.einsum("nch,nh->nc", s.said, pull * (1.0 - capped)[:, None].astype(np.float32))
        each += s.level * (capped * pull.sum(axis=1))[:, None]
        shared = (pull * share).sum(axis=1) * (capped == 0.0)
        each += np.einsum("nck,nk->nc", s.missed, (s.mixed @ tables.trust) * shared[:, None])
        past = np.einsum("nc,nck->nk", weights, s.missed)
        slope = weights * (each - (weights * each).sum(axis=1, keepdims=True))
        gradients = [
            s.mixed.T @ slope + ridge * _smoothness(tables.prior - barred()),
            -s.mixed.T @ np.einsum("nc,nck->nk", slope, s.errors),
            s.mixed.T @ (past * shared[:, None]) + 0.6 * ridge * tables.trust / tables.trust.size,
        ]
        speed = rate * min(1.0, 5 * step / steps) * min(1.0, 1.6 * (1 - step / steps) + 0.01)
        for parameter, gradient, (first, second) in zip(tables.parameters(), gradients, moments, strict=True):
            first[...] += 0.1 * (gradient - first)
            second[...] += 0.005 * (gradient**2 - second)
            parameter[...] -= speed * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.995**step)) + 1e-8)
        np.maximum(tables.sharpness, 0.0, out=tables.sharpness)
        if step > (1 - SETTLING) * steps:
            kept = [total + parameter for total, parameter in zip(kept, tables.parameters(), strict=True)]
            counted += 1
    prior, sharpness, trust = (np.asarray(total / counted, dtype=np.float32) for total in kept)
    return Tables(prior=prior, sharpness=sharpness, trust=trust)


def _smoothness(prior: Singles) -> Singles:
    by_stage = prior.reshape(2, -1, prior.shape[1])
    change = np.diff(by_stage, axis=1)
    gradient = 2 * by_stage / prior.size
    gradient[:, 1:] += 6 * change / change.size
    gradient[:, :-1] -= 6 * change / change.size
    return np.asarray(gradient.reshape(prior.shape))


def views(curves: list[RecordedCurve], per_family: int, seed: int) -> Samples:
    """Return samples of the curves, as they are and as others would have seen them."""
    parts = []
    for number, (stride, late, share) in enumerate(VIEWS):
        seen = [replace(c, losses=c.losses[int(late * len(c.losses)) :: stride]) for c in curves]
        rng = np.random.default_rng(seed + number)
        parts.append(_view(seen, rng, round(per_family * share), made_up=number > 0))
    rng = np.random.default_rng(seed + len(VIEWS))
    seen = [with_pauses(curve, rng.uniform(*PAUSES)) for curve in curves]
    parts.append(_view(seen, rng, round(per_family * PAUSED), made_up=True))
    return Samples.of(parts)


def with_pauses(curve: RecordedCurve, factor: float) -> RecordedCurve:
    """Return the losses of the curve at its beginning and at the powers of the factor."""
    last = len(curve.losses) - 1
    places = factor ** np.arange(np.log(max(last, 1)) / np.log(factor))
    return replace(curve, losses=curve.losses[np.unique([0, *places.astype(int).tolist()])])


def _view(
    curves: list[RecordedCurve], rng: np.random.Generator, per_family: int, *, made_up: bool
) -> Samples:
    chosen = [c for c in curves if np.ptp(c.losses) > 0 and not (made_up and len(c.losses) < SHORTEST)]
    found = collect(chosen, cut(chosen, rng, per_family=per_family, earliest=2))
    return replace(found, importance=found.importance * MADE_UP) if made_up else found


#: Horizons at which intervals are fitted.
SPANS = (1, 3, 10, 40)
#: The share of truths that lies outside on either side.
OUTSIDE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """How far off forecasts were, and what the widths are made from; a row per case and horizon."""

    #: Truth less forecast, and the terms of the width, relative to a typical width of the case.
    off: Floats
    terms: Floats
    mixed: Floats
    #: How much wider the job's own past has made its interval, below and above.
    stretch: Floats
    importance: Floats
    case: Integers
    horizon: Integers


@contextmanager
def using(tables: Tables) -> Iterator[None]:
    """Have forecasts made with these tables."""
    names = ("PRIOR", "SHARPNESS", "TRUST")
    before = [getattr(evidence, name) for name in names]
    try:
        for name, table in zip(names, tables.parameters(), strict=True):
            setattr(evidence, name, table)
        yield
    finally:
        for name, table in zip(names, before, strict=True):
            setattr(evidence, name, table)


def spans(curves: list[RecordedCurve], cases: Cases) -> Spans:
    """Replay the curves and note how far off the forecasts are at every case and horizon."""
    forecaster = CurveForecaster()
    horizons = tuple(map(float, SPANS))
    shape = (len(cases), len(SPANS))
    said, terms = np.zeros(shape), np.zeros((*shape, evidence.BELOW.shape[1]))
    mixed, stretch = np.zeros((len(cases), evidence.COLUMNS)), np.zeros((len(cases), 2))
    for due, rows in replay(forecaster, curves, cases):
        stretch[due] = np.exp(forecaster.stretch[rows])
        found = forecaster.forecasts(rows, horizons)
        said[due] = found.mean
        terms[due] = _terms(forecaster, rows, found.fall)
        mixed[due] = evidence.mixture(forecaster.count[rows], forecaster.noise(rows))
    off = truths(curves, cases, SPANS) - said
    known = np.isfinite(off)
    scale = terms.mean(axis=2) + 1e-6 * cases.extent[:, None]
    case, place = known.nonzero()
    _, family = np.unique(cases.family, return_inverse=True)
    cell = family[case] * len(SPANS) + place
    return Spans(
        off=(off / scale)[known].astype(np.float32),
        terms=(terms / scale[:, :, None])[known].astype(np.float32), mixed=mixed[case].astype(np.float32),
        stretch=stretch[case],
        importance=(1.0 / np.bincount(cell)[cell]).astype(np.float32), case=case, horizon=np.array(SPANS)[place],
    )  # fmt: skip


def _terms(forecaster: CurveForecaster, rows: Integers, fall: Floats) -> Floats:
    """Return what the widths of the intervals at SPANS are multiples of: (rows, horizons, terms)."""
    horizons = tuple(map(float, SPANS))
    steady, growing, again = forecaster.terms(rows, forecaster.noise(rows))
    roots, comes = np.sqrt(horizons), coming(horizons)
    spread = forecaster.average(rows, horizons)[2] * forecaster.size[rows, None]
    parts = [steady[:, None] + 0.0 * roots, growing[:, None] * roots]
    parts += [column[:, None] * comes for column in again.T]
    return np.stack([*parts, spread, fall], axis=2)


def widths(s: Spans, *, below: bool, steps: int = 150) -> Singles:
    """Return the multiples of each term at which OUTSIDE of the truths are outside: (columns, terms).

    They minimise the pinball loss, by gradient descent (Adam).
    """
    off = -s.off if below else s.off
    times = np.full((evidence.COLUMNS, s.terms.shape[1]), 0.3, dtype=np.float32)
    first, second = np.zeros_like(times), np.zeros_like(times)
    for step in range(1, steps + 1):
        half = ((s.mixed @ times) * s.terms).sum(axis=1)
        pull = s.importance * np.where(off > half, OUTSIDE - 1.0, OUTSIDE)
        gradient = s.mixed.T @ (pull[:, None] * s.terms)
        gradient += 0.02 * _smoothness(times.astype(np.float32))
        first += 0.1 * (gradient - first)
        second += 0.01 * (gradient**2 - second)
        speed = 0.05 * (1.0 - step / (steps + 1))
        times -= speed * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        np.maximum(times, 0.0, out=times)
    return times.astype(np.float32)


def left_out_spans(
    curves: list[RecordedCurve], per_family: int, seed: int, fitted: dict[tuple[str, ...], Tables]
) -> dict[tuple[str, ...], tuple[Spans, Cases]]:
    """Return the spans of each group of sources, forecast with tables fitted without it."""
    found = {}
    for sources, tables in fitted.items():
        chosen = [curve for curve in curves if curve.source in sources]
        cases = cut(chosen, np.random.default_rng(seed), per_family=per_family, earliest=2)
        with using(tables):
            found[sources] = spans(chosen, cases), cases
    return found


def joined(parts: list[Spans]) -> Spans:
    """Return the spans of several groups as one."""
    return Spans(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Spans)})


def judge_widths(found: dict[tuple[str, ...], tuple[Spans, Cases]]) -> None:
    """Print the share of truths inside intervals whose widths were fitted without the family's source."""
    shares = []
    for sources, (seen, cases) in found.items():
        others = joined([part for group, (part, _) in found.items() if group != sources])
        ends = [widths(others, below=below) for below in (True, False)]
        below, above = (
            ((seen.mixed @ times) * seen.terms).sum(axis=1) * stretch
            for times, stretch in zip(ends, seen.stretch.T, strict=True)
        )
        inside = (seen.off >= -below - 1e-9) & (seen.off <= above + 1e-9)
        for family in np.unique(cases.family):
            of_family = cases.family[seen.case] == family
            cells = [
                inside[of_family & (seen.horizon == h)].mean()
                for h in SPANS
                if (of_family & (seen.horizon == h)).any()
            ]
            late = of_family & (cases.known[seen.case] >= 40)
            shares.append(inside[of_family].mean())
            print(
                f"    {family:24s}{shares[-1]:6.2f}  by horizon "
                + " ".join(f"{c:.2f}" for c in cells)
                + f"  40+ known {inside[late].mean() if late.any() else np.nan:.2f}"
                + f"  below {(seen.off < -below)[of_family].mean():.2f}"
                + f" above {(seen.off > above)[of_family].mean():.2f}",
                flush=True,
            )
    good = np.mean([(0.7 <= share <= 0.9) for share in shares])
    print(f"coverage: mean {np.mean(shares):.3f}; {good:.0%} of families in 70-90%", flush=True)


def judge(curves: list[RecordedCurve], per_family: int, fitted: dict[tuple[str, ...], Tables]) -> None:
    """Print the error of forecasts against the best rival, each source with tables fitted without it."""
    for own in (False, True):
        chosen = [curve for curve in curves if (curve.source == "own") == own]
        for earliest in EARLIEST if not own else EARLIEST[:1]:
            cases = cut(chosen, np.random.default_rng(1), per_family=per_family, earliest=earliest)
            samples = collect(chosen, cases)
            off = np.zeros(len(cases))
            for sources, tables in fitted.items():
                left_out = np.isin(cases.source, sources)
                if left_out.any():
                    part = samples.where(left_out)
                    said = tables.forecast(part, tables.weights(part))[0][:, 1]
                    off[left_out] = np.abs(said - part.truth[:, 1]) * cases.extent[left_out]
            everything = np.ones(len(cases), dtype=bool)
            ours, by_family = macro(off, cases, everything)
            rivals = {}
            for kind in (LastLoss, Strawman, WeightedFit):
                forecaster, missed = kind(), np.zeros(len(cases))
                for due, rows in replay(forecaster, chosen, cases):
                    ahead = forecaster.forecasts(rows, (float(AHEAD),)).mean[:, 0]
                    missed[due] = np.abs(ahead - cases.truth[due])
                rivals[kind.__name__] = macro(missed, cases, everything)
            best = min(mean for mean, _ in rivals.values())
            label = "own runs" if own else "published"
            print(f"{label}, {earliest}+ known: {ours:.3f}% of range, {ours / best:.3f} of the best rival")
            for family, error in by_family.items():
                cells = "".join(f"{each[family]:9.3f}" for _, each in rivals.values())
                least = min(each[family] for _, each in rivals.values())
                print(f"    {family:24s}{error:9.3f}{cells}  {error / least:.2f}", flush=True)


def source(tables: Tables, below: Singles, above: Singles) -> str:
    """Return the tables as a Python module, one line per curve."""
    stages = evidence.COLUMNS // 2
    lines = [
        '"""The tables of `slaq.core.evidence`, made by `benchmarks/tune_forecast.py`; not written by hand."""',
        "",
        "# fmt: off",
    ]
    named = (
        ("PRIOR", "One row per curve of `curves.CURVES`: its prior at each stage in smooth histories, then in"
         " noisy ones.", tables.prior),
        ("SHARPNESS", "The exponents of the quick error, the slow one, and those of `curves.PAST`, at the same"
         " stages.", tables.sharpness),
        ("TRUST", "What share of a miss at each of `curves.PAST` is expected again.", tables.trust),
        ("BELOW", "The multiples of each term of the width of the interval below the mean.", below),
        ("ABOVE", "The same above the mean.", above),
    )  # fmt: skip
    for name, text, table in named:
        lines.append(f"#: {text}")
        lines.append(
            f"{name}: tuple[tuple[float, ...], ...] = (  # {stages} stages smooth, {stages} stages noisy"
        )
        for row in table.T.round(2).tolist():
            lines.append("    (" + ", ".join(f"{value:5.2f}" for value in row) + "),")
        lines.append(")")
    return "\n".join([*lines, "# fmt: on", ""])


def begin() -> None:
    """Begin with flat tables if those there are were made for other curves."""
    if evidence.PRIOR.shape[1] != families.MANY:
        evidence.PRIOR = np.zeros((evidence.COLUMNS, families.MANY), dtype=np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with index.csv.gz and <source>.npz")
    parser.add_argument("--runs", type=Path, default=Path("replication/curves/recorded.jsonl"))
    parser.add_argument("--cases", type=int, default=450, help="cases per family")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--write", type=Path, help="write the tables as Python source to this file")
    options = parser.parse_args()
    begin()
    curves = read_curves(options.data) + read_runs(options.runs)
    samples = views(curves, options.cases, options.seed)
    print(f"{len(samples.truth)} cases", flush=True)
    fitted = {
        sources: fit(samples.where(~np.isin(samples.source, sources)), steps=options.steps)
        for sources in HELD_OUT
    }
    judge(curves, JUDGED, fitted)
    found = left_out_spans(curves, options.cases // 2, options.seed + 50, fitted)
    judge_widths(found)
    if options.write:
        tables = fit(samples, steps=options.steps)
        everything = joined([part for part, _ in found.values()])
        ends = [widths(everything, below=below) for below in (True, False)]
        options.write.write_text(source(tables, *ends), encoding="utf-8")


if __name__ == "__main__":
    main()
