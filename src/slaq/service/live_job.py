"""One job: its stored row and its current state."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from slaq.core.admission import NOT_REVIEWED
from slaq.core.demand import Demand
from slaq.core.events import CpuUsed, LossObserved
from slaq.core.explanation import Standing
from slaq.core.job import JobState
from slaq.core.progress import LossRange
from slaq.core.stopping import StopAt
from slaq.jobs.demands import written_demand
from slaq.service.kinds import JobKind, Kinds
from slaq.service.records import JobView, Prospect, Submission
from slaq.stores.sqlite.records import JobRow

#: The prospect of a job of which nothing can be predicted.
UNKNOWN = Prospect()


@dataclass(slots=True, eq=False)
class LiveJob:
    """One job: its durable row as it was when last read, and what has changed since."""

    row: JobRow
    submission: Submission
    kind: JobKind
    #: A one-line description, and the folder of the job's files.
    summary: str
    directory: str
    prospect: Prospect = UNKNOWN
    #: How it stands in its search; None for a job of no search.
    standing: Standing | None = None
    #: Why the job has not started, while it is queued.
    waiting: str = NOT_REVIEWED
    #: Why the started job does not run yet; empty if it runs.
    delayed: str = ""
    iteration: int = -1
    #: How many iterations it said it will make in all.
    total: int | None = None
    #: Where its losses come from, and what is wrong with that.
    loss_source: str = ""
    loss_trouble: str = ""
    #: The threads that it got when it last began, and why; the most bytes of memory that it took.
    threads: int | None = None
    threads_reason: str = ""
    memory_peak: int = 0
    #: Its first, last and best loss.
    losses: LossRange = field(default_factory=LossRange)
    cpu_seconds: float = 0.0
    #: What `cpu_seconds` was when it was last started, with the CPU seconds of the losses since.
    cpu_observed: float = 0.0
    cores: float = 0.0
    #: What it last said it can use.
    demand: Demand | None = None
    reduction: float = 0.0
    enough: StopAt | None = None
    #: Whether losses were reported since the last notice.
    fresh: bool = False
    #: Whether its end was requested, by its owner or by an external process.
    ending: bool = False
    #: The last view, with what it was made from; and the part of it that is made from a row and a submission.
    _shown: tuple[tuple[Any, ...], JobView] | None = None
    _asked: tuple[JobRow, Submission, dict[str, Any]] | None = None

    @classmethod
    def of(cls, row: JobRow, kinds: Kinds) -> "LiveJob":
        """Return a stored job as it stands."""
        asked = Submission.from_json(row.submission)
        stop_at, target_loss = asked.options["stop_at"], asked.options["target_loss"]
        kind = kinds.find(asked)
        return cls(
            row=row,
            submission=asked,
            kind=kind,
            summary=kind.describe(asked).summary,
            directory=kind.files(row.identity).directory,
            iteration=row.iteration,
            total=row.total,
            loss_source=row.loss_source,
            loss_trouble=row.loss_trouble,
            threads=row.threads,
            threads_reason=row.threads_reason,
            memory_peak=row.memory_peak,
            losses=LossRange(
                first=row.first_loss,
                last=row.loss,
                best=row.best_loss,
                diverged=row.iteration >= 0 and row.loss is None,
                maximize=row.spec.maximize,
            ),
            cpu_seconds=row.cpu_seconds,
            cpu_observed=row.cpu_seconds,
            cores=row.cores,
            reduction=row.reduction,
            # With a target loss the engine ends the job.
            enough=StopAt(stop_at) if stop_at is not None and target_loss is None else None,
        )

    def observe(self, event: LossObserved) -> None:
        """Count a loss."""
        seen = event.observation
        self.iteration = seen.iteration
        self.cpu_observed += seen.cpu_seconds
        self.cpu_seconds = max(self.cpu_seconds, self.cpu_observed)
        self.fresh = True
        self.losses.add(seen.loss)

    def forget_curve(self) -> None:
        """Show no loss until the next one: the job begins from nothing."""
        self.iteration = -1
        self.losses = LossRange(maximize=self.row.spec.maximize)
        self.reduction = 0.0

    def use(self, event: CpuUsed) -> None:
        """Count CPU seconds, of losses or not, and note the memory that it takes."""
        self.cpu_seconds = max(self.cpu_seconds, event.cpu_seconds)
        self.memory_peak = max(self.memory_peak, event.memory)

    @property
    def state(self) -> JobState:
        """The state as displayed: paused instead of queued or running."""
        return JobState.PAUSED if self.row.paused and not self.row.state.ended else self.row.state

    @property
    def reason(self) -> str:
        """Why the job ended, or why it does not run, in words that go on from its name; empty while it runs."""
        if self.state is JobState.QUEUED:
            return self.waiting
        return self._why_idle if self.state is JobState.RUNNING else self.row.reason

    @property
    def _why_idle(self) -> str:
        """Why a started job does not run, or waits in its search; empty if it runs."""
        if self.delayed or self.standing is None or self.cores:
            return self.delayed
        behind = (
            "waits for others of its search"
            if self.standing.able
            else "can hardly become the best of its search"
        )
        return f"{behind}: {self.standing.sentence}"

    @property
    def known_end(self) -> int | None:
        """How many iterations it makes in all, as it said or its owner asked; None where neither says.

        What it said counts until it goes on beyond that.
        """
        said = None if self.total is not None and self.iteration > self.total else self.total
        ends = (said, self.submission.options["max_iterations"])
        return min((end for end in ends if end is not None), default=None)

    def view(self) -> JobView:
        """Return the job as displayed: the same object as the last time if nothing has changed since."""
        told = _TOLD(self)
        if self._shown is None or self._shown[0] != told:
            self._shown = told, self._view()
        return self._shown[1]

    def _view(self) -> JobView:
        row = self.row
        if self._asked is None or self._asked[0] is not row or self._asked[1] is not self.submission:
            self._asked = row, self.submission, self._as_asked()
        return JobView(
            **self._asked[2],
            state=self.state,
            reason=self.reason,
            cores=0.0 if row.state.ended else self.cores,
            can_use=None if self.demand is None else written_demand(self.demand),
            iteration=self.iteration,
            total=self.known_end,
            loss_source=self.loss_source,
            loss_trouble=self.loss_trouble,
            threads=self.threads,
            threads_reason=self.threads_reason,
            memory_peak=self.memory_peak,
            first_loss=self.losses.first,
            loss=self.losses.last,
            best_loss=self.losses.best,
            reduction=self.reduction,
            diverged=self.losses.diverged,
            standing=None if row.state.ended else self.standing,
            cpu_seconds=self.cpu_seconds,
            prospect=UNKNOWN if row.state.ended else self.prospect,
        )

    def _as_asked(self) -> dict[str, Any]:
        """Return what a view shows of the row and of what was asked for, which changes seldom."""
        row, asked = self.row, self.submission.options
        return {
            "id": row.id,
            "owner": row.owner,
            "work": self.kind.name,
            "summary": self.summary,
            "trains": asked["trains"],
            "maximize": asked["maximize"],
            "tags": row.tags,
            "group": asked["group"],
            "parameters": asked["parameters"],
            "policy": asked["policy"],
            "stop_losers": asked["stop_losers"],
            "weight": row.spec.weight,
            "min_cores": row.spec.demand.least,
            "max_cores": row.spec.demand.most,
            "sizes": row.spec.demand.sizes,
            "memory": row.spec.demand.memory,
            "target_loss": asked["target_loss"],
            "stop_at": asked["stop_at"],
            "deadline": row.spec.deadline,
            "after": row.spec.after,
            "after_any": row.spec.after_any,
            "arrival": row.spec.arrival,
            "submitted_at": row.submitted_at,
            "started_at": row.started_at,
            "ended_at": row.ended_at,
            "attempts": row.attempts,
            "directory": self.directory,
        }


#: All of a job that its view depends on and that changes: a field that is added to the view must be here.
_TOLD = attrgetter(
    *("row", "submission", "waiting", "delayed", "iteration", "total", "loss_source", "loss_trouble"),
    *(
        "threads",
        "threads_reason",
        "memory_peak",
        "losses.first",
        "losses.last",
        "losses.best",
        "losses.diverged",
    ),
    *("cpu_seconds", "cores", "demand", "reduction", "standing", "prospect"),
)
