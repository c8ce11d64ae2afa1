"""Laws of the pictures and of the page."""

from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

from slaq.bootstrap import Run, simulate
from slaq.core.job import JobSpec
from slaq.reports import charts
from slaq.reports.measures import MEASURES, Measure
from slaq.reports.page import ReportSetting, Results, render
from slaq.reports.story import tell
from slaq.simulation.workload import SimulatedJob, Workload

#: A name that would run as a script, close an attribute, or upset a formula renderer if it were let.
HOSTILE = '<script>alert("1")</script> & $\\frac{'
VOID = {"meta", "br", "use"}


def learning(job_id: str, arrival: float = 0.0, fall: float = 0.5) -> SimulatedJob:
    return SimulatedJob(
        spec=JobSpec(id=job_id, arrival=arrival),
        losses=1.0 / (1.0 + fall * np.arange(12.0)),
        cpu_seconds_per_iteration=4.0,
    )


def other(job_id: str) -> SimulatedJob:
    return SimulatedJob(spec=JobSpec(id=job_id, trains=False), cpu_seconds=30.0)


SEVERAL = Workload(tuple(learning(f"job-{n}", arrival=float(n), fall=0.1 + 0.1 * n) for n in range(6)))


def run(workload: Workload, *policies: str) -> dict[str, Run]:
    return {
        policy: simulate(workload, policy=policy, capacity=4, epoch_seconds=1.0, progress=None)
        for policy in policies
    }


def results(runs: Mapping[str, Run]) -> Results:
    baseline = next(iter(runs))
    return Results(
        baseline=baseline,
        outcomes={policy: run.outcome for policy, run in runs.items()},
        story=tell({policy: run.history for policy, run in runs.items()}, baseline),
    )


def page(runs: Mapping[str, Run], text: str = "text") -> str:
    setting = ReportSetting(title=text, facts={text: text}, command=text, version="1.0")
    return render(setting, results(runs))


class Outline(HTMLParser):
    """What a page is made of: its tags, its attributes, and whether tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return run(SEVERAL, "fair", "total-quality")


def test_page_asks_the_network_for_nothing(runs: dict[str, Run]) -> None:
    """No address stands anywhere in the page, and every reference is to a part of itself."""
    text = page(runs)
    outline = Outline(text)
    assert "http" not in text
    assert "@import" not in text
    assert not outline.tags.keys() & {"script", "link", "iframe", "img", "object", "embed", "form"}
    references = [value for name, value in outline.attributes if name in ("href", "src", "xlink:href")]
    assert all(value.startswith("#") for value in references)


def test_page_is_well_formed(runs: dict[str, Run]) -> None:
    """Tags close in order, ids are unique, references lead somewhere, and each figure is there."""
    outline = Outline(page(runs))
    ids = [value for name, value in outline.attributes if name == "id"]
    references = {value[1:] for name, value in outline.attributes if name == "xlink:href"}
    assert not outline.open
    assert len(ids) == len(set(ids))
    assert references <= set(ids)
    assert outline.tags["svg"] == outline.tags["figure"] == 5


def test_page_escapes_every_text() -> None:
    """A job's id, the title, a fact and the command are shown as they are and never obeyed."""
    workload = Workload((learning(HOSTILE), other("batch")))
    text = page(run(workload, "fair", "total-quality"), HOSTILE)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not Outline(text).open


@pytest.mark.parametrize(
    "workload",
    [
        Workload((learning("only"),)),
        Workload((learning("rises", fall=-0.05),)),
        Workload((other("batch"),)),
        Workload((learning("a"), learning("much-later", arrival=500.0))),
    ],
    ids=["one job", "no improvement", "no losses", "a gap"],
)
@pytest.mark.parametrize("policies", [("fair",), ("fair", "total-quality")], ids=len)
def test_any_run_can_be_shown(tmp_path: Path, workload: Workload, policies: tuple[str, ...]) -> None:
    """There is a page and a picture for every run, whatever there was to measure."""
    done = run(workload, *policies)
    assert not Outline(page(done)).open
    shown = results(done)
    charts.save(charts.overview(shown.outcomes, shown.story), tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_no_panel_is_empty(runs: dict[str, Run]) -> None:
    """Every panel of the picture holds something, and says what."""
    shown = results(runs)
    panels = charts.overview(shown.outcomes, shown.story).axes
    assert len(panels) == 4
    assert all(panel.has_data() and panel.get_title(loc="left") for panel in panels)


def test_the_same_run_gives_the_same_picture(runs: dict[str, Run], tmp_path: Path) -> None:
    """A picture changes only when what it shows does."""
    shown = results(runs)
    for name in ("a.svg", "b.svg"):
        charts.save(charts.overview(shown.outcomes, shown.story), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_story_is_told_from_the_record(runs: dict[str, Run]) -> None:
    """The story's losses are the job's own, and its forecasts lie within their intervals and its life."""
    story = results(runs).story
    assert story is not None
    told = next(job for job in SEVERAL if job.spec.id == story.job_id)
    for chapter in story.chapters.values():
        assert chapter.losses.tolist() == told.losses.tolist()
        assert (chapter.low <= chapter.expected).all()
        assert (chapter.expected <= chapter.high).all()
        assert (chapter.forecast_times <= chapter.times[-1]).all()
        assert (chapter.cores <= 4).all()


def test_measures_name_fields_of_an_outcome(runs: dict[str, Run]) -> None:
    """Each measure finds its number in the JSON of a run, and no number is without a measure but one."""
    summary = runs["fair"].outcome.as_json()
    found = {measure.path[0] for measure in MEASURES}
    assert found == set(summary)
    assert all(isinstance(measure.text(summary), str) for measure in MEASURES)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [(100.0, 25.0, "−75%"), (100.0, 130.0, "+30%"), (100.0, 100.4, "±0%"), (0.0, 5.0, ""), (None, 5.0, "")],
)
def test_change_is_against_the_baseline(before: float | None, after: float, change: str) -> None:
    """A change is a share of the baseline's number, and none is told where that says nothing."""
    measure = Measure(path=("x",), name="x", definition="")
    assert measure.change({"x": after}, {"x": before}) == change


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346 s"),
        (123.4, "123 s"),
        (1.0, "1.00 s"),
        (0.01234, "0.0123 s"),
        (0.0, "0.00 s"),
        (None, "–"),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    """A number is shown as precisely as a reader can use it."""
    assert Measure(path=("x",), name="x", definition="", unit="s").text({"x": value}) == text
