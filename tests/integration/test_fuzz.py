"""Rubbish into every input that comes from outside: one clear error or none, never a crash, never a hang."""

import string
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slaq.bootstrap import LIVE_POLICIES, jobs_vocabulary
from slaq.config import read_job, read_jobs_file
from slaq.config.service import AllowedNames, SettingsSources, read_settings
from slaq.config.tokens import read_tokens
from slaq.core.errors import LossSourceError, SlaqError
from slaq.engines import checkpoints
from slaq.engines.node.commands.loss_sources import LossFile, LossPattern, Reported
from slaq.engines.node.commands.unread import unread
from slaq.engines.node.reports import Reading, parse_report
from slaq.engines.packing import pack
from slaq.kinds.files import JobFolder
from slaq.stores.sqlite.records import JobIdentity

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: Text that looks a little like what is read.
WORDS = st.sampled_from(
    [
        *(
            "[cluster]",
            "[[job]]",
            "[service]",
            "[users.x]",
            "[[token]]",
            "name",
            "=",
            '"a"',
            "algorithm",
            "command",
        ),
        *(
            "{grid = [1]}",
            "data",
            "lda",
            "-1",
            "1e999",
            "nan",
            "[",
            "]",
            "{",
            "}",
            '"""',
            "#",
            "\n",
            "\t",
            ",",
            "\\",
        ),
        *(
            "policy",
            "tcp",
            '"0.0.0.0:1"',
            "weight",
            "epoch_seconds",
            "0",
            "true",
            "loss",
            "iteration",
            "\r\n",
            "é",
        ),
    ]
)
TOMLISH = st.lists(WORDS, max_size=40).map(" ".join)
JSONISH: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["algorithm", "program", "command", "data", "parameters", "name", "weight", "max_cores", "target", "grid"]
)


@quick
@given(TOMLISH | st.text(max_size=200))
def test_jobs_files(tmp_path: Path, text: str) -> None:
    """A jobs file is read, or refused with its mistakes."""
    path = tmp_path / "jobs.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass" if text.isprintable() else "replace")
    with suppress(SlaqError):
        read_jobs_file(path, jobs_vocabulary())


@quick
@given(st.dictionaries(KEYS | st.text(max_size=8), JSONISH, max_size=5))
def test_job_tables(tmp_path: Path, table: dict[str, object]) -> None:
    """A table that came over the network is read, or refused with its mistakes."""
    with suppress(SlaqError):
        read_job(table, tmp_path / "job.toml", jobs_vocabulary())


@quick
@given(TOMLISH | st.text(max_size=200))
def test_settings_files(tmp_path: Path, text: str) -> None:
    """A file of settings is read, or refused with its mistakes; so is one of tokens."""
    path = tmp_path / "slaq.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    given_ = SettingsSources(config=path, texts={"home": str(tmp_path)})
    with suppress(SlaqError):
        read_settings(given_, AllowedNames(policies=LIVE_POLICIES, throttles=("cgroup1",)))
    with suppress(SlaqError):
        read_tokens(path)


LINES = st.lists(
    st.binary(max_size=40)
    | st.sampled_from(
        [
            b"loss",
            b"loss,epoch",
            b"0.5",
            b"0.5,1",
            b'{"loss": 0.5}',
            b"nan",
            b"1e400",
            b"\xff\xfe",
            b"\0",
            b'"',
            b"a;b",
        ]
    ),
    max_size=12,
).map(b"\n".join)


@quick
@given(LINES, LINES, st.sampled_from(["loss", "epoch", "", "\n"]))
def test_loss_files(tmp_path: Path, before: bytes, after: bytes, column: str) -> None:
    """Whatever stands in a loss file, and however it changes, it gives losses or a reason."""
    path = tmp_path / "losses.csv"
    path.write_bytes(before)
    source = LossFile(path, column)
    with closing(source), suppress(LossSourceError):
        for content in (before + after, after, b"", before):
            path.write_bytes(content)
            for _ in range(3):
                assert all(isinstance(one, Reading) for one in source.poll())
        source.poll(final=True)


PIECES = st.sampled_from(
    ["(", ")", "a", "*", "+", "?", "{2,}", "|", ".", "(a+)+", "(?P<loss>", "\\d", "[", "]", "$"]
)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(quick, max_examples=150)
@given(st.lists(PIECES, max_size=8).map("".join), st.text(string.printable, max_size=60))
@example("((a+)+)+$", "a" * 40 + "!")
@example("(a|aa)+$", "a" * 60 + "b")
def test_loss_patterns(tmp_path: Path, pattern: str, line: str) -> None:
    """Any regular expression is refused, or searches in bounded time, or is given up with a reason."""
    log = tmp_path / "log.txt"
    log.write_bytes(b"")
    with suppress(LossSourceError), closing(LossPattern(pattern, log)) as source:
        log.write_text(f"{line}\n" * 4)
        for _ in range(8):
            source.poll(final=True)


REPORT = b'{"iteration":%d,"loss":0.5,"time":1.5,"cpu":0.1,"pid":7}'
REPORTS = st.lists(
    st.binary(max_size=30)
    | st.integers(0, 20).map(lambda k: REPORT % k)
    | st.sampled_from(
        [b'{"loss":1e999,"time":1.0,"pid":7}', b'{"time":NaN,"pid":7,"loss":1}', b"[" * 500, b"{}", b"null"]
    ),
    max_size=12,
).map(b"\n".join)


@quick
@given(REPORTS, st.integers(0, 60), st.integers(0, 20))
def test_reports(tmp_path: Path, lines: bytes, start: int, known: int) -> None:
    """Whatever stands in a file of reports, nonsense is passed over, forwards and backwards."""
    path = tmp_path / "reports.jsonl"
    path.write_bytes(b"")
    source = Reported(path)
    path.write_bytes(lines)
    source.poll()
    source.close()
    for line in lines.splitlines():
        parse_report(line)
    assert len(unread(path, start=start, known=known)) <= lines.count(b"pid")


@quick
@given(st.integers(0, 400), st.integers(0, 255))
def test_checkpoints_cut_short_or_spoilt(tmp_path: Path, place: int, byte: int) -> None:
    """A checkpoint is read exactly, or refused; never half."""
    path = tmp_path / checkpoints.FILE
    checkpoints.write(path, 3, 0.5, pack({"w": np.arange(8.0)}))
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    spoilt[place % len(whole)] = byte
    for content in (whole[: place % len(whole)], bytes(spoilt)):
        path.write_bytes(content)
        if content == whole:
            checkpoints.read(path)
            continue
        with suppress(ValueError):
            kept = checkpoints.read(path)
            # Only what stands before the state, or pads it, can differ unnoticed.
            assert bytes(kept.state) == bytes(memoryview(whole)[-len(kept.state) :])


@quick
@given(st.lists(st.tuples(st.integers(0, 30), st.binary(max_size=20)), max_size=8))
def test_reports_sent_in_any_order_make_one_stream(tmp_path: Path, sent: list[tuple[int, bytes]]) -> None:
    """What is kept only ever grows, and sending what is there changes nothing."""
    files = JobFolder(jobs=tmp_path, job=JobIdentity(number=1, id="job", owner="ann", submitted_at=0.0))
    files.make()
    files.reports.write_bytes(b"")
    for offset, lines in sent:
        before = files.reports.read_bytes()
        reached = files.append_reports(lines, offset=offset)
        after = files.reports.read_bytes()
        assert after.startswith(before)
        assert reached == len(after)
        assert files.append_reports(lines, offset=offset) in (len(after), reached)
        assert files.reports.read_bytes() == after


@pytest.mark.parametrize("text", ["\0", "[[job]]\n" * 5000, "a" * 100_000, "[" * 10_000, "x = " + "[" * 5000])
def test_large_and_deep_files(tmp_path: Path, text: str) -> None:
    """Size and depth are no way to crash the reading of a file."""
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    with pytest.raises(SlaqError):
        read_jobs_file(path, jobs_vocabulary())
