"""Spark from the command line: a batch with `engine = "spark"`, the demo, and what is refused."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner

from slaq.cli.main import main

JOBS = """
[cluster]
engine = "spark"
master = "local[2]"
epoch_seconds = 0.3

[[job]]
name = "logistic"
fit = "own.py:fit"
parameters = {regularisation = 0.1}

[[job]]
name = "counted"
fit = "own.py:count"
trains = false

[[job]]
name = "means"
algorithm = "kmeans"
data = {generate = "blobs", rows = 200, features = 3, seed = 1}
parameters = {k = 3, iterations = 2}
"""
OWN = """
def fit(spark, regularisation):
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.linalg import Vectors

    rows = [(Vectors.dense([i % 7, i % 3]), float(i % 2)) for i in range(60)]
    df = spark.createDataFrame(rows, ["features", "label"]).repartition(4)
    return LogisticRegression(maxIter=4, regParam=regularisation).fit(df)


def count(spark, ctx):
    ctx.report(1.0)
    return spark.range(10).count()
"""


def without_java(folder: Path) -> dict[str, str]:
    """Return the environment of a machine that has all the programs of this one but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if program.name != "java" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(folder)}


def slaq(folder: Path, *words: str, env: dict[str, str] | None = None) -> str:
    """Run slaq in a process of its own, as a process has one Spark application at most."""
    env = dict(os.environ if env is None else env)
    env["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        ["slaq", *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env=env,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_batch_runs_on_spark_and_keeps_its_models(tmp_path: Path) -> None:
    """Fits of the user's own, other work and slaq's algorithms, with the Java that the extra brings."""
    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "own.py").write_text(OWN)
    words = ["run", "jobs.toml", "--json", "--quiet", "--results", "out"]
    told = json.loads(slaq(tmp_path, *words, env=without_java(tmp_path / "bin")))
    assert (told["engine"], told["cores"]) == ("spark", 2)
    jobs = {job["id"]: job for job in told["jobs"]}
    assert {job["state"] for job in jobs.values()} == {"completed"}
    assert {name: job["result"] for name, job in jobs.items()} == {
        "logistic": "model",
        "counted": "result.pkl",
        "means": "model.npz",
    }
    assert (tmp_path / "out" / "logistic" / "model" / "metadata").is_dir()
    assert jobs["logistic"]["losses"] >= 3
    assert (tmp_path / "out" / "logistic" / "losses.csv").read_text().count("\n") == jobs["logistic"][
        "losses"
    ] + 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_compares_policies_on_spark(tmp_path: Path) -> None:
    """It prints what `slaq simulate` would, of jobs that were fitted for real, and draws it."""
    words = ["--jobs", "1", "--over", "0", "--size", "0.02", "--master", "local[4]", "--json"]
    told = json.loads(slaq(tmp_path, "demo", "--engine", "spark", *words))
    assert {"fair", "total-quality"} == set(told)
    assert (tmp_path / "slaq-demo.png").exists()
    assert (tmp_path / "slaq-demo.html").exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[cluster]\nmaster = 'local[2]'\n[[job]]\ncommand = 'true'\n", "master is for Spark"),
        (
            "[cluster]\nengine = 'spark'\ncores = 2\n[[job]]\nfit = 'own.py:fit'\n",
            "cores is for the local engine",
        ),
        ("[cluster]\nengine = 'spark'\n[[job]]\ncommand = 'true'\n", "a command cannot run on Spark"),
        ("[[job]]\nfit = 'own.py:count'\n", "fit is for Spark"),
        ("[cluster]\nengine = 'spork'\n[[job]]\nfit = 'own.py:count'\n", "did you mean 'spark'"),
        (
            "[cluster]\nengine = 'spark'\n[[job]]\nfit = 'own.py:fit'\nparameters = {colour = 1}\n",
            "cannot be called with a Spark session",
        ),
        (
            "[cluster]\nengine = 'spark'\n[[job]]\nfit = 'own.py:count'\nretry = 1\n",
            "there is no Spark fit option 'retry'",
        ),
        ("[cluster]\nengine = 'spark'\n[[job]]\nfit = 'own.py:count'\ndata = 'x.csv'\n", "data is not a key"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    text: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its line, and no session is made."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.toml").write_text(text)
    Path("own.py").write_text(OWN)
    done = CliRunner().invoke(main, ["run", "jobs.toml"])
    assert done.exit_code == 1
    assert found in str(done.exception) + done.output


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["run", "jobs.toml", "--master", "local[2]"], "--master is for Spark"),
        (["demo", "--master", "local[2]"], "--master works with --engine spark only"),
        (["demo", "--engine", "spark", "--data", "."], "--data works with --engine local only"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mistakes of usage."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.toml").write_text("[[job]]\ncommand = 'true'\n")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert found in done.output
