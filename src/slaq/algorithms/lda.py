"""Latent Dirichlet allocation: topics of a corpus by variational EM, on all documents or on batches."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.inputs import Floats, check_features, matching, values_of
from slaq.algorithms.model import Model
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.core.errors import DataError, HyperparameterError
from slaq.core.extras import needs
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LDAModel(Model):
    """Topics as Dirichlet posteriors over words."""

    components: Floats  # lambda, topics x words: pseudo-counts of the words of each topic
    alpha: float
    eta: float

    @property
    def topics(self) -> Floats:
        """The probability of each word in each topic (topics x words)."""
        return np.asarray(self.components / self.components.sum(axis=1, keepdims=True))

    def transform(self, x: Any) -> Floats:
        """Return the share of each topic in each document (documents x topics)."""
        with needs("scipy"):
            from slaq.algorithms.topic_inference import infer
        gamma = infer(matching(x, self.components.shape[1]), self.components, self.alpha).gamma
        return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))

    def perplexity(self, x: Any) -> float:
        """Return exp(-bound per word) of the documents; less is better."""
        with needs("scipy"):
            from slaq.algorithms.topic_inference import dirichlet_bound, infer
        found = infer(matching(x, self.components.shape[1]), self.components, self.alpha)
        return float(np.exp(-(found.bound + dirichlet_bound(self.components, self.eta)) / found.words))


@dataclass(frozen=True, slots=True, kw_only=True)
class LDA(Algorithm[LDAModel]):
    """Loss: minus the variational bound per word, which is the logarithm of the perplexity.

    Rows are documents, columns words, entries counts. "em" infers the topics of every document in every
    iteration (Blei, Ng and Jordan 2003); "online" those of a batch of documents, and blends in what it
    finds (Hoffman, Blei and Bach 2010). Its loss is estimated on the coming batch before it is learnt
    from, so it is noisy, and `tolerance` does not apply.
    """

    topics: int = 10
    optimizer: str = "em"
    #: Priors of the topics in a document and of the words in a topic; None takes 1 / topics.
    alpha: float | None = None
    eta: float | None = None
    #: Documents per iteration, when online.
    batch_rows: int = 256
    #: Iteration t of the online optimizer has the weight (offset + t) ** -decay.
    offset: float = 10.0
    decay: float = 0.7
    seed: int = 0

    @override
    def check(self) -> None:
        with needs("scipy"):
            import scipy.sparse  # noqa: F401
        check.whole(self, "topics", at_least=1)
        check.choice(self, "optimizer", ("em", "online"))
        check.optional_real(self, "alpha", above=0)
        check.optional_real(self, "eta", above=0)
        check.whole(self, "batch_rows", at_least=1)
        check.real(self, "offset", above=0)
        check.real(self, "decay", above=0)
        check.whole(self, "seed", at_least=0)
        if self.optimizer == "online" and self.tolerance > 0:
            raise HyperparameterError("LDA", "tolerance", self.tolerance, "0 with the online optimizer")

    @override
    def __call__(self, ctx: Context) -> LDAModel:
        from slaq.algorithms.topic_inference import dirichlet_bound, e_step

        words, rows = _count_words(ctx), ctx.data.num_rows
        alpha, eta = self.alpha or 1 / self.topics, self.eta or 1 / self.topics

        def assess(components: Floats, iteration: int) -> tuple[float, Floats]:
            """Return the loss, and how many words of the corpus each topic is found to explain."""
            places = None if self.optimizer == "em" else self._batch(rows, iteration)
            bounds, counts, explained = zip(*ctx.map(e_step, components, alpha, places), strict=True)
            # A batch stands for the corpus by its share of the words.
            scale = words / max(1.0, sum(counts))
            bound = scale * sum(bounds) + dirichlet_bound(components, eta)
            return -bound / words, scale * np.sum(explained, axis=0)

        run = TrainingRun(ctx, self)
        components = run.restored
        if components is None:
            # As scikit-learn starts: near 1 everywhere, differing enough to break the tie.
            shape = (self.topics, ctx.data.num_features)
            components = np.random.default_rng(self.seed).gamma(100.0, 0.01, shape)
        loss, explained = assess(components, run.iteration)
        if not run.losses:
            run.record(loss, components)
        while run.goes_on:
            weight = 1.0 if self.optimizer == "em" else (self.offset + run.iteration) ** -self.decay
            components = (1.0 - weight) * components + weight * (eta + explained)
            loss, explained = assess(components, run.iteration + 1)
            run.record(loss, components)
        return LDAModel(components=components, alpha=alpha, eta=eta, losses=run.losses)

    def _batch(self, rows: int, iteration: int) -> NDArray[np.int64]:
        """Return the sorted places of an iteration's documents."""
        generator = np.random.default_rng((self.seed, iteration))
        return np.sort(generator.choice(rows, min(self.batch_rows, rows), replace=False))


def _count_words(ctx: Context) -> float:
    """Return how many words the corpus has."""
    check_features(ctx, "LDA")
    least, words = zip(*ctx.map(_least_and_sum), strict=True)
    if min(least) < 0:
        raise DataError(f"LDA: entries count words and cannot be negative; found {min(least):g}")
    if sum(words) == 0:
        raise DataError("LDA: there are no words; every entry is 0")
    return float(sum(words))


def _least_and_sum(partition: Partition) -> tuple[float, float]:
    values = values_of(partition.x)
    return float(values.min(initial=0)), float(values.sum(dtype=float))
