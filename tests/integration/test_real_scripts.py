"""Laws of the experiment with ordinary scripts: what it finds in their output, and what it makes of it."""

import ast
import re
import sys
from pathlib import Path

import pytest

from replication import real_scripts
from replication.experiment import Settings
from replication.real_scripts import (
    EXPERIMENT,
    FOLDER,
    KINDS,
    QUEUE,
    SLAQ,
    WAYS,
    measure_times,
    runnable,
    scripts,
)
from replication.script_ways import Run

#: A line of loss as each script prints it, and the loss.
LINES = {
    "scikit_learn": ("epoch 3/140 loss 0.57110", 0.5711),
    "lightgbm_regression": ("[12]\ttraining's l2: 12.5\theld-out's l2: 13.5", 12.5),
    "xgboost_classifier": ("[0]\ttrain-logloss:0.65302\ttest-logloss:0.65802", 0.65302),
    "catboost_classifier": ("0:\tlearn: 0.6501\ttotal: 49.6ms\tremaining: 17.3s", 0.6501),
    "pytorch_tqdm": (" 1%|  | 2/150 [00:00<00:11, 12.6it/s, loss=2.21]", 2.21),
    "keras_network": ("47/47 1s 12ms/step - accuracy: 0.98 - loss: 0.0860", 0.086),
    "huggingface_trainer": ("{'loss': '4.18', 'grad_norm': '1.2', 'epoch': '0.04'}", 4.18),
    "dataloader_workers": ("Epoch 0: train_loss=0.10123 lr=0.001", 0.10123),
    "learning_rate_step": ("[1/80] loss: 3.41000, learning rate: 1e-01", 3.41),
    "diverging": ("step 10 loss 123.45000", 123.45),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_losses_of_every_script_are_found(name: str, tmp_path: Path) -> None:
    """The experiment reads the loss off the line that the script prints, however the output is cut into pieces."""
    line, loss = LINES[name]
    run = Run(tmp_path / "log", scripts([name])[0])
    for place in range(len(line) + 1):
        run.log.write_text(line[:place] + ("\n" if place == len(line) else ""))
        run.look(float(place))
    assert [found for _, found in run.losses] == [loss]


@pytest.mark.parametrize("name", KINDS)
def test_no_script_knows_slaq(name: str) -> None:
    """The scripts are ordinary: they import what the table says they need, and never slaq."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    imported = {
        word.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for word in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
    }
    assert "slaq" not in imported
    third_party = {word for word in imported if word not in sys.stdlib_module_names} - {"numpy"}
    assert third_party <= set(KINDS[name][0])


def test_every_script_of_the_folder_takes_part() -> None:
    """No script of the folder is left out of the experiment."""
    assert {path.stem for path in FOLDER.glob("*.py")} == KINDS.keys()


def test_scripts_whose_modules_are_missing_are_named() -> None:
    """A script of which the interpreter lacks a module is left out by name, and no other."""
    known = scripts(["scikit_learn", "catboost_classifier"])
    lacking = [one for one in known if one.name == "catboost_classifier"]
    present, missing = runnable(known, Path(sys.executable))
    assert "scikit_learn" in {one.name for one in present}
    assert set(missing) <= {one.name for one in lacking}


def test_times_are_measured_against_the_best_of_all_ways() -> None:
    """Reductions end at the best loss that any way found; a script without losses counts its end."""

    def way(losses: list[tuple[float, float]], ended: float) -> dict[str, object]:
        return {"makespan": ended, "cpu": 1.0, "runs": {"a": {"ended": ended, "losses": losses}}}

    whole = [(1.0, 11.0), (2.0, 5.0), (3.0, 2.0), (4.0, 1.0)]
    order = {"ways": {QUEUE: way(whole, 5.0), SLAQ: way(whole[:3], 9.0)}}
    silent = {"ways": {QUEUE: way([], 7.0)}}
    measure_times([order])
    measure_times([silent])
    assert order["ways"][QUEUE]["to_90"] == order["ways"][SLAQ]["to_90"] == 3.0
    assert silent["ways"][QUEUE]["to_90"] == 7.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_queue_and_slaq_train_the_same_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick run trains scripts to their ends in both ways, and the report is made from its results."""
    monkeypatch.setattr(real_scripts, "QUICK_KINDS", ("xgboost_classifier", "lightgbm_regression"))
    results = EXPERIMENT.run(Settings(quick=True, seeds=(1,)))
    (order,) = results["orders"]
    for way in order["ways"].values():
        assert all(run["to_90"] <= run["ended"] for run in way["runs"].values())
        assert way["cpu"] > 0.0
    (section,) = EXPERIMENT.sections(results)
    assert re.search(r"\| slaq \|", section.ours)
    assert SLAQ in WAYS
    assert len(EXPERIMENT.key_figures(results)) == 4
