"""The report: REPORT.md, REPORT.html, the pictures, and the README's table, all made from results alone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from replication.experiment import Comparison, Experiment, Picture, Section
from replication.intervals import table
from replication.records import Record
from slaq.reports.charts import save
from slaq.reports.page import STYLE, inline_svg
from slaq.reports.style import styled

#: The figures of the paper's evaluation that need no cluster of its own, in its order.
FIGURES = (
    "Figure 1",
    "Figure 3",
    "Figure 5",
    "Figure 6",
    "Figure 7a",
    "Figure 7b",
    "Figure 8",
    "Figure 9",
    "Figure 10a",
    "Figure 10b",
    "Figure 10c",
)

#: What goes beyond the paper, in the order of the report; headings that are not named here follow.
BEYOND = (
    "Max-min quality",
    "Weights",
    "A mix with other work",
    "Sensitivity",
    "Ablations",
    "Chances and times",
    "Rivals on an exploratory search",
    "A day of the Philly trace",
)

BEGIN, END = "<!-- replication: begin -->", "<!-- replication: end -->"
#: Inches.
WIDTH = 7.0

_INTRODUCTION = """\
Every table and figure of the evaluation of SLAQ (Zhang, Stafman, Or and Freedman, SoCC 2017) that can be made
without its cluster of 640 cores, made again from real training runs and from the simulator, and experiments beyond
it. `make replicate` writes this file, the page beside it and the pictures from `results/*.json`; no number of ours
is typed by hand. Numbers in brackets are 95% intervals of the mean over seeds (Student's t). Changes are against
fair sharing of the same jobs, paired by seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """All that the report says under one heading."""

    heading: str
    #: Each section with the record it was made from; empty where nothing has been run.
    parts: tuple[tuple[Section, Record], ...] = ()
    #: The experiments that would write here and have no results.
    missing: tuple[str, ...] = ()


def compose(experiments: Sequence[Experiment], records: Mapping[str, Record]) -> list[Chapter]:
    """Return the chapters: the paper's figures in its order, then what goes beyond it."""
    parts: dict[str, list[tuple[Section, Record]]] = {}
    missing: dict[str, list[str]] = {}
    claimed: set[str] = set()
    for experiment in experiments:
        claimed.update(experiment.headings)
        record = records.get(experiment.name)
        if record is None:
            for heading in experiment.headings:
                missing.setdefault(heading, []).append(experiment.name)
            continue
        for section in experiment.sections(record.results):
            parts.setdefault(section.heading, []).append((section, record))
    beyond = sorted(
        claimed - set(FIGURES), key=lambda each: (BEYOND.index(each) if each in BEYOND else 99, each)
    )
    # The section that tells what the paper shows opens the chapter.
    return [
        Chapter(
            heading=heading,
            parts=tuple(sorted(parts.get(heading, ()), key=lambda part: not part[0].paper)),
            missing=tuple(missing.get(heading, ())),
        )
        for heading in (*FIGURES, *beyond)
    ]


def markdown(chapters: Sequence[Chapter], pictures: str = "pictures") -> str:
    """Return REPORT.md, whose pictures lie in the folder of that name."""
    texts = ["# The paper's evaluation, rerun", _INTRODUCTION]
    if rows := comparisons(chapters):
        texts += ["## In short", comparison_table(rows)]
    for chapter in chapters:
        texts.append(f"## {chapter.heading}")
        for section, record in chapter.parts:
            texts += _section(section, record, pictures)
        for name in chapter.missing:
            texts.append(
                f"*Not run here: `python -m replication --only {name}` makes it (with `--data DIR` "
                "where it needs outside data).*"
            )
        if not chapter.parts and not chapter.missing:
            texts.append("*No experiment makes this figure yet.*")
    return "\n\n".join(texts) + "\n"


def _section(section: Section, record: Record, pictures: str) -> list[str]:
    texts = [f"**{section.title}**"]
    if section.paper:
        texts.append(f"*The paper.* {section.paper}")
    # A table starts a paragraph of its own.
    texts.append(f"*slaq.*{chr(10) * 2 if section.ours.startswith('|') else ' '}{section.ours}")
    texts += [f"![{picture.alt}]({pictures}/{picture.name}.svg)" for picture in section.pictures]
    if section.falls_short:
        texts.append(f"*Where it falls short or differs.* {section.falls_short}")
    texts.append(f"*How it was made.* {section.made} {_provenance(record)}")
    return texts


def _provenance(record: Record) -> str:
    made = record.made
    size = "A quick run, too small to conclude from" if made.get("quick") else "A full run"
    return (
        f"{size} on {made.get('machine', 'an unknown machine')}, Python {made.get('python', '?')}, in "
        f"{made.get('seconds', 0):.0f} s; numbers in `results/{record.experiment}.json`."
    )


def comparisons(chapters: Sequence[Chapter]) -> list[Comparison]:
    """Return the lines of the README's table, in the order of the report."""
    return [row for chapter in chapters for section, _ in chapter.parts for row in section.readme]


def comparison_table(rows: Sequence[Comparison]) -> str:
    """Return those lines as Markdown."""
    return table(("", "the paper", "slaq"), [(row.what, row.paper, row.ours) for row in rows])


def readme_with(text: str, rows: Sequence[Comparison]) -> str:
    """Return the README with the table between its markers made anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{comparison_table(rows)}\n{END}{after}"


def drawn(picture: Picture) -> Figure:
    """Return the picture as a figure."""
    with styled():
        figure = Figure(figsize=(WIDTH, picture.height), layout="constrained")
        FigureCanvasAgg(figure)
        picture.draw(figure)
    return figure


def html(text: str, figures: Mapping[str, Figure]) -> str:
    """Return the page of a report: its Markdown with the pictures inside, asking the network for nothing."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = re.sub(r"<table>.*?</table>", r'<div class="scroll">\g<0></div>', body, flags=re.DOTALL)

    def picture(found: re.Match[str]) -> str:
        name, alt = Path(found[1]).stem, found[2]
        return f"<figure>{inline_svg(figures[name], list(figures).index(name), alt)}</figure>"

    body = re.sub(r'<p><img src="([^"]+)" alt="([^"]*)" /></p>', picture, body)
    body = re.sub(r"<h2>(.*?)</h2>", lambda found: f'<h2 id="{_anchor(found[1])}">{found[1]}</h2>', body)
    title = re.search(r"<h1>(.*?)</h1>", body)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title[1] if title else 'Replication'}</title>\n<style>{STYLE}{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


# Prose in the cells of these tables, where the pages of slaq hold numbers.
_STYLE = """
td, th { text-align: left; white-space: normal; vertical-align: top; }
td:first-child { padding-left: 0; }
figure svg { max-width: 44rem; }
"""


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def write(chapters: Sequence[Chapter], folder: Path) -> None:
    """Write REPORT.md, REPORT.html and pictures/ into the folder; pictures of other reports are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    chosen = [picture for chapter in chapters for section, _ in chapter.parts for picture in section.pictures]
    figures = {picture.name: drawn(picture) for picture in chosen}
    for path in pictures.glob("*.svg"):
        if path.stem not in figures:
            path.unlink()
    for name, figure in figures.items():
        save(figure, pictures / f"{name}.svg")
    text = markdown(chapters)
    (folder / "REPORT.md").write_text(text, encoding="utf-8")
    (folder / "REPORT.html").write_text(html(text, figures), encoding="utf-8")
