"""Laws of the jobs file: what it says is read, and every mistake in it is told with its line and remedy."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from slaq.bootstrap import jobs_vocabulary as vocabulary
from slaq.config import AlgorithmWork, CommandWork, JobsFile, ProgramWork, read_jobs_file
from slaq.config.lines import Lines
from slaq.config.sources import GENERATORS, FileSource, GeneratedSource
from slaq.core.errors import DataError, JobsFileError
from slaq.jobs.option_types import bytes_of, seconds_of

ROOT = Path(__file__).parents[2]
PROGRAM = "def train(ctx, rate=0.1):\n    return rate\n\nlimit = 3\n"


def read(folder: Path, text: str) -> JobsFile:
    path = folder / "jobs.toml"
    path.write_text(text, encoding="utf-8")
    return read_jobs_file(path, vocabulary())


def mistakes(folder: Path, text: str) -> tuple[tuple[int, str, str], ...]:
    with pytest.raises(JobsFileError) as caught:
        read(folder, text)
    return caught.value.mistakes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data, a program, and a file that is neither."""
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 1, 0])
    np.savez(tmp_path / "both.npz", x=x, y=y)
    np.savez(tmp_path / "other.npz", features=x)
    np.save(tmp_path / "features.npy", x)
    (tmp_path / "table.csv").write_text("a,b,label\n1,2,yes\n3,4,no\n")
    (tmp_path / "wrong.csv").write_text("a,b\n1,2\n3,four\n")
    (tmp_path / "data.txt").write_text("1 2")
    (tmp_path / "own.py").write_text(PROGRAM)
    (tmp_path / "broken.py").write_text("import there_is_no_such_module\n")
    (tmp_path / "jobs-as-table.npz").write_bytes(b"no archive")
    return tmp_path


#: Line 1 to 5 of a job without mistakes; the case's own lines follow from line 6.
SOUND = '[cluster]\ncores = 2\n[[job]]\nalgorithm = "logistic-regression"\ndata = "both.npz"\n'
COMMAND = '[cluster]\ncores = 2\n[[job]]\nname = "c"\ncommand = "true {a}"\n'
JOB = '[cluster]\ncores = 2\n[[job]]\nname = "j"\n\n'

MISTAKES = {
    "unknown top-level key": (SOUND + "[[jobs]]\na = 1", 6, "no key 'jobs'", "did you mean 'job'?"),
    "unknown cluster key": ("[cluster]\ncore = 2", 2, "no key 'core'", "did you mean 'cores'?"),
    "cluster is no table": ("cluster = 3", 1, "cluster is 3", "[cluster]"),
    "cores": ("[cluster]\ncores = 0", 2, "cores is 0", "from 1 to 1,000,000"),
    "cores is no number": ("[cluster]\ncores = '2'", 2, "cores is '2'", "whole number"),
    "cores is true": ("[cluster]\ncores = true", 2, "cores is True", "whole number"),
    "policy": ("[cluster]\npolicy = 'fiar'", 2, "no policy 'fiar'", "did you mean 'fair'? known: total-quality"),
    "policy that knows the future": ("[cluster]\npolicy = 'clairvoyant'", 2, "no policy", "known: total-quality"),
    "epoch": ("[cluster]\nepoch_seconds = 0.0", 2, "epoch_seconds is 0", "above 0"),
    "results": ("[cluster]\nresults = 'own.py'", 2, "results is the file", "folder"),
    "report": ("[cluster]\nreport = 'no/where.html'", 2, "cannot be written", "folder that exists"),
    "jobs as one table": ("[job]\nname = 'a'", 1, "job is a table", "[[job]]"),
    "a job is no table": ("job = [3]", 1, "a job is 3", "[[job]]"),
    "unknown job key": (SOUND + "wieght = 2", 6, "no key 'wieght'", "did you mean 'weight'?"),
    "weight": (SOUND + "weight = 0", 6, "weight is 0", "a number from"),
    "not a number": (SOUND + "weight = nan", 6, "weight is nan", "a number from"),
    "arrival": (SOUND + "arrival = -1", 6, "arrival is -1", "'90s'"),
    "duration": (SOUND + "time_budget = 'soon'", 6, "time_budget is 'soon'", "'90s'"),
    "no duration": (SOUND + "time_budget = 0", 6, "time_budget is 0", "'90s'"),
    "stop_at above 1": (SOUND + "stop_at = 1.5", 6, "stop_at is 1.5", "at most 1"),
    "stop_at 0": (SOUND + "stop_at = 0", 6, "stop_at is 0", "above 0"),
    "cores of a job": (SOUND + "min_cores = 3\nmax_cores = 2", 6, "min_cores is 3", "max_cores"),
    "sizes": (SOUND + "sizes = 'half'", 6, "sizes is 'half'", "'whole'"),
    "memory": (SOUND + "memory = '4 pages'", 6, "memory is '4 pages'", "'4GB'"),
    "after nobody": (SOUND + "after = ['x']", 6, "no job above this one has the name 'x'", "above"),
    "after itself": (SOUND + "name = 'x'\nafter = ['x']", 7, "no job above this one has the name 'x'", "above"),
    "restarts": (SOUND + "retry = 1.5", 6, "retry is 1.5", "a whole number"),
    "name": (SOUND + "name = ''", 6, "name is ''", "letters"),
    "name of another kind": (SOUND + 'name = "a\\nb"', 6, "name is", "letters"),
    "same name": (SOUND + "name = 'a'\n[[job]]\nname = 'a'\ncommand = 'true'", 8, "job 'a' already", "own"),
    "name of a grid": (
        SOUND + "name = 'a-2'\n[[job]]\nname = 'a'\nalgorithm = 'kmeans'\ndata = 'both.npz'\n"
        "parameters = {k = {grid = [2, 3]}}",
        8,
        "job 'a-2' already",
        "own",
    ),
    "no work": (JOB, 3, "neither algorithm, program, fit nor command", "one of them"),
    "two works": (SOUND + "command = 'true'", 3, "algorithm and command", "one of them"),
    "algorithm": (JOB + "algorithm = 'lasso'\ndata = 'both.npz'", 6, "no algorithm 'lasso'", "known: kmeans"),
    "no data": (JOB + "algorithm = 'kmeans'", 6, "kmeans has no data", "data ="),
    "missing data": (JOB + "algorithm = 'kmeans'\ndata = 'no.npz'", 7, "no file", "relative"),
    "unknown suffix": (JOB + "algorithm = 'kmeans'\ndata = 'data.txt'", 7, "data.txt", ".npz"),
    "data of the wrong type": (JOB + "algorithm = 'kmeans'\ndata = 3", 7, "data is 3", "generate"),
    "archive without x": (JOB + "algorithm = 'kmeans'\ndata = 'other.npz'", 7, "holds features", "as x"),
    "no archive": (JOB + "algorithm = 'kmeans'\ndata = 'jobs-as-table.npz'", 7, "cannot be read", "another"),
    "no numbers": (JOB + "algorithm = 'kmeans'\ndata = 'wrong.csv'", 7, "'four' to float64 at line 3", "column"),
    "no such column": (
        JOB + "algorithm = 'linear-svm'\ndata = 'table.csv'\ntarget = 'lable'", 7, "no column 'lable'", "label",
    ),
    "no targets": (JOB + "algorithm = 'linear-svm'\ndata = 'features.npy'", 7, "needs targets", "as y"),
    "target of no table": (SOUND + "target = 'y'", 5, "target names a column", "remove"),
    "generator": (JOB + "algorithm = 'kmeans'\ndata = {generate = 'blob'}", 7, "generator 'blob'", "'blobs'"),
    "generated rows": (
        JOB + "algorithm = 'kmeans'\ndata = {generate = 'blobs', rows = 0}", 7, "rows is 0", "at least 1",
    ),
    "generated by nobody": (JOB + "algorithm = 'kmeans'\ndata = {rows = 9}", 7, "without generate", "generate ="),
    "hyperparameter": (
        SOUND + "[job.parameters]\nl2 = 1\nlearning_rte = 0.1", 8, "'learning_rte'", "'learning_rate'",
    ),
    "value of a hyperparameter": (SOUND + "[job.parameters]\nl2 = -1", 7, "l2 is -1", "at least 0"),
    "value in a grid": (SOUND + "parameters.l2 = {grid = [1, 'x']}", 6, "l2 is 'x'", "a number"),
    "grid": (SOUND + "parameters.l2 = {grid = 3}", 6, "the grid of l2", "{grid = ["),
    "too many jobs": (
        SOUND + "parameters.l2 = {grid = " + str(list(range(1001))) + "}", 6, "1,001 jobs", "at most 1,000",
    ),
    "program": (JOB + "program = 'own'", 6, "program is 'own'", "file.py:function"),
    "missing program": (JOB + "program = 'no.py:train'", 6, "no file", "relative"),
    "broken program": (JOB + "program = 'broken.py:train'", 6, "there_is_no_such_module", "correct it"),
    "missing module": (JOB + "program = 'no_such_module:train'", 6, "cannot be imported", "file.py:function"),
    "missing function": (JOB + "program = 'own.py:trian'", 6, "'trian'", "did you mean 'train'?"),
    "no function": (JOB + "program = 'own.py:limit'", 6, "is not a function", "context"),
    "parameters of a program": (JOB + "program = 'own.py:train'\nparameters.speed = 3", 7, "'speed'", "takes"),
    "words of a command": (JOB + "command = \"echo 'a\"", 6, "cut into words", "quotes"),
    "no command": (JOB + "command = []", 6, "not a list of words", '["python"'),
    "missing command": (JOB + "command = 'no-such-program'", 6, "'no-such-program' on the PATH", "its path"),
    "missing command file": (JOB + "command = './no-such-program'", 6, "there is no file", "path"),
    "pattern": (COMMAND + "loss_pattern = '('", 6, "loss_pattern is '('", "regular expression"),
    "pattern without a group": (COMMAND + "loss_pattern = 'loss'", 6, "loss_pattern is 'loss'", "group"),
    "pattern and file": (COMMAND + "loss_pattern = '(.)'\nloss_file = 'a'", 7, "loss_file is 'a'", "not both"),
    "column without a file": (COMMAND + "loss_column = 'a'", 6, "loss_column is 'a'", "loss_file too"),
    "cwd": (COMMAND + "cwd = 'nowhere'", 6, "no folder", "create it"),
    "env": (COMMAND + "env = {A = 1}", 6, "env is {'A': 1}", "texts"),
    "trains": (COMMAND + "trains = 'no'", 6, "trains is 'no'", "true or false"),
    "trains no model": (COMMAND + "trains = false\nloss_file = 'a'", 6, "trains is False", "nor loss_file"),
    "unused parameter": (COMMAND + "parameters = {a = 1, b = 1}", 6, "does not use", "{b}"),
    "missing parameter": (COMMAND + "[[job]]\ncommand = 'true {b} {c}'\nparameters.b = 1", 7, "has {c}", "{{c}}"),
    "lone brace": (COMMAND + "[[job]]\ncommand = 'true {b} }'\nparameters.b = 1", 7, "'}'", "{{ and }}"),
    "value twice": (SOUND + "parameters.l2 = {grid = [0.1, 0.1]}", 6, "value 0.1 twice", "once"),
    "group": (SOUND + "group = 'two words'", 6, "group is 'two words'", "letters"),
    "data of a command": (COMMAND + "data = 'both.npz'", 6, "data is for jobs", "remove"),
    "partitions of a command": (COMMAND + "partitions = 2", 6, "no command option 'partitions'", "known: name"),
    "pattern of an algorithm": (SOUND + "loss_pattern = '(.)'", 6, "no program option 'loss_pattern'", "known:"),
    "syntax": (SOUND + "name = 'a", 6, "not valid TOML", "quotes"),
    "nothing": ("# nothing\n", 1, "there is no job", "[[job]]"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_remedy(case: str, folder: Path) -> None:
    """Each mistake is reported once, at its line, with what was found and what to do."""
    text, line, found, remedy = MISTAKES[case]
    told = mistakes(folder, text)
    # A table without jobs is no second mistake.
    assert [(where, found in what, remedy in how) for where, what, how in told] == [(line, True, True)], told


def test_all_mistakes_are_told_at_once_in_order(folder: Path) -> None:
    """The error lists every mistake by ascending line, and says that nothing was started."""
    text = (
        SOUND
        + "stop_at = 2\nweight = -1\n[[job]]\nalgorithm = 'kmean'\n[[job]]\ncommand = 'no-such'\nmin = 1\n"
    )
    told = mistakes(folder, text)
    assert [line for line, _, _ in told] == [6, 7, 9, 11, 12]
    with pytest.raises(JobsFileError, match="has 5 mistakes, and nothing was started") as caught:
        read(folder, text)
    assert str(caught.value).count("jobs.toml, line ") == 5


def test_what_is_said_is_read(folder: Path) -> None:
    """Every key of a valid file is read; paths are relative to the file."""
    jobs = read(
        folder,
        """
        [cluster]
        cores = 3
        policy = "fair"
        epoch_seconds = 0.5
        units_per_core = 4
        results = "out"
        report = "out.html"
        [[job]]
        name = "a"
        algorithm = "kmeans"
        data = "both.npz"
        arrival = "1m30s"
        weight = 2
        min_cores = 0.5
        max_cores = 1.5
        sizes = [0.5, 1.5]
        memory = "4GiB"
        deadline = "10m"
        target_loss = -0.5
        stop_at = 1
        max_iterations = 7
        time_budget = 60
        retry = 0
        partitions = 3
        task_timeout = "2s"
        [[job]]
        program = "own.py:train"
        parameters = {rate = 0.5}
        [[job]]
        command = ["true", "{x} {{y}}"]
        loss_file = "out/losses.csv"
        loss_column = "val"
        env = {A = "b"}
        parameters = {x = 0.5}
        [[job]]
        name = "other"
        command = "true"
        trains = false
        after = ["a"]
        """,
    )
    cluster = jobs.cluster
    assert (cluster.cores, cluster.policy, cluster.epoch_seconds, cluster.units_per_core) == (
        3,
        "fair",
        0.5,
        4,
    )
    assert (cluster.results, cluster.report) == (folder / "out", folder / "out.html")
    first, second, third, fourth = jobs.jobs
    assert (first.name, first.arrival) == ("a", 90)
    assert first.options == {
        "arrival": 90,
        "weight": 2,
        "min_cores": 0.5,
        "max_cores": 1.5,
        "sizes": (0.5, 1.5),
        "memory": 4 * 2**30,
        "deadline": 600,
        "target_loss": -0.5,
        "stop_at": 1,
        "max_iterations": 7,
        "time_budget": 60,
        "retry": 0,
        "partitions": 3,
        "task_timeout": 2,
    }
    assert isinstance(first.work, AlgorithmWork)
    assert isinstance(second.work, ProgramWork)
    assert (second.name, second.work.program(None), second.arrival) == ("train", 0.5, 0)
    assert isinstance(third.work, CommandWork)
    assert third.work.argv == ("true", "0.5 {y}")
    assert third.name == "true"
    assert third.options == {
        "loss_file": "out/losses.csv",
        "loss_column": "val",
        "cwd": str(folder),
        "env": {"A": "b"},
    }
    assert fourth.options == {"trains": False, "cwd": str(folder), "after": ("a",)}


def test_a_grid_makes_a_job_of_each_combination(folder: Path) -> None:
    """Lists under `grid` expand to their product, with numbered names; jobs of one file share their data."""
    text = SOUND + "name = 'g'\nparameters = {l2 = {grid = [0.1, 0.2]}, iterations = {grid = [3, 4]}}\n"
    jobs = read(folder, text).jobs
    made = [(job.name, job.work.program.l2, job.work.program.iterations) for job in jobs]  # type: ignore[union-attr]
    assert made == [("g-1", 0.1, 3), ("g-2", 0.1, 4), ("g-3", 0.2, 3), ("g-4", 0.2, 4)]
    assert len({id(job.work.data) for job in jobs}) == 1  # type: ignore[union-attr]


def test_jobs_without_a_name_get_one_of_their_own(folder: Path) -> None:
    """The default name is that of the work; jobs that share one, or whose name is taken, are numbered."""
    job = "[[job]]\nalgorithm = 'kmeans'\ndata = 'both.npz'\n"
    jobs = read(folder, job + job + job + "name = 'kmeans-1'\n[[job]]\ncommand = 'true'\n").jobs
    assert [one.name for one in jobs] == ["kmeans-2", "kmeans-3", "kmeans-1", "true"]


def test_every_key_and_name_is_documented(folder: Path) -> None:
    """docs/run.md, or the page on options, names every key that a table may have, and every name among values."""
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("run.md", "options.md"))
    unknown = "[cluster]\nzzz = 1\npolicy = 'zzz'\n[[job]]\nzzz = 1\n[[job]]\ncommand = 'true'\nzzz = 1\n"
    unknown += "[[job]]\nalgorithm = 'zzz'\ndata = {generate = 'zzz', zzz = 1}\nzzz = 1\n"
    unknown += "[[job]]\nprogram = 'own.py:train'\ndata = 'data.txt'\n"
    known = [remedy for _, _, remedy in mistakes(folder, unknown) if remedy.startswith("known: ")]
    assert len(known) == 9
    names = {name for remedy in known for name in remedy.removeprefix("known: ").split(", ")}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_the_example_has_no_mistakes() -> None:
    """The example jobs file is valid as it is."""
    assert len(read_jobs_file(ROOT / "examples" / "jobs.toml", vocabulary()).jobs) == 8


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1d", 86400), ("0.5s", 0.5), ("7", 7)]
    + [(text, None) for text in ("", "m", "10 minutes", "1m2h", "-3s", "s5", "2 m", "nan")],
)
def test_durations(text: str, seconds: float | None) -> None:
    """A duration is a number of days, hours, minutes and seconds, in that order."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500", 500),
        ("1.5k", 1500),
        ("500MB", 500 * 10**6),
        ("4GB", 4 * 10**9),
        ("4GiB", 4 * 2**30),
        ("2tb", 2 * 10**12),
    ]
    + [(text, None) for text in ("", "GB", "4 GB", "-1", "4XB", "nan")],
)
def test_sizes_in_bytes(text: str, size: int | None) -> None:
    """A size is a number of bytes, or of thousands (kB) or 1024s (KiB) of them, and so on."""
    assert bytes_of(text) == size


def test_the_jobs_of_a_grid_are_a_group(folder: Path) -> None:
    """A grid's jobs belong to a group of the table's name, or the one that it names, and keep their parameters."""
    grid = "parameters = {k = {grid = [2, 3]}, iterations = 3}\n"
    kmeans = "[[job]]\nalgorithm = 'kmeans'\ndata = {generate = 'blobs'}\n"
    text = (
        kmeans
        + grid
        + kmeans
        + grid
        + kmeans
        + grid
        + "group = 'mine'\n"
        + kmeans
        + "group = 'mine'\n"
        + kmeans
    )
    jobs = read(folder, text).jobs
    groups = [(job.group, job.own_group) for job in jobs]
    first, second = [(None, "kmeans")] * 2, [(None, "kmeans-2")] * 2
    assert groups == [*first, *second, *[("mine", "kmeans-3")] * 2, ("mine", None), (None, None)]
    assert [dict(job.parameters) for job in jobs[:2]] == [{"k": k, "iterations": 3} for k in (2, 3)]


def test_a_name_in_after_stands_for_every_job_of_a_grid(folder: Path) -> None:
    """A job that waits for a grid waits for each of its jobs."""
    text = (
        SOUND
        + "name = 'g'\nparameters = {l2 = {grid = [0.1, 0.2]}}\n[[job]]\ncommand = 'true'\nafter = ['g']\n"
    )
    assert read(folder, text).jobs[-1].options["after"] == ("g-1", "g-2")


KEYS = st.sampled_from(["a", "b-2", '"quoted # key"', "'other = key'", "deep.er"])
VALUES = st.sampled_from(
    [
        "1",
        "'[x] # no'",
        '"""\n[job]\nb = "1"\n"""',
        "'''\n# [[x]]\n'''",
        "[1, # one\n  [2,\n3], ']' ]",
        '{x = "}", y = [1, 2]}',
        '"a\\"b # c"',
        "1979-05-27T07:32:00Z",
        '""',
        '"""ends in quotes"""""',
    ]
)
BREAKS = st.sampled_from(["\n", "\n\n# [[job]] comment\n", "  # 'comment\n", "\r\n"])
TABLES = st.sampled_from(["[[job]]", "[ job . parameters ]", "[[ 'job' ]]", "[top]"])


@given(st.lists(st.tuples(TABLES, st.dictionaries(KEYS, VALUES)), max_size=5), BREAKS)
def test_the_index_finds_every_key(tables: list[tuple[str, dict[str, str]]], between: str) -> None:
    """Each key of a valid text is found on the line it begins on, whatever strings, comments and lists contain."""
    text, expected = "", {}
    count = 0
    for header, keys in tables:
        count += "[[" in header
        # Without a [[job]] above, [job.parameters] is a table in the table `job`.
        place: tuple[str | int, ...] = ("job", count - 1) if count else ("job",)
        place = ("top",) if "top" in header else (*place, "parameters") if "param" in header else place
        text += header + between
        for key, value in keys.items():
            names = ["deep", "er"] if key == "deep.er" else [key.strip("\"'")]
            expected[(*place, *names)] = text.count("\n") + 1
            text += f"{key} = {value}{between}"
    try:
        parsed: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a table given twice
    lines = Lines(text)
    assert {place: lines.of(place) for place in expected} == expected
    for place in expected:
        value = parsed
        for step in place:
            value = value[step]


def test_the_index_falls_back_on_what_surrounds() -> None:
    """A value without a line of its own, such as an element of a list, has the line of its key."""
    lines = Lines("a = [\n1,\n2]\n[[job]]\nx = {y = 1}\n")
    assert [lines.of(place) for place in (("a", 1), ("job", 0, "x", "y"), ("none",))] == [1, 5, 1]


def test_every_format_reads_the_same_data(tmp_path: Path) -> None:
    """Archives, CSV and svmlight give back the rows and targets that were written."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)).round(3), rng.integers(3, size=20)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    names = "u,target,v,w"
    np.savetxt(
        tmp_path / "b.csv", np.column_stack([x[:, 0], y, x[:, 1:]]), "%g", ",", header=names, comments=""
    )
    rows = (
        f"{label} " + " ".join(f"{k}:{v}" for k, v in enumerate(row, 1))
        for label, row in zip(y, x, strict=True)
    )
    (tmp_path / "c.svmlight").write_text("# made\n" + "\n".join(rows) + "\n")
    for source in (
        FileSource(path=tmp_path / "a.npz"),
        FileSource(path=tmp_path / "b.csv", target="target"),
        FileSource(path=tmp_path / "c.svmlight"),
    ):
        found, targets = source.load()
        dense = found.toarray() if sp.issparse(found) else found
        np.testing.assert_allclose(dense, x)
        np.testing.assert_array_equal(targets, y)
    sp.save_npz(tmp_path / "d.npz", sp.csr_matrix(x))
    np.save(tmp_path / "e.npy", x)
    np.testing.assert_allclose(FileSource(path=tmp_path / "d.npz").load()[0].toarray(), x)
    np.testing.assert_allclose(FileSource(path=tmp_path / "e.npy").load()[0], x)


def test_text_labels_stay_text(folder: Path) -> None:
    """A target column without numbers is read as class names."""
    assert FileSource(path=folder / "table.csv", target="label").load()[1].tolist() == ["yes", "no"]


def test_targets_match_the_rows(tmp_path: Path) -> None:
    """Features and targets of different lengths are refused."""
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), y=np.ones(2))
    with pytest.raises(DataError, match="3 rows of features but 2 targets"):
        FileSource(path=tmp_path / "a.npz").load()


@pytest.mark.parametrize("generate", GENERATORS)
def test_generated_data_depends_on_its_seed_alone(generate: str) -> None:
    """The same source gives the same data, of the requested size; another seed gives other data."""

    def load(seed: int) -> tuple[Any, Any]:
        source = GeneratedSource(generate=generate, rows=30, features=6, groups=3, noise=0.1, seed=seed)
        x, y = source.load()
        return (x.toarray() if sp.issparse(x) else x), y

    (x, y), (again, _), (other, _) = load(1), load(1), load(2)
    assert x.shape == (30, 6)
    assert y is None or len(y) == 30
    np.testing.assert_array_equal(x, again)
    assert not np.array_equal(x, other)
