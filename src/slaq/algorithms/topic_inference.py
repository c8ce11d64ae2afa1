"""The E-step of latent Dirichlet allocation: which topics explain the words of each document; needs SciPy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln, psi

from slaq.algorithms.inputs import Floats
from slaq.algorithms.sampling import held
from slaq.jobs.data import Partition

#: Documents of an E-step that are in hand at once; bounds the memory it takes.
BLOCK = 512
#: The E-step of a document ends when its topics change by less than this on average, or after so many rounds.
SETTLED = 1e-3
ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What an E-step finds."""

    #: Dirichlet posteriors over the topics of each document (documents x topics).
    gamma: Floats
    #: How many words the documents have.
    words: float
    #: The documents' part of the variational bound.
    bound: float
    #: How many words each topic explains (topics x words).
    explained: Floats


def e_step(
    partition: Partition, components: Floats, alpha: float, places: NDArray[np.int64] | None
) -> tuple[float, float, Floats]:
    """Return the bound of the documents at these places (None: all), their words, and who explains them."""
    chosen = partition.x if places is None else partition.x[held(partition, places)]
    found = infer(chosen, components, alpha)
    return found.bound, found.words, found.explained


def infer(documents: Any, components: Floats, alpha: float) -> Inference:
    """Return the posteriors of all documents, block after block; each document's depends on itself only."""
    counts = sp.csr_array(documents, dtype=float)
    beta = expected(components)
    gammas = [np.empty((0, len(beta)))]
    bound, explained = 0.0, np.zeros_like(components)
    for start in range(0, counts.shape[0], BLOCK):
        block = counts[start : start + BLOCK]
        gamma = settle(block, beta, alpha)
        theta = expected(gamma)
        ratios, likelihood = _ratios(block, theta, beta)
        bound += likelihood + dirichlet_bound(gamma, alpha)
        explained += beta * (ratios.T @ theta).T
        gammas.append(gamma)
    words = float(counts.sum())
    return Inference(gamma=np.concatenate(gammas), words=words, bound=bound, explained=explained)


def settle(block: sp.csr_array, beta: Floats, alpha: float) -> Floats:
    """Return gamma at the fixed point of gamma = alpha + words explained; documents that are there drop out."""
    gamma = np.ones((block.shape[0], len(beta)))
    live = np.arange(len(gamma))
    for _ in range(ROUNDS):
        theta = expected(gamma[live])
        ratios, _ = _ratios(block, theta, beta)
        update = alpha + theta * (ratios @ beta.T)
        moving = np.abs(update - gamma[live]).mean(axis=1) >= SETTLED
        gamma[live] = update
        live, block = live[moving], block[moving]
        if not len(live):
            break
    return gamma


def _ratios(block: sp.csr_array, theta: Floats, beta: Floats) -> tuple[sp.csr_array, float]:
    """Return count / p for each word of a document, p = Σ_k theta_k beta_k, and Σ count log p."""
    rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    p = np.einsum("ik,ik->i", theta[rows], beta.T[block.indices]) + np.finfo(float).tiny
    ratios = sp.csr_array((block.data / p, block.indices, block.indptr), shape=block.shape)
    return ratios, float(block.data @ np.log(p))


def expected(dirichlet: Floats) -> Floats:
    """Return exp(E[log p]) for each row's Dirichlet distribution."""
    return np.asarray(np.exp(psi(dirichlet) - psi(dirichlet.sum(axis=1, keepdims=True))))


def dirichlet_bound(posterior: Floats, prior: float) -> float:
    """Return Σ E[log p(v | prior) - log q(v | posterior)] over the rows' Dirichlet distributions."""
    rows, size = posterior.shape
    sums = posterior.sum(axis=1, keepdims=True)
    logs = psi(posterior) - psi(sums)
    terms = np.sum((prior - posterior) * logs + gammaln(posterior) - gammaln(prior)) - np.sum(gammaln(sums))
    return float(terms + rows * gammaln(prior * size))
