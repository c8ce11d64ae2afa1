"""Laws of the options of jobs: every surface offers those of the one definition, and refuses with one sentence."""

import inspect
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import slaq
from slaq.bootstrap import jobs_vocabulary
from slaq.cli.batch import submit as submit_table
from slaq.cli.main import main
from slaq.cli.verbs.submit import command as submit_verb
from slaq.cli.verbs.users import set_user
from slaq.client import Client, connect
from slaq.client.connection import PREFIX
from slaq.config import read_jobs_file
from slaq.config.service import AllowedNames, SettingsSources, UserLimits, read_settings
from slaq.core.errors import JobOptionError, JobsFileError, SettingsError, UnknownNameError, WorkloadError
from slaq.jobs.options import (
    CHANGES,
    CLUSTER,
    COMMAND,
    FIT,
    LIMITS,
    PROGRAM,
    SERVICE,
    SERVICE_COMMAND,
    SERVICE_PROGRAM,
    SPARK_PROGRAM,
    OptionSet,
)
from slaq.service.records import OPTION_SETS
from slaq.simulation.workload import Workload
from slaq.spark import SparkCluster
from slaq.web.models import JobChange, SubmissionBody, UserChange
from tests.integration.refused_options import BAD, REFUSED, sentence_of
from tests.integration.serving import Served, serving, until


def test_every_option_has_values_that_it_refuses() -> None:
    """The laws below leave out no option."""
    assert set(BAD) == set(SERVICE.options)


#: Values that options of a cluster refuse.
BAD_CLUSTERS = [
    ("cores", 0), ("cores", 1.5), ("cores", True), ("cores", math.nan), ("units_per_core", 0),
    ("units_per_core", math.inf), ("epoch_seconds", 0), ("epoch_seconds", 3601.0), ("epoch_seconds", math.nan),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_CLUSTERS)
def test_clusters_refuse_with_one_sentence(name: str, value: Any, folder: Path) -> None:
    """In Python, in a jobs file and in the settings of a service, a cluster is refused as its definition says."""
    sentence = sentence_of(name, {name: value}, CLUSTER)
    with pytest.raises(JobOptionError) as refused:
        slaq.Cluster(**{name: value})
    assert str(refused.value) == sentence
    text = f"{name} = {toml(value)}\n"
    assert mistakes_in(folder, f"[cluster]\n{text}[[job]]\ncommand = 'true'\n") == [sentence]
    (folder / "slaq.toml").write_text(f"[service]\n{text}")
    sources = SettingsSources(texts={"home": str(folder)})
    with pytest.raises(SettingsError) as wrong:
        read_settings(sources, AllowedNames(policies=("fair",), throttles=()))
    assert [f"{found}; {remedy}" for _, found, remedy in wrong.value.mistakes] == [sentence]


# What each surface offers.


CALLS: dict[str, tuple[Callable[..., Any], OptionSet[Any]]] = {
    "Cluster.submit": (slaq.Cluster.submit, PROGRAM),
    "Cluster.submit_command": (slaq.Cluster.submit_command, COMMAND),
    "SparkCluster.submit": (SparkCluster.submit, FIT),
    "SparkCluster.submit_program": (SparkCluster.submit_program, SPARK_PROGRAM),
    "Client.submit": (Client.submit, SERVICE_PROGRAM),
    "Client.submit_command": (Client.submit_command, SERVICE_COMMAND),
}


@pytest.mark.parametrize("call", CALLS)
def test_python_calls_show_the_options_as_keywords(call: str) -> None:
    """`help` shows each option with its default, and no other keyword."""
    function, taken = CALLS[call]
    shown = {
        one.name: one.default
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    }
    assert shown == {name: option.default for name, option in taken.options.items()}


FILES: dict[str, tuple[str, OptionSet[Any]]] = {
    "program": ("[[job]]\nprogram = 'own.py:train'\n", PROGRAM),
    "algorithm": ("[[job]]\nalgorithm = 'kmeans'\ndata = {generate = 'blobs'}\n", PROGRAM),
    "command": ("[[job]]\ncommand = 'true'\n", COMMAND),
    "fit": ("[cluster]\nengine = 'spark'\n[[job]]\nfit = 'own.py:train'\n", FIT),
    "program on Spark": ("[cluster]\nengine = 'spark'\n[[job]]\nprogram = 'own.py:train'\n", SPARK_PROGRAM),
}
#: Keys of a job that are not options.
OTHER_KEYS = {"algorithm", "program", "fit", "command", "data", "target", "parameters"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text("def train(ctx):\n    return None\n")
    return tmp_path


def mistakes_in(folder: Path, text: str) -> list[str]:
    """Return the sentences that a jobs file is refused with."""
    path = folder / "jobs.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JobsFileError) as refused:
        read_jobs_file(path, jobs_vocabulary())
    return [f"{found}; {remedy}" for _, found, remedy in refused.value.mistakes]


@pytest.mark.parametrize("kind", FILES)
def test_jobs_files_take_the_options_as_keys(kind: str, folder: Path) -> None:
    """The keys that a file takes are the options, and what says what the job does."""
    text, taken = FILES[kind]
    (sentence,) = mistakes_in(folder, f"{text}zzz = 1\n")
    known = set(sentence.partition("known: ")[2].split(", "))
    assert known - OTHER_KEYS == set(taken.options)


def test_the_command_line_takes_the_options_with_dashes() -> None:
    """`slaq submit` has an option for each, whose help is that of the definition."""
    typed = {one.name: one for one in submit_verb.params if isinstance(one, click.Option)}
    others = {"external", "data", "target", "grids", "dry_run", "as_json", "url", "token_file"}
    assert set(typed) - others == set(SERVICE.options)
    for name, option in SERVICE.options.items():
        assert typed[name].opts == [option.flag, *option.also]
        assert typed[name].help == option.described


def test_the_api_takes_the_options_as_fields() -> None:
    """A submission's fields are the options, described and bounded as in the definition."""
    fields = SubmissionBody.model_json_schema()["properties"]
    assert set(fields) - set(OPTION_SETS) == set(SERVICE.options)
    assert all(fields[name]["description"] == option.described for name, option in SERVICE.options.items())


def test_changes_of_jobs_and_limits_of_users_are_those_of_the_definition(folder: Path) -> None:
    """The API, `slaq users set`, a settings file and the settings themselves have the same limits."""
    assert set(JobChange.model_json_schema()["properties"]) == set(CHANGES.options)
    assert set(UserChange.model_json_schema()["properties"]) == set(LIMITS.options)
    assert {field.name for field in fields(UserLimits)} == set(LIMITS.options)
    typed = {one.name for one in set_user.params if isinstance(one, click.Option)}
    assert typed - {"as_json", "url", "token_file"} == set(LIMITS.options)
    (folder / "slaq.toml").write_text("[users.ann]\nzzz = 1\n")
    with pytest.raises(SettingsError) as refused:
        read_settings(
            SettingsSources(config=folder / "slaq.toml"), AllowedNames(policies=("fair",), throttles=())
        )
    assert set(str(refused.value).partition("known: ")[2].split(", ")) == set(LIMITS.options)


# What each surface refuses.


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home"), cores=4) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    with connect(served.unix) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[slaq.Cluster]:
    with slaq.Cluster(cores=2) as found:
        yield found


def toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {toml(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def typed(name: str, value: Any) -> str | None:
    """Return the word that gives a value at the command line; None where the value cannot be typed."""
    option = SERVICE.options[name]
    if not option.type.metavar:
        return f"--no-{name}" if value is False else None
    if name == "sizes" and isinstance(value, list) and value:
        return f"{option.flag}={','.join(map(str, value))}"
    # What is typed is a text, unless the option takes numbers; a word that is typed for a list is a list of one.
    takes = str if option.type.parse("1") == "1" or name == "sizes" else (str, int, float)
    if option.type.repeatable or isinstance(value, bool) or not isinstance(value, takes):
        return None
    return f"{option.flag}={value}"


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_python_refuses_with_the_sentence_and_keeps_no_job(
    name: str, options: dict[str, Any], cluster: slaq.Cluster, client: Client
) -> None:
    """The embedded cluster and the client raise what the definition says, before anything is started."""
    for taken, submit in (
        (PROGRAM, lambda: cluster.submit(print, **options)),
        (COMMAND, lambda: cluster.submit_command(["true"], **options)),
        (SERVICE_PROGRAM, lambda: client.submit("train.py:train", **options)),
        (SERVICE_COMMAND, lambda: client.submit_command(["true"], **options)),
    ):
        if options.keys() <= taken.options.keys():
            with pytest.raises(JobOptionError) as refused:
                submit()
            assert str(refused.value) == sentence_of(name, options, taken)
    assert cluster.jobs() == []
    assert client.jobs() == []


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_jobs_files_refuse_with_the_sentence(name: str, options: dict[str, Any], folder: Path) -> None:
    """A file with a bad value is refused with the sentence of the definition, whatever kind of job has it."""
    for text, taken in FILES.values():
        if options.keys() <= taken.options.keys():
            lines = "".join(f"{key} = {toml(value)}\n" for key, value in options.items())
            assert mistakes_in(folder, text + lines) == [sentence_of(name, options, taken)]


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_workload_files_refuse_what_a_job_refuses(name: str, options: dict[str, Any]) -> None:
    """A line with a bad value of an option that lines have is refused, and told what to give instead."""
    line = {"id": "a", "arrival": 0, "losses": [1.0, 0.5], "cpu_seconds_per_iteration": 1.0}
    # A deadline is a moment there.
    if options.keys() <= {"weight", "min_cores", "max_cores", "sizes", "target_loss", "stop_at"}:
        with pytest.raises(WorkloadError) as refused:
            Workload.parse(json.dumps(line | options).encode(), "jobs.jsonl")
        remedy = sentence_of(name, options, FIT).partition("; ")[2]
        assert str(refused.value).endswith(f"; {remedy}")


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_the_api_refuses_with_the_sentence_and_keeps_no_job(
    name: str, options: dict[str, Any], client: Client
) -> None:
    """So does a request of any client, for each kind of job that takes the option."""
    runs: dict[str, Any] = {"command": ["true"], "program": {"program": "a.py:b"}, "external": True}
    for kind, taken in OPTION_SETS.items():
        if options.keys() <= taken.options.keys():
            body = json.dumps({kind: runs[kind], **options}).encode()
            with pytest.raises(JobOptionError) as refused:
                client._connection.ask(
                    "POST", f"{PREFIX}/jobs", content=body, headers={"Content-Type": "application/json"}
                )
            assert str(refused.value) == sentence_of(name, options, taken)
    assert client.jobs() == []


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_the_command_line_refuses_with_the_sentence_and_keeps_no_job(
    name: str, options: dict[str, Any], served: Served, client: Client
) -> None:
    """So does `slaq submit`, of what can be typed."""
    words = [typed(key, value) for key, value in options.items()]
    if None in words:
        return
    work = ["train.py:train"] if not options.keys() <= SERVICE_COMMAND.options.keys() else ["--", "true"]
    done = CliRunner().invoke(main, ["submit", *filter(None, words), "--url", served.unix, *work])
    taken = SERVICE_COMMAND if work == ["--", "true"] else SERVICE_PROGRAM
    assert done.exit_code == 2
    # Click folds long lines.
    assert " ".join(sentence_of(name, options, taken).split()) in " ".join(done.stderr.split())
    assert client.jobs() == []


def test_an_option_of_another_kind_is_refused(cluster: slaq.Cluster, client: Client, folder: Path) -> None:
    """What another kind of job takes is no option of this one; the sentence lists those there are."""
    with pytest.raises(UnknownNameError) as refused:
        cluster.submit_command(["true"], partitions=2)  # type: ignore[call-arg]
    sentence = str(refused.value)
    assert sentence.startswith("there is no command option 'partitions'; ")
    assert mistakes_in(folder, "[[job]]\ncommand = 'true'\npartitions = 2\n") == [sentence]
    with pytest.raises(UnknownNameError, match="there is no command option 'partitions'; "):
        client._connection.json("POST", f"{PREFIX}/jobs", json={"command": ["true"], "partitions": 2})
    with pytest.raises(UnknownNameError, match="there is no job option 'wieght'; did you mean 'weight'"):
        client._connection.json("POST", f"{PREFIX}/jobs", json={"command": ["true"], "wieght": 2})
    assert client.jobs() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(SERVICE.options.values())), JSON)
def test_a_value_is_read_once_and_for_all_or_refused(option: Any, value: Any) -> None:
    """Whatever is given, it is refused with a JobOptionError, or read as a value that is read as itself."""
    try:
        read = option.read(value)
    except JobOptionError as error:
        json.dumps(error.value)
        return
    assert option.read(read) == read
    assert option.read(json.loads(json.dumps(read))) == read


# What reaches the engine.

CAPPED = "[[job]]\nname = 'file'\ncommand = 'sleep 60'\nmax_cores = 2\n"


def test_a_cap_of_two_cores_reaches_the_engine_as_two_cores(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in Python or in a jobs file, the engine is told of 2 cores."""
    path = folder / "jobs.toml"
    path.write_text(CAPPED)
    told: dict[str, float | None] = {}
    with slaq.Cluster(cores=4) as cluster:
        start = cluster._live.engine.start
        monkeypatch.setattr(
            cluster._live.engine,
            "start",
            lambda spec: (told.update({spec.id: spec.demand.most}), start(spec)),
        )
        cluster.submit_command(["sleep", "60"], name="command", max_cores=2)
        cluster.submit(lambda ctx: ctx.map(len), np.zeros((8, 1)), name="program", partitions=4, max_cores=2)
        (table,) = read_jobs_file(path, jobs_vocabulary()).jobs
        submit_table(cluster, table)
        until(lambda: len(told) == 3)
        cluster.shutdown(cancel=True)
    assert told == {"command": 2.0, "program": 2.0, "file": 2.0}


def test_a_cap_of_two_cores_is_two_cores_in_a_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked by a client, over the API, at the command line or in a jobs file, the scheduler is told of 2 cores."""
    monkeypatch.chdir(folder)
    Path("jobs.toml").write_text(CAPPED)
    body = {"command": ["sleep", "60"], "max_cores": 2}
    with serving(folder / "home", cores=4) as served, connect(served.unix) as client:
        ids = [
            client.submit_command(["sleep", "60"], max_cores=2).id,
            client._connection.json("POST", f"{PREFIX}/jobs", json=body)["id"],
            *_typed(served, "--max-cores", "2", "--", "sleep", "60"),
            *_typed(served, "jobs.toml"),
        ]
        specs = [served.running.service.store.job(job_id).spec for job_id in ids]
    assert [spec.demand.most for spec in specs] == [2.0] * 4


def _typed(served: Served, *words: str) -> list[str]:
    done = CliRunner().invoke(main, ["submit", "--url", served.unix, *words])
    assert done.exit_code == 0, done.output
    return done.stdout.split()
