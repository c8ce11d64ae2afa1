"""Makes the tables of `slaq.core.evidence` from recorded curves, and checks them with whole sources left out."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.recorded_curves import AHEAD, Cases, cut, macro, read_curves, replay
from slaq.core import curves as families
from slaq.core import evidence
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecast import CurveForecaster

STAGE_COUNT = len(evidence.STAGES) + 1
#: Sources of one kind are left out together.
HELD_OUT = (
    ("algoperf",),
    ("benchopt", "accspd"),
    ("deepobs",),
    ("taskset",),
    ("sync_switch", "kmeans_text", "lda_c_github"),
    ("modded_nanogpt", "catboost_github"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What the forecaster knew at every case; arrays have a row per case."""

    #: What each curve forecasts, relative to the last loss and in ranges of the whole curve.
    said: Floats
    truth: Floats
    stage: Integers
    noise: Floats
    #: Logarithms of the quick and the slow error over their floor: shape (cases, curves, 2).
    errors: Floats
    #: So that every family counts alike at every stage, relative to what the last loss would have missed.
    importance: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The parameters: shapes as in `evidence`."""

    prior: Floats
    sharpness: Floats

    def logits(self, samples: Samples) -> Floats:
        mix = np.stack([1 - samples.noise, samples.noise])[:, :, None]
        prior = (mix * self.prior[:, samples.stage]).sum(axis=0)
        sharpness = (mix * self.sharpness[:, samples.stage]).sum(axis=0)
        return np.asarray(prior - np.einsum("nck,nk->nc", samples.errors, np.maximum(sharpness, 0)))

    def weights(self, samples: Samples) -> Floats:
        logits = self.logits(samples)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def collect(curves: list, cases: Cases) -> Samples:
    """Replay the curves and note what every family member says at every case."""
    many = len(families.CURVES)
    forecaster = CurveForecaster()
    said = np.zeros((len(cases), many))
    noise, stage = np.zeros(len(cases)), np.zeros(len(cases), dtype=np.int64)
    errors = np.zeros((len(cases), many, 2))
    table = families.falls((float(AHEAD),))[:, :, 0]
    for due, rows in replay(forecaster, curves, cases):
        ahead = forecaster.level[rows] - forecaster.slope[rows] * table[forecaster.count[rows]]
        shift = forecaster.window[rows, -1] - cases.last[due]
        said[due] = (ahead + shift[:, None]) / cases.extent[due, None]
        noise[due] = forecaster.noise(rows)
        stage[due] = np.searchsorted(evidence.STAGES, forecaster.count[rows], side="right")
        for column, error in enumerate((forecaster.quick[rows], forecaster.slow[rows])):
            floor = evidence.LEAST_ERROR * error.mean(axis=1, keepdims=True)
            errors[due, :, column] = np.log(error / np.where(floor > 0, floor, 1.0) + 1.0)
    truth = (cases.truth - cases.last) / cases.extent
    _, family = np.unique(cases.family, return_inverse=True)
    cell = family * STAGE_COUNT + stage
    members = np.bincount(cell)
    scale = np.maximum(np.bincount(cell, np.minimum(np.abs(truth), 1)) / np.maximum(members, 1), 0.003)
    importance = np.where(members < 5, 0.0, 1.0 / (scale * np.maximum(members, 1)))[cell]
    return Samples(
        said=np.clip(said, -3, 3), truth=truth, stage=stage, noise=noise, errors=errors, importance=importance
    )


def fit(samples: Samples, chosen: Booleans, *, steps: int, ridge: float = 0.003, rate: float = 0.1) -> Tables:
    """Minimise the absolute error by gradient descent (Adam), pulled towards flat tables that change slowly."""
    s = Samples(**{name: getattr(samples, name)[chosen] for name in Samples.__dataclass_fields__})
    importance = 10.0 * s.importance / s.importance.sum()
    mix = np.stack([1 - s.noise, s.noise])
    tables = Tables(
        prior=np.zeros((2, STAGE_COUNT, s.said.shape[1])), sharpness=np.full((2, STAGE_COUNT, 2), 2.0)
    )
    moments = [(np.zeros_like(p), np.zeros_like(p)) for p in (tables.prior, tables.sharpness)]
    for step in range(1, steps + 1):
        weights = tables.weights(s)
        miss = np.einsum("nc,nc->n", weights, s.said) - s.truth
        pull = importance * np.sign(miss) * (np.abs(miss) < 1)
        slope = pull[:, None] * weights * (s.said - (miss + s.truth)[:, None])
        towards = -np.einsum("nc,nck->nk", slope, s.errors)
        gradients = [np.zeros_like(tables.prior), np.zeros_like(tables.sharpness)]
        for side in range(2):
            np.add.at(gradients[0][side], s.stage, mix[side, :, None] * slope)
            np.add.at(gradients[1][side], s.stage, mix[side, :, None] * towards)
        gradients[0] += ridge * _smoothness(tables.prior)
        for place, parameter in enumerate((tables.prior, tables.sharpness)):
            first, second = moments[place]
            first[...] += 0.1 * (gradients[place] - first)
            second[...] += 0.001 * (gradients[place] ** 2 - second)
            parameter[...] -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        np.maximum(tables.sharpness, 0.0, out=tables.sharpness)
    return tables


def _smoothness(prior: Floats) -> Floats:
    change = np.diff(prior, axis=1)
    gradient = 2 * prior / prior.size
    gradient[:, 1:] += 6 * change / change.size
    gradient[:, :-1] -= 6 * change / change.size
    return gradient


def describe(samples: Samples, tables: Tables, cases: Cases, label: str) -> None:
    said = np.einsum("nc,nc->n", tables.weights(samples), samples.said)
    report(np.abs(said - samples.truth) * cases.extent, cases, label)


def report(errors: Floats, cases: Cases, label: str) -> None:
    flat = np.abs(cases.truth - cases.last)
    parts = []
    for low, high in ((2, 4), (4, 7), (7, 11), (11, 20), (20, 10**9)):
        chosen = (cases.known >= low) & (cases.known < high)
        if chosen.any():
            ours, last = macro(errors, cases, chosen)[0], macro(flat, cases, chosen)[0]
            parts.append(f"k>={low}: {ours:.2f}/{last:.2f}={ours / last:.2f}")
    print(f"{label:10s}", "  ".join(parts), flush=True)


def source(tables: Tables) -> str:
    """Return the tables as a Python module, one line per curve."""
    width = 2 * STAGE_COUNT
    lines = [
        '"""Prior and sharpness of every curve, made by `benchmarks/tune_forecast.py`; not written by hand."""',
        "",
        "# fmt: off",
        "#: One row per curve of `curves.CURVES`: its prior at each stage in smooth histories, then in noisy ones.",
        f"PRIOR: tuple[tuple[float, ...], ...] = (  # {STAGE_COUNT} stages smooth, {STAGE_COUNT} stages noisy",
    ]
    for row in tables.prior.reshape(width, -1).T.round(2).tolist():
        lines.append("    (" + ", ".join(f"{value:5.2f}" for value in row) + "),")
    lines += [
        ")",
        "#: The exponents of the quick error, then of the slow one, at the same stages.",
        "SHARPNESS: tuple[tuple[float, ...], ...] = (",
    ]
    for row in tables.sharpness.reshape(width, 2).T.round(2).tolist():
        lines.append("    (" + ", ".join(f"{value:5.2f}" for value in row) + "),")
    return "\n".join([*lines, ")", "# fmt: on", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with index.csv.gz and <source>.npz")
    parser.add_argument("--cases", type=int, default=1000, help="cases per family")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--write", type=Path, help="write the tables as Python source to this file")
    options = parser.parse_args()
    recorded = read_curves(options.data)
    cases = cut(recorded, np.random.default_rng(options.seed), per_family=options.cases, earliest=2)
    samples = collect(recorded, cases)
    print(f"{len(cases)} cases of {len(np.unique(cases.curve))} curves; error/that of the last loss")
    held = np.zeros(len(cases))
    for sources in HELD_OUT:
        left_out = np.isin(cases.source, sources)
        tables = fit(samples, ~left_out, steps=options.steps)
        held[left_out] = np.einsum("nc,nc->n", tables.weights(samples), samples.said)[left_out]
    report(np.abs(held - samples.truth) * cases.extent, cases, "held out")
    tables = fit(samples, np.ones(len(cases), dtype=bool), steps=options.steps)
    describe(samples, tables, cases, "in sample")
    if options.write:
        options.write.write_text(source(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
