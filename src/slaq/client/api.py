"""One method for each route of the API; they return the JSON that the service replies."""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import quote

from slaq.client.connection import PREFIX, Connection
from slaq.core.job import JobState
from slaq.jobs.options import CHANGES, LIMITS, JobChanges, LimitOptions
from slaq.service.records import LogChunk

#: Items asked for at a time.
PAGE = 1000
#: Curves asked for at a time.
CURVES = 200
#: Bytes of a log asked for at a time.
LOG_PIECE = 2**20
#: Seconds that a replay of the cluster, or a copy of its database, may take.
LONG_SECONDS = 600.0


class Api:
    """The routes of a service."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def address(self) -> str:
        """The service's address."""
        return self._connection.endpoint.address

    @property
    def local(self) -> bool:
        """Whether the service is on this machine, so that paths mean the same there."""
        return self._connection.endpoint.local

    # Jobs.

    def list_jobs(
        self,
        *,
        states: Collection[JobState | str] | None = None,
        owner: str | None = None,
        tag: str | None = None,
        group: str | None = None,
        ended_since: float | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the jobs that you may see, in the order of their submission."""
        asked = {
            "state": _names(states),
            "owner": owner,
            "tag": tag,
            "group": group,
            "ended_since": ended_since,
        }
        found: list[dict[str, Any]] = []
        after = None
        while limit is None or len(found) < limit:
            many = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self._get("/jobs", after=after, limit=many, **asked)
            found += page["jobs"]
            after = page["next"]
            if after is None:
                break
        return found

    def last_jobs(  # noqa: PLR0913 (one parameter per filter)
        self,
        most: int,
        *,
        states: Collection[JobState | str] | None = None,
        owner: str | None = None,
        tag: str | None = None,
        group: str | None = None,
        submitted_since: float | None = None,
        ended_since: float | None = None,
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the jobs that have not ended or ended last, in the order of submission, and how many there are."""
        since = {"submitted_since": submitted_since, "ended_since": ended_since}
        page = self._get("/jobs", last=most, state=_names(states), owner=owner, tag=tag, group=group, **since)
        return page["jobs"], page["total"]

    def show_job(self, job_id: str) -> dict[str, Any]:
        """Return one job."""
        return self._one(job_id)

    def submission(self, job_id: str) -> dict[str, Any]:
        """Return a job as its owner asked for it."""
        return self._one(job_id, "/submission")

    def pause(self, job_id: str) -> dict[str, Any]:
        """Take all cores from a job until it is resumed."""
        return self._post(job_id, "pause")

    def resume(self, job_id: str) -> dict[str, Any]:
        """Let a paused job compete for cores again."""
        return self._post(job_id, "resume")

    def cancel(self, job_id: str, *, now: bool = False) -> dict[str, Any]:
        """Cancel a job; with `now` it is killed at once, whatever time it has to end."""
        return self._post(job_id, "cancel", params={"now": "true"} if now else {})

    def end(self, job_id: str, *, state: JobState | str, reason: str = "") -> dict[str, Any]:
        """Say that an external job has ended, and how."""
        return self._post(job_id, "end", json={"state": str(state), "reason": reason})

    @CHANGES.takes
    def change(self, job_id: str, **changes: Unpack[JobChanges]) -> dict[str, Any]:
        """Change a job; what is not given stays as it is."""
        given = CHANGES.read(changes)
        found: dict[str, Any] = self._connection.json("PATCH", _job_path(job_id), json=given)
        return found

    # Groups of jobs: your own, unless an admin names another owner. Each method returns the jobs concerned.

    def pause_group(self, group: str, *, owner: str | None = None) -> list[dict[str, Any]]:
        """Take all cores from the jobs of a group until they are resumed."""
        return self._steer("POST", group, "/pause", owner)

    def resume_group(self, group: str, *, owner: str | None = None) -> list[dict[str, Any]]:
        """Let the paused jobs of a group compete for cores again."""
        return self._steer("POST", group, "/resume", owner)

    def cancel_group(self, group: str, *, owner: str | None = None) -> list[dict[str, Any]]:
        """Cancel the jobs of a group."""
        return self._steer("POST", group, "/cancel", owner)

    def change_group(
        self, group: str, *, owner: str | None = None, **changes: Unpack[JobChanges]
    ) -> list[dict[str, Any]]:
        """Change the jobs of a group; what is not given stays as it is."""
        return self._steer("PATCH", group, "", owner, json=CHANGES.read(changes))

    def _steer(
        self, method: str, group: str, what: str, owner: str | None, **request: Any
    ) -> list[dict[str, Any]]:
        path = f"{PREFIX}/groups/{quote(group, safe='')}{what}"
        query = {} if owner is None else {"owner": owner}
        page = self._connection.json(method, path, params=query, timeout=LONG_SECONDS, **request)
        found: list[dict[str, Any]] = page["jobs"]
        return found

    # The course of a job.

    def observations(
        self, job_id: str, *, after: int = -1, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield what a job reported after that iteration."""
        left = limit
        while left is None or left > 0:
            many = PAGE if left is None else min(PAGE, left)
            page = self._one(job_id, "/observations", after=after, limit=many)
            yield from page["observations"]
            if len(page["observations"]) < many:
                return
            after = page["next"]
            left = None if left is None else left - many

    def curves(self, ids: Sequence[str], *, most: int = PAGE) -> Iterator[dict[str, Any]]:
        """Yield the losses of several jobs in columns: of a longer curve, so many evenly spaced ones."""
        for start in range(0, len(ids), CURVES):
            yield from self._get("/curves", job=list(ids[start : start + CURVES]), most=most)["curves"]

    def allocations(self, job_id: str, *, since: float = 0.0, limit: int = PAGE) -> list[dict[str, Any]]:
        """Return the cores that a job has held, each with the moment from which on it held them."""
        found: list[dict[str, Any]] = self._one(job_id, "/allocations", since=since, limit=limit)[
            "allocations"
        ]
        return found

    def forecast(self, job_id: str, horizons: int | Sequence[int]) -> dict[str, Any]:
        """Predict a job's losses that many iterations ahead."""
        wanted = [horizons] if isinstance(horizons, int) else list(horizons)
        return self._one(job_id, "/forecast", horizon=wanted)

    def why(self, job_id: str) -> dict[str, Any]:
        """Return the explanation of the last decision about a job."""
        return self._one(job_id, "/why")

    def log(self, job_id: str, *, offset: int = 0, limit: int = LOG_PIECE) -> LogChunk:
        """Return a piece of what a job printed; a negative offset counts from the end."""
        query = {"offset": offset, "limit": limit}
        response = self._connection.ask("GET", _job_path(job_id, "/log"), params=query)
        return LogChunk(
            offset=int(response.headers["X-Slaq-Offset"]),
            data=response.content,
            next_offset=int(response.headers["X-Slaq-Next-Offset"]),
            ended=response.headers["X-Slaq-Ended"] == "true",
        )

    def read_log(self, job_id: str, *, offset: int = 0) -> Iterator[bytes]:
        """Yield what a job has printed so far, in pieces."""
        while (chunk := self.log(job_id, offset=offset)).data:
            yield chunk.data
            offset = chunk.next_offset

    def report(self, job_id: str, lines: bytes, *, offset: int, source: str = "") -> int:
        """Send reports of an external job; return how many bytes the service has. Sending twice is safe."""
        found = self._connection.json(
            "POST",
            _job_path(job_id, "/reports"),
            params={"offset": offset, "source": source},
            content=lines,
            headers={"Content-Type": "application/x-ndjson"},
        )
        return int(found["offset"])

    # The cluster.

    def cluster(self) -> dict[str, Any]:
        """Return the state of the cluster."""
        return self._get("/cluster")

    def set_policy(self, policy: str) -> dict[str, Any]:
        """Change the policy; for admins."""
        found: dict[str, Any] = self._connection.json("PATCH", f"{PREFIX}/cluster", json={"policy": policy})
        return found

    def decisions(self, *, since: int = -1, limit: int = 10, every: int = 1) -> list[dict[str, Any]]:
        """Return decisions, the earliest first; with `every` those of epochs that it divides."""
        page = self._get("/decisions", since=since, limit=limit, every=every)
        found: list[dict[str, Any]] = page["decisions"]
        return found

    def decision(self, epoch: int | None = None) -> dict[str, Any]:
        """Return the decision of an epoch, or the last one."""
        return self._get(f"/decisions/{'last' if epoch is None else epoch}")

    def whatif(
        self,
        *,
        policy: str | None = None,
        cores: int | None = None,
        horizon: float = 3600.0,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Simulate the present jobs under another policy or capacity.

        Losses follow their forecasts; with a seed, they are drawn from the forecasts' distributions.
        """
        asked = {"policy": policy, "cores": cores, "horizon": horizon, "seed": seed}
        found: dict[str, Any] = self._connection.json(
            "POST", f"{PREFIX}/whatif", json=asked, timeout=LONG_SECONDS
        )
        return found

    def users(self) -> list[dict[str, Any]]:
        """Return the users that you may see."""
        found: list[dict[str, Any]] = self._get("/users")["users"]
        return found

    def user(self, name: str) -> dict[str, Any]:
        """Return one user."""
        return self._get(f"/users/{quote(name, safe='')}")

    def set_user(self, name: str, **changes: Unpack[LimitOptions]) -> dict[str, Any]:
        """Change the limits of a user; None lifts a limit. For admins."""
        path = f"{PREFIX}/users/{quote(name, safe='')}"
        found: dict[str, Any] = self._connection.json("PATCH", path, json=LIMITS.read(changes))
        return found

    def prune(
        self,
        *,
        before: float | None = None,
        keep_jobs: int | None = None,
        keep_decisions: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove ended jobs and old decisions; for admins."""
        asked = {
            "before": before,
            "keep_jobs": keep_jobs,
            "keep_decisions": keep_decisions,
            "dry_run": dry_run,
        }
        found: dict[str, Any] = self._connection.json(
            "POST", f"{PREFIX}/prune", json=asked, timeout=LONG_SECONDS
        )
        return found

    def backup(self, path: str | os.PathLike[str]) -> Path:
        """Write a consistent copy of the service's database to a file here, which must not exist; for admins."""
        target = Path(path)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with (
                open(descriptor, "wb") as file,
                self._connection.stream("POST", f"{PREFIX}/backup", timeout=LONG_SECONDS) as response,
            ):
                for piece in response.iter_bytes():
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            target.unlink()
            raise
        return target

    def health(self) -> dict[str, Any]:
        """Return whether the service works, and what is wrong."""
        return self._get("/health")

    def metrics(self) -> str:
        """Return the metrics in the format of Prometheus."""
        return self._connection.ask("GET", "/metrics").text

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value is not None}
        found: dict[str, Any] = self._connection.json("GET", PREFIX + path, params=given)
        return found

    def _one(self, job_id: str, what: str = "", **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._connection.json("GET", _job_path(job_id, what), params=query)
        return found

    def _post(self, job_id: str, what: str, **request: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._connection.json("POST", _job_path(job_id, f"/{what}"), **request)
        return found


def _names(states: Collection[JobState | str] | None) -> list[str] | None:
    return None if states is None else [str(state) for state in states]


def _job_path(job_id: str, what: str = "") -> str:
    return f"{PREFIX}/jobs/{quote(job_id, safe='')}{what}"
