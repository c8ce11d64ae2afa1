"""Losses that nobody named, found through a real node in what a command prints and writes."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import slaq
from slaq.core.events import CurveBegan, EndForeseen, Event, JobEnded, LossSourceChanged, TrainingChanged
from slaq.detection.point import Point
from slaq.engines.node.commands.detected import DetectedLosses, Search
from slaq.engines.node.commands.loss_folder import LossFolder
from slaq.engines.node.commands.marks import MARK
from slaq.engines.node.commands.mlflow_metrics import MlflowReader
from slaq.engines.node.commands.reader_process import WatchOrder, watch
from slaq.engines.node.commands.records import CommandSpec, Launch
from slaq.engines.node.commands.supervised_command import SILENT_CPU, begin
from slaq.engines.node.commands.turn_keeper import TreeUsage
from slaq.engines.node.reports import NewSource, Reading

RECORDED = Path(__file__).parents[1] / "detection" / "recorded"


@pytest.fixture(scope="module")
def cluster() -> Iterator[slaq.Cluster]:
    with slaq.Cluster() as cluster:
        yield cluster


def run(cluster: slaq.Cluster, folder: Path, code: str, **options: Any) -> slaq.Job:
    job = cluster.submit_command([sys.executable, "-c", code], cwd=folder, **options)
    assert job.wait(timeout=60.0)
    return job


def events(cluster: slaq.Cluster, job: slaq.Job, *kinds: type) -> list[Event]:
    """Return what happened to a job that has ended, once it is in the history."""
    for _ in range(200):
        happened = cluster.history.events(job.id)
        if happened and isinstance(happened[-1], JobEnded):
            return [event for event in happened if isinstance(event, kinds)]
        time.sleep(0.05)
    raise AssertionError(happened)


def told(cluster: slaq.Cluster, job: slaq.Job) -> list[LossSourceChanged]:
    return [
        event for event in events(cluster, job, LossSourceChanged) if isinstance(event, LossSourceChanged)
    ]


def test_printed_losses_are_found_with_the_end(cluster: slaq.Cluster, tmp_path: Path) -> None:
    """A command that prints its losses needs no option: the choice, the losses and the end of the job are known."""
    code = "for n in range(12): print(f'Epoch {n + 1}/12 acc: 0.{n} Loss={1 / (n + 1)}')"
    job = run(cluster, tmp_path, code)
    assert job.losses == [1 / (n + 1) for n in range(12)]
    (source,) = told(cluster, job)
    assert (source.series, source.place, source.others, source.trouble) == (
        "Loss",
        "the output",
        ("acc",),
        "",
    )
    assert [
        event.iterations for event in events(cluster, job, EndForeseen) if isinstance(event, EndForeseen)
    ] == [11]
    assert job.total == 11


@pytest.mark.parametrize(
    ("kind", "file", "series"),
    [
        ("tensorboard", "runs/a/events.out.tfevents.1", "loss/train"),
        ("lightning_csv", "lightning_logs/version_0/metrics.csv", "train_loss"),
        ("huggingface", "out/checkpoint-60/trainer_state.json", "loss"),
        ("catboost", "catboost_info/learn_error.tsv", "Logloss"),
    ],
)
def test_losses_in_files_are_found(
    cluster: slaq.Cluster, tmp_path: Path, kind: str, file: str, series: str
) -> None:
    """A command that writes its losses to a file that slaq knows needs no option; older files do not count."""
    (recorded,) = (RECORDED / kind).glob(file.replace("tfevents.1", "tfevents.*"))
    old = tmp_path / "old" / Path(file).name
    old.parent.mkdir()
    old.write_bytes(recorded.read_bytes())
    code = f"""
import os, shutil
os.makedirs(os.path.dirname({file!r}))
shutil.copyfile({str(recorded)!r}, {file!r})
"""
    job = run(cluster, tmp_path, code)
    (source,) = told(cluster, job)
    assert (source.series, source.place) == (series, file)
    assert len(job.losses) == {"tensorboard": 40, "catboost": 40}.get(kind, 12)


def test_reports_go_before_what_is_found(cluster: slaq.Cluster, tmp_path: Path) -> None:
    """As soon as a command reports a loss itself, its reports alone count, and they form a curve of their own."""
    code = """
import slaq, time
for n in range(5): print("loss", 9 - n, flush=True)
time.sleep(1.5)
for n in range(5): slaq.report(100 - n); print("loss", 4 - n, flush=True)
time.sleep(0.5)
"""
    job = run(cluster, tmp_path, code)
    assert list(job.losses)[-5:] == [100.0, 99.0, 98.0, 97.0, 96.0]
    assert [source.place for source in told(cluster, job)] == ["the output", "what it reports"]
    assert len(events(cluster, job, CurveBegan)) == 1


def test_a_named_series_is_read(cluster: slaq.Cluster, tmp_path: Path) -> None:
    """The option `loss` chooses by name; where there is no such series, the job's owner is told what there is."""
    code = "for n in range(30): print('loss:', 9 / (n + 1), 'gap:', n, 'accuracy:', n)"
    assert run(cluster, tmp_path, code, loss="gap").losses == [float(n) for n in range(30)]
    job = run(cluster, tmp_path, code, loss="nothing")
    assert not job.losses
    assert (
        "no series is called 'nothing' so far; there is loss, gap, accuracy" in told(cluster, job)[-1].trouble
    )


def test_a_command_without_losses_is_held_as_other_work_until_one_comes(
    cluster: slaq.Cluster, tmp_path: Path
) -> None:
    """After some output without a loss its owner is told what to type; a loss after all takes that back."""
    code = """
import time
for n in range(600): print("preparing", n, flush=True)
time.sleep(1.5)
for n in range(5): print("loss", 9 - n, flush=True)
"""
    job = run(cluster, tmp_path, code)
    changed = events(cluster, job, TrainingChanged)
    assert [event.trains for event in changed if isinstance(event, TrainingChanged)] == [False, True]
    troubles = [source.trouble for source in told(cluster, job)]
    assert "--loss-pattern" in troubles[0]
    assert troubles[-1] == ""
    assert len(job.losses) == 5


@pytest.mark.parametrize("lines", [1, 20])
def test_other_work_is_told_of_nothing(cluster: slaq.Cluster, tmp_path: Path, lines: int) -> None:
    """A command that its owner calls other work is searched for nothing."""
    code = f"for n in range({lines}): print('loss', n, 'x' * 10)"
    job = run(cluster, tmp_path, code, trains=False)
    assert not job.losses
    assert not told(cluster, job)


def test_a_pattern_that_matches_nothing_is_told(cluster: slaq.Cluster, tmp_path: Path) -> None:
    """An option that finds no loss is no silent failure: the event and the reason of the job say so."""
    job = run(cluster, tmp_path, "print('loss 1')", loss_pattern=r"cost (\S+)")
    assert "matched none of 1 lines" in told(cluster, job)[-1].trouble
    assert "matched none of 1 lines" in job.reason


# Readers that take one another's place


class Supervised:
    """What a supervisor keeps of a reader: how far it had come, and what it told."""

    def __init__(self, order: WatchOrder) -> None:
        self.order = order
        self.items: list[Any] = []
        self.begin()

    def begin(self) -> None:
        self.watched = watch(self.order)
        if self.order.places is None and (places := self.watched.places) is not None:
            self.order = replace(self.order, places=json.loads(json.dumps(places)))

    def read(self, *, finish: bool = False, most: int = 500) -> None:
        self.watched.finishing = finish
        self.watched.read()
        while self.watched.items:
            sent = [self.watched.items.popleft() for _ in range(min(most, len(self.watched.items)))]
            self.items += sent
            places = None if self.watched.items else self.watched.places
            if places is None:
                self.order = replace(self.order, told=self.order.told + len(sent))
            else:
                self.order = replace(self.order, places=json.loads(json.dumps(places)), told=0)

    def restart(self) -> None:
        """A killed reader takes what it had not sent with it."""
        self.watched.close()
        self.begin()


@given(
    kind=st.sampled_from(["keras", "pytorch_tqdm", "huggingface", "sklearn_boosting", "plain_validation"]),
    cuts=st.lists(st.integers(0, 9000), max_size=6),
    restarts=st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_a_restarted_reader_tells_each_loss_once(
    tmp_path_factory: pytest.TempPathFactory, kind: str, cuts: list[int], restarts: list[bool]
) -> None:
    """Wherever readers are killed, the losses are those of one reader that reads to the end."""
    content = (RECORDED / f"{kind}.txt").read_bytes()
    places = sorted(min(cut, len(content)) for cut in cuts)
    parts = [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]

    def told_by(parts: list[bytes], restarts: list[bool]) -> list[Any]:
        folder = tmp_path_factory.mktemp("job")
        log = folder / "log"
        log.write_bytes(b"")
        reader = Supervised(WatchOrder(reports=str(folder / "reports"), log=str(log), search=True))
        for part, restart in zip(parts, restarts, strict=False):
            with log.open("ab") as file:
                file.write(part)
            reader.read()
            if restart:
                reader.restart()
        for _ in range(8):
            reader.read(finish=True)
        return reader.items

    found = told_by(parts, restarts)
    whole = told_by([content], [False])
    assert [one.loss for one in found if isinstance(one, Reading)] == [
        one.loss for one in whole if isinstance(one, Reading)
    ]
    assert [one for one in found if isinstance(one, NewSource)] == [
        one for one in whole if isinstance(one, NewSource)
    ]


def test_reading_a_database_never_holds_up_its_writer(tmp_path: Path) -> None:
    """While MLflow writes without any patience, all its metrics are read, each once, and no write is refused."""
    path = tmp_path / "mlflow.db"
    path.write_bytes((RECORDED / "mlflow" / "mlflow.db").read_bytes())
    reader, stop = MlflowReader(path, 0.0), threading.Event()
    found: list[Point] = []
    refused: list[Exception] = []

    def write() -> None:
        with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as db:
            for step in range(20, 220):
                try:
                    db.execute(
                        "INSERT INTO metrics VALUES ('train_loss', 0.5, ?, 'r', ?, 0)",
                        (1795097836000 + step, step),
                    )
                except sqlite3.OperationalError as error:
                    refused.append(error)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        found += reader.read()
    writer.join()
    found += reader.read()
    assert not refused
    assert [point.step for point in found if point.series == "train_loss"] == list(range(220))


def test_files_of_jobs_in_one_folder_are_told_apart_by_their_writer(tmp_path: Path) -> None:
    """Where several commands run in one folder, a file counts only for the one whose process it names."""
    mark = "1.abc"
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, env=dict(os.environ) | {MARK: mark}
    ) as writer:
        folders = [LossFolder(tmp_path, mark=mark), LossFolder(tmp_path, mark="2.abc")]
        (events,) = (RECORDED / "tensorboard").glob("runs/a/*")
        (tmp_path / f"events.out.tfevents.1.host.{writer.pid}.0").write_bytes(events.read_bytes())
        shutil.copy(RECORDED / "lightning_csv/lightning_logs/version_0/metrics.csv", tmp_path)
        found = [[file for file, _ in folder.read(final=True)] for folder in folders]
        assert [[file.partition(".1.")[0] for file in files] for files in found] == [
            ["events.out.tfevents"],
            [],
        ]
        assert all(folder.ambiguous for folder in folders)
        folders[1].close()
        assert [file for file, _ in folders[0].read(final=True)] == ["metrics.csv"]
        folders[0].close()
        assert writer.stdin is not None
        writer.stdin.close()


def test_a_job_that_is_started_again_competes_again(cluster: slaq.Cluster, tmp_path: Path) -> None:
    """A job that was other work in one attempt trains in the next, once that tells a loss; its mark goes away."""
    code = """
import os, sys, time
if not os.path.exists("tried"):
    open("tried", "w")
    for n in range(600): print("preparing", n, flush=True)
    time.sleep(1)
    sys.exit(1)
for n in range(5): print("loss", 9 - n)
"""
    job = run(cluster, tmp_path, code, retry=1)
    changed = events(cluster, job, TrainingChanged)
    assert [event.trains for event in changed if isinstance(event, TrainingChanged)] == [False, True]
    assert [source.trouble == "" for source in told(cluster, job)] == [False, True]


def test_a_script_that_begins_again_has_no_iteration_twice(cluster: slaq.Cluster, tmp_path: Path) -> None:
    """Its losses and its end are those of a run without the failure, by what it says of its steps."""
    code = """
import os, sys
for n in range(1, 21):
    print(f"step {n}/20 loss {1 / n}", flush=True)
    if n == 9 and not os.path.exists("tried"):
        open("tried", "w")
        sys.exit(1)
"""
    job = run(cluster, tmp_path, code, retry=1)
    assert list(job.losses) == pytest.approx([1 / n for n in range(1, 21)])
    ends = [one.iterations for one in events(cluster, job, EndForeseen) if isinstance(one, EndForeseen)]
    assert set(ends) == {19}


def test_a_command_that_works_and_tells_no_loss_is_held_as_other_work(tmp_path: Path) -> None:
    """So many CPU seconds without a loss are told once, with what to type; not of work that trains nothing."""
    spec = CommandSpec(argv=("true",), directory=tmp_path, log=tmp_path / "log")
    launch = Launch(
        job_id="a", tree="1", mark="", spec=spec, cwd=tmp_path, env={}, reports=tmp_path / "reports"
    )
    command, other = begin(launch, 1), begin(replace(launch, spec=replace(spec, trains=False)), 2)
    for seconds in (SILENT_CPU - 1, SILENT_CPU, SILENT_CPU + 1):
        for one in (command, other):
            one.measure(TreeUsage(time.monotonic(), seconds))
    assert [type(event) for event in command.news] == [LossSourceChanged, TrainingChanged]
    assert isinstance(command.news[0], LossSourceChanged)
    assert "no loss in 60 CPU seconds" in command.news[0].trouble
    assert "--no-trains" in command.news[0].trouble
    assert not other.news


def test_a_table_of_any_name_is_found_beside_many_old_ones(tmp_path: Path) -> None:
    """A table tells by its heading what it holds; what earlier jobs left, however much, hides nothing."""
    for n in range(40):
        (tmp_path / f"version_{n}").mkdir()
        (tmp_path / f"version_{n}" / "metrics.csv").write_text("step,loss\n1,9\n")
    (tmp_path / "data").mkdir()
    for n in range(3000):
        (tmp_path / "data" / f"{n}.png").touch()
    run_log = tmp_path / "my_run.csv"
    run_log.write_text("epoch,loss\n0,9.0\n1,8.0\n")
    folder = LossFolder(tmp_path)
    try:
        with run_log.open("a") as file:
            file.write("0,5.0\n1,4.0\n")
        (tmp_path / "version_40").mkdir()
        (tmp_path / "version_40" / "metrics.csv").write_text("step,loss\n1,0.5\n")
        (tmp_path / "prices.csv").write_text("date,cost\n1,0.5\n")
        found = {file: [point.value for point in points] for file, points in folder.read(final=True)}
    finally:
        folder.close()
    assert found == {"my_run.csv": [5.0, 4.0], "version_40/metrics.csv": [0.5]}


def test_what_is_printed_between_the_choice_and_the_end_is_read(tmp_path: Path) -> None:
    """Lines that a command adds after the look that chose a series, and before it ends, are losses too."""
    log = tmp_path / "log"
    log.touch()
    source = DetectedLosses(Search(log=log))
    with log.open("a") as file:
        file.writelines(f"loss: {n}\n" for n in range(20, 10, -1))
        file.flush()
        items = list(source.poll())
        file.writelines(f"loss: {n}\n" for n in range(10, 0, -1))
    for _ in range(50):
        items += source.poll(final=True)
        if source.at_end:
            break
    source.close()
    assert [item.loss for item in items if isinstance(item, Reading)] == [float(n) for n in range(20, 0, -1)]
