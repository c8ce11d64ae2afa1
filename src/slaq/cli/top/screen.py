"""The screen of `slaq top`: a table of jobs that is refreshed, and keys that act on the selected job."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.notifications import SeverityLevel
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker
from typing_extensions import override

from slaq.cli.display.job_columns import COLUMNS, ENDED, STYLES, TROUBLED, Shown, parameters, suited
from slaq.cli.display.spans import span
from slaq.cli.top.dialogs import ConfirmDialog, LineDialog, Page
from slaq.core.errors import SlaqError
from slaq.core.visible import visible

#: Width in characters of the bar that shows how much of its reduction a job has reached.
BAR = 10
#: The fields that the filter searches, besides the tags.
SEARCHED = ("id", "owner", "summary", "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenState:
    """The jobs and the cluster as fetched at one moment."""

    jobs: Sequence[Shown]
    cluster: Mapping[str, Any]


class Feed(Protocol):
    """What the screen needs of a service; each method raises SlaqError on failure."""

    def look(self, *, ended: bool) -> ScreenState:
        """Return the jobs and the cluster; include ended jobs if `ended`."""
        ...

    def act(self, verb: str, job_id: str) -> None:
        """Pause, resume or cancel a job."""
        ...

    def reweigh(self, job_id: str, weight: float) -> None:
        """Change a job's weight."""
        ...

    def why(self, job_id: str) -> str:
        """Return the last decision about a job, in sentences."""
        ...


class Top(App[None]):
    """The whole screen."""

    TITLE = "slaq top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #cluster { height: auto; padding: 0 1; background: $panel; }
    #trouble { height: auto; padding: 0 1; background: $error; color: $text; display: none; }
    #trouble.shown { display: block; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    ModalScreen { align: center middle; }
    .box { width: 64; max-width: 90%; height: auto; max-height: 90%; border: round $primary; padding: 1 2;
           background: $surface; }
    .page { width: 100; }
    .keys { margin-top: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("a", "ended", "Ended too"),
        Binding("p", "pause", "Pause/resume"),
        Binding("c", "cancel", "Cancel"),
        Binding("w", "weight", "Weight"),
        Binding("y,enter", "why", "Why", key_display="y"),
        Binding("escape", "close_filter", "Clear", show=False),
    ]

    def __init__(self, feed: Feed, *, interval: float, sort: str = "cores", ended: bool = False) -> None:
        super().__init__()
        self._feed = feed
        self._interval = interval
        self._sort = sort
        self._reverse = False
        self._ended = ended
        self._filter = ""
        self._state: ScreenState | None = None
        #: Set to refresh before the interval is over.
        self._wake = threading.Event()
        self._shown: list[tuple[str, tuple[str, ...]]] = []
        self._headings: tuple[str, ...] = ()
        # Held here, because Textual does not find them while a dialog is open.
        self._line = Static("connecting", id="cluster")
        self._bar = Static("", id="trouble")
        self._box = Input(
            placeholder="part of a name, user, state, tag or command; escape clears", id="filter"
        )
        self._table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True, id="jobs")

    @override
    def compose(self) -> ComposeResult:
        yield self._line
        yield self._bar
        yield self._box
        yield self._table
        yield Footer()

    def on_mount(self) -> None:
        """Start the thread that refreshes the table."""
        self._table.focus()
        self._watch()

    def on_unmount(self) -> None:
        """Stop the thread that refreshes the table."""
        self._wake.set()

    @work(thread=True, exclusive=True, group="watch")
    def _watch(self) -> None:
        """Refresh at each interval; a refresh starts only after the reply to the one before."""
        worker = get_current_worker()
        while True:
            self._wake.clear()
            show: Callable[[], None]
            try:
                show = partial(self._take, self._feed.look(ended=self._ended))
            except SlaqError as error:
                show = partial(self._trouble, f"{error} (trying again)")
            if worker.is_cancelled:
                return  # the user quit during a refresh
            self.call_from_thread(show)
            self._wake.wait(self._interval)

    def _say(self, text: str, *, severity: SeverityLevel = "information", timeout: float = 5) -> None:
        """Show a message for some seconds."""
        self.notify(visible(text), severity=severity, timeout=timeout, markup=False)

    def _trouble(self, text: str) -> None:
        if self._bar.is_attached:  # false while the screen closes
            self._bar.update(Text(visible(text)))
            self._bar.set_class(bool(text), "shown")

    def _take(self, state: ScreenState) -> None:
        if not self._table.is_attached:
            return
        self._state = state
        self._trouble("; ".join(state.cluster.get("troubles", ())))
        self._draw()

    def _draw(self) -> None:
        if self._state is None:
            return
        jobs, now = self._ordered(self._state), self._state.cluster["now"]
        columns = suited(self._state.jobs, self._sort)
        headings = tuple(self._heading(column.name) for column in columns)
        rows = [(job["id"], tuple(column.text(job, now) for column in columns)) for job in jobs]
        self._line.update(self._heading_line(self._state, len(jobs)))
        if headings != self._headings or [row[0] for row in rows] != [row[0] for row in self._shown]:
            self._redraw(headings, rows, jobs)
        else:
            self._update(headings, rows, jobs)
        self._headings, self._shown = headings, rows

    def _redraw(
        self, headings: Sequence[str], rows: Sequence[tuple[str, tuple[str, ...]]], jobs: Sequence[Shown]
    ) -> None:
        """Refill the table; the cursor stays on its job."""
        table, chosen, place = self._table, self._chosen_id(), self._table.cursor_row
        table.clear(columns=True)
        for heading in headings:
            name = heading.rstrip(" ▲▼")
            right = COLUMNS[name].numeric and name != "done"
            table.add_column(Text(heading, justify="right" if right else "left"), key=heading)
        for (job_id, cells), job in zip(rows, jobs, strict=True):
            table.add_row(*self._styled(headings, cells, job), key=job_id)
        ids = [job_id for job_id, _ in rows]
        if ids:
            table.move_cursor(row=ids.index(chosen) if chosen in ids else min(max(place, 0), len(ids) - 1))

    def _update(
        self, headings: Sequence[str], rows: Sequence[tuple[str, tuple[str, ...]]], jobs: Sequence[Shown]
    ) -> None:
        for place, ((_, cells), (_, before), job) in enumerate(zip(rows, self._shown, jobs, strict=True)):
            if cells == before:
                continue
            for column, cell in enumerate(self._styled(headings, cells, job)):
                self._table.update_cell_at(Coordinate(place, column), cell, update_width=True)

    def _styled(self, headings: Sequence[str], cells: Sequence[str], job: Shown) -> list[Text]:
        style = STYLES.get(job["state"], "")
        styled = []
        for heading, cell in zip(headings, cells, strict=True):
            name = heading.rstrip(" ▲▼")
            text = (
                _bar(job["reduction"], cell)
                if name == "done" and cell != "–"
                else Text(visible(cell), style=style)
            )
            if COLUMNS[name].numeric and name != "done":
                text.justify = "right"
            if cell in ("out of reach", "diverged") or cell.endswith(TROUBLED):
                text.stylize("red")
            styled.append(text)
        return styled

    def _heading(self, name: str) -> str:
        return f"{name} {'▲' if self._reverse else '▼'}" if name == self._sort else name

    def _heading_line(self, state: ScreenState, shown: int) -> Text:
        cluster = state.cluster
        used = cluster["granted"]
        parts = [
            f"{cluster['policy']}",
            f"{used:.1f} of {cluster['capacity']:g} cores held",
            f"{cluster['running']} running, {cluster['queued']} queued, {cluster['paused']} paused",
            f"up {span(cluster['now'] - cluster['started_at'])}",
        ]
        if self._filter:
            parts.append(f"{shown} of {len(state.jobs)} match {self._filter!r}")
        return Text.assemble(("slaq ", "bold"), visible("   ".join(parts)))

    def _ordered(self, state: ScreenState) -> list[Shown]:
        jobs = [job for job in state.jobs if self._matches(job)]
        # Sort by submission first: Python's sort is stable, so equal jobs keep their places.
        jobs.sort(key=lambda job: (job["submitted_at"], job["id"]))
        jobs.sort(key=COLUMNS[self._sort].key, reverse=self._reverse)
        return sorted(jobs, key=lambda job: job["state"] in ENDED)

    def _matches(self, job: Shown) -> bool:
        wanted = self._filter.casefold()
        texts = [
            *job["tags"],
            job["group"] or "",
            parameters(job["parameters"]),
            *(str(job[key]) for key in SEARCHED),
        ]
        return any(wanted in text.casefold() for text in texts)

    def _chosen_id(self) -> str | None:
        place = self._table.cursor_row
        return self._shown[place][0] if 0 <= place < len(self._shown) else None

    def _chosen(self) -> Shown | None:
        wanted = self._chosen_id()
        jobs = self._state.jobs if self._state is not None else ()
        return next((job for job in jobs if job["id"] == wanted), None)

    def action_sort(self, step: int) -> None:
        """Sort by the next column."""
        names = [heading.rstrip(" ▲▼") for heading in self._headings] or list(COLUMNS)
        place = names.index(self._sort) if self._sort in names else 0
        self._sort, self._reverse = names[(place + step) % len(names)], False
        self._draw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._reverse = not self._reverse
        self._draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the clicked column; a second click reverses the order."""
        name = str(event.label).rstrip(" ▲▼")
        self._reverse = name == self._sort and not self._reverse
        self._sort = name
        self._draw()

    def action_filter(self) -> None:
        """Open the filter."""
        self._box.add_class("shown")
        self._box.focus()

    def action_close_filter(self) -> None:
        """Close the filter and show all jobs."""
        self._box.value = ""
        self._box.remove_class("shown")
        self._table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter at each keystroke."""
        if event.input.id == "filter":
            self._filter = event.value.strip()
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return to the table and keep the filter."""
        if event.input.id == "filter":
            self._table.focus()

    def action_ended(self) -> None:
        """Show or hide ended jobs."""
        self._ended = not self._ended
        self._say("ended jobs are shown" if self._ended else "only active jobs are shown")
        self._wake.set()

    def action_pause(self) -> None:
        """Pause the job, or resume it."""
        job = self._active_choice()
        if job is not None:
            verb = "resume" if job["state"] == "paused" else "pause"
            self._ask(verb, job["id"])

    def action_cancel(self) -> None:
        """Cancel the job after a confirmation."""
        job = self._active_choice()
        if job is None:
            return
        job_id = job["id"]

        def answered(sure: bool | None) -> None:
            if sure:
                self._ask("cancel", job_id)

        self.push_screen(ConfirmDialog(f"Cancel the job {job_id}?"), answered)

    def action_weight(self) -> None:
        """Change the job's weight."""
        job = self._active_choice()
        if job is None:
            return
        job_id = job["id"]

        def answered(text: str | None) -> None:
            if not text:
                return
            try:
                weight = float(text)
            except ValueError:
                self._say(f"{text!r} is not a number", severity="error")
                return
            self._ask("weight", job_id, weight)

        self.push_screen(LineDialog(f"Weight of {job_id}", f"{job['weight']:g}"), answered)

    def action_why(self) -> None:
        """Show the last decision about the job."""
        job = self._chosen()
        if job is not None:
            self._explain(job["id"])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the last decision about the selected job."""
        self.action_why()

    def _active_choice(self) -> Shown | None:
        job = self._chosen()
        if job is not None and job["state"] in ENDED:
            self._say(f"{job['id']} has ended", severity="warning")
            return None
        return job

    @work(thread=True, group="ask")
    def _ask(self, verb: str, job_id: str, weight: float | None = None) -> None:
        try:
            if weight is None:
                self._feed.act(verb, job_id)
            else:
                self._feed.reweigh(job_id, weight)
        except SlaqError as error:
            self.call_from_thread(self._say, str(error), severity="error", timeout=8)
        else:
            done = f"weight of {job_id}: {weight:g}" if weight is not None else f"{verb}: {job_id}"
            self.call_from_thread(self._say, done)
            self._wake.set()

    @work(thread=True, group="ask")
    def _explain(self, job_id: str) -> None:
        try:
            text = self._feed.why(job_id)
        except SlaqError as error:
            self.call_from_thread(self._say, str(error), severity="error", timeout=8)
            return
        self.call_from_thread(self.push_screen, Page(f"why {job_id}", text))


def _bar(reduction: float, cell: str) -> Text:
    full = round(BAR * min(max(reduction, 0.0), 1.0))
    return Text.assemble(("█" * full, "green"), ("░" * (BAR - full), "dim"), f" {cell:>4}")
