"""Whether a program can be run is decided in one place, whichever way its command is submitted."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from slaq import Cluster
from slaq.cli.input.submissions import command_submission
from slaq.cli.main import main
from slaq.client import Client
from slaq.client.connection import Connection
from slaq.client.endpoint import find_endpoint
from slaq.core.errors import CommandError, DataError, JobOptionError
from slaq.jobs.data import Dataset
from slaq.jobs.executable import find_executable, script_in


def test_a_program_is_found_as_a_shell_finds_it(tmp_path: Path) -> None:
    """A name is looked for on the PATH of the command's own environment, a path from the command's folder."""
    for folder in ("bin", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").touch(mode=0o755)
    env = {"PATH": str(tmp_path / "bin")}
    assert find_executable("tool", tmp_path / "here", env) == str(tmp_path / "bin" / "tool")
    assert find_executable("./tool", tmp_path / "here", env) == str(tmp_path / "here" / "tool")
    assert find_executable(sys.executable, tmp_path, {}) == sys.executable


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="commands as jobs need Linux")
@pytest.mark.parametrize(
    ("program", "found", "remedy"),
    [
        (
            "no-such-tool",
            "there is no program 'no-such-tool' on the PATH",
            "check its name, or give its path",
        ),
        ("plain", "'plain' is a file in {cwd} and no program on the PATH", "type ./plain"),
        ("sgd.py", "'sgd.py' is a file in {cwd} and no program on the PATH", "type -- python sgd.py"),
        ("./no-such-tool", "there is no file {cwd}/no-such-tool", "check the path"),
        (
            "./plain",
            "{cwd}/plain is not executable",
            "put its interpreter first, or run chmod +x {cwd}/plain",
        ),
        (
            "./sgd.py",
            "{cwd}/sgd.py is not executable",
            "type -- python ./sgd.py, or run chmod +x {cwd}/sgd.py",
        ),
    ],
)
def test_a_program_that_cannot_run_is_refused_with_one_sentence(
    tmp_path: Path, program: str, found: str, remedy: str
) -> None:
    """Python, a jobs file and the command line find the same and say the same."""
    for name in ("plain", "sgd.py"):
        (tmp_path / name).touch(mode=0o644)
    found, remedy = found.format(cwd=tmp_path), remedy.format(cwd=tmp_path)
    with Cluster(1) as cluster, pytest.raises(CommandError) as in_python:
        cluster.submit_command([program], cwd=tmp_path)
    with pytest.raises(CommandError) as submitted:
        command_submission([program], {"cwd": str(tmp_path), "env": {}}, local=True)
    for refusal in (in_python.value, submitted.value):
        assert (refusal.found, refusal.remedy) == (found, remedy)
    (tmp_path / "jobs.toml").write_text(f"[[job]]\ncommand = ['{program}']\ncwd = '{tmp_path}'\n")
    done = CliRunner().invoke(main, ["run", "--check", os.fspath(tmp_path / "jobs.toml")])
    assert done.exit_code != 0
    said = " ".join(done.stderr.split())
    assert found in said
    assert remedy in said


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("python train.py --lr 0.1", "train.py"),
        ("/opt/env/bin/python3.12 -u -W ignore sub/train.py", "sub/train.py"),
        ("bash -eu run.sh", "run.sh"),
        ("Rscript fit.R", "fit.R"),
        ("python -m package.train data.py", None),
        ("python -c pass x.py", None),
        ("python", None),
        ("python data", None),
        ("torchrun train.py", None),
        ("echo train.py", None),
    ],
)
def test_a_script_is_seen_behind_its_interpreter(words: str, script: str | None) -> None:
    """The first argument of a known interpreter is its script, unless an option takes its place."""
    assert script_in(words.split()) == script


def test_a_script_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    """Each way to submit refuses it with one sentence, unless the job waits for others that may make it."""
    words = ["python", "nothere.py"]
    told = f"there is no file {tmp_path}/nothere.py; check the path of the script"
    env = {"PATH": os.environ["PATH"]}
    with pytest.raises(CommandError, match=re.escape(told)):
        command_submission(words, {"cwd": str(tmp_path), "env": env}, local=True)
    command_submission(words, {"cwd": str(tmp_path), "env": env, "after": ("made",)}, local=True)
    with Cluster(1) as cluster:
        with pytest.raises(CommandError, match=re.escape(told)):
            cluster.submit_command(words, cwd=tmp_path)
        made = cluster.submit_command(["touch", "nothere.py"], cwd=tmp_path, name="made")
        assert (
            cluster.submit_command([sys.executable, "nothere.py"], cwd=tmp_path, after=["made"]).result() == 0
        )
        assert made.done()
    (tmp_path / "nothere.py").unlink()
    (tmp_path / "jobs.toml").write_text("[[job]]\ncommand = 'python nothere.py'\n")
    done = CliRunner().invoke(main, ["run", "--check", os.fspath(tmp_path / "jobs.toml")])
    assert done.exit_code != 0
    assert f"there is no file {tmp_path}/nothere.py" in " ".join(done.stderr.split())


def test_what_is_no_program_is_refused_at_once() -> None:
    """A number is no program, on an embedded cluster as in a service."""
    with Cluster(1) as cluster, pytest.raises(JobOptionError, match="program is 3; give a function"):
        cluster.submit(3)  # type: ignore[arg-type]
    client = Client(Connection(find_endpoint("unix:///nowhere", None), 0.0))
    with (
        client,
        pytest.raises(JobOptionError, match=r'program is 3; give its file and name, as "train.py:train"'),
    ):
        client.submit(3)  # type: ignore[arg-type]


class Table:
    """As much of a pandas.DataFrame as data is read by."""

    columns = ("age", "town")

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        return np.array([[31, "Bern"], [42, "Basel"]], dtype=object)


def test_a_column_of_text_is_named() -> None:
    """Features that hold a text are refused with the column's name and the text."""
    with Cluster(1) as cluster, pytest.raises(DataError, match="column 'town' of the features holds 'Bern'"):
        cluster.submit(print, (Table(), None))
    with pytest.raises(DataError, match="column 0 of the targets holds None"):
        Dataset(np.eye(2), np.array([1.0, None], dtype=object)[::-1])
    assert Dataset(np.array([[1, 2.5]], dtype=object)).x.dtype == np.float64
