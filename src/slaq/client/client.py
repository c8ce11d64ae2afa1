"""What a user of the service holds: the API, and handles to jobs."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from slaq.client.api import Api
from slaq.client.connection import PREFIX, Connection
from slaq.client.events import Stream
from slaq.client.job import Job
from slaq.client.place import find_place, surroundings
from slaq.client.reading import job_view
from slaq.client.watch import Watch
from slaq.core.errors import JobOptionError
from slaq.core.job import JobState
from slaq.service.records import IfLost, Notice, Submission

#: Seconds for which a restart of the service is bridged.
PATIENCE = 30.0


def connect(address: str | None = None, token: str | None = None, *, patience: float = PATIENCE) -> "Client":
    """Return a client of the service at `unix:///path`, `https://host:port` or `http://127.0.0.1:port`.

    Without an address it is what $SLAQ_URL says, else the socket in $SLAQ_HOME (~/.slaq); without a token what
    $SLAQ_TOKEN says. A service that was reached once may be away for `patience` seconds, as when it restarts.
    """
    return Client(Connection(find_place(address, token), patience))


class Client(Api):
    """A service at the other end of a socket. May be used by several threads; close it, or use it in `with`.

    Methods that return a `Job` give a handle; all others return what the API replies, as JSON.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._watch = Watch(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; jobs go on."""
        self._watch.close()
        self._connection.close()

    # Submitting.

    def submit(
        self,
        program: str | Mapping[str, Any],
        data: str | Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Job:
        """Start a training program: "train.py:train", or a table as in a jobs file with `algorithm` or `program`.

        `data` is that table's key of the same name. `options` are the fields of a submission, such as
        `weight=2`, `max_cores=4`, `stop_at=0.95`, `by=600`, `tags=("night",)`.
        """
        if callable(program):
            raise JobOptionError(
                "program",
                program,
                'its file and name, as "train.py:train": a service takes no Python objects',
            )
        table: dict[str, Any] = {"program": program} if isinstance(program, str) else dict(program)
        if data is not None:
            table["data"] = data
        if self.local:
            options.setdefault("python", sys.executable)
            options.setdefault("cwd", os.getcwd())
            options["env"] = surroundings() | options.get("env", {})
        return self.send(Submission(name=name, program=table, **options))

    def submit_command(  # noqa: PLR0913 (one keyword per thing a user may ask for)
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        name: str | None = None,
        loss_pattern: str | None = None,
        loss_file: str | os.PathLike[str] | None = None,
        loss_column: str = "loss",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        weight: float = 1.0,
        min_cores: float = 0.0,
        max_cores: float | None = None,
        target: float | None = None,
        stop_at: float | None = None,
        by: float | None = None,
        max_iterations: int | None = None,
        time_budget: float | None = None,
        max_restarts: int = 0,
        if_lost: str = IfLost.RESUME,
        trains: bool = True,
        tags: Sequence[str] = (),
    ) -> Job:
        """Start any command on the service's machine, its whole process tree under its share of the cores.

        As in the embedded cluster, but that cores are asked for instead of units. `by` is the number of seconds
        in which its target is wanted. Over a Unix socket it runs in this directory, unless `cwd` says otherwise,
        and finds the programs that are found here.
        """
        if cwd is None and self.local:
            cwd = os.getcwd()
        submission = Submission(
            name=name,
            command=tuple(os.fspath(word) for word in argv),
            loss_pattern=loss_pattern,
            loss_file=None if loss_file is None else os.fspath(loss_file),
            loss_column=loss_column,
            cwd=None if cwd is None else os.path.abspath(cwd),
            env=(surroundings() if self.local else {}) | dict(env or {}),
            weight=weight,
            min_cores=min_cores,
            max_cores=max_cores,
            target_loss=target,
            stop_at=stop_at,
            by=by,
            max_iterations=max_iterations,
            time_budget=time_budget,
            max_restarts=max_restarts,
            if_lost=IfLost(if_lost),
            trains=trains,
            tags=tuple(tags),
        )
        return self.send(submission)

    def send(self, submission: Submission) -> Job:
        """Submit a job; it is kept, whatever happens to the service, once this returns.

        Raises LostReplyError where the service was lost in between, and it is not known whether it is.
        """
        found = self._connection.json("POST", f"{PREFIX}/jobs", json=asdict(submission), once=True)
        return Job(self, job_view(found))

    # Jobs.

    def jobs(
        self,
        *,
        states: Collection[JobState | str] | None = None,
        owner: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return handles to the jobs that you may see, in the order of their submission."""
        found = self.list_jobs(states=states, owner=owner, tag=tag, limit=limit)
        return [Job(self, job_view(one)) for one in found]

    def job(self, job_id: str) -> Job:
        """Return a handle to one job."""
        return Job(self, job_view(self.show_job(job_id)))

    def events(
        self, *, after: int | None = None, kinds: Collection[str] = (), job_id: str | None = None
    ) -> Iterator[Notice]:
        """Yield what happens from now on, or after the notice of that number, across restarts of the service."""
        return iter(Stream(self._connection, after=after, kinds=kinds, job_id=job_id))

    def watch(self, job: Job, callback: Callable[[Job], object]) -> None:
        """Call callback(job) once the job has ended, in a thread of its own."""
        self._watch.add(job, callback)
