"""What is found in the output and the files of real frameworks, as `record.py` recorded them."""

import math
import shutil
from pathlib import Path

import pytest

from slaq.detection.lines import LineCutter
from slaq.detection.search import LossSearch
from slaq.engines.node.commands.folder_files import source_for

RECORDED = Path(__file__).parent / "recorded"
#: By kind: the series, how many losses of it there are, the first and the last, and the total where it is told.
OUTPUT: dict[str, tuple[str, int, float, float, int | None]] = {
    "sklearn_mlp": ("loss", 30, 1.09591005, 0.85223088, None),
    "sklearn_boosting": ("Train Loss", 40, 1.2053, 0.0456, None),
    "sklearn_boosting_plain": ("Train Loss", 13, 1.2093, 0.0465, None),
    "sklearn_sgd": ("Avg. loss", 40, 4.707874, 0.542889, None),
    "sklearn_kmeans": ("inertia", 13, 1837.6336709295933, 1377.8518331532132, None),
    "sklearn_hist": ("train loss", 20, 0.61366, 0.11971, 20),
    "lightgbm": ("training's binary_logloss", 30, 0.614852, 0.0741129, None),
    "xgboost": ("train-logloss", 30, 0.46737, 0.01849, None),
    "catboost": ("learn", 40, 0.6488223, 0.1220179, None),
    "pytorch_tqdm": ("loss", 100, 4.58, 9.08e-08, None),
    "pytorch_tqdm_passes": ("loss", 40, 4.5754, 0.0014, 40),
    "keras": ("loss", 60, 0.7679, 0.597, 60),
    "keras_lines": ("loss", 12, 0.6212, 0.3686, 12),
    "huggingface": ("loss", 12, 2.429, 2.266, 12),
    "lightning_bar": ("train_loss", 1, 0.234, 0.234, None),
    "lightning_tqdm": ("train_loss", 40, 3.69, 0.234, None),
    "plain_upper": ("Loss", 20, 4.5754, 0.0522, 20),
    "plain_validation": ("train_loss", 20, 4.5754, 0.0522, 20),
    "plain_tensor": ("loss", 12, 4.5754, 0.2624, None),
}
FILES: dict[str, tuple[str, str, int, float, float]] = {
    "catboost": ("catboost_info/learn_error.tsv", "Logloss", 40, 0.6488223267, 0.1220178754),
    "huggingface": ("out/checkpoint-60/trainer_state.json", "loss", 12, 2.4291461944580077, 2.266),
    "lightning_csv": (
        "lightning_logs/version_0/metrics.csv",
        "train_loss",
        12,
        2.9716947078704834,
        0.0592940,
    ),
    "tensorboard": ("runs/a/events.out.tfevents.*", "loss/train", 40, 4.57541036605835, 0.0014027508),
    "mlflow": ("mlflow.db", "train_loss", 20, 4.57541036605835, 0.05220940),
}


def searched(content: bytes) -> tuple[LossSearch, list[float], int | None]:
    """Return what is found in an output, its losses, and the total as told last."""
    search, cutter = LossSearch(), LineCutter()
    losses: list[float] = []
    total = None
    for line in cutter.feed(content) + cutter.rest():
        search.read_line(line)
        losses += [loss for loss, _ in search.losses()]
        total = search.total() or total
    search.finish()
    return search, losses + [loss for loss, _ in search.losses()], total


@pytest.mark.parametrize("kind", OUTPUT)
def test_losses_of_real_output_are_found(kind: str) -> None:
    """Each framework's output yields the series that it was trained on: a loss for each iteration, and the end."""
    series, count, first, last, total = OUTPUT[kind]
    search, losses, told = searched((RECORDED / f"{kind}.txt").read_bytes())
    assert search.chosen is not None
    assert (search.chosen.key.name, len(losses), told) == (series, count, total)
    assert (losses[0], losses[-1]) == (first, last)


@pytest.mark.parametrize("kind", ["sklearn_logistic", "tensorboard", "mlflow", "lightning_csv"])
def test_output_without_losses_yields_none(kind: str) -> None:
    """Where a framework prints no loss, none is found in what it prints."""
    assert searched((RECORDED / f"{kind}.txt").read_bytes())[0].chosen is None


@pytest.mark.parametrize("kind", FILES)
def test_losses_of_real_files_are_found(kind: str, tmp_path: Path) -> None:
    """Each framework's file of losses yields the series that it was trained on."""
    pattern, series, count, first, last = FILES[kind]
    shutil.copytree(RECORDED / kind, tmp_path, dirs_exist_ok=True)
    (path,) = tmp_path.glob(pattern)
    source, search = source_for(path, since=0.0), LossSearch()
    assert source is not None
    while points := source.read(final=True):
        search.read_points(str(path.relative_to(tmp_path)), points)
    search.finish()
    losses = [loss for loss, _ in search.losses()]
    assert search.chosen is not None
    assert (search.chosen.key.name, len(losses)) == (series, count)
    assert math.isclose(losses[0], first, rel_tol=1e-3)
    assert math.isclose(losses[-1], last, rel_tol=1e-3)
