"""Laws of the documentation: whatever a user can type or read is described in docs/, and links lead somewhere."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import pytest
from click.testing import CliRunner

from slaq.bootstrap import FORECASTERS, POLICIES
from slaq.cli.main import main
from slaq.simulation import workload

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
LINKING = [path for path in (*sorted(ROOT.glob("*.md")), *DOCS) if path.exists()]
TEXTS = {path: path.read_text(encoding="utf-8") for path in (*LINKING, *DOCS)}
ALL_DOCS = "\n".join(TEXTS[path] for path in DOCS)

FENCED = re.compile(r"^(`{3,}|:{3,})[^\n]*\n.*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) (.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)|<(?:a href|img src)=\"([^\"]+)\"")


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield every command of the tree with what a user types for it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*path, name))


def section_of(typed: str) -> str:
    """Return the section of docs/ whose heading names the command; empty where there is none."""
    for text in (TEXTS[path] for path in DOCS):
        plain = FENCED.sub(lambda block: re.sub("^#", " ", block[0], flags=re.MULTILINE), text)
        for heading in HEADING.finditer(plain):
            if f"`{typed}`" in heading[2]:
                higher = re.compile(rf"^#{{1,{len(heading[1])}}} ", re.MULTILINE).search(plain, heading.end())
                return text[heading.start() : higher.start() if higher else len(text)]
    return ""


COMMANDS = dict(commands(main, ("slaq",)))


@pytest.mark.parametrize("typed", COMMANDS)
def test_every_command_has_a_section_that_names_its_options(typed: str) -> None:
    """Each verb and sub-verb heads a section of docs/, in which each of its options and arguments is named."""
    command = COMMANDS[typed]
    section = section_of(typed)
    assert section, f"no heading in docs/ names `{typed}`"
    for parameter in command.get_params(click.Context(command)):
        if isinstance(parameter, click.Option):
            for option in (*parameter.opts, *parameter.secondary_opts):
                if option in ("-h", "--help"):
                    assert option in section_of("slaq")
                    continue
                assert re.search(rf"`{option}\b", section), f"the section on `{typed}` does not name {option}"
        else:
            assert f"`{parameter.human_readable_name}`" in section


@pytest.mark.parametrize("name", [*POLICIES, *FORECASTERS, *workload._FIELDS])
def test_every_policy_forecaster_and_workload_field_is_named(name: str) -> None:
    """Whatever a user may choose or write by name is named in docs/."""
    assert f"`{name}`" in ALL_DOCS


def keys(value: Any) -> Iterator[str]:
    """Yield every key of a JSON value, at any depth; the names of algorithms are the user's own."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner) if key != "algorithms" else ()


JOBS_FILE = """
[[job]]
name = "a"
algorithm = "kmeans"
data = {generate = "blobs", rows = 200, features = 3, seed = 1}
parameters = {k = 3, iterations = 3}
"""
JSON_RUNS = {
    "demo": ["demo", "--jobs", "2", "--over", "0", "--size", "0.001", "--json"],
    "run": ["run", "jobs.toml", "--json"],
    "simulate": ["simulate", "jobs.jsonl", "--policy", "fair", "--json"],
    "workload inspect": ["workload", "inspect", "jobs.jsonl", "--json"],
    "forecast": ["forecast", "losses.txt", "--json"],
    "bench decide": ["bench", "decide", "--jobs", "2", "--units", "2", "--repeat", "1", "--json"],
}


def test_every_command_that_prints_json_is_tried() -> None:
    """The law below misses no command that has --json."""
    typed = {
        name.removeprefix("slaq ")
        for name, command in COMMANDS.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert typed == set(JSON_RUNS)


@pytest.mark.filterwarnings("ignore::scipy.optimize.OptimizeWarning")
@pytest.mark.parametrize("run", JSON_RUNS)
def test_every_json_field_is_documented(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section on a command names every field that its --json prints, or the section it refers to does."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    made = runner.invoke(main, ["workload", "generate", "-o", "jobs.jsonl", "--jobs", "2"])
    assert made.exit_code == 0, made.output
    Path("losses.txt").write_text("3 2 1.5\n")
    Path("jobs.toml").write_text(JOBS_FILE)
    done = runner.invoke(main, JSON_RUNS[run])
    assert done.exit_code == 0, done.output
    section = section_of(f"slaq {run}") + (section_of("slaq simulate") if run == "demo" else "")
    missing = [key for key in keys(json.loads(done.stdout)) if f"`{key}`" not in section + policies_named()]
    assert not missing


def policies_named() -> str:
    """Return the names of the policies as the pages write them: they key the JSON of a comparison."""
    return " ".join(f"`{policy}`" for policy in POLICIES)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as MyST and GitHub make them."""
    plain = FENCED.sub("", text)
    return {
        re.sub(r"[^\w\- ]", "", heading[2].lower()).strip().replace(" ", "-")
        for heading in HEADING.finditer(plain)
    }


def links() -> Iterator[tuple[Path, str]]:
    """Yield every link of the pages that leads to a file or an anchor here."""
    for page in LINKING:
        for match in LINK.finditer(FENCED.sub("", TEXTS[page])):
            target = match[1] or match[2]
            if not re.match(r"[a-z]+:", target):
                yield page, target


def test_internal_links_resolve() -> None:
    """Every relative link leads to a file that exists, and every anchor to a heading of that file."""
    broken = []
    for page, target in links():
        name, _, anchor = unquote(target).partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_pages_are_reachable() -> None:
    """Every page of docs/ is linked from another one, so that a reader can find it."""
    linked = {(page.parent / target.partition("#")[0]).resolve() for page, target in links()}
    lost = [page.name for page in DOCS if page.name != "index.md" and page.resolve() not in linked]
    assert not lost
