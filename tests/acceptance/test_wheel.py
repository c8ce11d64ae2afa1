"""Laws of the wheel as users install it: in an environment of its own, with base dependencies only."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slaq.cli.main import VERBS

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "constraints.txt"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("wheel")]

JOBS = """
[[job]]
name = "small"
algorithm = "logistic-regression"
data = {generate = "classification", rows = 500}
parameters = {iterations = 5}

[[job]]
name = "script"
command = ["echo", "loss 0.5"]
loss_pattern = 'loss (\\S+)'
"""
TOPICS = '[[job]]\nname = "topics"\nalgorithm = "lda"\ndata = {generate = "documents"}\n'
SPARSE = '[[job]]\nname = "sparse"\nalgorithm = "linear-svm"\ndata = "rows.svmlight"\n'
SPARK = '[cluster]\nengine = "spark"\n\n[[job]]\nname = "mllib"\nfit = "fits.py:make"\n'
#: A workload of one job, for `slaq simulate`.
WORKLOAD = '{"id": "a", "arrival": 0, "losses": [1.0, 0.5, 0.4], "cpu_seconds_per_iteration": 1.0}\n'
FILES = {
    "jobs.toml": JOBS,
    "topics.toml": TOPICS,
    "sparse.toml": SPARSE,
    "rows.svmlight": "1 1:0.5\n0 2:1.0\n",
    "spark.toml": SPARK,
    "fits.py": "def make(spark):\n    raise NotImplementedError\n",
    "jobs.jsonl": WORKLOAD,
    "losses.txt": "1.0 0.7 0.55 0.46 0.4 0.36\n",
    "log.txt": "loss 3\nloss 2\nloss 1.5\n",
}

#: Verbs with arguments that work without any extra.
WORKING = {
    "demo": "demo --jobs 2 --over 0 --size 0.001",
    "run": "run jobs.toml",
    "simulate": "simulate jobs.jsonl",
    "detect": "detect log.txt",
    "forecast": "forecast losses.txt",
    "workload": "workload inspect jobs.jsonl",
    "bench": "bench decide --jobs 20 --units 80 --repeat 1 --no-reference",
    "token": "token create me",
    "completion": "completion bash",
}
#: Verbs that are for the service, with arguments.
ASKING = {
    "submit": "submit -- true",
    "ls": "ls",
    "show": "show a",
    "best": "best group",
    "export": "export --all",
    "top": "top",
    "logs": "logs a",
    "wait": "wait a",
    "pause": "pause a",
    "resume": "resume a",
    "cancel": "cancel a",
    "weight": "weight a 2",
    "why": "why a",
    "whatif": "whatif",
    "cluster": "cluster",
    "users": "users ls",
    "prune": "prune --older-than 1d --yes",
    "backup": "backup copy.db",
}
#: What needs an extra: the command, and the extra.
NEEDING = [
    *((line, "client") for line in ASKING.values()),
    ("serve", "service"),
    ("report page.html", "plot"),
    ("report --json", "client"),
    ("demo --engine spark --jobs 1", "spark"),
    ("demo --plot demo.svg", "plot"),
    ("demo --report demo.html", "plot"),
    ("simulate jobs.jsonl --plot picture.png", "plot"),
    ("simulate jobs.jsonl --report page.html", "plot"),
    ("forecast losses.txt --plot picture.png", "plot"),
    ("run jobs.toml --report page.html", "plot"),
    ("run topics.toml", "scipy"),
    ("run sparse.toml", "scipy"),
    ("run spark.toml", "spark"),
    ("bench decide --jobs 20 --units 80 --repeat 1", "scipy"),
]
#: Python that needs an extra.
IMPORTING = [
    ("import slaq; slaq.connect()", "client"),
    ("import slaq.spark; slaq.spark.session()", "spark"),
    ("from slaq.algorithms import LDA; LDA()", "scipy"),
    ("from slaq.integrations import sklearn; sklearn.partial_fit(None, passes=1)", "sklearn"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel in it."""

    bin: Path
    home: Path

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment as a user does whose shell knows nothing of this checkout."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SLAQ"))}
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            cwd=cwd or self.home,
            env={**kept, "HOME": str(self.home), "SLAQ_HOME": str(self.home / "slaq")},
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel and install it with its base dependencies."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = place.glob("slaq-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(place / "env")], check=True, capture_output=True)
    (place / "home").mkdir()
    found = Installed(bin=place / "env" / "bin", home=place / "home")
    done = found.run("python", "-m", "pip", "install", "--quiet", "-c", str(LOCK), str(wheel))
    assert done.returncode == 0, done.stderr
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the commands name."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_verb_is_tried() -> None:
    """Each verb either works without extras, or names the one it needs."""
    assert {*WORKING, *(line.split()[0] for line, _ in NEEDING)} == set(VERBS)


def test_the_wheel_brings_base_dependencies_only(installed: Installed) -> None:
    """Nothing that an extra brings is installed, so that what follows is seen without it."""
    listed = installed.run("python", "-m", "pip", "list", "--format", "freeze").stdout.lower()
    assert "slaq==" in listed
    assert not {"matplotlib", "scipy", "httpx", "fastapi", "scikit-learn", "pyspark", "torch"} & {
        line.partition("==")[0] for line in listed.split()
    }


@pytest.mark.parametrize("words", ["--help", "--version", *(f"{verb} --help" for verb in VERBS)])
def test_help_needs_no_extra(installed: Installed, words: str) -> None:
    """Help of slaq and of every verb is printed, and nothing else."""
    done = installed.run("slaq", *words.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("line", WORKING.values())
def test_what_needs_no_extra_works(installed: Installed, folder: Path, line: str) -> None:
    """A verb that trains, simulates or forecasts runs on the base dependencies alone."""
    done = installed.run("slaq", *line.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_demo_says_what_it_leaves_out(installed: Installed, folder: Path) -> None:
    """Without Matplotlib and SciPy the demo runs all the same, and names the extras that bring the rest."""
    done = installed.run("slaq", *WORKING["demo"].split(), cwd=folder)
    assert "pip install 'slaq[plot]'" in done.stderr
    assert "pip install 'slaq[scipy]'" in done.stderr
    assert not list(folder.glob("slaq-demo.*"))


@pytest.mark.parametrize(("line", "extra"), NEEDING)
def test_a_missing_extra_is_named(installed: Installed, folder: Path, line: str, extra: str) -> None:
    """A command that needs an extra fails with one sentence that says what to type."""
    done = installed.run("slaq", *line.split(), cwd=folder)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("slaq: ")
    assert sentence.endswith(f"pip install 'slaq[{extra}]'")


@pytest.mark.parametrize(("code", "extra"), IMPORTING)
def test_python_names_the_missing_extra(installed: Installed, code: str, extra: str) -> None:
    """What needs an extra raises MissingExtraError, whose text says what to type."""
    done = installed.run("python", "-c", code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("slaq.core.errors.MissingExtraError: ")
    assert last.endswith(f"pip install 'slaq[{extra}]'")
