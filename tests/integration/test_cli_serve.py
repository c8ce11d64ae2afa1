"""Laws of `slaq serve` as a process: it starts, reloads and stops cleanly, and jobs go on after any end."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from slaq.cli.main import main
from slaq.client import Client, connect
from slaq.core.errors import SlaqError
from slaq.jobs.options import LIMITS
from tests.integration.serving import PATIENCE, until

SLAQ = Path(sysconfig.get_path("scripts")) / "slaq"
#: Counts on from what it kept, to the end: slowly at first, so that it is stopped half-way, then without a pause.
COUNTS = """
import os, pathlib, slaq, time
kept = pathlib.Path(os.environ["SLAQ_JOB_DIR"], "kept")
start = int(kept.read_text()) if kept.exists() else 0
print("from", start, flush=True)
for i in range(start, 400):
    slaq.report(1 / (1 + i))
    draft = kept.with_suffix(".new")
    draft.write_text(str(i + 1))
    draft.replace(kept)
    time.sleep(0 if start else 0.02)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="slaq-") as folder:
        yield Path(folder)


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLAQ_")}
    return {**kept, "SLAQ_HOME": str(home), "SLAQ_EPOCH_SECONDS": "0.2", "SLAQ_CORES": "2", **more}


def reached(home: Path) -> Client | None:
    client = connect(f"unix://{home}/slaq.sock")
    try:
        client.cluster()
    except SlaqError:
        client.close()
        return None
    return client


@contextmanager
def service(home: Path, *flags: str, **more: str) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    """Run `slaq serve` until the end of the block, if it has not ended by then."""
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen([SLAQ, "serve", *flags], env=environment(home, **more), stderr=log)
    try:
        client = until(lambda: process.poll() is not None or reached(home))
        assert process.poll() is None, (home / "serve.log").read_text()
        with client:
            yield process, client
    finally:
        process.terminate()
        process.wait(PATIENCE)


def log_of(home: Path) -> str:
    return (home / "serve.log").read_text()


def refused(home: Path, *flags: str, **more: str) -> str:
    """Return why it does not start."""
    done = subprocess.run(
        [SLAQ, "serve", *flags], env=environment(home, **more), capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_a_stop_is_clean_and_jobs_go_on_after_it(home: Path) -> None:
    """SIGTERM ends it with 0, its socket and its jobs' processes gone; the next start goes on with the jobs."""
    with service(home) as (process, client):
        job = client.submit_command([sys.executable, "-c", COUNTS], name="counts")
        until(lambda: job.view.iteration > 3)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert not (home / "slaq.sock").exists()
    with service(home) as (_, client):
        job = client.job("counts")
        assert job.result(timeout=PATIENCE) == 0
        assert [seen.iteration for seen in job.observations] == list(range(400))
        assert "from 0" in job.log()
        assert job.log().count("from") == 2


def test_a_wait_outlives_the_service(home: Path) -> None:
    """`slaq wait` goes on waiting while the service is killed and started again, and sees the job's end."""
    with service(home, "--log-level", "debug") as (process, client):
        client.submit_command([sys.executable, "-c", COUNTS], name="counts")
        # By the listing, so that whoever asks for this one job is the one that waits.
        until(lambda: client.list_jobs()[0]["iteration"] > 3)
        waiting = subprocess.Popen([SLAQ, "wait", "counts"], env=environment(home))
        until(lambda: "path=/api/v1/jobs/counts " in log_of(home))
        process.kill()
        process.wait(PATIENCE)
    with service(home):
        assert waiting.wait(PATIENCE) == 0


def test_one_service_to_a_home(home: Path) -> None:
    """A second one is refused in a sentence, and the first goes on."""
    with service(home) as (process, client):
        assert refused(home).startswith("slaq: ")
        assert process.poll() is None
        client.cluster()


def test_a_reload_takes_up_what_can_change(home: Path) -> None:
    """SIGHUP reads the settings again: a policy is in force, cores wait for a restart, mistakes change nothing."""
    settings = home / "slaq.toml"
    settings.write_text('[service]\npolicy = "fair"\n')
    with service(home, "--log-format", "json") as (process, client):
        assert client.cluster()["policy"] == "fair"
        settings.write_text('[service]\npolicy = "fifo"\nunits_per_core = 3\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: client.cluster()["policy"] == "fifo")
        until(lambda: "units_per_core" in log_of(home))
        settings.write_text('[service]\npolicy = "best"\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: "there is no policy 'best'" in log_of(home))
        assert client.cluster()["policy"] == "fifo"
        events = [json.loads(line) for line in log_of(home).splitlines()]
        assert {"time", "level", "event"} <= set(events[0])


def test_settings_with_mistakes_start_nothing(home: Path) -> None:
    """All mistakes are told at once, with where each stands; nothing is made in home."""
    (home / "slaq.toml").write_text('[service]\npolicy = "fare"\n')
    said = refused(home, SLAQ_TCP="0.0.0.0:1")
    assert "SLAQ_TCP: 0.0.0.0:1 can be reached from other machines, and there is no TLS" in said
    assert "slaq.toml, line 2: there is no policy 'fare'; did you mean 'fair'?" in said
    assert os.listdir(home) == ["slaq.toml"]


def test_flags_that_make_no_sense_are_misuse(home: Path) -> None:
    """A mistake in a flag is a usage error; --check shows the settings and starts nothing."""
    run = CliRunner()
    done = run.invoke(main, ["serve", "--home", str(home), "--cores", "none", "--check"])
    assert done.exit_code == 2
    assert "--cores: cores is 'none'; give a whole number from 1 to 1,000,000" in done.stderr
    done = run.invoke(main, ["serve", "--home", str(home), "--cores", "3", "--check"])
    assert done.exit_code == 0
    assert "cores = 3" in done.stdout
    assert os.listdir(home) == []


def test_check_shows_every_limit_of_users(home: Path) -> None:
    """--check tells each limit that everyone has, and each of a user's own."""
    limits = {name: number for number, name in enumerate(LIMITS.options, start=11)}
    lines = "".join(f"{name} = {number}\n" for name, number in limits.items())
    (home / "slaq.toml").write_text(f"[defaults]\n{lines}[users.ann]\nmax_jobs = 99\n")
    done = CliRunner().invoke(main, ["serve", "--home", str(home), "--check"])
    assert done.exit_code == 0, done.output
    everyone, ann = done.stdout.splitlines()[-2:]
    assert [int(number) for number in re.findall(r"\d+", everyone)] == list(limits.values())
    assert [int(number) for number in re.findall(r"\d+", ann)] == [11, 99, 13, 14]


def test_without_its_libraries_it_names_the_extra(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the service's libraries are not installed, one sentence says what to type."""
    monkeypatch.delitem(sys.modules, "slaq.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(main, ["serve", "--home", str(home)])
    assert done.exit_code == 1
    assert "pip install 'slaq[service]'" in done.stderr
