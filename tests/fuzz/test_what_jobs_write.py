"""A fuzz target for each parser of what jobs write: bounded values or the parser's own error, in finite time.

`SLAQ_FUZZ_SECONDS=600 python -m pytest tests/fuzz` tries random examples for ten minutes, in equal parts.
"""

import json
import os
import socket
import string
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from selectors import DefaultSelector
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from slaq.core.errors import JobOptionError, LossSourceError
from slaq.core.events import DemandChanged, EndForeseen, LossObserved
from slaq.core.job import JobSpec, Observation
from slaq.detection.lines import LineCutter
from slaq.detection.point import Point
from slaq.detection.search import LossSearch
from slaq.detection.tables import TableReader
from slaq.detection.tfevents import EventReader
from slaq.detection.trainer_state import read_trainer_state
from slaq.engines import checkpoints
from slaq.engines.clock import WallClock
from slaq.engines.files import TAIL_BYTES, TAIL_LINES, last_lines
from slaq.engines.journal import Journal
from slaq.engines.node.commands.detected import DetectedLosses, Search
from slaq.engines.node.commands.loss_sources import (
    LONGEST_OUTPUT_LINE,
    LossFile,
    LossPattern,
    LossSource,
    Reported,
)
from slaq.engines.node.commands.mlflow_metrics import MlflowReader
from slaq.engines.node.commands.tail import Tail
from slaq.engines.node.commands.unread import Allowance, unread
from slaq.engines.node.external import ExternalJob, ExternalRunner
from slaq.engines.node.peers import Peer
from slaq.engines.node.programs.driver_messages import (
    LONGEST_REASON,
    MOST_CPU,
    DemandTold,
    Left,
    LossTold,
    RateTold,
    TotalTold,
    read_driver_message,
)
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.reports import LONGEST_LINE, Reading, parse_report
from slaq.engines.node.wire import HEAD, HangUpError, Head, MalformedError, Message
from slaq.engines.packing import pack
from slaq.jobs.demands import read_demand, reported_demand, written_demand
from slaq.jobs.loss_pattern import checked_pattern
from slaq.kinds.external import _readings
from slaq.kinds.files import JobFolder
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobIdentity
from slaq.testing.store_contract import IN_MEMORY
from tests.fuzz.targets import (
    DEMANDS,
    LARGEST_INTEGER,
    LARGEST_PID,
    LONGEST_NAME,
    LOSS_FILES,
    NUMBERS,
    REPORT_FILES,
    REPORTS,
    SECONDS,
    VALUES,
    check_demand,
    check_item,
    check_metrics,
    check_number,
    check_observation,
    check_seconds,
    check_text,
    check_whole,
    fuzz,
    spoilt,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 300),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder in memory."""
    with tempfile.TemporaryDirectory(prefix="slaq-fuzz-", dir=IN_MEMORY) as name:
        yield Path(name)


# Reports.


@fuzz(line=REPORTS)
def test_reports(line: bytes) -> None:
    """A line of reports says something bounded, or makes no sense."""
    said = parse_report(line)
    if said is not None:
        assert type(said.pid) is int
        assert 1 <= said.pid <= LARGEST_PID
        if said.count is not None:
            check_whole(said.count)
        check_item(said.item)


@fuzz(said=DEMANDS | VALUES)
def test_demands(said: object) -> None:
    """What a job says it can use is what an owner could have asked for, and reads back as it was written."""
    demand = read_demand(said)
    if demand is not None:
        check_demand(demand)
        assert read_demand(written_demand(demand)) == demand


@fuzz(content=REPORT_FILES, start=st.integers(0, 60), known=st.integers(0, 20))
def test_reports_that_nobody_has_read(content: bytes, start: int, known: int) -> None:
    """After a crash a file of reports yields bounded losses, no more than there are lines."""
    with folder() as home:
        path = home / "reports.jsonl"
        path.write_bytes(content)
        found = unread(path, start=start, known=known, allowance=Allowance())
    assert len(found) <= content.count(b"\n") + 1
    for one in found:
        check_item(one)


@fuzz(
    sent=st.lists(st.tuples(st.integers(0, 60), REPORT_FILES), max_size=5),
    size=st.integers(1, 60),
)
def test_reports_from_elsewhere(sent: list[tuple[int, bytes]], size: int) -> None:
    """Sent in any order and in any pieces they make one stream that only grows, and give bounded events."""
    journal = Journal(WallClock())
    runner = ExternalRunner(journal)
    runner.prepare("job", ExternalJob())
    runner.start("job")
    with folder() as home:
        files = JobFolder(jobs=home, job=JobIdentity(number=1, id="job", owner="ann", submitted_at=0.0))
        files.make()
        for offset, lines in sent:
            before = files.reports.read_bytes()
            reached = files.append_reports(lines, offset=offset)
            after = files.reports.read_bytes()
            assert after.startswith(before)
            assert reached == len(after)
            assert files.append_reports(lines, offset=offset) == len(after)
        whole = files.reports.read_bytes()
        log = b"".join(_chunks(files, size))
    assert log == b""
    runner.report("job", _readings(whole, 0), len(whole))
    iteration = -1
    for entry in journal.take():
        if isinstance(entry.event, LossObserved):
            check_observation(entry.event.observation)
            check_metrics(entry.event.metrics)
            assert entry.event.offset is not None
            assert 0 < entry.event.offset <= len(whole)
            assert entry.event.observation.iteration > iteration
            iteration = entry.event.observation.iteration
        elif isinstance(entry.event, DemandChanged):
            check_demand(entry.event.demand)
        elif isinstance(entry.event, EndForeseen):
            check_whole(entry.event.iterations)


def _chunks(files: JobFolder, size: int) -> Iterator[bytes]:
    offset, over = 0, False
    while not over:
        chunk = files.read_log(offset, size, ended=True)
        yield chunk.data
        offset, over = chunk.next_offset, chunk.ended


@fuzz(lines=st.lists(REPORTS, max_size=6))
def test_what_is_read_can_be_stored(lines: list[bytes]) -> None:
    """The losses of any reports go into the store and come out of it with all their numbers."""
    read = [said.item for line in lines if (said := parse_report(line)) is not None]
    found = [item for item in read if isinstance(item, Reading)]
    events = [
        LossObserved(
            job_id="job",
            at=0.0 if item.at is None else item.at,
            observation=Observation(
                iteration=place, loss=item.loss, cpu_seconds=item.cpu or 0.0, wall_seconds=0.0
            ),
            metrics=item.metrics,
        )
        for place, item in enumerate(found)
    ]
    with folder() as home, SqliteStore(home / "slaq.db") as store:
        store.submit(JobSpec(id="job"))
        store.append(events)
        kept = store.observations("job")
    np.testing.assert_array_equal(kept.loss, [item.loss for item in found])
    for item, metrics in zip(found, kept.metrics, strict=True):
        np.testing.assert_equal(dict(metrics), dict(item.metrics))


# Files that a job may write to, cut and replace while they are read.


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)


def _cut(path: Path, content: bytes) -> None:
    if path.exists():
        os.truncate(path, min(len(content), path.stat().st_size))


def _remove(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)


ACTS: list[Callable[[Path, bytes], None]] = [_append, _replace, _cut, _remove]


def changes(content: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[tuple[Any, bytes]]]:
    """Return what may happen to a file, mostly that it grows."""
    return st.lists(st.tuples(st.sampled_from([_append, _append, *ACTS]), content), max_size=6)


def _check_source(source: LossSource, path: Path, happens: list[tuple[Any, bytes]]) -> None:
    """A source yields bounded items whatever happens to its file, or says once and for all why it cannot."""
    with closing(source), suppress(LossSourceError):
        for act, content in happens:
            act(path, content)
            for _ in range(6):
                for item in source.poll():
                    check_item(item)
        for _ in range(3):
            for item in source.poll(final=True):
                check_item(item)


@fuzz(before=REPORT_FILES, happens=changes(REPORT_FILES))
def test_files_of_reports(before: bytes, happens: list[tuple[Any, bytes]]) -> None:
    """Reports are bounded, whatever becomes of the file that they stand in."""
    with folder() as home:
        path = home / "reports.jsonl"
        path.write_bytes(before)
        _check_source(Reported(path), path, happens)


@fuzz(
    before=LOSS_FILES,
    happens=changes(LOSS_FILES),
    column=st.sampled_from(["loss", "step", "", "\n", "\ud800"]),
)
def test_loss_files(before: bytes, happens: list[tuple[Any, bytes]], column: str) -> None:
    """A loss file gives bounded losses or a reason, however it grows, shrinks and is replaced."""
    with folder() as home:
        path = home / "losses.csv"
        path.write_bytes(before)
        _check_source(LossFile(path, column), path, happens)


#: Real output and files of losses, spoilt, and what is like neither.
RECORDED = Path(__file__).parents[1] / "detection" / "recorded"
OUTPUTS = st.sampled_from([path.read_bytes()[:6000] for path in sorted(RECORDED.glob("*.txt"))])
NUMBERED = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from(
        [b"loss", b"train_loss: ", b"Epoch 3/10 ", b"12%|#| ", b"| ", b"{'loss': ", b"[7]\tlearn: "]
    ),
    st.sampled_from(
        [b"1e999", b"9" * 5000, b"nan", b"-.5", b"1,000.5", b"3/0", b"0/0 [", b"1/9 [00:01<00:02, ", b"\x1b["]
    ),
    st.binary(max_size=20),
)
LINES = spoilt(OUTPUTS) | st.lists(NUMBERED | st.binary(max_size=40), max_size=30).map(b"\n".join)
DATABASE = (RECORDED / "mlflow" / "mlflow.db").read_bytes()
(EVENTS,) = (RECORDED / "tensorboard").glob("runs/a/*")
(STATE,) = (RECORDED / "huggingface").glob("out/*/trainer_state.json")


def check_point(point: Point) -> None:
    """A number with a name that can be shown, and a step that can be stored."""
    check_text(point.series, LONGEST_NAME)
    assert point.series.isprintable()
    check_number(point.value)
    for step in (point.step, point.total):
        if step is not None:
            check_whole(step)
    if point.at is not None:
        check_seconds(point.at)


@fuzz(content=LINES, wanted=st.none() | st.sampled_from(["loss", "\n", "lr"]))
def test_losses_in_any_output(content: bytes, wanted: str | None) -> None:
    """Whatever is printed, what is found of it is bounded, can be shown, and survives a change of the reader."""
    search, cutter = LossSearch(wanted), LineCutter()
    for line in cutter.feed(content) + cutter.rest():
        for one in search.read_line(line):
            check_point(Point(series=one.name, value=one.value, step=one.step, total=one.steps))
            assert len(one.place) <= LONGEST_NAME
        if search.chosen is not None:
            state = json.loads(json.dumps(search.state()))
            assert LossSearch.of(state).state() == state
    search.finish()
    for loss, _ in search.losses():
        check_number(loss)
    assert (search.total() or 1) <= LARGEST_INTEGER


@fuzz(content=spoilt(st.just(EVENTS.read_bytes())) | st.binary(max_size=100), size=st.integers(1, 5000))
def test_event_files(content: bytes, size: int) -> None:
    """Whatever an event file holds, its points are bounded."""
    reader = EventReader()
    for place in range(0, len(content), size):
        for point in reader.feed(content[place : place + size]):
            check_point(point)


@fuzz(
    content=spoilt(st.just(STATE.read_bytes()))
    | VALUES.map(lambda value: json.dumps({"log_history": [value]}).encode())
)
def test_trainer_states(content: bytes) -> None:
    """Whatever a state of a trainer holds, its points are bounded."""
    for point in read_trainer_state(content) or []:
        check_point(point)


@fuzz(content=LOSS_FILES)
def test_tables_of_losses(content: bytes) -> None:
    """Whatever a table holds, its points are bounded."""
    reader = TableReader()
    for line in content.split(b"\n"):
        for point in reader.feed(line):
            check_point(point)


@fuzz(places=st.lists(st.tuples(st.integers(0, 60_000), st.binary(max_size=8)), max_size=5))
def test_databases_of_metrics(places: list[tuple[int, bytes]]) -> None:
    """Whatever a database holds, its points are bounded."""
    content = bytearray(DATABASE)
    for place, put in places:
        content[place % len(content) : place % len(content) + len(put)] = put
    with folder() as home:
        path = home / "mlflow.db"
        path.write_bytes(content)
        reader = MlflowReader(path, 0.0)
        for point in [*reader.read(), *reader.read()]:
            check_point(point)


@fuzz(
    name=st.sampled_from(
        ["log", "metrics.csv", "a/metrics.jsonl", "runs/events.out.tfevents.1", "c/x/trainer_state.json"]
    ),
    happens=changes(LINES | LOSS_FILES | spoilt(st.just(EVENTS.read_bytes()))),
)
def test_losses_that_are_looked_for(name: str, happens: list[tuple[Any, bytes]]) -> None:
    """A search yields bounded items whatever happens to the output and to files beside it."""
    with folder() as home:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_source(DetectedLosses(Search(log=home / "log", folder=home)), path, happens)


@fuzz(before=LOSS_FILES, pieces=st.lists(LOSS_FILES, max_size=5), longest=st.integers(1, 50))
def test_a_file_that_grows(before: bytes, pieces: list[bytes], longest: int) -> None:
    """Every line that is added is read once, in order, cut where it is too long; nothing else is."""
    with folder() as home:
        path = home / "log.txt"
        path.write_bytes(before)
        tail, found = Tail(path, longest=longest), []
        with closing(tail):
            for piece in pieces:
                _append(path, piece)
                found += tail.read()
            while more := tail.read():
                found += more
            found += [rest] if (rest := tail.rest()) else []
    lines = b"".join(pieces).replace(b"\r", b"\n").split(b"\n")
    assert found == [line[:longest] for line in lines if line]


@fuzz(before=LOSS_FILES, happens=changes(LOSS_FILES), longest=st.integers(1, 50))
def test_a_file_that_changes(before: bytes, happens: list[tuple[Any, bytes]], longest: int) -> None:
    """No line that is read is empty or too long, whatever becomes of the file."""
    with folder() as home:
        path = home / "log.txt"
        path.write_bytes(before)
        tail = Tail(path, longest=longest)
        with closing(tail):
            for act, content in happens:
                act(path, content)
                assert all(0 < len(line) <= longest for line in tail.read())
            assert len(tail.rest()) <= longest


@fuzz(content=LOSS_FILES | st.binary(max_size=200), start=st.integers(0, 300), flood=st.integers(0, 3))
def test_the_last_lines_of_a_log(content: bytes, start: int, flood: int) -> None:
    """A reason quotes a bounded text that can be stored, whatever was printed."""
    with folder() as home:
        path = home / "log.txt"
        path.write_bytes(content * (1 + flood * 100))
        said = last_lines(path, start)
    check_text(said, TAIL_BYTES)
    assert len(said.split("\n")) <= TAIL_LINES


# Patterns, given by a user and searched for in what the user's job prints.

PIECES = st.sampled_from(
    [
        *("(", ")", "a", "*", "+", "?", "{2,}", "{0,9999}", "|", ".", "(a+)+", "(?P<loss>", "(?P<iteration>"),
        *(
            "\\d",
            "\\S+",
            "[",
            "]",
            "$",
            "^",
            "(?i)",
            "(?<=a)",
            "(?<!",
            "(?P=loss)",
            "\\1",
            "[\\U00010000-\\U0001ffff]",
        ),
        *("(?x)", "(?#", "\n", "\0", "\ud800", "x" * 990, "(a|aa)+$", "loss=(\\S+)", "\\N{BULLET}"),
    ]
)
PATTERNS = st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=20)
OUTPUT = (
    st.text(string.printable, max_size=60).map(str.encode)
    | st.binary(max_size=40)
    | st.sampled_from(
        [b"a" * 5000 + b"!", b"loss=0.5", b"loss=1e999,", b"loss=" + b"9" * 6000, b"loss=nan 3", b"\xff"]
    )
)


@fuzz(pattern=PATTERNS)
def test_patterns(pattern: str) -> None:
    """A pattern is compiled, with a group for the loss, or refused."""
    with suppress(LossSourceError):
        compiled = checked_pattern(pattern)
        assert "loss" in compiled.groupindex or compiled.groups == 1


@fuzz(pattern=st.sampled_from(["((a+)+)+$", "(a|aa)+$", "loss=(\\S+)"]) | PATTERNS, line=OUTPUT)
def test_output(pattern: str, line: bytes) -> None:
    """What is printed gives bounded losses by any pattern, or a reason why it is searched no more."""
    with folder() as home:
        path = home / "log.txt"
        path.write_bytes(b"")
        with suppress(LossSourceError):
            _check_source(LossPattern(pattern, path), path, [(_append, (line + b"\n") * 4)])


@fuzz(loss=NUMBERS.map(str) | st.text(max_size=10), iteration=NUMBERS.map(str) | st.text(max_size=10))
def test_numbered_output(loss: str, iteration: str) -> None:
    """The iteration that a line tells is a bounded whole number, or the line makes no sense."""
    with folder() as home:
        path = home / "log.txt"
        path.write_bytes(b"")
        source = LossPattern(r"loss (?P<loss>.*?) of (?P<iteration>.*)", path)
        line = f"loss {loss[:LONGEST_OUTPUT_LINE]} of {iteration}\n".encode(errors="replace")
        _check_source(source, path, [(_append, line)])


# Checkpoints.


def _checkpoint(magic: bytes, reports: int, first: float, state: bytes, wrong: int) -> bytes:
    """Return the bytes of a checkpoint that is well but for some of its head."""
    head = struct.pack("<8sQdQI", magic, reports, first, len(state) + wrong, zlib.crc32(state))
    return head.ljust(64, b"\0") + state


CHECKPOINTS = st.binary(max_size=200) | st.builds(
    _checkpoint,
    st.just(b"slaq-ck2") | st.binary(max_size=8),
    NUMBERS.map(lambda number: number if isinstance(number, int) and 0 <= number < 2**64 else 1)
    | st.integers(0, 2**64 - 1),
    st.floats(),
    st.binary(max_size=20),
    st.sampled_from([0, 0, 0, 1, 2**40]),
)


def _check_checkpoint(path: Path) -> checkpoints.KeptCheckpoint | None:
    try:
        kept = checkpoints.read(path)
    except ValueError:
        return None
    check_whole(kept.reports)
    check_number(kept.first_loss)
    return kept


@fuzz(content=CHECKPOINTS)
def test_checkpoints(content: bytes) -> None:
    """Any file is a checkpoint with bounded numbers, or refused."""
    with folder() as home:
        path = home / checkpoints.FILE
        path.write_bytes(content)
        _check_checkpoint(path)


@fuzz(
    reports=st.integers(0, 2**32 - 1),
    first=st.floats(),
    place=st.integers(0, 2**12),
    byte=st.integers(0, 255),
    cut=st.booleans(),
)
def test_spoilt_checkpoints(reports: int, first: float, place: int, byte: int, cut: bool) -> None:
    """A checkpoint is read as it was written, or refused; its state is never half there, nor another."""
    with folder() as home:
        path = home / checkpoints.FILE
        checkpoints.write(path, reports, first, pack({"w": np.arange(8.0)}))
        whole = path.read_bytes()
        kept = _check_checkpoint(path)
        assert kept is not None
        assert (kept.reports, struct.pack("d", kept.first_loss)) == (reports, struct.pack("d", first))
        broken = bytearray(whole)
        broken[place % len(whole)] = byte
        path.write_bytes(whole[: place % len(whole)] if cut else broken)
        again = _check_checkpoint(path)
        if again is not None:
            assert bytes(again.state) == bytes(kept.state)


# What the driver of a program says.

HEADS = st.builds(
    Head,
    st.sampled_from(list(MessageKind)) | st.integers(0, 255),
    *(st.integers(0, 255),),
    *(st.integers(0, 2**32 - 1),) * 3,
    *(st.floats() | st.floats(0.0, MOST_CPU),) * 2,
)
PAYLOADS = REPORTS | DEMANDS.map(lambda said: json.dumps({"can_use": said}).encode()) | st.binary(max_size=30)


def _check_driver_message(message: Message) -> None:
    try:
        cpu, said = read_driver_message(message)
    except MalformedError as error:
        check_text(str(error), 200)
        return
    assert 0.0 <= cpu <= MOST_CPU
    if isinstance(said, LossTold):
        check_whole(said.iteration)
        check_number(said.loss)
        check_metrics(said.metrics)
    elif isinstance(said, RateTold):
        assert np.isfinite(said.learning_rate)
    elif isinstance(said, DemandTold):
        check_demand(said.demand)
    elif isinstance(said, TotalTold):
        check_whole(said.iterations)
        assert said.iterations > 0
    elif isinstance(said, Left):
        check_text(said.reason, LONGEST_REASON)


@fuzz(head=HEADS, payload=PAYLOADS)
def test_messages_of_drivers(head: Head, payload: bytes) -> None:
    """A message says something bounded, or makes no sense, or is malformed."""
    _check_driver_message(Message(head, memoryview(payload)))
    _check_driver_message(Message(head, memoryview(b"{" + b" " * LONGEST_LINE + b"}")))


@fuzz(
    sent=st.lists(
        st.binary(max_size=100)
        | st.builds(lambda head, payload: HEAD.pack(*head, len(payload)) + payload, HEADS, PAYLOADS)
        | st.builds(lambda head, length: HEAD.pack(*head, length), HEADS, st.integers(2**40, 2**64 - 1)),
        max_size=4,
    ).map(b"".join)
)
def test_what_comes_over_a_socket(sent: bytes) -> None:
    """Any bytes are messages, or malformed, or cut short by the end; nothing else happens to who reads them."""
    ours, theirs = socket.socketpair()
    with theirs, DefaultSelector() as selector:
        peer = Peer(ours, selector, lambda: None)
        # What does not fit into the socket is left out.
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            theirs.send(sent)
        theirs.close()
        with suppress(HangUpError, MalformedError):
            while (message := peer.receive()) is not None:
                _check_driver_message(message)
        peer.close()


@fuzz(said=st.tuples(VALUES, VALUES, VALUES))
def test_nothing_but_a_demand_is_made_of_what_is_said(said: tuple[Any, Any, Any]) -> None:
    """`can_use` takes what an owner could ask for, and refuses all else with a sentence."""
    with suppress(JobOptionError):
        check_demand(reported_demand(min_cores=said[0], max_cores=said[1], sizes=said[2]))
