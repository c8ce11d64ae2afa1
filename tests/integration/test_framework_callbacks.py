"""Laws of the callbacks, in trainings by the real frameworks: those that are missing are skipped.

The examples of docs/frameworks.md run here, as they are printed. `make frameworks PYTHON=...` runs all of this in
an environment that has the heavy frameworks.
"""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slaq import Cluster, reporting
from slaq.core.errors import MissingFrameworkError
from slaq.engines.node.reports import NewTotal, Reading, parse_report
from slaq.integrations.callbacks import LossReports, framework
from slaq.jobs import variables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
PATH = os.pathsep.join(path for path in sys.path if path)
#: By framework: the modules that its tests need, and whether they are too heavy for every run of the tests.
MODULES = {
    "huggingface": ("transformers", "torch", "accelerate"),
    "lightning": ("lightning", "torch"),
    "keras": ("keras", "torch"),
    "xgboost": ("xgboost", "sklearn"),
    "lightgbm": ("lightgbm", "sklearn"),
    "catboost": ("catboost",),
    "optuna": ("optuna",),
}
LIGHT = ("xgboost", "lightgbm", "optuna")
NAMES = {"huggingface": "Hugging Face", "xgboost": "XGBoost", "lightgbm": "LightGBM", "catboost": "CatBoost"}


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where the framework is missing."""
    missing = [module for module in MODULES[name] if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


def of(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that needs a framework."""
    return [needs(name)] if name in LIGHT else [needs(name), pytest.mark.frameworks, pytest.mark.slow]


heavy = {name: of(name) for name in MODULES}


@dataclass
class Heard:
    """What a script reported."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    printed: str = ""
    warned: str = ""


def example(name: str) -> str:
    """Return the example of the docs for a framework."""
    _, _, section = PAGE.partition(f"## {NAMES.get(name, name.title())}\n")
    found = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


Train = Callable[..., Heard]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Run a script in a process of its own, as a job would, and return what slaq hears of it."""

    def run(*parts: str, inside: bool = True, also: Path | None = None) -> Heard:
        reports = tmp_path / "reports.jsonl"
        reports.unlink(missing_ok=True)
        script = tmp_path / "train.py"
        script.write_text("".join(textwrap.dedent(part) for part in parts))
        env = {name: value for name, value in os.environ.items() if name != variables.REPORTS}
        env |= {"PYTHONPATH": PATH if also is None else f"{also}{os.pathsep}{PATH}"}
        env |= {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        if inside:
            env[variables.REPORTS] = str(reports)
        done = subprocess.run(
            [sys.executable, script], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert inside or not reports.exists()
        heard = Heard(printed=done.stdout, warned=done.stderr)
        for line in reports.read_bytes().splitlines() if reports.exists() else ():
            said = parse_report(line)
            assert said is not None
            if isinstance(said.item, NewTotal):
                heard.totals.append(said.item.iterations)
            elif isinstance(said.item, Reading):
                assert said.item.iteration is not None
                heard.steps.append(said.item.iteration)
                heard.losses.append(said.item.loss)
                heard.metrics.append(dict(said.item.metrics))
        return heard

    return run


# What all frameworks have in common.


@pytest.mark.parametrize("name", ["huggingface", "lightning", "keras", "xgboost"])
def test_a_missing_framework_says_what_to_install(name: str) -> None:
    """The import of a callback without its framework fails with a sentence that names the package."""
    module = f"slaq.integrations.{name}"
    blocked = ("transformers", "lightning", "pytorch_lightning", "keras", "xgboost")
    code = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\nimport {module}\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    package = {"huggingface": "transformers"}.get(name, name)
    assert re.search(
        rf"MissingFrameworkError: .* install it with: pip install {package}$", done.stderr.strip()
    )


@pytest.mark.parametrize("name", MODULES)
def test_the_docs_show_every_argument(name: str) -> None:
    """The table of docs/frameworks.md shows how each callback is made, with the defaults."""
    source = (ROOT / "src" / "slaq" / "integrations" / f"{name}.py").read_text(encoding="utf-8")
    (callback,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    made = next(
        node for node in callback.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    given = zip(made.args.args[1:], made.args.defaults, strict=True)
    shown = ", ".join(f"{argument.arg}={ast.unparse(default)}" for argument, default in given)
    assert f"`{callback.name}({shown})`".replace("'", '"') in PAGE


def test_another_missing_module_is_named_as_the_cause() -> None:
    """What the framework itself misses is in the chain of errors."""
    with pytest.raises(MissingFrameworkError) as found, framework("Keras", "keras"):
        raise ModuleNotFoundError("No module named 'tensorflow'")
    assert "tensorflow" in str(found.value.__cause__)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reports.jsonl"
    monkeypatch.setenv(variables.REPORTS, str(path))
    monkeypatch.setattr(reporting, "_pen", None)
    return path


def said(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("metric", "numbers", "loss"),
    [
        (None, {"a-auc": 0.9, "a-logloss": 0.5, "b-logloss": 0.6}, 0.5),
        (None, {"accuracy": 0.9, "error": 0.1}, 0.1),
        ("b-logloss", {"a-logloss": 0.5, "b-logloss": 0.6}, 0.6),
        ("logloss", {"a-logloss": 0.5, "b-logloss": 0.6}, 0.5),
        ("auc", {"a-logloss": 0.5, "a-auc": 0.9}, 0.9),
        ("val_loss", {"loss": 0.5, "step": 3.0, "val_loss": 0.6}, 0.6),
    ],
)
def test_the_loss_is_chosen_by_name(
    reports: Path, metric: str | None, numbers: dict[str, float], loss: float
) -> None:
    """A metric is found by its whole name or its name within the data; without one, what rises is passed over."""
    told = LossReports("it", metric, remedy="")
    told.tell(numbers, step=1)
    told.tell({"z-other": 0.0, **numbers}, step=2)
    told.close()
    assert [one["loss"] for one in said(reports)] == [loss, loss]
    (beside, _) = (one.get("metrics", {}) for one in said(reports))
    assert isinstance(beside, dict)
    assert len(beside) == len(numbers) - 1


@pytest.mark.parametrize(
    ("metric", "numbers", "sentence"),
    [
        ("f1", {"a-auc": 0.9}, "slaq hears no 'f1': it gives a-auc; name one of these as metric"),
        (None, {"a-auc": 0.9}, "slaq hears no loss: it gives a-auc; name one of these as metric"),
        (None, {}, "slaq hears no loss: it gives no numbers; evaluate something"),
    ],
)
def test_a_loss_that_never_comes_is_told_once(
    reports: Path, metric: str | None, numbers: dict[str, float], sentence: str
) -> None:
    """A warning says what there was instead, and what to do."""
    told = LossReports("it", metric, remedy="evaluate something")
    told.tell(numbers, step=1)
    with pytest.warns(UserWarning, match=re.escape(sentence)):
        told.close()
    told.close()


def test_outside_slaq_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback neither reads the numbers nor warns where nobody listens."""
    monkeypatch.delenv(variables.REPORTS, raising=False)
    monkeypatch.delenv(variables.URL, raising=False)
    monkeypatch.setattr(reporting, "_pen", None)
    told = LossReports("it", remedy="")
    told.tell({"loss": object()}, step=1)
    told.close()


def test_light_frameworks_are_installed_for_development() -> None:
    """What every run of the tests is to try is in the extra of the developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[^\w-]", line)[0] for line in project["optional-dependencies"]["dev"]}
    assert {"lightgbm", "optuna", "xgboost-cpu"} <= wanted


# Boosting.

DATA = """
import numpy as np
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 5))
y = x[:, 0] + 0.5 * x[:, 1] ** 2 + 0.1 * rng.normal(size=400)
labels = (y > y.mean()).astype(int)
"""
XGBOOST = f"""
{DATA}
import xgboost
data, held_out = xgboost.DMatrix(x[:300], y[:300]), xgboost.DMatrix(x[300:], y[300:])
params = {{"max_depth": 3, "verbosity": 0}}
"""
LIGHTGBM = f"""
{DATA}
import lightgbm
data = lightgbm.Dataset(x[:300], y[:300])
held_out = lightgbm.Dataset(x[300:], y[300:], reference=data)
params = {{"objective": "regression", "verbosity": -1, "num_threads": 1}}
"""


@pytest.mark.parametrize("name", [pytest.param(name, marks=heavy[name]) for name in ("xgboost", "lightgbm")])
def test_rounds_of_boosting_are_iterations(train: Train, name: str) -> None:
    """Each round is reported with its number, the loss on held-out data falls, and the end is known."""
    heard = train({"xgboost": XGBOOST, "lightgbm": LIGHTGBM}[name], example(name))
    assert (heard.steps, heard.totals) == (list(range(1, 61)), [60])
    assert heard.losses[-1] < 0.5 * heard.losses[0]
    assert "slaq" not in heard.warned


ESTIMATORS = {
    "xgboost": """
from slaq.integrations.xgboost import XGBoostCallback
model = xgboost.XGBClassifier(n_estimators=8, eval_metric=["auc", "logloss"], callbacks=[XGBoostCallback({metric})])
model.fit(x[:300], labels[:300], eval_set=[(x[:300], labels[:300]), (x[300:], labels[300:])], verbose=False)
print([model.evals_result()["validation_0"]["logloss"], model.evals_result()["validation_1"]["auc"]])
""",
    "lightgbm": """
from slaq.integrations.lightgbm import LightGBMCallback
model = lightgbm.LGBMClassifier(n_estimators=8, verbosity=-1, n_jobs=1)
pairs = [(x[:300], labels[:300]), (x[300:], labels[300:])]
model.fit(x[:300], labels[:300], eval_set=pairs, eval_names=["validation_0", "validation_1"],
          eval_metric=["auc", "binary_logloss"], callbacks=[LightGBMCallback({metric})])
found = model.evals_result_
truth = found["validation_0"]["binary_logloss"], found["validation_1"]["auc"]
print([[float(one) for one in numbers] for numbers in truth])
""",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=heavy[name]) for name in ESTIMATORS])
def test_estimators_report_the_metric_that_is_named(train: Train, name: str) -> None:
    """Without a name the first loss is reported, with one that number; the others go along."""
    begin = {"xgboost": XGBOOST, "lightgbm": LIGHTGBM}[name]
    for metric, place, others in (("", 0, 3), ("'validation_1-auc'", 1, 3)):
        heard = train(begin, ESTIMATORS[name].format(metric=metric))
        truth = json.loads(heard.printed)[place]
        assert heard.losses == pytest.approx(truth)
        assert len(heard.metrics[0]) >= others
        assert "slaq" not in heard.warned


@pytest.mark.parametrize("name", [pytest.param(name, marks=heavy[name]) for name in ESTIMATORS])
def test_a_training_that_evaluates_nothing_is_told(train: Train, name: str) -> None:
    """A warning says what to give, and the training goes on."""
    begin = {"xgboost": XGBOOST, "lightgbm": LIGHTGBM}[name]
    callback = {"xgboost": "XGBoostCallback()", "lightgbm": "LightGBMCallback()"}[name]
    heard = train(
        begin,
        f"from slaq.integrations.{name} import *\n{name}.train(params, data, 5, callbacks=[{callback}])\n",
    )
    assert heard.losses == []
    assert "gives no numbers; give it" in heard.warned


@pytest.mark.parametrize("name", [pytest.param(name, marks=heavy[name]) for name in ESTIMATORS])
def test_cross_validations_report_their_mean(train: Train, name: str) -> None:
    """Of a cross-validation the mean over its parts is the loss."""
    calls = {
        "xgboost": "from slaq.integrations.xgboost import *\n"
        "found = xgboost.cv(params, data, 6, nfold=3, callbacks=[XGBoostCallback('test-rmse', total=6)])\n"
        "print([float(mean) for mean in found['test-rmse-mean']])\n",
        "lightgbm": "from slaq.integrations.lightgbm import *\n"
        "found = lightgbm.cv(params, data, 6, nfold=3, stratified=False, callbacks=[LightGBMCallback()])\n"
        "print(found['valid l2-mean'])\n",
    }
    heard = train({"xgboost": XGBOOST, "lightgbm": LIGHTGBM}[name], calls[name])
    assert heard.losses == pytest.approx(json.loads(heard.printed))
    assert (heard.steps, heard.totals) == ([1, 2, 3, 4, 5, 6], [6])


@needs("lightgbm")
def test_early_stopping_ends_the_reports(train: Train) -> None:
    """The round at which early stopping ends the training is reported too."""
    heard = train(
        LIGHTGBM,
        "from slaq.integrations.lightgbm import *\n"
        "stop = lightgbm.early_stopping(3, verbose=False)\n"
        "params['learning_rate'] = 1.0\n"
        "model = lightgbm.train(params, data, 500, valid_sets=[held_out], callbacks=[stop, LightGBMCallback()])\n"
        "print(model.best_iteration)\n",
    )
    assert heard.steps[-1] == int(heard.printed) + 3 < 500


@needs("lightgbm")
def test_a_job_of_the_cluster_is_heard(tmp_path: Path) -> None:
    """What a callback reports is what the job's handle shows, with the end in sight."""
    script = tmp_path / "train.py"
    script.write_text(LIGHTGBM + example("lightgbm"))
    with Cluster(1, policy="fair", epoch_seconds=0.1, directory=tmp_path / "jobs") as cluster:
        job = cluster.submit_command([sys.executable, script], env={"PYTHONPATH": PATH})
        assert job.result(timeout=60.0) == 0, job.log()
    assert [one.iteration for one in job.observations] == list(range(1, 61))
    assert job.total == 60


@pytest.mark.parametrize("name", [pytest.param("catboost", marks=heavy["catboost"])])
def test_iterations_of_catboost(train: Train, name: str) -> None:
    """CatBoost's own loss is reported; with a metric, that of the data it is evaluated on."""
    begin = f"{DATA}\nfrom catboost import CatBoostClassifier, CatBoostRegressor\n"
    heard = train(begin, example(name).replace("iterations=60", "iterations=60, verbose=False"))
    assert (heard.steps, heard.totals) == (list(range(1, 61)), [60])
    assert heard.losses[-1] < heard.losses[0]
    named = train(
        begin,
        """
        from slaq.integrations.catboost import CatBoostCallback
        model = CatBoostClassifier(iterations=9, eval_metric="AUC", verbose=False)
        model.fit(x[:300], labels[:300], eval_set=(x[300:], labels[300:]), callbacks=[CatBoostCallback("AUC")])
        print(model.get_evals_result()["validation"]["AUC"])
        """,
    )
    assert named.losses == pytest.approx(json.loads(named.printed))


# Neural networks.

LIGHTNING = """
import logging, torch, warnings
import {package} as L
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore")
logging.getLogger("{package}").setLevel(logging.ERROR)
torch.manual_seed(0)
x = torch.randn(64, 4)
data = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8)

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.told = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.told.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

def Trainer(**options):
    return L.Trainer(**options, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                     enable_model_summary=False, accelerator="cpu")

model = Model()
"""
FITS = "\ntrainer.fit(model, data, data)\nprint(model.told)\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder that has slaq's entry points, as an installed slaq has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "slaq-0.0.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: slaq\nVersion: 0.0.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(groups))
    return folder.parent


@pytest.mark.parametrize(
    "package",
    [pytest.param(name, marks=heavy["lightning"]) for name in ("lightning.pytorch", "pytorch_lightning")],
)
def test_lightning_needs_no_edit(train: Train, installed: Path, package: str) -> None:
    """Where slaq is installed every step of an unchanged script is reported, and nothing is added outside slaq."""
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"needs {package}")
    begin = LIGHTNING.format(package=package)
    heard = train(begin, "trainer = Trainer(max_epochs=3)", FITS, also=installed)
    assert heard.losses == pytest.approx(json.loads(heard.printed))
    assert (heard.steps, heard.totals) == (list(range(1, 25)), [24])
    outside = train(
        begin,
        "trainer = Trainer(max_epochs=1)\nprint([type(one).__name__ for one in trainer.callbacks])",
        inside=False,
        also=installed,
    )
    assert "LightningCallback" not in outside.printed


@pytest.mark.parametrize("name", [pytest.param("lightning", marks=heavy["lightning"])])
def test_a_callback_of_the_script_comes_first(train: Train, installed: Path, name: str) -> None:
    """A metric is reported once a pass, and the callback that the entry point adds keeps silent."""
    heard = train(LIGHTNING.format(package="lightning.pytorch"), example(name), FITS, also=installed)
    assert (heard.steps, heard.totals) == ([8, 16, 24], [24])
    assert heard.losses == sorted(heard.losses, reverse=True)


@pytest.mark.parametrize("name", [pytest.param("lightning", marks=heavy["lightning"])])
def test_gradients_that_are_added_up_make_one_step(train: Train, installed: Path, name: str) -> None:
    """Losses keep their size, and steps are those of the optimizer."""
    heard = train(
        LIGHTNING.format(package="lightning.pytorch"),
        "trainer = Trainer(max_epochs=3, accumulate_grad_batches=4)",
        FITS,
        also=installed,
    )
    told = json.loads(heard.printed)
    assert heard.totals == [6]
    kept = dict(reversed(list(zip(heard.steps, heard.losses, strict=True))))
    assert sorted(kept) == [0, 1, 2, 3, 4, 5, 6]
    assert set(map(float, map("{:.5f}".format, kept.values()))) <= {float(f"{loss:.5f}") for loss in told}


@pytest.mark.parametrize("name", [pytest.param("keras", marks=heavy["keras"])])
def test_batches_of_keras_are_iterations(train: Train, name: str) -> None:
    """The mean of the losses of a pass is what Keras says of the pass, and the end is known."""
    begin = """
    import keras
    import numpy as np
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(80, 4))
    y = x.sum(axis=1)
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    """
    fit = example(name).replace("epochs=4", "epochs=4, batch_size=8, verbose=0")
    heard = train(begin, fit, "print(model.history.history['loss'])\n")
    assert (heard.steps, heard.totals) == (list(range(1, 41)), [40])
    passes = [sum(heard.losses[10 * k : 10 * k + 10]) / 10 for k in range(4)]
    assert passes == pytest.approx(json.loads(heard.printed), rel=1e-4)
    assert heard.metrics[0].keys() == {"mae"}
    named = train(
        begin,
        fit.replace("KerasCallback()", "KerasCallback('val_loss')").replace(
            "x, y,", "x, y, validation_split=0.2,"
        ),
        "print(model.history.history['val_loss'])\n",
    )
    assert named.losses == pytest.approx(json.loads(named.printed))
    assert (named.steps, named.totals) == ([1, 2, 3, 4], [4])
    missing = train(begin, fit.replace("KerasCallback()", "KerasCallback('val_loss')"))
    assert missing.losses == []
    assert "slaq hears no 'val_loss': Keras gives loss, mae; name one" in missing.warned


@pytest.mark.parametrize("name", [pytest.param("keras", marks=heavy["keras"])])
def test_data_of_unknown_length_are_counted(train: Train, name: str) -> None:
    """Where Keras learns how long a pass is at its end, numbers go on from there all the same."""
    heard = train(
        """
        import keras
        import numpy as np
        from slaq.integrations.keras import KerasCallback
        from torch.utils.data import DataLoader, IterableDataset

        class Stream(IterableDataset):
            def __iter__(self):
                for x in np.random.default_rng(0).normal(size=(48, 4)).astype("float32"):
                    yield x, x.sum(keepdims=True)

        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(DataLoader(Stream(), batch_size=8), epochs=3, verbose=0, callbacks=[KerasCallback()])
        """
    )
    assert heard.steps == list(range(1, 19))
    assert heard.totals in ([], [18])


@pytest.mark.parametrize("name", [pytest.param("huggingface", marks=heavy["huggingface"])])
def test_what_the_trainer_logs_is_reported(train: Train, name: str) -> None:
    """Each logged loss comes with the Trainer's own step and its last one; an evaluation by its name."""
    begin = """
    import torch
    from transformers import Trainer, TrainingArguments
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            guess = self.layer(x)[:, 0]
            return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}

    points = torch.randn(160, 4)
    data = [{"x": x, "labels": x.sum()} for x in points]
    args = TrainingArguments(
        "out", max_steps=40, logging_steps=5, learning_rate=0.05, per_device_train_batch_size=8, report_to=[],
        use_cpu=True, disable_tqdm=True, save_strategy="no", eval_strategy="steps", eval_steps=10,
    )
    model = Model()
    """
    ends = """
    trainer.train()
    import json
    print("HISTORY", json.dumps(trainer.state.log_history))
    """
    heard = train(
        begin, example(name).replace("train_dataset=data", "train_dataset=data, eval_dataset=data"), ends
    )
    history = json.loads(heard.printed.partition("HISTORY")[2])
    assert heard.losses == pytest.approx([one["loss"] for one in history if "loss" in one])
    assert (heard.steps, heard.totals) == (list(range(5, 41, 5)), [40])
    evaluated = train(
        begin,
        example(name)
        .replace("train_dataset=data", "train_dataset=data, eval_dataset=data")
        .replace("Callback()", "Callback('eval_loss')"),
        ends,
    )
    history = json.loads(evaluated.printed.partition("HISTORY")[2])
    assert evaluated.losses == pytest.approx([one["eval_loss"] for one in history if "eval_loss" in one])
    assert evaluated.steps == [10, 20, 30, 40]


# Searches.


@pytest.mark.parametrize("way", ["minimize", "maximize"])
@needs("optuna")
def test_trials_are_iterations(train: Train, way: str) -> None:
    """The best value so far is reported, trials that fail or are pruned included in the count."""
    sign = 1 if way == "minimize" else -1
    heard = train(
        f"""
        import optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="{way}", sampler=optuna.samplers.RandomSampler(seed=0))

        def objective(trial):
            if trial.number == 3:
                raise optuna.TrialPruned
            return {sign} * trial.suggest_float("x", -1, 1) ** 2
        """,
        example("optuna"),
        "\nprint([one.value for one in study.trials])\n",
    )
    values = json.loads(heard.printed.replace("None", "null"))
    better = min if way == "minimize" else max
    done = [[one for one in values[: k + 1] if one is not None] for k in range(30)]
    assert heard.losses == pytest.approx([better(found) for found in done])
    assert (heard.steps, heard.totals) == (list(range(1, 31)), [30])
    assert [one.get("value") for one in heard.metrics] == [
        None if value is None else pytest.approx(value) for value in values
    ]


@needs("optuna")
def test_an_objective_is_chosen_by_its_number(train: Train) -> None:
    """Of several objectives the best of the one that is named is reported, in its own direction."""
    heard = train(
        """
        import optuna
        from slaq.integrations.optuna import OptunaCallback
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(directions=["minimize", "maximize"])
        values = iter([(3.0, 1.0), (1.0, 0.5), (2.0, 4.0)])
        study.optimize(lambda trial: next(values), n_trials=3, callbacks=[OptunaCallback(objective=1)])
        """
    )
    assert (heard.losses, heard.totals) == ([1.0, 1.0, 4.0], [])
