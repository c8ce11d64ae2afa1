"""The Python client of a service: submits jobs, and gives handles to them."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack, cast

from slaq.client.api import Api
from slaq.client.connection import PREFIX, Connection
from slaq.client.endpoint import find_endpoint, surroundings
from slaq.client.events import Stream
from slaq.client.group import JobGroup
from slaq.client.job import ServiceJob
from slaq.client.reading import job_view
from slaq.client.watch import Watch
from slaq.config.values import command_name
from slaq.core.errors import JobOptionError
from slaq.core.job import JobState
from slaq.jobs.executable import check_script
from slaq.jobs.grid import GridJob, check_placeholders, filled, grid_jobs, kept, unused_name
from slaq.jobs.option_types import shown
from slaq.jobs.options import (
    PATHS,
    SERVICE,
    SERVICE_COMMAND,
    SERVICE_PROGRAM,
    ServiceCommandOptions,
    ServiceOptions,
    ServiceProgramOptions,
    waits,
)
from slaq.service.records import Notice, Submission
from slaq.service.work import identifier

#: Seconds for which requests are retried while the service restarts.
PATIENCE = 30.0


def connect(address: str | None = None, token: str | None = None, *, patience: float = PATIENCE) -> "Client":
    """Return a client of the service at `unix:///path`, `https://host:port` or `http://127.0.0.1:port`.

    The address defaults to $SLAQ_URL, else to the socket in $SLAQ_HOME (~/.slaq), and the token to $SLAQ_TOKEN.
    Once the service was reached, requests are retried for `patience` seconds while it restarts.
    """
    return Client(Connection(find_endpoint(address, token), patience))


class Client(Api):
    """A connection to a service. Several threads may use one client; close it, or use it in `with`.

    Methods that return a `ServiceJob` give a handle; all others return the JSON that the API replies.
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
        """Close the connections; jobs continue."""
        self._watch.close()
        self._connection.close()

    # Submitting.

    @SERVICE_PROGRAM.takes
    def submit(
        self,
        program: str | Mapping[str, Any],
        data: str | Mapping[str, Any] | None = None,
        **options: Unpack[ServiceProgramOptions],
    ) -> ServiceJob:
        """Start a training program: "train.py:train", or a table as in a jobs file with `algorithm` or `program`.

        `data` is that table's key of the same name. docs/options.md describes the options.
        """
        if not isinstance(program, str | Mapping):
            raise JobOptionError(
                "program",
                shown(program),
                'its file and name, as "train.py:train": a service takes no Python objects',
            )
        table: dict[str, Any] = {"program": program} if isinstance(program, str) else dict(program)
        if data is not None:
            table["data"] = data
        if self.local:
            options.setdefault("python", sys.executable)
        return self.send(Submission(program=table, options=self._as_here(options)))

    @SERVICE_COMMAND.takes
    def submit_command(
        self, argv: Sequence[str | os.PathLike[str]], **options: Unpack[ServiceCommandOptions]
    ) -> ServiceJob:
        """Start any command on the service's machine, its whole process tree under its share of the cores.

        As in the embedded cluster. Over a Unix socket the command runs in this directory, unless `cwd` says
        otherwise, and finds the programs that are found here. docs/options.md describes the options.
        """
        words, asked = tuple(os.fspath(word) for word in argv), self._as_here(options)
        if self.local and not waits(asked):
            check_script(words, Path(asked["cwd"] or "."))
        return self.send(Submission(command=words, options=asked))

    def _as_here(self, options: Mapping[str, object]) -> ServiceOptions:
        """Return the options; on this machine, with the present folder and the environment that programs need."""
        found = SERVICE.read(options)
        if self.local:
            found = {"cwd": os.getcwd(), **found, "env": surroundings() | found.get("env", {})}
        for name in PATHS:
            if found.get(name) is not None:
                found[name] = os.path.abspath(found[name])
        return cast(ServiceOptions, found)

    def submit_grid(
        self,
        work: str | Mapping[str, Any] | Sequence[str | os.PathLike[str]],
        grid: Mapping[str, Sequence[Any]],
        data: str | Mapping[str, Any] | None = None,
        **options: Unpack[ServiceOptions],
    ) -> JobGroup:
        """Submit a job for each combination of the grid's values; return their group.

        `work` is a command as a list of words, in which {name} stands for a value and {{ for a brace, or a training
        program as `submit` takes it, whose arguments the values are. `group` names the group, by default after
        `name`, else after the work. The jobs are named after the group; with both, after `name`. docs/options.md
        describes the options.
        """
        fixed = {name: [value] for name, value in options.pop("parameters", {}).items()}
        stem = options.get("name") or _stem(work)
        given, name = options.pop("group", None), options.pop("name", None)
        group = given or self.new_group(stem)
        jobs = grid_jobs({**fixed, **grid}, group=group, name=name if given else None)
        calls = [self._of_grid(work, data, job, options) for job in jobs]
        for call in calls:
            call()
        return JobGroup(self, group)

    def _of_grid(
        self, work: Any, data: Any, job: GridJob, options: Mapping[str, Any]
    ) -> Callable[[], ServiceJob]:
        """Return what submits one job of a grid; raises where it cannot be submitted."""
        own: dict[str, Any] = {**options, "name": job.name, "group": job.group}
        if isinstance(work, str | Mapping):
            table: Mapping[str, Any] = {"program": work} if isinstance(work, str) else work
            # Arguments of a program need not be texts and numbers.
            arguments = {**table.get("parameters", {}), **job.parameters}
            return partial(self.submit, {**table, "parameters": arguments}, data, **own)
        words = [os.fspath(word) for word in work]
        check_placeholders(words, list(job.parameters))
        return partial(
            self.submit_command, filled(words, job.parameters), **own, parameters=kept(job.parameters)
        )

    def new_group(self, name: str) -> str:
        """Return the name for a group, with a number where you have a group of that name."""
        return unused_name(name, lambda group: bool(self.list_jobs(group=group, limit=1)))

    def group(self, name: str, *, owner: str | None = None) -> JobGroup:
        """Return a handle to a group of jobs: your own, unless an admin names another owner."""
        return JobGroup(self, name, owner=owner)

    def send(self, submission: Submission) -> ServiceJob:
        """Submit a job; once this returns, the job survives whatever happens to the service.

        Raises LostReplyError where the connection broke before the reply: then the job may or may not be there.
        """
        asked = submission.checked().as_json()
        found = self._connection.json("POST", f"{PREFIX}/jobs", json=asked, once=True)
        return ServiceJob(self, job_view(found))

    # Jobs.

    def jobs(
        self,
        *,
        states: Collection[JobState | str] | None = None,
        owner: str | None = None,
        tag: str | None = None,
        group: str | None = None,
        limit: int | None = None,
    ) -> list[ServiceJob]:
        """Return handles to the jobs that you may see, in the order of their submission."""
        found = self.list_jobs(states=states, owner=owner, tag=tag, group=group, limit=limit)
        return [ServiceJob(self, job_view(one)) for one in found]

    def job(self, job_id: str) -> ServiceJob:
        """Return a handle to one job."""
        return ServiceJob(self, job_view(self.show_job(job_id)))

    def events(
        self, *, after: int | None = None, kinds: Collection[str] = (), job_id: str | None = None
    ) -> Iterator[Notice]:
        """Yield notices from now on, or after the notice with that number, across restarts of the service."""
        return iter(Stream(self._connection, after=after, kinds=kinds, job_id=job_id))

    def watch(self, job: ServiceJob, callback: Callable[[ServiceJob], object]) -> None:
        """Call callback(job) once the job has ended, in a thread of its own."""
        self._watch.add(job, callback)


def _stem(work: Any) -> str:
    """Return the name that a group of jobs with this work gets."""
    if isinstance(work, str | Mapping):
        runs = work if isinstance(work, str) else str(work.get("program") or work.get("algorithm") or "")
        return identifier(runs.rpartition(":")[2])
    return identifier(Path(command_name(tuple(os.fspath(word) for word in work))).stem)
