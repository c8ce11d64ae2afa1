"""Laws of the pages on the Python API: whatever a user can pass or read is named there, with its default."""

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from slaq import Cluster, Context, Job
from slaq.algorithms import ALGORITHMS
from slaq.engines.journal import Listener
from slaq.integrations.sklearn import partial_fit, warm_start
from slaq.jobs.data import DataShape, Partition
from slaq.jobs.options import SERVICE
from slaq.spark import SparkCluster

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS, SCRIPTS, PAGE_OF_ALGORITHMS, SPARK = (
    (DOCS / name).read_text(encoding="utf-8")
    for name in ("programs.md", "scripts.md", "algorithms.md", "spark.md")
)


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the default of each parameter; `inspect.Parameter.empty` where it has none.

    Options of a job are left out: they have a page of their own.
    """
    found = inspect.signature(function).parameters.values()
    options = SERVICE.options if "submit" in function.__name__ else {}
    return {one.name: one.default for one in found if one.name != "self" and one.name not in options}


def public(kind: type[Any]) -> set[str]:
    """Return the names of the attributes and methods that a class adds for its users."""
    return {name for name in (*dir(kind), *inspect.get_annotations(kind)) if not name.startswith("_")}


def has_row(text: str, name: str, default: object) -> bool:
    """Return whether a table names it in its first column and shows its default in the second."""
    shown = "" if default in (inspect.Parameter.empty, MISSING) else f"`{default!r}` "
    return re.search(rf"^\| `{name}` \| {re.escape(shown)}\|", text, re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("function", "page"),
    [
        (Cluster, PROGRAMS),
        (Cluster.submit, PROGRAMS),
        (Cluster.submit_command, SCRIPTS),
        (SparkCluster, SPARK),
        (SparkCluster.submit, SPARK),
        (SparkCluster.submit_program, SPARK),
    ],
    ids=["Cluster", "submit", "submit_command", "SparkCluster", "submit on Spark", "submit_program"],
)
def test_every_parameter_has_a_row_with_its_default(function: Callable[..., Any], page: str) -> None:
    """The section on a call has a row for each of its parameters, and none for what it does not take."""
    heading = "## The cluster" if function in (Cluster, SparkCluster) else f"## `{function.__name__}`"
    section = page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    table = section.partition("| Parameter |")[2].partition("\n\n")[0]
    expected = parameters(function)
    assert [name for name, default in expected.items() if not has_row(table, name, default)] == []
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(expected)
    assert function in (Cluster, SparkCluster) or "(options.md)" in section


@pytest.mark.parametrize(
    "name",
    sorted(
        {"id"}  # set by its constructor
        | public(Job)
        | (public(Cluster) - public(Listener))
        | public(Context)
        | public(Partition)
        | public(DataShape)
    ),
)
def test_every_public_member_is_named(name: str) -> None:
    """What a user may call or read of a cluster, a job, a context and its data is on the page on programs."""
    assert re.search(rf"`{name}\b", PROGRAMS)


def test_every_parameter_of_a_members_call_is_named() -> None:
    """So is what its methods take, in a row that shows the whole call."""
    methods = (Job.result, Job.exception, Job.wait, Job.forecast, Job.add_done_callback, Cluster.wait)
    for method in (*methods, Cluster.shutdown, Cluster.directory_of):
        calls = re.findall(rf"^\| `{method.__name__}\(([^`]*)\)`", PROGRAMS, re.MULTILINE)
        assert any(all(name in call for name in parameters(method)) for call in calls), method.__qualname__


def algorithm_section(name: str) -> str:
    """Return the section of the page on algorithms whose heading has that name."""
    for section in PAGE_OF_ALGORITHMS.split("\n## ")[1:]:
        if f"`{name}`" in section.partition("\n")[0]:
            return section
    return ""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_section_with_its_hyperparameters(name: str) -> None:
    """Its section names its class and has a row for each hyperparameter, but for those that all have."""
    section, algorithm = algorithm_section(name), ALGORITHMS[name]
    assert f"`{algorithm.__name__}`" in section
    shared = PAGE_OF_ALGORITHMS.partition("## Hyperparameters of all")[2].partition("\n## ")[0]
    missing = [
        field.name
        for field in fields(algorithm)
        if not has_row(section, field.name, field.default) and not has_row(shared, field.name, field.default)
    ]
    assert not missing
    named = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert named <= {field.name for field in fields(algorithm)}


@pytest.mark.parametrize("adapter", [partial_fit, warm_start])
def test_every_parameter_of_an_adapter_is_named(adapter: Callable[..., Any]) -> None:
    """The table of adapters shows each with all it takes."""
    row = re.search(rf"^\| `{adapter.__name__}\(([^`]*)\)`", PAGE_OF_ALGORITHMS, re.MULTILINE)
    assert row is not None
    assert [name for name in parameters(adapter) if name not in row[1]] == []
