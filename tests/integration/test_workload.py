"""Laws of workload files: what is written is read back, and what is malformed gets one sentence."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slaq.core.demand import Demand
from slaq.core.errors import DuplicateJobError, WorkloadError
from slaq.core.job import JobSpec
from slaq.simulation.workload import SimulatedJob, Workload

GOOD: dict[str, Any] = {
    "id": "lr-1",
    "arrival": 12.5,
    "losses": [0.69, 0.61, 0.5],
    "cpu_seconds_per_iteration": 40.0,
    "max_cores": 160,
    "weight": 2.0,
    "kind": "ml",
}
OTHER: dict[str, Any] = {"id": "etl", "arrival": 0, "kind": "other", "cpu_seconds": 100, "reserved": 4}


def parse(*records: object) -> Workload:
    return Workload.parse("\n".join(json.dumps(record) for record in records).encode(), "jobs.jsonl")


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != field}


def test_the_documented_line_is_read() -> None:
    """Every field lands where it belongs."""
    (job,) = parse(GOOD | {"serial_seconds_per_iteration": 0.5, "target_loss": 0.4, "algorithm": "LogReg"})
    assert job.spec == JobSpec(
        id="lr-1", arrival=12.5, demand=Demand(most=160.0), weight=2.0, target_loss=0.4
    )
    assert job.losses.tolist() == [0.69, 0.61, 0.5]
    assert (job.cpu_seconds_per_iteration, job.serial_seconds_per_iteration) == (40.0, 0.5)
    assert (job.iterations, job.total_cpu_seconds, job.best_loss) == (2, 80.0, 0.5)
    assert job.algorithm == "LogReg"


def test_a_job_of_another_kind_has_cpu_seconds_instead_of_losses() -> None:
    """`kind` other needs neither losses nor a cost per iteration."""
    (job,) = parse(OTHER)
    assert job.spec == JobSpec(id="etl", trains=False, reserved=4.0)
    assert (job.losses.size, job.cpu_seconds, job.iterations, job.total_cpu_seconds) == (0, 100.0, 0, 100.0)


EARLIER: list[tuple[dict[str, Any], str, str, Any]] = [
    (without("max_cores"), "max_units", "max_cores", 96),
    (GOOD, "min_units", "min_cores", 2),
    (GOOD, "wanted", "stop_at", 0.9),
    ({name: value for name, value in OTHER.items() if name != "reserved"}, "reserved_units", "reserved", 3),
]


@pytest.mark.parametrize(("record", "earlier", "name", "value"), EARLIER)
def test_a_field_may_have_its_earlier_name(
    record: dict[str, Any], earlier: str, name: str, value: float
) -> None:
    """Files of before cores were counted are read as if they used the present names: a unit was a core."""
    assert parse(record | {earlier: value}) == parse(record | {name: value})
    assert parse(record | {earlier: value}) != parse(record | {name: value / 2})


@pytest.mark.parametrize(("record", "earlier", "name", "value"), EARLIER)
def test_a_field_given_by_both_its_names_is_refused(
    record: dict[str, Any], earlier: str, name: str, value: float
) -> None:
    """The sentence says which of the two to keep, even where both say the same."""
    with pytest.raises(WorkloadError) as raised:
        parse(record | {earlier: value, name: value})
    assert str(raised.value) == f"jobs.jsonl, line 1: {earlier} and {name} are the same field; keep {name}"


def test_jobs_are_sorted_by_arrival() -> None:
    """Whatever their order in the file; those of one moment keep it."""
    arrivals = {"c": 3.0, "a": 1.0, "b": 1.0}
    workload = parse(*(GOOD | {"id": name, "arrival": moment} for name, moment in arrivals.items()))
    assert [spec.id for spec in workload.specs] == ["a", "b", "c"]
    assert len(workload) == 3


def test_blank_lines_and_windows_files_are_read() -> None:
    """A byte-order mark, carriage returns and blank lines are no jobs, and do not shift line numbers."""
    content = b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n" + json.dumps(OTHER).encode() + b"\r\n"
    assert len(Workload.parse(content, "jobs.jsonl")) == 2
    with pytest.raises(WorkloadError, match="line 5"):
        Workload.parse(content + b"\n{}", "jobs.jsonl")


NAN, INFINITY = float("nan"), float("inf")
MALFORMED: list[tuple[object, str]] = [
    (without("id"), "the field 'id' is missing; add it: a text that no other job has"),
    (without("arrival"), "the field 'arrival' is missing; add it: seconds from 0 to 1,000,000,000"),
    (without("losses"), "the field 'losses' is missing; add it: a list of at least two numbers"),
    (
        without("cpu_seconds_per_iteration"),
        "the field 'cpu_seconds_per_iteration' is missing; add it: CPU seconds above 0 and at most "
        "1,000,000,000,000,000",
    ),
    (GOOD | {"id": ""}, "id is ''; give a text that no other job has"),
    (GOOD | {"id": 7}, "id is 7; give a text that no other job has"),
    (GOOD | {"id": "a\nb"}, "id is 'a\\nb'; give a text that no other job has"),
    (GOOD | {"arrival": -1}, "arrival is -1; give seconds from 0 to 1,000,000,000"),
    (GOOD | {"arrival": "soon"}, "arrival is 'soon'; give seconds from 0 to 1,000,000,000"),
    (GOOD | {"arrival": True}, "arrival is True; give seconds from 0 to 1,000,000,000"),
    (GOOD | {"arrival": NAN}, "arrival is nan; give seconds from 0 to 1,000,000,000"),
    (GOOD | {"losses": [0.5, NAN]}, "losses[1] is nan; give a finite number for every loss"),
    (GOOD | {"losses": [INFINITY, 0.5]}, "losses[0] is inf; give a finite number for every loss"),
    (GOOD | {"losses": [0.5, "0.4"]}, "losses[1] is '0.4'; give a finite number for every loss"),
    (GOOD | {"losses": [0.5, None]}, "losses[1] is None; give a finite number for every loss"),
    (
        GOOD | {"losses": [0.5]},
        "losses holds one loss; give at least two: before the first iteration and after each",
    ),
    (
        GOOD | {"losses": []},
        "losses holds no loss; give at least two: before the first iteration and after each",
    ),
    (GOOD | {"losses": 0.5}, "losses is 0.5; give a list of at least two numbers"),
    (
        GOOD | {"cpu_seconds_per_iteration": 0},
        "cpu_seconds_per_iteration is 0; give CPU seconds above 0 and at most 1,000,000,000,000,000",
    ),
    (
        GOOD | {"cpu_seconds_per_iteration": -4.0},
        "cpu_seconds_per_iteration is -4.0; give CPU seconds above 0 and at most 1,000,000,000,000,000",
    ),
    (
        GOOD | {"serial_seconds_per_iteration": -1},
        "serial_seconds_per_iteration is -1; give seconds from 0 to 1,000,000,000,000,000",
    ),
    (GOOD | {"max_cores": 0}, "max_cores is 0; give a number of cores above 0 and at most 1,000,000"),
    (
        GOOD | {"max_cores": INFINITY},
        "max_cores is inf; give a number of cores above 0 and at most 1,000,000",
    ),
    (GOOD | {"min_cores": -1}, "min_cores is -1; give a number of cores from 0 to 1,000,000"),
    (GOOD | {"min_cores": 200}, "min_cores is 200; give at most max_cores, which is 160"),
    (
        GOOD | {"sizes": "half"},
        "sizes is 'half'; give 'any', 'whole', or a list of numbers of cores such as [1, 2, 4]",
    ),
    (
        GOOD | {"sizes": []},
        "sizes is []; give 'any', 'whole', or a list of numbers of cores such as [1, 2, 4]",
    ),
    (
        GOOD | {"sizes": [1, 0]},
        "sizes is [1, 0]; give 'any', 'whole', or a list of numbers of cores such as [1, 2, 4]",
    ),
    (GOOD | {"weight": 0}, "weight is 0; give a number from 0.000001 to 1,000,000"),
    (GOOD | {"target_loss": NAN}, "target_loss is nan; give a number from -1e+300 to 1e+300"),
    (GOOD | {"kind": "gpu"}, "kind is 'gpu'; use one of 'ml', 'other'"),
    (GOOD | {"kind": ["ml"]}, "kind is ['ml']; use one of 'ml', 'other'"),
    (GOOD | {"max_core": 3}, "there is no field 'max_core'; did you mean 'max_cores'?"),
    (GOOD | {"cpu_seconds": 3}, "a job of kind 'ml' has no cpu_seconds; remove it, or change the kind"),
    (GOOD | {"reserved": 3}, "a job of kind 'ml' has no reserved; remove it, or change the kind"),
    (OTHER | {"losses": [2, 1]}, "a job of kind 'other' has no losses; remove it, or change the kind"),
    (
        OTHER | {"cpu_seconds": 0},
        "cpu_seconds is 0; give CPU seconds above 0 and at most 1,000,000,000,000,000",
    ),
    ([GOOD], 'is not a JSON object; write {"id": ..., "arrival": ..., ...}'),
]


@pytest.mark.parametrize(("record", "sentence"), MALFORMED)
def test_a_malformed_line_gets_one_sentence(record: object, sentence: str) -> None:
    """File, line, what was found, and what to do about it."""
    with pytest.raises(WorkloadError) as raised:
        parse(OTHER, record)
    message = str(raised.value)
    assert message.startswith("jobs.jsonl, line 2: ")
    assert message.endswith(sentence)
    assert (raised.value.path, raised.value.line) == ("jobs.jsonl", 2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "jobs.jsonl: has no job; write one JSON object per line, or run `slaq workload generate`"),
        (
            b"\n \n",
            "jobs.jsonl: has no job; write one JSON object per line, or run `slaq workload generate`",
        ),
        (
            b'{"id": "a",',
            "jobs.jsonl, line 1: invalid JSON, Expecting property name enclosed in double quotes at column 12"
            "; write one JSON object per line",
        ),
        (b'\n{"id": "\xff"}', "jobs.jsonl, line 2: the text is not UTF-8; save the file as UTF-8"),
        (
            b'{"id": "a", "id": "b"}',
            "jobs.jsonl, line 1: the field 'id' is given twice; keep one of them",
        ),
        (
            b"[" * 100_000,
            "jobs.jsonl, line 1: invalid JSON: a number is too long or lists are nested too deeply; shorten it",
        ),
        (
            b'{"arrival": ' + b"1" * 5000 + b"}",
            "jobs.jsonl, line 1: invalid JSON: a number is too long or lists are nested too deeply; shorten it",
        ),
        (
            json.dumps(GOOD | {"arrival": 10**400}).encode(),
            "jobs.jsonl, line 1: arrival is 100000000000000000...0000000000000000000"
            "; give seconds from 0 to 1,000,000,000",
        ),
    ],
)
def test_a_malformed_file_gets_one_sentence(content: bytes, sentence: str) -> None:
    """So does what is not even a line of JSON."""
    with pytest.raises(WorkloadError) as raised:
        Workload.parse(content, "jobs.jsonl")
    assert str(raised.value) == sentence


def test_an_id_used_twice_names_both_lines() -> None:
    """The second line is at fault, and the first is named."""
    with pytest.raises(WorkloadError) as raised:
        parse(GOOD, OTHER, GOOD)
    assert str(raised.value) == (
        "jobs.jsonl, line 3: the id 'lr-1' is also in line 1; give each job a different id"
    )


def test_an_id_used_twice_in_memory_is_refused() -> None:
    """A workload made by a program obeys the same law."""
    job = parse(OTHER).jobs[0]
    with pytest.raises(DuplicateJobError):
        Workload((job, job))


def test_a_file_that_cannot_be_read_or_written_gets_one_sentence(tmp_path: Path) -> None:
    """The reason is the system's own."""
    missing = tmp_path / "none" / "jobs.jsonl"
    with pytest.raises(WorkloadError) as raised:
        Workload.read(missing)
    assert str(raised.value) == f"{missing}: cannot be read (No such file or directory); check the path"
    with pytest.raises(WorkloadError) as raised:
        parse(GOOD).write(missing)
    assert str(raised.value) == f"{missing}: cannot be written (No such file or directory); check the path"
    with pytest.raises(WorkloadError, match="Is a directory"):
        Workload.read(tmp_path)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
SECONDS = st.floats(0, 1e9)
COST = st.floats(1e-9, 1e9)
TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=8)
CORES = st.floats(8, 1000)
SIZES = st.sampled_from(["any", "whole"]) | st.sets(st.floats(0.5, 8), min_size=1, max_size=3).map(
    lambda sizes: tuple(sorted(sizes))
)
ML_JOBS = st.builds(
    SimulatedJob,
    spec=st.builds(
        JobSpec,
        id=TEXT,
        arrival=SECONDS,
        weight=st.floats(1e-3, 1e3),
        demand=st.builds(Demand, least=st.floats(0, 8), most=st.none() | CORES, sizes=SIZES),
        target_loss=st.none() | st.floats(-1e300, 1e300),
    ),
    losses=st.lists(FINITE, min_size=2, max_size=6).map(np.array),
    cpu_seconds_per_iteration=COST,
    serial_seconds_per_iteration=SECONDS,
    algorithm=TEXT,
)
OTHER_JOBS = st.builds(
    SimulatedJob,
    spec=st.builds(JobSpec, id=TEXT, arrival=SECONDS, trains=st.just(False), reserved=st.none() | CORES),
    cpu_seconds=COST,
)
WORKLOADS = st.lists(ML_JOBS | OTHER_JOBS, min_size=1, max_size=5, unique_by=lambda job: job.spec.id).map(
    lambda jobs: Workload(tuple(jobs))
)


@given(WORKLOADS)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, workload: Workload) -> None:
    """A workload equals itself after a journey through a file, to the last bit of every number."""
    path = tmp_path_factory.mktemp("workload") / "jobs.jsonl"
    workload.write(path)
    assert Workload.read(path) == workload


@given(WORKLOADS, st.data())
def test_workloads_that_differ_are_not_equal(workload: Workload, data: st.DataObject) -> None:
    """The round trip would say nothing if everything were equal."""
    jobs = list(workload)
    index = data.draw(st.integers(0, len(jobs) - 1))
    job = jobs[index]
    jobs[index] = SimulatedJob(
        spec=job.spec,
        losses=job.losses,
        cpu_seconds_per_iteration=job.cpu_seconds_per_iteration + 1.0,
        serial_seconds_per_iteration=job.serial_seconds_per_iteration,
        cpu_seconds=job.cpu_seconds + 1.0,
        algorithm=job.algorithm,
    )
    assert Workload(tuple(jobs)) != workload


def test_a_dash_means_the_standard_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A workload can be piped from one command to another."""
    workload = parse(GOOD, OTHER)
    workload.write("-")
    written = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written.encode())))
    assert Workload.read("-") == workload
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nonsense")))
    with pytest.raises(WorkloadError, match=r"^standard input, line 1: invalid JSON"):
        Workload.read("-")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted(
    {
        *GOOD,
        *OTHER,
        "min_cores",
        "max_units",
        "sizes",
        "target_loss",
        "serial_seconds_per_iteration",
        "algorithm",
        "x",
    }
)
LINES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.tuples(st.sampled_from([GOOD, OTHER]), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=2)).map(
        lambda pair: json.dumps(pair[0] | pair[1]).encode()
    ),
)


@given(st.lists(LINES, max_size=3).map(b"\n".join))
@example(b"\x00")
@example(b'{"id": "\\ud800", "arrival": 0, "kind": "other", "cpu_seconds": 1}')
@example(b'{"id": "a", "arrival": 1e999, "kind": "other", "cpu_seconds": 1}')
def test_no_content_gives_anything_but_a_workload_or_one_sentence(content: bytes) -> None:
    """Whatever is in the file, it is a workload that can be written again, or an error of one line."""
    try:
        workload = Workload.parse(content, "jobs.jsonl")
    except WorkloadError as error:
        message = str(error)
        assert message.startswith("jobs.jsonl")
        assert "\n" not in message
        assert len(message) < 400
        message.encode()
    else:
        assert all(np.isfinite(job.losses).all() and job.total_cpu_seconds > 0 for job in workload)
        assert len({spec.id for spec in workload.specs}) == len(workload) > 0
