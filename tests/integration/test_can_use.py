"""A running job says what it can use: within what its owner asked for, and at nobody else's cost."""

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq import Cluster, Context
from slaq.core.demand import Demand
from slaq.core.errors import JobOptionError
from slaq.core.job import JobState
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.reports import NewDemand, parse_report
from slaq.engines.node.wire import Head
from slaq.jobs.demands import AS_ASKED, read_demand, reported_demand, written_demand
from slaq.jobs.inline import InlineContext
from slaq.jobs.options import MOST_CORES
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ME

PATIENCE = 60.0
ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

cores = st.floats(0.0, MOST_CORES)
sizes = st.none() | st.sampled_from(["any", "whole"]) | st.lists(st.floats(0.01, MOST_CORES), min_size=1)
rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["min_cores", "sizes"]), inner)
    ),
)


def eventually(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)
    return found


@given(st.none() | cores, st.none() | st.floats(0.01, MOST_CORES), sizes)
def test_a_demand_is_read_as_it_was_written(
    least: float | None, most: float | None, chosen: str | list[float] | None
) -> None:
    """Through JSON and back; one that contradicts itself is refused."""
    said: Any = {"min_cores": least, "max_cores": most, "sizes": chosen}
    smallest = min(chosen) if isinstance(chosen, list) else 0.0
    if most is not None and max(least or 0.0, smallest) > most:
        with pytest.raises(JobOptionError, match="at most max_cores"):
            reported_demand(**said)
        return
    demand = reported_demand(**said)
    assert read_demand(json.loads(json.dumps(written_demand(demand)))) == demand


@given(rubbish)
def test_rubbish_is_no_demand(said: object) -> None:
    """Whatever a line says, the answer is a demand of bounded numbers or None."""
    line = json.dumps({"can_use": said, "time": 1.5, "pid": 1}).encode()
    found = parse_report(line)
    if found is not None:
        assert isinstance(found.item, NewDemand)
        demand = found.item.demand
        assert 0 <= demand.least <= MOST_CORES
        assert demand.most is None or 0 < demand.most <= MOST_CORES
        assert isinstance(demand.sizes, str) or all(0 < one <= MOST_CORES for one in demand.sizes)


@pytest.mark.parametrize(
    "said",
    [
        {"max_cores": 0},
        {"max_cores": float("nan")},
        {"min_cores": -1},
        {"min_cores": "two"},
        {"min_cores": 2, "max_cores": 1},
        {"sizes": []},
        {"sizes": "half"},
        {"sizes": [1, 0]},
        {"sizes": [1.0] * 2000},
    ],
)
def test_a_program_that_says_what_makes_no_sense_learns_it_at_once(said: dict[str, Any]) -> None:
    """The error names the option and what to give instead."""
    with pytest.raises(JobOptionError, match="give "):
        InlineContext().can_use(**said)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(2, policy="fair", epoch_seconds=0.1, directory=tmp_path / "cluster") as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


def says(**said: Any) -> Callable[[Context], None]:
    """Return a program that says what it can use, and then works without end."""

    def program(ctx: Context) -> None:
        ctx.can_use(**said)
        while True:
            ctx.report(1.0)
            time.sleep(0.01)

    return program


@pytest.mark.parametrize("kind", ["program", "command"])
@pytest.mark.parametrize(
    ("asked", "said", "held"),
    [
        ({"max_cores": 1.0}, {"max_cores": 0.5}, 0.5),
        ({"max_cores": 0.5}, {"max_cores": 2.0, "min_cores": 2.0}, 0.5),
        ({"max_cores": 1.0}, {"sizes": [0.25, 0.75]}, 0.75),
    ],
    ids=["less", "more", "sizes"],
)
def test_what_a_job_says_counts_within_what_its_owner_asked_for(
    cluster: Cluster, kind: str, asked: dict[str, Any], said: dict[str, Any], held: float
) -> None:
    """A job can have itself given less, or certain sizes, and never more."""
    if kind == "program":
        job = cluster.submit(says(**said), **asked)
    else:
        code = f"import slaq, time\nslaq.can_use(**{said!r})\nwhile True: slaq.report(1.0); time.sleep(0.01)"
        job = cluster.submit_command([sys.executable, "-c", code], env=ENV, **asked)
    eventually(lambda: job.demand)
    eventually(lambda: job.cores == held)
    before = len(cluster.history.decisions())
    eventually(lambda: len(cluster.history.decisions()) > before + 3)
    assert job.cores == held


def test_invalid_reports_of_a_script_harm_nobody(cluster: Cluster) -> None:
    """Invalid lines in a job's reports are skipped; valid lines between them, and other jobs, are still read."""
    code = """
    import os, slaq, time
    lines = ['{"can_use": {"max_cores": -1}, "time": 1.0, "pid": %d}', '{"can_use": 7, "time": 1.0, "pid": %d}',
             '{"can_use": {"sizes": [[]]}, "time": 1.0, "pid": %d}', '{{{%d', '\\\\0%d']
    for _ in range(20):
        with open(os.environ["SLAQ_REPORTS"], "a") as file:
            file.write("\\n".join(line % os.getpid() for line in lines) + "\\n")
        slaq.report(2.0)
        slaq.can_use(max_cores="lots")
    slaq.can_use(max_cores=0.75)
    slaq.report(1.0)
    """
    job = cluster.submit_command([sys.executable, "-c", textwrap.dedent(code)], env=ENV)
    other = cluster.submit(lambda ctx: ctx.report(1.0))
    assert job.wait(timeout=PATIENCE)
    assert other.wait(timeout=PATIENCE)
    assert (job.state, other.state) == (JobState.COMPLETED, JobState.COMPLETED)
    assert job.losses == [2.0] * 20 + [1.0]
    assert job.demand == Demand(least=AS_ASKED, most=0.75)


def test_invalid_messages_of_a_driver_harm_nobody(cluster: Cluster) -> None:
    """Invalid messages that a program writes to its socket are ignored; its job and others continue."""

    def rogue(ctx: Any) -> str:
        for payload in (b"\xff\xfe", b"[]", b'{"max_cores": "NaN"}', b"{" * 10_000):
            ctx._channel.send(Head(MessageKind.CAN_USE), [payload])
            ctx._channel.send(Head(MessageKind.REPORT, c=0), [payload])
        return "done"

    job, other = cluster.submit(rogue), cluster.submit(lambda ctx: ctx.report(1.0))
    assert job.result(PATIENCE) == "done"
    assert other.wait(timeout=PATIENCE)
    assert job.demand is None


def test_a_program_of_the_service_is_heard_too(open_service: Callable[..., Service], tmp_path: Path) -> None:
    """What it says reaches the service, which gives it no more."""
    (tmp_path / "modest.py").write_text(
        "import time\n\n\ndef train(ctx):\n    ctx.can_use(max_cores=0.25)\n"
        "    while True:\n        ctx.report(1.0)\n        time.sleep(0.02)\n"
    )
    service = open_service(cores=1, policy="fair")
    job = service.submit(ME, Submission(program={"program": "modest:train"}, options={"cwd": str(tmp_path)}))
    eventually(lambda: service.job(ME, job.id).cores == 0.25)
    said = {"min_cores": None, "max_cores": 0.25, "sizes": "any", "worth": None, "change_seconds": None}
    assert service.job(ME, job.id).can_use == said
    assert open_service(cores=1).job(ME, job.id).can_use == said
