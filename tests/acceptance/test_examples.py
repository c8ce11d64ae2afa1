"""Laws of examples/: each file runs as it stands, or says what it needs, and does what its first line claims."""

import configparser
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from slaq.cli.verbs.serve import command as serve

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Arguments that make an example short; one that takes none has none.
SHORT = {"elastic_text.py": ["1"], "pytorch_script.py": ["2"], "unmodified_script.py": ["5"]}
#: A part of what each prints.
PRINTS = {
    "custom_algorithm.py": "weights found: [",
    "elastic_text.py": "pass 1: loss on held-out text 2.",
    "pytorch_script.py": "accuracy",
    "sklearn_grid.py": "rate 0.01 ",
    "spark_mllib.py": "GBTClassificationModel",
    "unmodified_script.py": "epoch 5 loss 0.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the examples, so that whatever one writes is not left there."""
    return Path(
        shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    )


def run(folder: Path, *words: str) -> str:
    """Run a command there and return what it prints."""
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_runs(name: str, folder: Path) -> None:
    """It exits with 0 and prints what it is about."""
    if name in ("elastic_text.py", "pytorch_script.py") and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    assert PRINTS[name] in run(folder, sys.executable, name, *SHORT.get(name, []))


def test_the_unit_starts_the_service_by_flags_there_are() -> None:
    """The systemd unit is one that notifies, reloads by SIGHUP, and whose command line `slaq serve` takes."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / "slaq.service")
    program, verb, *flags = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, verb) == ("slaq", "serve")
    serve.make_context("slaq serve", flags)
    assert unit["Service"]["Type"] == "notify"
    assert unit["Service"]["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"]


def test_the_batch_has_no_mistakes(folder: Path) -> None:
    """The jobs file passes the check, data and programs included, and starts nothing."""
    printed = run(folder, "slaq", "run", "jobs.toml", "--check")
    assert "8 jobs, no mistakes" in printed
    assert not (folder / "slaq-results").exists()
