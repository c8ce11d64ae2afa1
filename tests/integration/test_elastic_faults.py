"""Laws of elastic training under faults: checkpoints, kills, full disks, notices to leave, users' defects."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

import slaq
from slaq.core.errors import CheckpointError, ElasticError
from tests.integration.elastic_nets import digest, images, loss, momentum, network, training

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("elastic_script.py")
#: So often that each update is followed by a checkpoint.
ALWAYS = 1e-9


def started(**options: Any) -> "subprocess.Popen[str]":
    """Start the script."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def ran(**options: Any) -> tuple[int, str, str]:
    """Run the script to its end; return its status and what it printed."""
    with started(**options) as process:
        out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def result(out: str) -> str:
    """Return the digest that the script printed."""
    return out.rpartition("digest ")[2].strip()


def updates(out: str) -> list[int]:
    """Return the updates that the script printed."""
    return [int(line.split()[1]) for line in out.splitlines() if line.startswith("update")]


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The digest of a run that nothing happened to."""
    status, out, err = ran()
    assert status == 0, err
    return result(out)


@pytest.mark.slow
def test_a_killed_driver_goes_on_to_the_same_bits(undisturbed: str, tmp_path: Path) -> None:
    """Killed twice, at any update, and started again with other workers, a run ends with the same bits."""
    path = str(tmp_path / "run" / "checkpoint")
    for death, workers in ((7, 1), (19, 2)):
        status, _, _ = ran(checkpoint=path, checkpoint_every=0.05, workers=workers, dies_after=death)
        assert status == -signal.SIGKILL
    status, out, err = ran(checkpoint=path, workers=2)
    assert (status, result(out)) == (0, undisturbed), err
    # Run once more, it has nothing left to do.
    status, out, err = ran(checkpoint=path)
    assert (status, result(out), updates(out)) == (0, undisturbed, []), err


def test_workers_die_with_their_driver(tmp_path: Path) -> None:
    """A driver that is killed leaves no process behind."""
    with started(workers=3, micro_batches=6, passes=1000) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        process.kill()
    for child in children:
        assert _gone(int(child))


def _gone(pid: int) -> bool:
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        signal.sigtimedwait([], 0.05)
    return False


@pytest.mark.slow
def test_a_notice_to_leave_finishes_the_update_and_saves(undisturbed: str, tmp_path: Path) -> None:
    """SIGTERM ends the script as shells tell it, with nothing lost: the next start goes on with the next update."""
    path = str(tmp_path / "checkpoint")
    with started(checkpoint=path, workers=2) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGTERM)
        rest, err = process.communicate(timeout=60)
    seen = updates("".join(first) + rest)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert err == ""
    status, out, err = ran(checkpoint=path)
    assert (status, result(out)) == (0, undisturbed), err
    # At most the body of the last update runs again.
    assert updates(out)[0] - seen[-1] in (0, 1)


def test_a_full_disk_costs_no_training(
    undisturbed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that cannot be written is told plainly and once, and written again when there is room."""
    path = tmp_path / "checkpoint"
    model = network()
    optimizer = momentum(model)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for update in training(model, optimizer, checkpoint=path, checkpoint_every=ALWAYS):
            if update.number == 3:
                # Files may not grow any more: for the writer the same as a full disk.
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
            if update.number == 9:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert digest(model, optimizer, []) == undisturbed
    told = [record.getMessage() for record in caplog.records]
    assert [str(path) in one for one in told] == [True, True]
    assert "cannot be written" in told[0]
    assert "is written again" in told[1]


def test_a_path_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    """Before anything is trained."""
    (tmp_path / "file").touch()
    model = network()
    with pytest.raises(ElasticError, match=r"cannot be (written|read) .*; give checkpoint="):
        training(model, momentum(model), checkpoint=tmp_path / "file" / "checkpoint")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"batch_size": 30}, "batch_size 32, and this training's is 30"),
        ({"micro_batches": 2}, "micro_batches 4, and this training's is 2"),
        ({"seed": 1}, "seed 0, and this training's is 1"),
        ({"mode": "scale"}, "mode 'exact', and this training's is 'scale'"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """What decides the bits must be the same; a sentence says what differs."""
    path = tmp_path / "checkpoint"
    model = network()
    training(model, momentum(model), checkpoint=path).close()
    with pytest.raises(ElasticError, match=told):
        training(model, momentum(model), checkpoint=path, **changed)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """Its weights are never loaded into this one."""
    path = tmp_path / "checkpoint"
    model = network()
    training(model, momentum(model), checkpoint=path).close()
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    with pytest.raises(ElasticError, match="another model"):
        training(other, momentum(other), checkpoint=path)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """Wherever it was cut or changed, the training says so and does not begin from half of it."""
    path = tmp_path / "checkpoint"
    model = network()
    training(model, momentum(model), checkpoint=path).close()
    whole = path.read_bytes()
    for damaged in (whole[:100], whole[:-1], whole[:-200] + b"\0" + whole[-199:], b"", b"something else"):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="delete it to train from the beginning"):
            training(model, momentum(model), checkpoint=path)


def test_micro_batches_are_kept(tmp_path: Path) -> None:
    """How a batch is cut is chosen at the first start; another machine goes on with it."""
    path = tmp_path / "checkpoint"
    model = network()
    training(model, momentum(model), checkpoint=path, micro_batches=3).close()
    with training(model, momentum(model), checkpoint=path, micro_batches=None) as again:
        assert again.micro_batches == 3


class Broken(nn.Module):
    """A model that fails in workers only, where it is told to."""

    def __init__(self, ends: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)
        self.driver = os.getpid()
        self.ends = ends

    @override
    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.driver:
            if self.ends:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("no worker can do this")
        found: Tensor = self.layer(x.flatten(1))
        return found


@pytest.fixture
def process_ids() -> Iterator[set[str]]:
    """The children of this process before the test; there are no others after it."""
    folder = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(folder.read_text().split())
    yield before
    assert set(folder.read_text().split()) <= before


def test_an_exception_in_a_worker_is_raised_in_the_loop(process_ids: set[str]) -> None:
    """With the worker's own traceback as its cause, once; no worker stays."""
    model = Broken(ends=False)
    with pytest.raises(ZeroDivisionError, match="no worker can do this") as raised:
        list(training(model, momentum(model), workers=2))
    assert "in forward" in str(raised.value.__cause__)


def test_workers_that_always_die_cost_only_time(caplog: pytest.LogCaptureFixture) -> None:
    """As where each is killed for want of memory: the driver computes all, and says why."""
    model = Broken(ends=True)
    assert len(list(training(model, momentum(model), workers=2))) == 30
    told = [record.getMessage() for record in caplog.records]
    assert "killed by SIGKILL" in told[0]
    assert "computes alone" in told[-1]
    assert len(told) < 10


def test_a_loss_that_depends_on_the_process_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """At the first update with workers one of them computes what the driver did; other bits are warned of."""
    driver = os.getpid()

    def differs(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return loss(model, batch) * (1.0 if os.getpid() == driver else 1.5)

    model = network()
    under_way = slaq.elastic(differs, model, momentum(model), images(), batch_size=32, passes=1, workers=2)
    assert len(list(under_way)) == 10
    assert ["result depends on the workers" in record.getMessage() for record in caplog.records] == [True]


def test_weights_written_between_updates_reach_the_workers() -> None:
    """What the loop does to weights, buffers and modes holds for all: workers or none, the bits are the same."""

    def disturbed(workers: int) -> str:
        model = network()
        optimizer = momentum(model)
        found = []
        for update in training(model, optimizer, workers=workers):
            found.append(update)
            weight = model.get_parameter("0.weight")
            if update.number == 5:
                weight.data = weight.data * 0.5
            if update.number == 8:
                with torch.no_grad():
                    weight.mul_(0.5)
                    model.get_buffer("1.running_mean").zero_()
            if update.number == 11:
                weight.requires_grad_(False)
            if update.number == 15:
                weight.requires_grad_(True)
        return digest(model, optimizer, found)

    assert disturbed(1) == disturbed(2)
