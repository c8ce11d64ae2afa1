"""A small network trained by Keras, which prints a progress line for each pass."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
from sklearn.datasets import make_classification

keras.utils.set_random_seed(0)
x, y = make_classification(6_000, 40, n_informative=25, n_classes=5, random_state=3)
x = x.astype(np.float32)
model = keras.Sequential(
    [
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(5),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(5e-4), loss=loss, metrics=["accuracy"])
model.fit(x, y, batch_size=128, epochs=30)
