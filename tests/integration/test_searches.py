"""Laws of searches, of which the best job is wanted soon: simulated, on a cluster, in files and on a service."""

from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slaq import Cluster, Context
from slaq.bootstrap import jobs_vocabulary, simulate
from slaq.client import Client, connect
from slaq.config import read_jobs_file
from slaq.core.errors import JobOptionError, JobsFileError
from slaq.core.events import JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.ports import History
from slaq.service.records import Submission
from slaq.simulation.workload import SimulatedJob, Workload
from tests.integration.opening import reports
from tests.integration.serving import Served, until
from tests.integration.test_groups import slaq

#: Where the losses of a search end: one job is the best by far, and comes last.
ENDS = (0.6, 0.9, 0.3, 0.8, 0.45, 0.7, 0.5, 0.1)


def curve(end: float, losses: int = 40) -> Any:
    return end + (1.0 - end) * 1.4 ** -np.arange(float(losses))


def searched(policy: str, *, stop_losers: bool = False, search: bool = True) -> History:
    """What happens to a search on two cores, beside one job that is none of it."""

    def job(name: str, end: float, **options: Any) -> SimulatedJob:
        spec = JobSpec(id=name, max_iterations=39, **options)
        return SimulatedJob(spec=spec, losses=curve(end), cpu_seconds_per_iteration=2.0)

    tried = [job(f"try-{end}", end, group="net", best_first=search, stop_losers=stop_losers) for end in ENDS]
    return simulate(Workload((job("other", 0.0), *tried)), policy=policy, capacity=2).history


def ends(history: History) -> dict[str, JobEnded]:
    return {
        spec.id: event
        for spec in history.jobs()
        for event in history.events(spec.id)
        if isinstance(event, JobEnded)
    }


def found(history: History) -> float:
    """When the best job came near its end."""
    events = history.events("try-0.1")
    return next(e.at for e in events if isinstance(e, LossObserved) and e.observation.loss < 0.11)


@pytest.mark.parametrize("policy", ["total-quality", "fair"])
def test_the_best_is_found_sooner_and_nobody_is_killed(policy: str) -> None:
    """Beside any policy, the best job of a search is there sooner than without, and every job completes."""
    plain, search = searched(policy, search=False), searched(policy)
    assert found(search) < 0.8 * found(plain)
    assert {end.state for end in ends(search).values()} == {JobState.COMPLETED}


def test_as_the_policy_of_the_cluster_every_group_is_a_search() -> None:
    """The policy best-first needs no option of a job."""
    assert found(searched("best-first", search=False)) == pytest.approx(found(searched("fair")), rel=0.3)


def test_losers_are_ended_where_this_is_asked() -> None:
    """Jobs that have no chance end as beaten, with the reason; the best one, and jobs beside it, complete."""
    seen = ends(searched("total-quality", stop_losers=True))
    beaten = {name for name, end in seen.items() if end.state is JobState.BEATEN}
    assert beaten
    assert {"try-0.1", "other"} & beaten == set()
    assert {end.state for name, end in seen.items() if name not in beaten} == {JobState.COMPLETED}
    for name in beaten:
        assert "practically no chance" in seen[name].reason
        assert "the best is expected below" in seen[name].reason


# On a cluster.


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(1, epoch_seconds=0.05, directory=tmp_path) as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


def falls_to(end: float, sign: float = 1.0) -> Any:
    def train(ctx: Context) -> None:
        for loss in curve(end, 60):
            ctx.map(len)
            ctx.report(sign * float(loss), total=59)

    return train


def test_a_loser_on_a_cluster(cluster: Cluster) -> None:
    """The handle of a beaten job says so; its result is that of a job which was stopped."""
    search: Any = {"group": "net", "policy": "best-first"}
    best = cluster.submit(falls_to(0.0), **search)
    until(best.done)
    loser = cluster.submit(hardly_falls, stop_losers=True, **search)
    mate = cluster.submit(falls_to(0.01), stop_losers=True, **search)
    assert loser.wait(timeout=60.0)
    assert (best.state, loser.state) == (JobState.COMPLETED, JobState.BEATEN)
    assert "practically no chance" in loser.reason
    with pytest.raises(CancelledError):
        loser.result()
    assert mate.wait(timeout=60.0)


def hardly_falls(ctx: Context) -> None:
    for k in range(100_000):
        ctx.map(len)
        ctx.report(5.0 - k / 1e4)


def test_a_search_has_one_direction(cluster: Cluster) -> None:
    """A job whose number should rise is no part of a search whose losses should fall."""
    search: Any = {"group": "net", "policy": "best-first", "arrival": 60}
    cluster.submit(falls_to(0.0), **search)
    with pytest.raises(JobOptionError, match="maximize is True; give false, as the jobs of 'net'"):
        cluster.submit(falls_to(0.0, -1.0), maximize=True, **search)
    cluster.submit(falls_to(0.0, -1.0), maximize=True, **{**search, "group": "other"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": "best-first"}, "a group too"),
        ({"policy": "fair", "group": "a"}, "give best-first"),
        ({"stop_losers": True, "group": "a"}, "the policy best-first too"),
        ({"policy": "best-first", "group": "a", "trains": False}, "trains too"),
    ],
)
def test_what_makes_no_search_is_refused(cluster: Cluster, options: Any, said: str) -> None:
    """A search has a group and losses, and losers are those of a search."""
    with pytest.raises(JobOptionError, match=said):
        cluster.submit(falls_to(0.0), **options)


# In a file.

TABLE = """
[[job]]
name = "ridge"
algorithm = "logistic-regression"
policy = "best-first"
data = {generate = "classification"}
"""


def test_a_grid_of_a_file_is_a_group_of_its_own(tmp_path: Path) -> None:
    """The policy stands in the table of a grid; a table that stands for one job needs a group."""
    path = tmp_path / "jobs.toml"
    path.write_text(f"{TABLE}parameters = {{l2 = {{grid = [0.1, 0.2]}}}}")
    jobs = read_jobs_file(path, jobs_vocabulary()).jobs
    assert [(job.own_group, job.options["policy"]) for job in jobs] == [("ridge", "best-first")] * 2
    path.write_text(TABLE)
    with pytest.raises(JobsFileError, match="the job has a policy and no group"):
        read_jobs_file(path, jobs_vocabulary())


# On a service.


@pytest.fixture
def client(here: Path, served: Served) -> Iterator[Client]:
    with connect(served.unix) as found:
        yield found


def send(client: Client, name: str, **options: Any) -> str:
    search: Any = {"name": name, "group": "net", "policy": "best-first", "max_cores": 1.0, **options}
    return client.send(Submission(external=True, options=search)).id


def test_a_search_is_told(client: Client) -> None:
    """Show, why, ls and best say where a job is expected to end, and a loser that it was beaten."""
    best, loser = send(client, "best"), send(client, "loser", stop_losers=True)
    client.report(best, reports(*curve(0.1, 30).tolist()), offset=0)
    until(lambda: (client.show_job(best)["standing"] or {}).get("low") is not None)
    standing = client.show_job(best)["standing"]
    assert standing["low"] <= 0.11
    assert standing["maximize"] is False
    assert "0.1" in slaq("best", "net").stdout
    assert "search" in slaq("show", best).stdout
    assert "is expected to end between" in client.why(best)["text"]
    client.report(loser, reports(*(5.0 - curve(0.0, 30) / 1e3).tolist()), offset=0)
    until(lambda: client.show_job(loser)["state"] == "beaten")
    assert "the best is expected below" in client.show_job(loser)["reason"]
    assert client.show_job(best)["state"] == "running"
    assert "1 of 2 jobs were ended as beaten" in slaq("best", "net").output
    client.end(best, state="completed")
    until(lambda: client.show_job(best)["ended_at"] is not None)
    slaq("wait", "--group", "net")
    with pytest.raises(JobOptionError, match="a group too"):
        client.send(Submission(external=True, options={"policy": "best-first"}))


def test_the_service_refuses_mixed_directions(client: Client) -> None:
    """All jobs of a search that have not ended are of one direction."""
    send(client, "falls")
    with pytest.raises(JobOptionError, match="give false, as the jobs of 'net'"):
        send(client, "rises", maximize=True)


def test_the_command_line_makes_a_search(here: Path, served: Served) -> None:
    """A grid with a policy is a search without any further word."""
    words = ("submit", "--policy", "best-first", "--grid", "a=1,2", "--name", "s", "--", "echo", "{a}")
    slaq(*words)
    with connect(served.unix) as client:
        assert {(job["group"], job["policy"]) for job in client.list_jobs(group="s")} == {("s", "best-first")}
    slaq("submit", "--policy", "best-first", "--", "echo", "1", status=2)
