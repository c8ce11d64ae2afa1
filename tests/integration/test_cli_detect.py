"""Laws of `slaq detect`, and of what a service shows of the losses that it found."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slaq.cli.main import main
from slaq.detection.lines import LineCutter, seen
from tests.integration.serving import Served, until

RECORDED = Path(__file__).parents[1] / "detection" / "recorded"


def slaq(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize(
    "kind", ["huggingface", "pytorch_tqdm", "xgboost", "lightgbm", "catboost", "plain_validation"]
)
def test_the_pattern_to_copy_finds_the_same(kind: str) -> None:
    """The pattern that is printed finds, in each line, the number that was found without it, and nothing else."""
    path = RECORDED / f"{kind}.txt"
    told = json.loads(slaq("detect", "--json", str(path)).stdout)
    cutter = LineCutter()
    lines = [seen(line) for line in cutter.feed(path.read_bytes()) + cutter.rest()]
    matches = [match[1] for line in lines if (match := re.search(told["pattern"], line))]
    assert len(matches) == told["matching"] > 0
    assert float(matches[0].rstrip(",;:)]}")) == told["first"]
    text = slaq("detect", str(path)).stdout
    assert f"--loss-pattern {shlex.quote(told['pattern'])}" in text
    assert f"--loss {shlex.quote(told['series'])}" in text


def test_a_script_is_run_and_its_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind -- stands a command: its output and its files are looked at, and it can be given a time."""
    monkeypatch.chdir(tmp_path)
    code = "open('metrics.csv', 'w').write('step,loss\\n' + ''.join(f'{n},{9 - n}\\n' for n in range(5)))"
    found = slaq("detect", "--json", "--", sys.executable, "-c", code)
    assert (found.exit_code, json.loads(found.stdout)["place"]) == (0, "metrics.csv")
    code = "import time\nfor n in range(5): print('loss', 9 - n, flush=True)\ntime.sleep(600)"
    found = slaq("detect", "--for", "3s", "--json", "--", sys.executable, "-c", code)
    assert json.loads(found.stdout)["losses"] == 5


def test_where_there_is_no_loss_the_exit_status_is_1(tmp_path: Path) -> None:
    """Nothing found is told with what to do, and with the numbers there are."""
    path = tmp_path / "log"
    path.write_text("accuracy 0.1\naccuracy 0.2\n")
    found = slaq("detect", str(path))
    assert found.exit_code == 1
    assert "no loss was found in 2 lines" in found.stdout
    assert "numbers there are: accuracy" in found.stdout
    assert json.loads(slaq("detect", "--loss", "accuracy", "--json", str(path)).stdout)["last"] == 0.2
    assert slaq("detect", str(path), "more").exit_code == 2
    assert "cannot be run" in slaq("detect", "--", "no-such-program").stderr


def test_a_service_shows_what_it_reads(here: Path, served: Served) -> None:
    """show, why, the API and the stream of events say which series is read, and what else there was."""
    code = "for n in range(20): print('Epoch', n, 'train_loss', 1 / (n + 1), 'val_loss', 2)"
    job = slaq("submit", "--", sys.executable, "-c", code).stdout.strip()
    assert slaq("wait", job).exit_code == 0
    source = "'train_loss' in the output; there is also val_loss (--loss NAME chooses)"
    shown = json.loads(slaq("show", job, "--json").stdout)
    assert (shown["loss_source"], shown["loss_trouble"], shown["iteration"]) == (source, "", 19)
    assert f"reads      {source}" in re.sub(r"\s*\n\s{10,}", " ", slaq("show", job).stdout)
    assert source in slaq("why", job).stdout


def test_a_service_marks_a_job_without_losses(here: Path, served: Served) -> None:
    """ls and show say what is wrong while the job runs; a loss takes the mark away."""
    code = """
import os, time
for n in range(600): print("preparing", n, flush=True)
while not os.path.exists("go"): time.sleep(0.05)
for n in range(9): print("loss", 9 - n, flush=True)
while True: time.sleep(0.05)
"""
    job = slaq("submit", "--", sys.executable, "-c", code).stdout.strip()
    until(lambda: "–  !" in slaq("ls").stdout or "– !" in slaq("ls").stdout)
    assert f"! {job}: no loss was found in" in slaq("ls").stderr
    assert "--loss-pattern" in slaq("show", job).stdout
    assert "Trouble: no loss was found" in slaq("why", job).stdout
    (here / "go").touch()
    until(lambda: json.loads(slaq("show", job, "--json").stdout)["loss_trouble"] == "")
    assert until(lambda: json.loads(slaq("show", job, "--json").stdout)["iteration"] == 8)
    assert slaq("cancel", job).exit_code == 0
