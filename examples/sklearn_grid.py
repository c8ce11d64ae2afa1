"""A grid of learning rates over an unmodified scikit-learn estimator: the promising ones get the cores."""

from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier

import slaq
from slaq.integrations.sklearn import partial_fit

RATES = (0.0001, 0.001, 0.01, 0.1, 1.0)


def program(rate, passes=30):
    """Return a program that trains with one learning rate, by passes over the data."""
    estimator = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0)
    return partial_fit(estimator, passes=passes, batch_rows=1000)


def data(rows=20_000):
    """Return rows of two classes that overlap a little."""
    return make_classification(rows, n_features=40, n_informative=15, flip_y=0.05, random_state=0)


if __name__ == "__main__":
    x, y = data()
    with slaq.Cluster() as cluster:
        jobs = {
            rate: cluster.submit(program(rate), data=(x, y), name=f"rate-{rate}", partitions=1)
            for rate in RATES
        }
        fitted = {rate: job.result() for rate, job in jobs.items()}
        for rate, job in jobs.items():
            print(f"rate {rate:<7} log loss {job.losses[-1]:.4f}  accuracy {fitted[rate].score(x, y):.3f}")
