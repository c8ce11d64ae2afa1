"""Records what real frameworks print and write while they train: `python record.py [KIND...]` with them installed.

Each kind is a script of its own, run in a fresh folder. Its output, standard error included, becomes
`recorded/KIND.txt`; the files named beside it become `recorded/KIND/...`.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent / "recorded"
DATA = """
from sklearn.datasets import make_classification
x, y = make_classification(300, 8, random_state=0)
"""
TORCH = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(200, 4)
y = x.sum(1, keepdim=True)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.05)
def train_step(i):
    loss = nn.functional.mse_loss(net(x[i::10]), y[i::10])
    opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()
"""
LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(80, 4)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8)
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=BAR)
        return loss
    def validation_step(self, batch, i):
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), prog_bar=BAR)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.02)
"""
#: By kind: the script, and the files that are kept.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sklearn_mlp": (
        DATA + "from sklearn.neural_network import MLPClassifier\n"
        "MLPClassifier((8,), max_iter=30, verbose=True, random_state=0).fit(x, y)",
        (),
    ),
    "sklearn_boosting": (
        DATA + "from sklearn.ensemble import GradientBoostingClassifier\n"
        "GradientBoostingClassifier(n_estimators=40, verbose=2, subsample=0.8).fit(x, y)",
        (),
    ),
    "sklearn_boosting_plain": (
        DATA + "from sklearn.ensemble import GradientBoostingClassifier\n"
        "GradientBoostingClassifier(n_estimators=40, verbose=1).fit(x, y)",
        (),
    ),
    "sklearn_sgd": (
        DATA + "from sklearn.linear_model import SGDClassifier\n"
        "SGDClassifier(verbose=1, max_iter=40, tol=None, random_state=0).fit(x, y)",
        (),
    ),
    "sklearn_kmeans": (
        DATA + "from sklearn.cluster import KMeans\nKMeans(6, n_init=1, verbose=1, random_state=0).fit(x)",
        (),
    ),
    "sklearn_logistic": (
        DATA + "from sklearn.linear_model import LogisticRegression\nLogisticRegression(verbose=1).fit(x, y)",
        (),
    ),
    "sklearn_hist": (
        DATA + "from sklearn.ensemble import HistGradientBoostingClassifier\n"
        "HistGradientBoostingClassifier(max_iter=20, verbose=2, early_stopping=True, scoring='loss').fit(x, y)",
        (),
    ),
    "lightgbm": (
        DATA + "import lightgbm\ntrain = lightgbm.Dataset(x[:200], y[:200])\n"
        "held = lightgbm.Dataset(x[200:], y[200:], reference=train)\n"
        "lightgbm.train({'objective': 'binary', 'metric': ['auc', 'binary_logloss']}, train, 30, [train, held],"
        " ['training', 'valid'], callbacks=[lightgbm.log_evaluation(1)])",
        (),
    ),
    "xgboost": (
        DATA
        + "import xgboost\ntrain = xgboost.DMatrix(x[:200], y[:200])\nheld = xgboost.DMatrix(x[200:], y[200:])\n"
        "xgboost.train({'objective': 'binary:logistic', 'eval_metric': ['auc', 'logloss']}, train, 30,"
        " [(held, 'eval'), (train, 'train')])",
        (),
    ),
    "catboost": (
        DATA + "from catboost import CatBoostClassifier\n"
        "CatBoostClassifier(iterations=40, depth=3).fit(x[:200], y[:200], eval_set=(x[200:], y[200:]))",
        (
            "catboost_info/learn_error.tsv",
            "catboost_info/catboost_training.json",
            "catboost_info/test_error.tsv",
        ),
    ),
    "pytorch_tqdm": (
        TORCH + "from tqdm import tqdm\nimport time\n"
        "for epoch in range(4):\n"
        "    bar = tqdm(range(25), desc=f'Epoch {epoch}')\n"
        "    for i in bar:\n        time.sleep(0.03)\n        bar.set_postfix(loss=train_step(i % 10), lr=0.05)\n",
        (),
    ),
    "pytorch_tqdm_passes": (
        TORCH + "from tqdm import trange\nimport time\n"
        "bar = trange(40)\n"
        "for i in bar:\n    time.sleep(0.12)\n    bar.set_description(f'loss {train_step(i % 10):.4f}')\n",
        (),
    ),
    "keras": (
        "import os\nos.environ['KERAS_BACKEND'] = 'torch'\n" + DATA + "import keras\n"
        "net = keras.Sequential([keras.layers.Dense(1, activation='sigmoid')])\n"
        "net.compile(optimizer='sgd', loss='binary_crossentropy', metrics=['accuracy'])\n"
        "class Slow(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n        import time; time.sleep(0.06)\n"
        "net.fit(x, y, epochs=4, batch_size=16, validation_split=0.2, callbacks=[Slow()])",
        (),
    ),
    "keras_lines": (
        "import os\nos.environ['KERAS_BACKEND'] = 'torch'\n" + DATA + "import keras\n"
        "net = keras.Sequential([keras.layers.Dense(1, activation='sigmoid')])\n"
        "net.compile(optimizer='sgd', loss='binary_crossentropy', metrics=['accuracy'])\n"
        "net.fit(x, y, epochs=12, batch_size=16, validation_split=0.2, verbose=2)",
        (),
    ),
    "huggingface": (
        "import torch\nfrom transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments\n"
        "torch.manual_seed(0)\n"
        "rows = [{'input_ids': (t := torch.randint(0, 16, (8,))), 'labels': t} for _ in range(64)]\n"
        "net = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2,"
        " bos_token_id=0, eos_token_id=0))\n"
        "Trainer(net, TrainingArguments('out', max_steps=60, logging_steps=5, eval_strategy='steps', eval_steps=20,"
        " save_steps=20, report_to='none', use_cpu=True, per_device_train_batch_size=8, learning_rate=1e-2),"
        " train_dataset=rows, eval_dataset=rows[:16]).train()",
        ("out/checkpoint-60/trainer_state.json",),
    ),
    "lightning_bar": (
        LIGHTNING.replace("BAR", "True")
        + "lightning.Trainer(max_epochs=4, logger=False, enable_checkpointing=False, accelerator='cpu')"
        ".fit(Net(), data, data)",
        (),
    ),
    "lightning_tqdm": (
        LIGHTNING.replace("BAR", "True") + "from lightning.pytorch.callbacks import TQDMProgressBar\n"
        "lightning.Trainer(max_epochs=4, logger=False, enable_checkpointing=False, accelerator='cpu',"
        " callbacks=[TQDMProgressBar()]).fit(Net(), data, data)",
        (),
    ),
    "lightning_csv": (
        LIGHTNING.replace("BAR", "False") + "from lightning.pytorch.loggers import CSVLogger\n"
        "lightning.Trainer(max_epochs=6, logger=CSVLogger('.'), enable_checkpointing=False, accelerator='cpu',"
        " log_every_n_steps=5, enable_progress_bar=False).fit(Net(), data, data)",
        ("lightning_logs/version_0/metrics.csv",),
    ),
    "tensorboard": (
        TORCH + "from torch.utils.tensorboard import SummaryWriter\n"
        "with SummaryWriter('runs/a') as writer:\n"
        "    for i in range(40):\n"
        "        writer.add_scalar('accuracy', i / 40, i)\n"
        "        writer.add_scalar('loss/train', train_step(i % 10), i)\n",
        ("runs/a/events.out.tfevents.*",),
    ),
    "mlflow": (
        TORCH + "import mlflow\nmlflow.set_tracking_uri('sqlite:///mlflow.db')\n"
        "with mlflow.start_run():\n"
        "    for i in range(20):\n"
        "        mlflow.log_metric('accuracy', i / 20, i)\n"
        "        mlflow.log_metric('train_loss', train_step(i % 10), i)\n",
        ("mlflow.db",),
    ),
    "plain_upper": (
        TORCH
        + "for i in range(20):\n    print(f'[{i + 1}/20] Loss={train_step(i % 10):.4f} lr=0.05 time=0.1s')",
        (),
    ),
    "plain_validation": (
        TORCH + "for i in range(20):\n"
        "    print(f'Epoch {i + 1}/20 - train_loss {train_step(i % 10):.4f} - val_loss {1 / (i + 1):.4f}')\n"
        "    print(f'  validation: loss: {1 / (i + 1):.4f} accuracy: 0.{i:02d}')\n",
        (),
    ),
    "plain_tensor": (
        TORCH + "for i in range(12):\n    print('step', i, 'loss:', torch.tensor(train_step(i % 10)))",
        (),
    ),
}


def record(kind: str) -> None:
    """Run the script of a kind and keep what it printed and wrote."""
    script, kept = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script)
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
        )
        output = done.stdout.replace(folder.encode(), b"/folder")
        (HERE / f"{kind}.txt").write_bytes(output)
        shutil.rmtree(HERE / kind, ignore_errors=True)
        for pattern in kept:
            for path in sorted(Path(folder).glob(pattern)):
                place = HERE / kind / path.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
                if place.suffix == ".db":
                    _keep_metrics(place)
    sys.stderr.write(f"{kind}: status {done.returncode}, {len(output)} bytes\n")


def _keep_metrics(path: Path) -> None:
    """Drop all tables but that of the metrics: MLflow's have 900 KB."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if name != "metrics" and not name.startswith("sqlite_"):
                db.execute(f'DROP TABLE "{name}"')
        db.execute("VACUUM")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or KINDS:
        record(chosen)
