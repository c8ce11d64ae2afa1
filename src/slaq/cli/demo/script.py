"""A plain training script that does not use slaq: it fits a small network and prints its loss."""

import sys

import numpy as np


def main(rows: int) -> None:
    """Train by gradient descent, and print one line per pass over the data."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 32))
    y = np.sin(x @ rng.normal(size=32) / 4) + 0.1 * rng.normal(size=rows)
    first, second = rng.normal(0, 0.2, (32, 48)), np.zeros(48)
    for sweep in range(81):
        hidden = np.tanh(x @ first)
        off = hidden @ second - y
        print(f"sweep {sweep} loss {np.mean(off**2):.6f}", flush=True)  # noqa: T201
        back = np.outer(off, second) * (1 - hidden**2)
        second -= 0.1 * hidden.T @ off / rows
        first -= 1.0 * x.T @ back / rows


if __name__ == "__main__":
    main(int(sys.argv[1]))
