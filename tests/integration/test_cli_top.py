"""Laws of `slaq top`: it shows what the service says, and keys act on the job chosen."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static
from typing_extensions import override

from slaq.cli.display.job_columns import COLUMNS
from slaq.cli.top.dialogs import ConfirmDialog, Page
from slaq.cli.top.feed import ClientFeed
from slaq.cli.top.screen import Feed, ScreenState, Top
from slaq.client import connect
from slaq.core.errors import ForbiddenError, SlaqError, UnreachableError
from tests.integration.serving import PATIENCE, serving


def job(name: str, **changes: Any) -> dict[str, Any]:
    """Return a job as the API gives it."""
    usual: dict[str, Any] = {
        "id": name, "owner": "ann", "state": "running", "reason": "", "work": "command", "summary": "python a.py",
        "trains": True, "tags": [], "weight": 1.0, "min_cores": 0.0, "max_cores": None, "sizes": "any",
        "memory": None, "after": [], "arrival": 1000.0, "target_loss": None,
        "stop_at": None, "deadline": None, "submitted_at": 1000.0, "started_at": 1000.0, "ended_at": None,
        "cores": 0.5, "maximize": False, "iteration": 7, "total": None,
        "first_loss": 2.0, "loss": 1.0, "best_loss": 1.0,
        "reduction": 0.5, "diverged": False, "cpu_seconds": 3.0, "attempts": 1, "directory": "/x",
        "group": None, "parameters": {}, "loss_source": "", "loss_trouble": "",
        "threads": None, "threads_reason": "", "memory_peak": 0,
        "prospect": {"at_90": 1060.0, "at_95": None, "chance": None, "out_of_reach": False},
    }  # fmt: skip
    return {**usual, **changes}


@dataclass
class Script(Feed):
    """A feed that shows what the test says, and notes what it was asked."""

    jobs: list[dict[str, Any]]
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    #: Raised by each look, if given.
    lost: SlaqError | None = None
    #: Raised by each act, if given.
    refusal: SlaqError | None = None

    @override
    def look(self, *, ended: bool) -> ScreenState:
        if self.lost is not None:
            raise self.lost
        cluster = {
            "policy": "fair", "capacity": 4.0, "granted": 2.0, "running": 2, "queued": 0,
            "paused": 0, "now": 1010.0, "started_at": 10.0, "troubles": [],
        }  # fmt: skip
        jobs = [one for one in self.jobs if ended or one["ended_at"] is None]
        return ScreenState(jobs=jobs, cluster=cluster)

    @override
    def act(self, verb: str, job_id: str) -> None:
        self.asked.append((verb, job_id))
        if self.refusal is not None:
            raise self.refusal

    @override
    def reweigh(self, job_id: str, weight: float) -> None:
        self.asked.append(("weight", job_id, weight))

    @override
    def why(self, job_id: str) -> str:
        return f"because of {job_id}"


THREE = [
    job("a", cores=0.5, loss=3.0),
    job("b", cores=2.0, loss=1.0, owner="bob"),
    job("c", cores=1.0, loss=2.0),
]


def watch(feed: Feed, act: Callable[[Top, Pilot[None]], Coroutine[Any, Any, None]]) -> None:
    """Run the screen on that feed, and act on it."""

    async def run() -> None:
        app = Top(feed, interval=0.05)
        async with app.run_test(size=(150, 30)) as pilot:
            await act(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        await pilot.pause(0.02)


def names(app: Top) -> list[str]:
    """Return the jobs shown, from the top."""
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]


def text(app: Top, what: str) -> str:
    return str(app.screen_stack[0].query_one(what, Static).visual)


def test_it_shows_each_job_and_sorts_by_any_column() -> None:
    """Every job is a row; s goes through all columns, and r turns the order round."""

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["b", "c", "a"])
        assert "2.0 of 4 cores held" in text(app, "#cluster")
        await pilot.press("r")
        assert names(app) == ["a", "c", "b"]
        for _ in COLUMNS:
            await pilot.press("s")
            if any("loss ▼" in str(column.label) for column in app.query_one(DataTable).columns.values()):
                assert names(app) == ["b", "c", "a"]
        await pilot.press("S")

    watch(Script(jobs=THREE), act)


def test_the_cursor_stays_on_its_job() -> None:
    """Whatever the order becomes, and whoever comes and goes, the job that was chosen stays chosen."""
    feed = Script(jobs=list(THREE))

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["b", "c", "a"])
        await pilot.press("down", "down")
        feed.jobs = [job("z", cores=9.0), *THREE[:1], {**THREE[1], "cores": 0.1}]
        await until(pilot, lambda: names(app) == ["z", "a", "b"])
        await pilot.press("p")
        await until(pilot, lambda: feed.asked == [("pause", "a")])

    watch(feed, act)


def test_a_filter_shows_what_matches() -> None:
    """What is typed after / is looked for in all that says what a job is; escape shows all again."""
    sought = (job("d", tags=["Night"]), job("e", state="queued"), job("f", summary="x.sh"))
    feed = Script(jobs=[*THREE, *sought, job("g", group="sweep", parameters={"lr": 0.25})])
    keys = {".": "full_stop", "=": "equals_sign"}

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(names(app)) == 7)
        for typed, found in (
            ("bob", ["b"]),
            ("night", ["d"]),
            ("queued", ["e"]),
            ("x.sh", ["f"]),
            ("sweep", ["g"]),
            ("lr=0.25", ["g"]),
            ("zzz", []),
        ):
            await pilot.press("slash", *[keys.get(letter, letter) for letter in typed], "enter")
            await until(pilot, lambda found=found: names(app) == found)  # type: ignore[misc]
            await pilot.press("escape")
            await until(pilot, lambda: len(names(app)) == 7)

    watch(feed, act)


def test_cancelling_asks_first() -> None:
    """c cancels only after a yes; p pauses what runs and resumes what is paused; w takes a number."""
    feed = Script(jobs=[job("a")])

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["a"])
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("n")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmDialog))
        assert feed.asked == []
        await pilot.press("c", "y")
        await until(pilot, lambda: feed.asked == [("cancel", "a")])
        await pilot.press("w", "backspace", "2", "enter")
        await until(pilot, lambda: feed.asked[1:] == [("weight", "a", 2.0)])
        await pilot.press("w", "x", "enter")
        feed.jobs = [job("a", state="paused")]
        await until(pilot, lambda: str(app.query_one(DataTable).get_row_at(0)[1]) == "paused")
        await pilot.press("p")
        await until(pilot, lambda: feed.asked[2:] == [("resume", "a")])

    watch(feed, act)


def test_ended_jobs_are_shown_when_asked_for_and_left_alone() -> None:
    """a shows jobs that have ended, below the others; keys that steer say that they have ended."""
    feed = Script(jobs=[job("a", cores=0.0), job("old", state="completed", ended_at=1005.0, cores=9.0)])

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["a"])
        await pilot.press("a")
        await until(pilot, lambda: names(app) == ["a", "old"])
        await pilot.press("down", "p", "c", "w")
        await pilot.pause()
        assert (feed.asked, isinstance(app.screen, ConfirmDialog)) == ([], False)

    watch(feed, act)


def test_why_is_a_page_of_its_own() -> None:
    """y and enter show the last decision about the job, until it is closed."""

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(names(app)) == 3)
        for key in ("y", "enter"):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, Page))
            assert "because of b" in "".join(str(part.visual) for part in app.screen.query(Static))
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Page))

    watch(Script(jobs=THREE), act)


def test_a_lost_service_is_waited_for() -> None:
    """What fails is told on the screen, the last look stays, and the next one that succeeds clears it."""
    feed = Script(jobs=[job("a")], refusal=ForbiddenError("bob", "cancel jobs of ann"))

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["a"])
        feed.lost = UnreachableError("unix:///x", "connection refused")
        await until(pilot, lambda: "no service answers at unix:///x" in text(app, "#trouble"))
        assert names(app) == ["a"]
        feed.lost = None
        await until(pilot, lambda: text(app, "#trouble") == "")
        await pilot.press("p")
        await until(pilot, lambda: any("bob may not" in str(note.message) for note in app._notifications))

    watch(feed, act)


@pytest.mark.parametrize("chance", [None, 0.4])
def test_out_of_reach_and_diverged_are_said(chance: float | None) -> None:
    """A job with a deadline shows its probability, or that it is out of reach; one that diverged says so."""
    prospect = {"at_90": None, "at_95": None, "chance": chance, "out_of_reach": chance is None}
    feed = Script(jobs=[job("a", deadline=2000.0, prospect=prospect, diverged=True, loss=None)])

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["a"])
        cells = [str(cell) for cell in app.query_one(DataTable).get_row_at(0)]
        assert "diverged" in cells
        assert ("out of reach" if chance is None else "40%") in cells

    watch(feed, act)


def test_a_job_whose_losses_cannot_be_read_is_marked() -> None:
    """The mark stands beside the loss; the page on why a job holds its cores says what is wrong."""
    feed = Script(
        jobs=[job("a", loss=0.5, loss_trouble="the loss pattern matched nothing"), job("b", loss=0.5)]
    )

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names(app) == ["a", "b"])
        rows = [[str(cell) for cell in app.query_one(DataTable).get_row_at(row)] for row in range(2)]
        assert "0.5 !" in rows[0]
        assert "0.5" in rows[1]

    watch(feed, act)


def test_it_steers_a_real_service(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same keys pause, resume and cancel a job of a real service."""
    home: Path = tmp_path_factory.mktemp("home")
    with serving(home, cores=1) as served, connect(served.unix) as client:
        code = "import time; time.sleep(600)"
        name = client.submit_command([sys.executable, "-c", code], name="sleeper").id

        async def act(app: Top, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: names(app) == [name])
            for key, state in (("p", "paused"), ("p", "running")):
                await until(pilot, lambda: client.show_job(name)["state"] != "queued")
                await pilot.press(key)
                await until(pilot, lambda state=state: client.show_job(name)["state"] == state)  # type: ignore[misc]
                await until(
                    pilot,
                    lambda state=state: str(app.query_one(DataTable).get_row_at(0)[1]) == state,  # type: ignore[misc]
                )
            await pilot.press("c", "y")
            await until(pilot, lambda: names(app) == [])

        watch(ClientFeed(client), act)
        assert client.job(name).cancelled()
