"""One variant of a small neural network, trained with scikit-learn: it prints its loss on held-out data."""

import argparse

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

options = argparse.ArgumentParser()
options.add_argument("--rate", type=float, required=True)
options.add_argument("--units", type=int, required=True)
options.add_argument("--epochs", type=int, default=40)
chosen = options.parse_args()

x, y = make_classification(100_000, 60, n_informative=30, n_classes=6, n_clusters_per_class=4, random_state=0)
known, held_out, labels, wanted = train_test_split(x, y, test_size=0.25, random_state=0)
model = MLPClassifier(
    hidden_layer_sizes=(chosen.units,),
    solver="sgd",
    learning_rate_init=chosen.rate,
    batch_size=64,
    random_state=0,
)
for epoch in range(1, chosen.epochs + 1):
    model.partial_fit(known, labels, classes=np.unique(y))
    print(
        f"epoch {epoch}/{chosen.epochs} loss {log_loss(wanted, model.predict_proba(held_out)):.5f}",
        flush=True,
    )
