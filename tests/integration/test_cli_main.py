"""Laws of the `slaq` command that hold whatever the verb."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner, Result

from slaq.cli.main import VERBS, main
from slaq.core.errors import SlaqError

SLAQ = Path(sysconfig.get_path("scripts")) / "slaq"


def slaq(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SLAQ, *args], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def failure() -> Iterator[list[BaseException]]:
    """A verb `fail` that raises whatever the test puts in the list."""
    raised: list[BaseException] = []

    @click.command()
    def command() -> None:
        raise raised[0]

    module = ModuleType("slaq_fail_verb")
    vars(module)["command"] = command
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        patch.setitem(VERBS, "fail", (module.__name__, "Fails."))
        yield raised


def fail(*args: str) -> Result:
    return CliRunner().invoke(main, [*args, "fail"], prog_name="slaq")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["completion", "bash"]])
def test_light_commands_load_nothing_heavy(arguments: list[str]) -> None:
    """Help, version and completion answer at once: none of the large libraries is imported."""
    code = (
        "import sys\n"
        "from slaq.cli.main import main\n"
        "main(sys.argv[1:], prog_name='slaq', standalone_mode=False)\n"
        "heavy = {'numpy', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_slaq_loads_nothing_heavy() -> None:
    """A training script pays next to nothing for `import slaq`."""
    code = "import sys, slaq; sys.exit(bool({'numpy', 'scipy', 'click', 'slaq.core'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_help_lists_every_verb() -> None:
    """`slaq --help` shows each verb with its line."""
    done = slaq("--help")
    assert done.returncode == 0
    for verb, (_, line) in VERBS.items():
        assert f"{verb} " in done.stdout
        assert line.split()[0] in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_the_table_exists(verb: str) -> None:
    """Each row of the table leads to a command whose own help works."""
    done = slaq(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_version_is_the_package_version() -> None:
    """`slaq --version` and `slaq.__version__` agree."""
    import slaq as package

    assert slaq("--version").stdout == f"slaq {package.__version__}\n"


def test_unknown_verb_lists_the_verbs() -> None:
    """A mistyped verb is a usage error that names the closest verb and all the others."""
    done = slaq("simulat")
    assert done.returncode == 2
    assert "there is no verb 'simulat'; did you mean 'simulate'?" in done.stderr
    assert ", ".join(VERBS) in done.stderr


def test_slaq_error_is_one_sentence(failure: list[BaseException]) -> None:
    """An error raised on purpose shows its sentence on stderr, and exits with 1."""
    failure.append(SlaqError("the workload is empty"))
    result = fail()
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "slaq: the workload is empty\n")


def test_os_error_names_the_file(failure: list[BaseException]) -> None:
    """A file that cannot be opened is the user's affair, and named."""
    failure.append(FileNotFoundError(2, "No such file or directory", "jobs.jsonl"))
    result = fail()
    assert (result.exit_code, result.stderr) == (1, "slaq: jobs.jsonl: No such file or directory\n")


def test_defect_is_one_sentence_that_points_to_debug(failure: list[BaseException]) -> None:
    """An error nobody foresaw still shows no traceback, and says how to get one."""
    failure.append(ZeroDivisionError("division by zero"))
    result = fail()
    assert result.exit_code == 1
    assert result.stderr.startswith("slaq: unexpected ZeroDivisionError: division by zero")
    assert result.stderr.count("\n") == 1
    assert "--debug" in result.stderr


def test_debug_shows_the_traceback(failure: list[BaseException]) -> None:
    """With --debug the whole traceback is shown, without what a terminal obeys."""
    failure.append(SlaqError("the workload is \x1b[2Jempty"))
    result = fail("--debug")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last)")
    assert result.stderr.endswith("SlaqError: the workload is \\x1b[2Jempty\n")


def test_interrupt_exits_like_a_signal(failure: list[BaseException]) -> None:
    """Ctrl-C ends a verb quietly with 130."""
    failure.append(KeyboardInterrupt())
    result = fail()
    assert (result.exit_code, result.stderr.strip()) == (130, "")


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 1), (["completion", "bash"], 141)])
def test_closed_pipe_is_quiet(arguments: list[str], status: int) -> None:
    """A reader that has gone away, as in `slaq ... | head`, is not worth a word on stderr."""
    # Unbuffered output would leave nothing to flush at exit, which is where Python complains.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen([SLAQ, *arguments], stdout=writer, stderr=subprocess.PIPE, env=buffered) as process:
        os.close(writer)
        _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (status, b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_back_slaq(shell: str) -> None:
    """The script asks slaq itself for completions."""
    done = slaq("completion", shell)
    assert done.returncode == 0
    assert "_SLAQ_COMPLETE" in done.stdout


def test_completing_a_verb_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completing `slaq sim<TAB>` reads the table alone, even where a verb could not be imported."""
    monkeypatch.setitem(VERBS, "simmer", ("no_such_module", "Cannot be imported."))
    environment = {"COMP_WORDS": "slaq sim", "COMP_CWORD": "1", "_SLAQ_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(main, prog_name="slaq", env=environment)
    assert result.stdout == "plain,simulate\nplain,simmer\n"
