"""A training script that knows nothing of slaq: logistic regression, one line of output per pass over the data.

Run it under slaq with the loss pattern `epoch (?P<iteration>\\d+) loss (?P<loss>\\S+)`. Its one argument is the
number of passes.
"""

import sys

import numpy as np


def main(passes: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 50))
    truth = rng.normal(size=50)
    labels = (features @ truth + rng.normal(size=20_000) > 0).astype(float)

    weights = np.zeros(50)
    for epoch in range(passes + 1):
        score = features @ weights
        loss = np.mean(np.logaddexp(0.0, score) - labels * score)
        print(f"epoch {epoch} loss {loss:.6f}")
        gradient = features.T @ (1.0 / (1.0 + np.exp(-score)) - labels) / len(labels)
        weights -= 0.5 * gradient


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
