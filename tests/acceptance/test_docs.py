"""Laws of the documentation: whatever a user can type or read is described in docs/, and links lead somewhere."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import pytest
from click.testing import CliRunner

from slaq.bootstrap import FORECASTERS, POLICIES
from slaq.cli.main import main
from slaq.client import connect
from slaq.config.settings import SETTINGS
from slaq.jobs.document import written
from slaq.jobs.options import SERVICE
from slaq.simulation import workload
from tests.integration.serving import serving

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
    """Each verb and sub-verb heads a section of docs/, in which each of its options and arguments is named.

    Options of a job are on a page of their own, whose law is below.
    """
    command = COMMANDS[typed]
    section = section_of(typed)
    assert section, f"no heading in docs/ names `{typed}`"
    for parameter in command.get_params(click.Context(command)):
        if isinstance(parameter, click.Option):
            for option in (*parameter.opts, *parameter.secondary_opts):
                if option in ("-h", "--help"):
                    assert option in section_of("slaq")
                    continue
                if typed == "slaq submit" and parameter.name in SERVICE.options:
                    continue
                assert re.search(rf"`{option}\b", section), f"the section on `{typed}` does not name {option}"
        else:
            assert f"`{parameter.human_readable_name}`" in section


def test_the_page_on_options_has_the_table_of_the_definition() -> None:
    """docs/options.md has the table that `python -m slaq.jobs.document` prints."""
    assert written() in (ROOT / "docs" / "options.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*POLICIES, *FORECASTERS, *workload._FIELDS])
def test_every_policy_forecaster_and_workload_field_is_named(name: str) -> None:
    """Whatever a user may choose or write by name is named in docs/."""
    assert f"`{name}`" in ALL_DOCS


#: Whose inner keys are the user's own.
OWN = ("algorithms", "env", "program", "metrics", "parameters")


def keys(value: Any) -> Iterator[str]:
    """Yield every key of a JSON value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner) if key not in OWN else ()
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


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
    "detect": ["detect", "log.txt", "--json"],
    "forecast": ["forecast", "losses.txt", "--json"],
    "bench decide": ["bench", "decide", "--jobs", "2", "--units", "2", "--repeat", "1", "--json"],
}


#: A job of the service that trains until it is cancelled, as `told`.
TRAINS = """
import itertools, slaq, time
for i in itertools.count():
    slaq.report(1 / (1 + i))
    time.sleep(0.02)
"""
SERVICE_RUNS = {
    "submit": ["submit", "--json", "--", "true"],
    "ls": ["ls", "--json"],
    "best": ["best", "sweep", "--json"],
    "show": ["show", "told", "--json"],
    "wait": ["wait", "told", "--reduction", "0.1", "--json"],
    "pause": ["pause", "told", "--json"],
    "resume": ["resume", "told", "--json"],
    "weight": ["weight", "told", "2", "--json"],
    "why": ["why", "told", "--json"],
    "whatif": ["whatif", "--horizon", "10s", "--json"],
    "report": ["report", "--json"],
    "cluster": ["cluster", "--json"],
    "users ls": ["users", "ls", "--json"],
    "users set": ["users", "set", "ann", "--weight", "2", "--json"],
    "token ls": ["token", "ls", "--json"],
    "prune": ["prune", "--keep-jobs", "0", "--dry-run", "--json"],
    "cancel": ["cancel", "told", "--json"],
}
#: Those that print jobs refer to the section in which their fields are described.
OF_JOBS = {"submit", "show", "wait", "pause", "resume", "weight", "cancel"}


def test_every_command_that_prints_json_is_tried() -> None:
    """The law below misses no command that has --json."""
    typed = {
        name.removeprefix("slaq ")
        for name, command in COMMANDS.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert typed == set(JSON_RUNS) | set(SERVICE_RUNS)


@pytest.mark.filterwarnings("ignore::scipy.optimize.OptimizeWarning")
@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[pytest.mark.slow] if run == "demo" else []) for run in JSON_RUNS]
)
def test_every_json_field_is_documented(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section on a command names every field that its --json prints, or the section it refers to does."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    made = runner.invoke(main, ["workload", "generate", "-o", "jobs.jsonl", "--jobs", "2"])
    assert made.exit_code == 0, made.output
    Path("losses.txt").write_text("3 2 1.5\n")
    Path("log.txt").write_text("loss 3\nloss 2\nloss 1.5\n")
    Path("jobs.toml").write_text(JOBS_FILE)
    done = runner.invoke(main, JSON_RUNS[run])
    assert done.exit_code == 0, done.output
    section = section_of(f"slaq {run}") + (section_of("slaq simulate") if run == "demo" else "")
    missing = [key for key in keys(json.loads(done.stdout)) if f"`{key}`" not in section + policies_named()]
    assert not missing


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A service with a job that has reported losses; its home."""
    home = tmp_path_factory.mktemp("home")
    with serving(home, cores=1) as served, connect(served.unix) as client:
        job = client.submit_command(
            [sys.executable, "-c", TRAINS], name="told", group="sweep", parameters={"lr": 0.1}
        )
        assert job.wait(reduction=0.1, timeout=60.0)
        served.token("ann")
        yield home
        job.cancel()


@pytest.mark.parametrize("run", SERVICE_RUNS)
def test_every_json_field_of_the_service_is_documented(
    run: str, service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The section on a verb of the service names every field that its --json prints, or the one on jobs does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLAQ_HOME", str(service))
    done = CliRunner().invoke(main, SERVICE_RUNS[run])
    assert done.exit_code == 0, done.output
    section = section_of(f"slaq {run}") + (section_of("slaq ls") if run in OF_JOBS else "")
    found = set(keys(json.loads(done.stdout))) - (set(SERVICE.options) if run == "show" else set())
    assert found
    assert [key for key in sorted(found) if f"`{key}`" not in section + policies_named()] == []


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_documented(name: str) -> None:
    """The section on the service names each setting as flag, variable and key, in one row with its default."""
    setting = SETTINGS[name]
    rows = [row for row in section_of("slaq serve").splitlines() if row.startswith(f"| `{setting.flag} ")]
    assert len(rows) == 1
    assert f"| `{setting.variable}` | `{name}` | {setting.usual} | {setting.meaning}" in rows[0]
    assert rows[0].endswith(" * |") == setting.live


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
