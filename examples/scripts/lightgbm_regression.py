"""Boosted trees with LightGBM, which logs the error of each round on the training and a held-out set."""

import lightgbm
from sklearn.datasets import make_friedman1

x, y = make_friedman1(60_000, 40, noise=1.0, random_state=0)
train = lightgbm.Dataset(x[:48_000], y[:48_000])
valid = lightgbm.Dataset(x[48_000:], y[48_000:], reference=train)
parameters = {"objective": "regression", "learning_rate": 0.04, "num_leaves": 63, "verbose": -1, "seed": 0}
lightgbm.train(
    parameters,
    train,
    num_boost_round=350,
    valid_sets=[train, valid],
    valid_names=["training", "held-out"],
    callbacks=[lightgbm.log_evaluation(1)],
)
