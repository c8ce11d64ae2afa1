"""Reads MLlib's log lines: a fit began, its loss after an iteration, the fit is over."""

import json
import math
import re
from dataclasses import dataclass

#: The loggers to listen to, each with the level of its lines.
LOGGERS = {
    "breeze.optimize": "INFO",
    "org.apache.spark.ml.util.Instrumentation": "INFO",
    "org.apache.spark.ml.tree.impl.GradientBoostedTrees": "DEBUG",
}
#: Only lines that match pass from the JVM to Python.
TELLING = (
    r".*(Val and Grad Norm|Stage class: |Cost@iter|logLikelihood@iter|training finished|error of gbt = ).*"
)
#: Estimators that log their loss, by the names in their log lines.
REPORTING = frozenset(
    {
        "AFTSurvivalRegression",
        "GBTClassifier",
        "GBTRegressor",
        "GaussianMixture",
        "KMeans",
        "LDA",
        "LinearRegression",
        "LinearSVC",
        "LogisticRegression",
        "MultilayerPerceptronClassifier",
    }
)

_DESCENT = re.compile(r"Val and Grad Norm: (\S+) \(rel: (\S+?)\)")
_NAMED = re.compile(r"\[\w+\] (\{.*(?:Cost|logLikelihood)@iter.*\})", re.DOTALL)
_BEGUN = re.compile(r"Stage class: (\w+)")
_BOOSTED = re.compile(r"error of gbt = (\S+)")


@dataclass(frozen=True, slots=True)
class FitBegan:
    """An estimator of this class began to fit."""

    estimator: str


@dataclass(frozen=True, slots=True)
class FitOver:
    """The fit is over."""


@dataclass(frozen=True, slots=True)
class LossLogged:
    """The loss after an iteration, and the one before it if the line has it."""

    loss: float
    before: float | None = None


Told = FitBegan | FitOver | LossLogged


def read_line(text: str) -> Told | None:
    """Return the event that a log line reports, or None."""
    if found := _DESCENT.search(text):
        loss = float(found[1])
        return LossLogged(loss, _before(loss, float(found[2])))
    if found := _NAMED.search(text):
        # One number under one name, such as {"Cost@iter=3":"2336.35"}; a likelihood rises where a loss falls.
        ((name, value),) = json.loads(found[1]).items()
        return LossLogged(-float(value) if name.startswith("logLikelihood") else float(value))
    if found := _BOOSTED.search(text):
        return LossLogged(float(found[1]))
    if found := _BEGUN.search(text):
        return FitBegan(found[1])
    return FitOver() if "training finished" in text else None


def _before(loss: float, relative: float) -> float | None:
    """Return the loss before an iteration, from  relative = (before - loss) / max(|before|, |loss|).

    The optimizer tells the first loss in no other way; the quotient has three digits.
    """
    if not math.isfinite(loss) or not math.isfinite(relative):
        return None
    if loss > 0:
        return loss / (1 - relative) if 0 <= relative < 1 else loss * (1 + relative)
    return loss + relative * abs(loss) if relative >= 0 else loss / (1 - relative)
