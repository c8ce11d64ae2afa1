"""Boosted trees with CatBoost, which prints the loss of each round and how long the rest will take."""

import tempfile

from catboost import CatBoostClassifier
from sklearn.datasets import make_classification

x, y = make_classification(30_000, 50, n_informative=25, flip_y=0.05, random_state=2)
with tempfile.TemporaryDirectory() as folder:
    model = CatBoostClassifier(iterations=350, depth=6, learning_rate=0.08, random_seed=0, train_dir=folder)
    model.fit(x, y)
