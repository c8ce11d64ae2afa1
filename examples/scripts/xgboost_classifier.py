"""Boosted trees with XGBoost, which prints the loss of each round."""

import xgboost
from sklearn.datasets import make_classification

x, y = make_classification(40_000, 50, n_informative=20, flip_y=0.05, random_state=1)
train = xgboost.DMatrix(x[:32_000], y[:32_000])
held_out = xgboost.DMatrix(x[32_000:], y[32_000:])
parameters = {"objective": "binary:logistic", "eta": 0.08, "max_depth": 6, "seed": 0}
xgboost.train(parameters, train, num_boost_round=250, evals=[(train, "train"), (held_out, "test")])
