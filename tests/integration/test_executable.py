"""Whether a program can be run is decided in one place, whichever way its command is submitted."""

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from slaq import Cluster
from slaq.cli.input.submissions import command_submission
from slaq.cli.main import main
from slaq.core.errors import CommandError
from slaq.jobs.executable import find_executable


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
        ("plain", "there is no program 'plain' on the PATH, only a file in {cwd}", "type ./plain"),
        ("./no-such-tool", "there is no file {cwd}/no-such-tool", "check the path"),
        (
            "./plain",
            "{cwd}/plain is not executable",
            "run chmod +x {cwd}/plain, or put its interpreter first",
        ),
    ],
)
def test_a_program_that_cannot_run_is_refused_with_one_sentence(
    tmp_path: Path, program: str, found: str, remedy: str
) -> None:
    """Python, a jobs file and the command line find the same and say the same."""
    (tmp_path / "plain").touch(mode=0o644)
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
