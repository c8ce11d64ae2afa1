"""Laws of plug-ins: policies and engines that installed packages add are used by name, as slaq's own are."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import slaq
from slaq.bootstrap import (
    LIVE_POLICIES,
    engine_names,
    live_policy_names,
    make_live_policy,
    make_policy,
    policy_names,
    rule_of,
)
from slaq.core.errors import PluginError, UnknownNameError
from slaq.core.policies import Fair
from slaq.jobs.context import Context

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

from slaq.core.allocation import Policy
from slaq.core.sharing import serve
from slaq.engines.local.engine import LocalEngine
from slaq.engines.node.child import ChildNode


@dataclass(frozen=True)
class Worst(Policy):
    by_gain: ClassVar[bool] = True

    def allocate(self, candidates, capacity):
        return serve(candidates, capacity, -candidates.loss)


class Shapeless:
    def allocate(self, candidates, capacity):
        raise NotImplementedError


def child(site, journal):
    return LocalEngine(ChildNode(site, journal))


def unlucky():
    raise OSError("no luck today")
"""
ENTRY_POINTS = """
[slaq.policies]
worst-first = {module}:Worst
fair = {module}:Worst
gone = {module}_that_is_gone:Worst
unlucky = {module}:unlucky
shapeless = {module}:Shapeless

[slaq.engines]
child = {module}:child
"""
JOBS = """
[cluster]
policy = "worst-first"
engine = "child"
cores = 1

[[job]]
algorithm = "kmeans"
data = {generate = "blobs", rows = 100, features = 2, seed = 1}
parameters = {k = 3}
max_iterations = 5
"""
#: Makes a folder with an installed package of that name.
Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    def make(name: str) -> Path:
        folder = tmp_path / f"{name}-site"
        record = folder / f"{name}-1.0.dist-info"
        record.mkdir(parents=True)
        (folder / f"{name}.py").write_text(MODULE)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (record / "entry_points.txt").write_text(ENTRY_POINTS.format(module=name))
        return folder

    return make


@pytest.fixture
def installed(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """One package is installed."""
    monkeypatch.syspath_prepend(install("slaq_worst"))


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `slaq` beside the packages of a folder."""
    return subprocess.run(
        [sys.executable, "-m", "slaq", *words],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


def test_a_policy_is_simulated_by_name(install: Install) -> None:
    """`slaq simulate --policy` takes the name that a package adds, and an unknown one is told of it."""
    folder = install("slaq_worst")
    assert typed(folder, "workload", "generate", "-o", "jobs.jsonl", "--jobs", "5").returncode == 0
    done = typed(folder, "simulate", "jobs.jsonl", "--policy", "worst-first", "--policy", "fair", "--json")
    assert set(json.loads(done.stdout)) == {"worst-first", "fair"}
    refused = typed(folder, "simulate", "jobs.jsonl", "--policy", "worst")
    assert refused.returncode == 2
    assert "worst-first" in refused.stderr


def test_a_jobs_file_names_a_policy_and_an_engine(install: Install) -> None:
    """`slaq run` runs a file on an engine and under a policy that a package adds."""
    folder = install("slaq_worst")
    (folder / "jobs.toml").write_text(JOBS)
    done = typed(folder, "run", "jobs.toml", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["policy"], summary["engine"], summary["capacity"]) == ("worst-first", "child", 1.0)
    assert [job["state"] for job in summary["jobs"]] == ["completed"]


def test_a_service_takes_the_policy(install: Install) -> None:
    """`slaq serve --policy` takes the name that a package adds."""
    folder = install("slaq_worst")
    done = typed(folder, "serve", "--check", "--home", str(folder), "--policy", "worst-first")
    assert done.returncode == 0, done.stderr
    assert "policy = worst-first" in done.stdout


@pytest.mark.usefixtures("installed")
def test_names_that_packages_add_are_known() -> None:
    """They come after slaq's own, and an error about another name lists them."""
    assert live_policy_names()[: len(LIVE_POLICIES)] == LIVE_POLICIES
    assert "worst-first" in live_policy_names()
    assert "worst-first" in policy_names()
    assert engine_names() == ("local", "spark", "child")
    with pytest.raises(UnknownNameError, match="did you mean 'worst-first'"):
        make_policy("worst-firts")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gone", "ModuleNotFoundError: No module named 'slaq_worst_that_is_gone'"),
        ("unlucky", "OSError: no luck today"),
        ("shapeless", "it has no 'by_gain', as a subclass of slaq.core.allocation.Policy has"),
    ],
)
def test_a_broken_package_breaks_its_own_name_only(name: str, found: str) -> None:
    """One sentence says what is wrong, in which package, and what to do; other names work."""
    with pytest.raises(PluginError) as caught:
        make_live_policy(name)
    assert str(caught.value) == (
        f"cannot use the policy for a live cluster {name!r} from slaq_worst 1.0: {found}; "
        "update or uninstall that package"
    )
    assert type(make_live_policy("worst-first")).__name__ == "Worst"


@pytest.mark.usefixtures("installed")
def test_own_names_cannot_be_taken() -> None:
    """A package that adds a name of slaq's own changes nothing."""
    assert isinstance(make_live_policy("fair"), Fair)
    assert live_policy_names().count("fair") == 1


@pytest.mark.usefixtures("installed")
def test_a_name_that_two_packages_add_is_refused(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two is meant cannot be known."""
    monkeypatch.syspath_prepend(install("slaq_other"))
    with pytest.raises(PluginError, match=r"slaq_other 1\.0 and slaq_worst 1\.0.*several packages add"):
        make_live_policy("worst-first")


@pytest.mark.usefixtures("installed")
def test_explanations_learn_what_they_need_from_the_class() -> None:
    """What `slaq why` says of a policy follows from the attributes of its class."""
    found = {name: (rule_of(name).by_gain, rule_of(name).by_need) for name in (*LIVE_POLICIES, "worst-first")}
    assert found.pop("deadline") == (True, True)
    assert {name for name, (by_gain, _) in found.items() if by_gain} == {"total-quality", "worst-first"}
    assert not any(by_need for _, by_need in found.values())


def test_a_cluster_takes_a_policy_object() -> None:
    """In Python a policy may also be given as an object; it is then called by its class."""

    class Equal(Fair):
        pass

    def program(ctx: Context) -> str:
        ctx.report(1.0)
        return "done"

    with slaq.Cluster(cores=1, policy=Equal(), epoch_seconds=0.1) as cluster:
        job = cluster.submit(program)
        assert job.result(timeout=60) == "done"
    assert cluster.policy == "Equal"
