"""Laws of the places that losses are read from."""

import json
import math
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.errors import LossSourceError
from slaq.engines.node.commands.loss_sources import (
    LONGEST_OUTPUT_LINE,
    SILENT_LINES,
    LossFile,
    LossPattern,
    LossSource,
    Reported,
)
from slaq.engines.node.commands.reader_process import CREDIT, LossReader, ReaderMessage, WatchOrder
from slaq.engines.node.reports import NewRate, NewSource, Reading
from slaq.engines.node.wire import Channel, Head
from slaq.jobs.loss_pattern import checked_pattern


def losses(source: LossSource, *, final: bool = False) -> list[float]:
    return [item.loss for item in source.poll(final=final) if isinstance(item, Reading)]


def poll_often(source: LossSource) -> None:
    for _ in range(20):
        source.poll()


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def report_line(loss: float, pid: int) -> str:
    return json.dumps({"iteration": 0, "loss": loss, "time": time.time(), "cpu": 0.1, "pid": pid}) + "\n"


# Patterns


def test_pattern_finds_losses_as_lines_are_completed(tmp_path: Path) -> None:
    """Only whole lines count, until the command writes no more; what was there at first is old."""
    log = tmp_path / "log"
    log.write_text("loss 9\n")
    source = LossPattern(r"loss (\S+)", log)
    append(log, "epoch 1 loss 0.5\nnothing here\nepoch 2 lo")
    assert losses(source) == [0.5]
    append(log, "ss 0.25, lr 0.1\repoch 3 loss nan\r\nloss what\nloss 0.125")
    found = losses(source)
    assert found[0] == 0.25
    assert math.isnan(found[1])
    assert losses(source) == []
    assert losses(source, final=True) == [0.125]
    assert losses(source, final=True) == []


def test_pattern_may_name_the_iteration(tmp_path: Path) -> None:
    """A group named iteration numbers the losses; a number that makes no sense drops the line."""
    log = tmp_path / "log"
    source = LossPattern(r"step (?P<iteration>\S+): (?P<loss>\S+) (ok)?", log)
    append(log, "step 10: 0.5 \nstep x: 0.4 \nstep -1: 0.3 \nstep 1e300: 0.3 \nstep 20: 0.25 ok\n")
    found = [(item.iteration, item.loss) for item in source.poll() if isinstance(item, Reading)]
    assert found == [(10, 0.5), (20, 0.25)]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("loss (", "not a regular expression"),
        ("loss", "0 groups"),
        (r"(\w+) (\S+)", "2 groups"),
        (r"(?P<iteration>\d+) (\S+)", "none is named 'loss'"),
        ("(" + "a" * 2000 + ")", "2002 characters"),
        ("(" * 1500 + ")" * 1500, "characters"),
    ],
)
def test_pattern_without_a_loss_is_rejected(pattern: str, said: str) -> None:
    """A pattern that cannot yield a loss is refused up front, with an example of one that can."""
    with pytest.raises(LossSourceError, match=said) as refusal:
        checked_pattern(pattern)
    assert "for example" in str(refusal.value)


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"(?:.*.*.*.*)loss (\S+)", r"(a|aa|a.)+b"])
def test_pattern_that_runs_away_is_given_up(tmp_path: Path, pattern: str) -> None:
    """A search that would take ages is interrupted, and after a few of them the source gives up."""
    log = tmp_path / "log"
    source = LossPattern(pattern, log)
    append(log, ("a" * (LONGEST_OUTPUT_LINE - 1) + "!\n") * 10)
    before = time.process_time()
    with pytest.raises(LossSourceError, match="takes too long"):
        poll_often(source)
    assert time.process_time() - before < 10.0


def test_flood_of_output_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    """However much is written, each poll takes a part of it, and all of it is read in the end."""
    log = tmp_path / "log"
    source = LossPattern(r"loss (\S+)", log)
    append(log, b"\xff\x00" * 500_000 + b"\n" + b"loss 1\n" * 20_000)
    found: list[float] = []
    for _ in range(1000):
        found += losses(source)
        if len(found) == 20_000:
            break
    assert found == [1.0] * 20_000


# Files


def test_csv_column_is_read_as_rows_are_completed(tmp_path: Path) -> None:
    """The named column of each whole row is a loss; empty, short and senseless cells are passed over."""
    path = tmp_path / "metrics.csv"
    source = LossFile(path, "val loss")
    assert losses(source) == []
    path.write_text('"step", val loss ,lr\n0,0.5,"a,b"\n1,,x\n2\n3,what,x\n4,0.2')
    assert losses(source) == [0.5]
    append(path, "5,x\r\n\r\n5,NaN,x\n")
    found = losses(source)
    assert found[0] == 0.25
    assert math.isnan(found[1])


def test_other_delimiters_are_recognised(tmp_path: Path) -> None:
    """Tabs and semicolons are taken from the header."""
    for delimiter in "\t;":
        path = tmp_path / f"metrics{ord(delimiter)}"
        source = LossFile(path, "loss")
        path.write_text(f"step{delimiter}loss\n1{delimiter}0.5\n")
        assert losses(source) == [0.5]


def test_json_lines_key_is_read(tmp_path: Path) -> None:
    """The named key of each object is a loss; other lines and values are passed over."""
    path = tmp_path / "metrics.jsonl"
    source = LossFile(path, "loss")
    path.write_text(
        '{"loss": 0.5}\n[1]\n{"loss": true}\n{"loss": null}\n{"x": 1}\n{{{\n{"loss": "0.25"}\n{"lo'
    )
    assert losses(source) == [0.5, 0.25]
    append(path, 'ss": Infinity}')
    assert losses(source) == []
    assert losses(source, final=True) == [math.inf]


def test_missing_column_names_those_there_are(tmp_path: Path) -> None:
    """A header without the column is told with the columns there are; one that grows by it is read after all."""
    path = tmp_path / "metrics.csv"
    source = LossFile(path, "loss")
    path.write_text("step,val_loss\n1,2\n")
    assert troubles(source)[0].endswith("name one of its columns with --loss-column: step, val_loss")
    assert not troubles(source)
    path.write_text("step,val_loss,loss\n1,2,\n2,,0.5\n")
    assert [loss for _ in range(10) for loss in losses(source)] == [0.5]


def test_what_is_wrong_with_a_source_is_told_once(tmp_path: Path) -> None:
    """A pattern that matches nothing or no number, and a file that never came, are told with a remedy, once."""
    log = tmp_path / "log"
    silent, odd = LossPattern(r"cost (\S+)", log), LossPattern(r"loss (\S+)", log)
    absent = LossFile(tmp_path / "metrics.csv", "loss")
    append(log, "loss n/a\n" * SILENT_LINES)
    assert "matched none of 500 lines" in troubles(silent)[0]
    assert "'n/a', which is no number" in troubles(odd)[0]
    assert not troubles(absent)
    assert "was not written so far" in troubles(absent, final=True)[0]
    assert not [*troubles(silent), *troubles(odd), *troubles(absent, final=True)]


def troubles(source: LossSource, *, final: bool = False) -> list[str]:
    return [item.trouble for item in source.poll(final=final) if isinstance(item, NewSource)]


def test_old_content_is_skipped(tmp_path: Path) -> None:
    """Rows of an earlier run do not count, whether the command goes on below them or begins anew."""
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,9\n2,8\n")
    source = LossFile(path, "loss")
    assert losses(source) == []
    append(path, "3,7\n")
    assert losses(source) == [7.0]
    path.write_text("loss\n9\n")
    assert losses(source) == [9.0]


def test_file_written_anew_with_its_history_yields_only_what_is_new(tmp_path: Path) -> None:
    """A file that is rewritten, truncated or replaced with the rows it had goes on where it was."""
    path = tmp_path / "metrics.csv"
    source = LossFile(path, "loss")
    path.write_text("loss,lr\n5,1\n4,1\n")
    assert losses(source) == [5.0, 4.0]
    path.write_text("loss,lr,new\n5,1,1\n4,1,1\n3,1,1\n")
    assert losses(source) == [3.0]
    other = tmp_path / "other"
    other.write_text("lr,loss\n1,5\n1,4\n1,3\n1,2\n")
    os.replace(other, path)
    assert [loss for _ in range(10) for loss in losses(source)] == [2.0]


def test_file_with_another_story_is_read_whole(tmp_path: Path) -> None:
    """A file that begins with another loss than before holds new losses only."""
    path = tmp_path / "metrics.csv"
    source = LossFile(path, "loss")
    path.write_text("loss\n5\n4\n3\n")
    assert losses(source) == [5.0, 4.0, 3.0]
    path.write_text("loss\n6\n")
    assert losses(source) == [6.0]


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    """A directory or a named pipe yields an error, not a wait."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(LossSourceError, match="not a regular file"):
            LossFile(path, "loss")


@given(content=st.binary(max_size=2000), cuts=st.lists(st.integers(0, 2000), max_size=5))
def test_rubbish_is_survived(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cuts: list[int]
) -> None:
    """Whatever bytes come, in whatever pieces, a source yields readings or gives up with its own error."""
    folder = tmp_path_factory.mktemp("rubbish")
    path = folder / "file"
    sources: list[LossSource] = [Reported(path), LossFile(path, "loss"), LossPattern(r"([\d.]+)", path)]
    edges = sorted({0, *(min(cut, len(content)) for cut in cuts), len(content)})
    path.touch()
    for start, end in zip(edges, [*edges[1:], len(content)], strict=True):
        append(path, content[start:end])
        for source in tuple(sources):
            try:
                source.poll(final=end == len(content))
            except LossSourceError:
                source.close()
                sources.remove(source)
    for source in sources:
        source.close()


# Reports


def test_reports_yield_losses_and_rates(tmp_path: Path) -> None:
    """Losses and learning rates come in order, and lines that make no sense are passed over."""
    path = tmp_path / "reports.jsonl"
    source = Reported(path)
    me = os.getpid()
    append(path, report_line(0.5, me))
    append(path, json.dumps({"learning_rate": 0.1, "time": time.time(), "cpu": 0.1, "pid": me}) + "\n")
    append(path, 'rubbish\n{"loss": 1}\n' + report_line(math.nan, me))
    first, rate, last = source.poll()
    assert isinstance(first, Reading)
    assert isinstance(rate, NewRate)
    assert isinstance(last, Reading)
    assert (first.loss, rate.learning_rate, math.isnan(last.loss)) == (0.5, 0.1, True)


def test_one_process_is_listened_to_at_a_time(tmp_path: Path) -> None:
    """Of several that report, the first is heard; another takes its place once that one has ended."""
    path = tmp_path / "reports.jsonl"
    source = Reported(path)
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        append(path, report_line(1.0, pid) + report_line(2.0, os.getpid()))
        assert losses(source) == [1.0]
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    append(path, report_line(3.0, os.getpid()))
    assert losses(source) == [3.0]


def test_many_commands_that_all_report_are_all_heard(tmp_path: Path) -> None:
    """However few messages may be under way, every command of a user comes to be read in its turn."""
    ours, theirs = socket.socketpair()
    supervisor, reader = Channel(ours), LossReader(Channel(theirs))
    files = [tmp_path / f"{number}.jsonl" for number in range(3 * CREDIT)]
    heard: set[int] = set()
    with ours, theirs:
        for number, file in enumerate(files):
            file.touch()
            reader._open(number, WatchOrder(reports=str(file), log=str(tmp_path / "log.txt")))
        for _ in range(4):
            for file in files:
                append(file, report_line(1.0, os.getpid()))
            reader._look()
            while (message := supervisor.receive_now()) is not None:
                if message.head.kind == ReaderMessage.ITEMS:
                    heard.add(message.head.a)
                    supervisor.send(Head(ReaderMessage.TAKEN, a=1))
                    reader._hear()
    assert heard == set(range(len(files)))
