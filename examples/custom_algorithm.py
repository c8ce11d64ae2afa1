"""A training algorithm of one's own in about twenty lines: least squares by gradient descent."""

import numpy as np

import slaq


def gradient(partition, w):
    """A task: the squared error of some rows, and its gradient. It runs wherever there is a free worker."""
    error = partition.x @ w - partition.y
    return error @ error, 2 * partition.x.T @ error


def train(ctx):
    """The program: a plain loop. Nothing in it knows how many workers the job holds."""
    rows = ctx.data.num_rows
    first, w = ctx.restored or (0, np.zeros(ctx.data.num_features))
    for iteration in range(first, 60):
        parts = ctx.map(gradient, w)
        ctx.report(sum(loss for loss, _ in parts) / rows)
        w = w - 0.1 * sum(slope for _, slope in parts) / rows
        ctx.checkpoint((iteration + 1, w))
    return w


def data(rows=20_000, features=50):
    """Return rows whose targets follow weights of 0, 1, 2, ... and a little noise."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, features))
    return x, x @ np.arange(features) + 0.1 * generator.standard_normal(rows)


if __name__ == "__main__":
    with slaq.Cluster() as cluster:
        job = cluster.submit(train, data=data(), name="least-squares")
        print("weights found:", np.round(job.result(), 2))
