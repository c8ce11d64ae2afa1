"""Laws of the replication framework: the report is pure in the results, complete, and in step with the README."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from replication.__main__ import main
from replication.experiment import (
    HERE,
    Experiment,
    KeyFigure,
    Picture,
    Section,
    Settings,
    SkippedError,
    experiments,
    in_parallel,
)
from replication.intervals import changes, estimate, shown
from replication.records import Record, carry_out
from replication.report import BEGIN, END, FIGURES, comparisons, compose, html, markdown, readme_with, write

KNOWN = experiments()


def committed() -> dict[str, Record]:
    """Return the committed results by experiment."""
    found = {name: Record.read(HERE / "results", name) for name in KNOWN}
    return {name: record for name, record in found.items() if record is not None}


def toy(name: str = "toy", heading: str = "Figure 7a", paper: str = "") -> Experiment:
    """Return an experiment that answers at once."""

    def draw(figure: Figure) -> None:
        figure.subplots().plot([0, 1])

    def sections(results: dict[str, float]) -> list[Section]:
        picture = Picture(name=name, alt="a line", draw=draw)
        return [
            Section(
                heading=heading,
                title=f"What {name} shows",
                paper=paper,
                ours=f"{results['x']:.1f}",
                made="By a test.",
                pictures=(picture,),
            )
        ]

    return Experiment(name=name, headings=(heading,), run=lambda settings: {"x": 1.0}, sections=sections)


def test_every_figure_has_one_heading() -> None:
    """The report has exactly one heading for each figure of the paper, and one for each other experiment."""
    text = markdown(compose(list(KNOWN.values()), committed()))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    for heading in (*FIGURES, *(each for experiment in KNOWN.values() for each in experiment.headings)):
        assert headings.count(heading) == 1


def test_the_committed_report_is_made_from_the_committed_results(tmp_path: Path) -> None:
    """Whoever makes the report anew from the committed results gets the committed report and README table."""
    chapters = compose(list(KNOWN.values()), committed())
    assert (HERE / "REPORT.md").read_text(encoding="utf-8") == markdown(chapters)
    readme = (HERE.parent / "README.md").read_text(encoding="utf-8")
    assert readme_with(readme, comparisons(chapters)) == readme


@pytest.mark.parametrize(
    "heading",
    ["Figure 7b", "Figure 9", "Max-min quality", "A mix with other work", "Sensitivity", "Ablations",
     "A day of the Philly trace", "On Spark"],
)  # fmt: skip
def test_where_policies_are_compared_whole_jobs_are_told_of_too(heading: str) -> None:
    """Each comparison of policies tells how long jobs took to their end and all of them together."""
    chapters = {chapter.heading: chapter for chapter in compose(list(KNOWN.values()), committed())}
    for section, _ in chapters[heading].parts:
        assert "makespan" in section.ours
        assert "completion" in section.ours or section.title.startswith("The same, for real")


def test_the_report_is_pure_in_the_results(tmp_path: Path) -> None:
    """Results that went to disk and back give the same report, byte for byte, pictures included."""
    experiment = toy()
    fresh = carry_out(experiment, Settings(quick=True))
    fresh.write(tmp_path / "results")
    kept = Record.read(tmp_path / "results", "toy")
    assert kept == fresh
    for folder, record in (("a", fresh), ("b", kept)):
        write(compose([experiment], {"toy": record}), tmp_path / folder)
    for file in ("REPORT.md", "REPORT.html", "pictures/toy.svg"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_sections_of_one_heading_are_joined() -> None:
    """Two experiments under one heading share it, and the one that tells what the paper shows comes first."""
    both = [toy("real"), toy("simulated", paper="A claim.")]
    records = {each.name: carry_out(each, Settings(quick=True)) for each in both}
    text = markdown(compose(both, records))
    assert text.count("## Figure 7a") == 1
    assert text.index("What simulated shows") < text.index("What real shows")


def test_a_missing_result_is_named() -> None:
    """The report says which experiment would fill a heading that has no results."""
    assert "--only toy" in markdown(compose([toy()], {}))


def test_the_page_asks_the_network_for_nothing() -> None:
    """The page holds its pictures and links to no script, style or image."""
    page = html("# T\n\n## Figure 7a\n\n| a | b |\n| --- | --- |\n| 1 | <b> |\n", {})
    assert "<b>" not in page
    assert '<h2 id="figure-7a">' in page
    assert not re.search(r'(src|href)="', page)


def test_the_readme_keeps_what_is_outside_the_markers() -> None:
    """Only what stands between the markers of the README changes."""
    made = readme_with(f"before\n{BEGIN}\nold\n{END}\nafter\n", [])
    assert made.startswith(f"before\n{BEGIN}\n")
    assert made.endswith(f"{END}\nafter\n")
    assert "old" not in made
    with pytest.raises(ValueError, match="markers"):
        readme_with("none", [])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9))
def test_an_interval_holds_its_mean(values: list[float]) -> None:
    """The interval holds the mean, is symmetric about it, and shrinks to it where all values are equal."""
    made = estimate(values)
    assert made["low"] <= made["mean"] <= made["high"]
    assert made["high"] - made["mean"] == pytest.approx(made["mean"] - made["low"], abs=1e-6)
    assert estimate([values[0]] * 3)["high"] == pytest.approx(values[0], abs=1e-6)


def test_an_interval_is_students() -> None:
    """For 1, 2, 3, 4, 5 the 95% interval is 3 ± 2.776 x 1.5811 / sqrt(5)."""
    assert estimate([1, 2, 3, 4, 5])["high"] == pytest.approx(3 + 1.9633, abs=1e-3)
    assert shown(estimate([1, 2, 3, 4, 5]), 1, " s") == "3.0 s (1.0 to 5.0)"
    assert estimate([math.nan, 2.0])["mean"] == 2.0
    assert changes([1.0, 3.0], [2.0, 4.0])["mean"] == pytest.approx(-0.375)


def test_a_key_figure_is_worse_only_outside_the_committed_interval() -> None:
    """A figure counts as worse where it lies beyond the bad end of the committed interval, and only there."""

    def figure(mean: float, *, lower: bool) -> KeyFigure:
        return KeyFigure(
            name="x", value={"mean": mean, "low": mean - 1, "high": mean + 1}, lower_is_better=lower
        )

    kept = figure(10.0, lower=True)
    assert figure(11.5, lower=True).worse_than(kept)
    assert not figure(10.9, lower=True).worse_than(kept)
    assert not figure(5.0, lower=True).worse_than(kept)
    assert figure(8.5, lower=False).worse_than(figure(10.0, lower=False))


def test_unknown_names_list_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt experiment is answered with the names there are, and status 2."""
    assert main(["--only", "figure-7"]) == 2
    said = capsys.readouterr().err
    assert "figure-7" in said
    assert all(name in said for name in KNOWN)


def test_check_is_for_full_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A quick run cannot be held against committed results, and is refused."""
    assert main(["--check", "--quick"]) == 2
    assert "--quick" in capsys.readouterr().err


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for replication/, with one experiment whose key figure is 1."""
    experiment = replace(
        toy(),
        key_figures=lambda results: [
            KeyFigure(
                name="x",
                value={"mean": results["x"], "low": results["x"] - 0.1, "high": results["x"] + 0.1},
            )
        ],
    )
    monkeypatch.setattr("replication.__main__.HERE", tmp_path)
    monkeypatch.setattr("replication.__main__.README", tmp_path / "README.md")
    monkeypatch.setattr("replication.experiment.experiments", lambda: {"toy": experiment})
    monkeypatch.setattr("replication.__main__.experiments", lambda: {"toy": experiment})
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}\n")
    return tmp_path


def test_a_full_run_keeps_results_and_makes_the_report(at_home: Path) -> None:
    """A full run writes results, report and pictures; the report can then be made anew without a run."""
    assert main([]) == 0
    made = {name: (at_home / name).read_bytes() for name in ("REPORT.md", "REPORT.html", "pictures/toy.svg")}
    assert Record.read(at_home / "results", "toy") is not None
    for name in made:
        (at_home / name).unlink()
    assert main(["--report-only"]) == 0
    assert {name: (at_home / name).read_bytes() for name in made} == made


@pytest.mark.parametrize(("committed", "status"), [(1.05, 0), (2.0, 0), (0.5, 1)])
def test_check_names_what_got_worse(
    at_home: Path, capsys: pytest.CaptureFixture[str], committed: float, status: int
) -> None:
    """The check exits with 1 and names each key figure beyond the committed interval; it writes nothing."""
    Record(experiment="toy", results={"x": committed}).write(at_home / "results")
    kept = (at_home / "results" / "toy.json").read_bytes()
    assert main(["--check"]) == status
    assert (at_home / "results" / "toy.json").read_bytes() == kept
    said = capsys.readouterr().out
    assert f"1 key figures compared, {status} worse" in said
    assert ("toy: x is 1, committed 0.5" in said) == bool(status)


def test_results_of_another_version_are_left_out(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results that the experiment cannot read are left out of the report, with a word on how to make them anew."""
    Record(experiment="toy", results={"y": 1.0}).write(at_home / "results")
    assert main(["--report-only"]) == 0
    assert "--only toy" in capsys.readouterr().err
    assert "Not run here" in (at_home / "REPORT.md").read_text()


def test_check_passes_over_results_of_another_version(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results that the experiment cannot read are named by the check, and compared with nothing."""
    Record(experiment="toy", results={"y": 1.0}).write(at_home / "results")
    assert main(["--check"]) == 0
    said = capsys.readouterr()
    assert "--only toy" in said.err
    assert "0 key figures compared, 0 worse" in said.out


def test_a_skipped_experiment_is_named(
    at_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An experiment that lacks its data is named with what it needs, and costs the others nothing."""

    def run(settings: Settings) -> dict[str, float]:
        settings.outside("trace_philly")
        return {}

    monkeypatch.setattr("replication.experiment.experiments", lambda: {"toy": replace(toy(), run=run)})
    assert main([]) == 0
    assert "toy: skipped" in capfd.readouterr().err


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    """--list shows each experiment with its headings."""
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in KNOWN)


def test_outside_data_is_asked_for_by_name(tmp_path: Path) -> None:
    """Without the folder it needs, an experiment is skipped with a sentence that names it."""
    with pytest.raises(SkippedError, match=r"trace_philly.*--data DIR"):
        Settings(data=tmp_path).outside("trace_philly")
    (tmp_path / "trace_philly").mkdir()
    assert Settings(data=tmp_path).outside("trace_philly").is_dir()


def test_work_in_parallel_keeps_its_order() -> None:
    """Answers come in the order of the cases, whatever order they were computed in."""
    shares: list[float] = []
    assert in_parallel(abs, [-3, -2, -1], Settings(progress=shares.append)) == [3, 2, 1]
    assert shares[-1] == 1.0
