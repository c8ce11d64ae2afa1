"""A linear classifier trained pass by pass with scikit-learn, which prints the loss of each pass."""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

x, y = make_classification(40_000, 100, n_informative=30, flip_y=0.05, random_state=0)
model = SGDClassifier(loss="log_loss", learning_rate="invscaling", eta0=0.0003, alpha=1e-5, random_state=0)
epochs = 140
for epoch in range(epochs):
    model.partial_fit(x, y, classes=np.unique(y))
    print(f"epoch {epoch + 1}/{epochs} loss {log_loss(y, model.predict_proba(x)):.5f}")
