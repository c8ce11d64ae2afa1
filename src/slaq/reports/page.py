"""The report: one self-contained HTML page."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.figure import Figure

from slaq.core.outcome import Outcome
from slaq.reports import charts
from slaq.reports.measures import MEASURES, TIME_TO_90, Measure
from slaq.reports.story import Story
from slaq.reports.style import BLUE, INK, MUTED, RULE, styled

STYLE = """
:root { color-scheme: light dark; --ink: #1c2126; --muted: #5b636d; --rule: #dfe3e8; --paper: #ffffff;
  --panel: #f6f8fa; --accent: #0068a3; --blue: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --muted: #a3abb5; --rule: #3a4149;
  --paper: #14181c; --panel: #1d2228; --accent: #5db4ec; --blue: #3b9fe0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.75rem 0 .5rem; }
p, figcaption { max-width: 44rem; }
.lead { font-size: 1.1rem; margin: .25rem 0 1.5rem; }
.muted, figcaption { color: var(--muted); font-size: .92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .5rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; padding-left: 0; }
thead th { color: var(--muted); font-weight: 600; white-space: normal; vertical-align: bottom; }
.wide { width: min(92vw, 88rem); margin-left: calc(50% - min(46vw, 44rem)); }
table.jobs :is(th, td):is(:nth-child(-n+4), :nth-last-child(-n+2)) { text-align: left; }
table.jobs td:nth-last-child(-n+2) { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
td small { display: block; color: var(--accent); font-size: .82rem; line-height: 1.2; }
figure { margin: 1rem 0 0; }
figure svg { width: 100%; max-width: 42rem; height: auto; display: block; }
figure svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif !important; }
dl { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .4rem 1.25rem;
  margin: .75rem 0 0; }
dt { font-weight: 500; } dd { margin: 0; color: var(--muted); overflow-wrap: anywhere; }
pre { background: var(--panel); padding: .75rem 1rem; border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .88rem; margin: .75rem 0 0; }
@media (max-width: 34rem) { main { padding: 1.5rem 1rem 3rem; } dl { grid-template-columns: 1fr; gap: .1rem; }
  dd { margin-bottom: .6rem; } table { font-size: .82rem; }
  th { white-space: normal; } th, td { padding: .4rem .2rem .4rem .4rem; } }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSetting:
    """The title, the facts and the command of a run, for readers who want to repeat it."""

    title: str
    #: Facts about the workload and the cluster, by name.
    facts: Mapping[str, str]
    command: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of the runs by policy, in the order of the columns."""

    #: The policy that the others are compared with.
    baseline: str
    outcomes: Mapping[str, Outcome]
    story: Story | None
    #: One row for each job, by heading; every row has the same headings.
    jobs: Sequence[Mapping[str, str]] = ()

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """The documented numbers of each run."""
        return {policy: outcome.as_json() for policy, outcome in self.outcomes.items()}


def render(setting: ReportSetting, results: Results) -> str:
    """Return the page; every text in it is escaped."""
    sections = [
        f"<h1>{escape(setting.title)}</h1>",
        f'<p class="lead">{escape(headline(results.summaries, results.baseline))}</p>',
        _table(results),
        *_figures(results),
        *_jobs(results.jobs),
        "<h2>What each number means</h2>",
        _definitions({measure.name: measure.definition for measure in MEASURES}),
        "<h2>What was run</h2>",
        _definitions({**setting.facts, "version": f"slaq {setting.version}"}),
        f"<pre>{escape(setting.command)}</pre>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(setting.title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{chr(10).join(sections)}\n</main>\n</body>\n</html>\n"
    )


def headline(summaries: Mapping[str, Mapping[str, Any]], baseline: str) -> str:
    """Return the main result in one sentence."""
    told = next((policy for policy in summaries if policy != baseline), baseline)
    time = TIME_TO_90.text(summaries[told])
    text = f"Under {told}, a job reaches 90% of its loss reduction in {time} on average"
    change = TIME_TO_90.change(summaries[told], summaries[baseline])
    if told == baseline or not change:
        return f"{text}."
    return f"{text}, under {baseline} in {TIME_TO_90.text(summaries[baseline])} ({change})."


def _table(results: Results) -> str:
    heads = "".join(f'<th scope="col">{escape(policy)}</th>' for policy in results.summaries)
    rows = "\n".join(_row(measure, results) for measure in MEASURES)
    note = f"Changes are against {results.baseline}." if len(results.summaries) > 1 else ""
    return (
        f'<div class="scroll"><table>\n<thead><tr><th scope="col"></th>{heads}</tr></thead>\n'
        f'<tbody>\n{rows}\n</tbody>\n</table></div>\n<p class="muted">{escape(note)}</p>'
    )


def _row(measure: Measure, results: Results) -> str:
    cells = []
    for policy, summary in results.summaries.items():
        change = (
            "" if policy == results.baseline else measure.change(summary, results.summaries[results.baseline])
        )
        small = f"<small>{escape(change)}</small>" if change else ""
        cells.append(f"<td>{escape(measure.text(summary))}{small}</td>")
    return f'<tr><th scope="row">{escape(measure.name)}</th>{"".join(cells)}</tr>'


def _jobs(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the table of the jobs, if there is one."""
    if not rows:
        return []
    heads = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in rows[0])
    lines = []
    for row in rows:
        first, *others = row.values()
        cells = "".join(f"<td>{escape(text)}</td>" for text in others)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    body = "\n".join(lines)
    return [
        f'<h2>The jobs</h2>\n<div class="scroll wide"><table class="jobs">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    ]


def _figures(results: Results) -> list[str]:
    figures = [
        (
            "Quality over time",
            charts.mean_loss_picture(results.outcomes),
            "At every epoch, the mean normalised loss of the jobs that were active then. Lower is better.",
        ),
        (
            "Time to a good model",
            charts.time_to_reach_picture(results.outcomes),
            "Mean time from arrival until a job has made that share of its whole loss reduction, and to its end.",
        ),
        (
            "Who held the cores",
            charts.cores_picture(results.outcomes),
            "Active jobs grouped by normalised loss at every epoch: the quarter with the highest, the next "
            "quarter, and the half with the lowest.",
        ),
        (
            "Load",
            charts.active_picture(results.outcomes),
            "Jobs that have arrived and not yet ended.",
        ),
    ]
    if results.story is not None:
        figures.append(
            (
                f"One job: {results.story.job_id}",
                charts.story_picture(results.story),
                "The job whose time to 90% is the typical one. Crosses and the bars behind them: what "
                f"{results.story.forecast_by} forecast at the start of an epoch for its end, with an 80% "
                "interval; lines: what happened. Below, the cores it held.",
            )
        )
    return [
        f"<h2>{escape(title)}</h2>\n<figure>{inline_svg(figure, place, title)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for place, (title, figure, caption) in enumerate(figures)
    ]


def _definitions(entries: Mapping[str, str]) -> str:
    pairs = "\n".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in entries.items())
    return f"<dl>\n{pairs}\n</dl>"


def inline_svg(figure: Figure, place: int, label: str) -> str:
    """Return the figure as an SVG element that follows the page's colours and shares no id with another."""
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>f{place}-", svg)
    svg = re.sub(r'<svg([^>]*?)\swidth="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'<svg([^>]*?)\sheight="[^"]*"', r"<svg\1", svg, count=1)
    for color, variable in ((INK, "--ink"), (MUTED, "--muted"), (RULE, "--rule"), (BLUE, "--blue")):
        svg = svg.replace(color, f"var({variable})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
