"""Laws of workloads made from recorded curves."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from slaq.core.errors import WorkloadError
from slaq.simulation.generator import CurveShape, WorkloadShape
from slaq.simulation.recorded import Selection, read_archive, read_losses, sample

COLUMNS = ["curve_id", "source", "row", "family", "all_finite", "improved"]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive of two sources with curves of 12, 40, 5 and 20 losses, of which one has a NaN."""
    lengths = {"deep": [12, 40], "wide": [5, 20]}
    rows: list[list[object]] = []
    for source, sizes in lengths.items():
        curves = [np.linspace(9.0, 1.0, size, dtype=np.float32) for size in sizes]
        if source == "wide":
            curves[1][3] = np.nan
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        y = np.concatenate(curves)
        np.savez(
            tmp_path / f"{source}.npz", offsets=offsets, x=np.arange(len(y)), y=y, t=np.full(len(y), np.nan)
        )
        rows += [
            [f"{source}/{row}", source, row, f"{source}_{row}", int(row == 0 or source == "deep"), 1]
            for row in (0, 1)
        ]
    write_index(tmp_path, rows)
    return tmp_path


def write_index(folder: Path, rows: list[list[object]], columns: list[str] = COLUMNS) -> None:
    with gzip.open(folder / "index.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def test_an_archive_is_read_curve_by_curve(archive: Path) -> None:
    """Each curve comes with its family, in the order of the index; those with a NaN are left out."""
    curves = read_archive(archive, Selection(min_length=2))
    assert [(curve.label, len(curve.losses)) for curve in curves] == [
        ("deep_0", 12),
        ("deep_1", 40),
        ("wide_0", 5),
    ]
    assert all(curve.losses[0] == 9.0 and curve.losses[-1] == 1.0 for curve in curves)


def test_an_index_is_not_believed_about_nan(archive: Path) -> None:
    """A curve with a NaN is left out even where the index calls it finite."""
    write_index(archive, [["wide/1", "wide", 1, "bad", 1, 1], ["deep/0", "deep", 0, "good", 1, 1]])
    assert [curve.label for curve in read_archive(archive)] == ["good"]


def test_a_selection_narrows_by_pattern_and_length(archive: Path) -> None:
    """Families, sources and the fewest losses."""

    def labels(selection: Selection) -> list[str]:
        return [curve.label for curve in read_archive(archive, selection)]

    assert labels(Selection(min_length=2, families=("*_0",))) == ["deep_0", "wide_0"]
    assert labels(Selection(min_length=2, sources=("w*", "nothing"))) == ["wide_0"]
    assert labels(Selection(min_length=13)) == ["deep_1"]


def test_long_curves_are_thinned_evenly(archive: Path) -> None:
    """A curve of 40 becomes every fourth loss of it, from the first."""
    (curve,) = read_archive(archive, Selection(min_length=40, max_length=10))
    assert curve.losses == pytest.approx(np.linspace(9.0, 1.0, 40)[::4], rel=1e-6)


def test_a_line_beyond_the_arrays_names_its_place(archive: Path) -> None:
    """An index that disagrees with its arrays is an error with file and line."""
    write_index(archive, [["deep/7", "deep", 7, "cnn", 1, 1]])
    with pytest.raises(
        WorkloadError, match=r"index\.csv\.gz, line 2: there is no curve '7'; the source has 2"
    ):
        read_archive(archive)


def test_what_is_missing_from_an_archive_is_named(
    archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The folder, a column, a source, or a curve that matches."""
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_archive(tmp_path_factory.mktemp("empty"))
    with pytest.raises(WorkloadError, match="no curve matches"):
        read_archive(archive, Selection(families=("transformer",)))
    write_index(archive, [["x/0", "x", 0, "cnn", 1, 1]])
    with pytest.raises(WorkloadError, match=r"x\.npz: cannot be read"):
        read_archive(archive)
    np.savez(archive / "x.npz", losses=np.ones(3))
    with pytest.raises(WorkloadError, match=r"x\.npz: .*expected arrays named y and offsets"):
        read_archive(archive)
    write_index(archive, [], ["source", "row"])
    with pytest.raises(WorkloadError, match="the column 'family' is missing"):
        read_archive(archive)
    (archive / "index.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_archive(archive)


@pytest.mark.parametrize(
    ("content", "column", "losses"),
    [
        ("3\n2\n1.5\n", None, [3.0, 2.0, 1.5]),
        ("\n3\r\n\n2e0\r\n", None, [3.0, 2.0]),
        ("train\n3\n2\n", None, [3.0, 2.0]),
        ("step,loss\n0,3\n1,2\n", None, [3.0, 2.0]),
        ("step,train,valid\n0,3,4\n1,2,5\n", "valid", [4.0, 5.0]),
    ],
)
def test_losses_are_read_from_plain_text(
    tmp_path: Path, content: str, column: str | None, losses: list[float]
) -> None:
    """One per line, or one column of a CSV file."""
    path = tmp_path / "run7.csv"
    path.write_bytes(content.encode())
    curve = read_losses(path, column)
    assert (curve.label, curve.losses.tolist()) == ("run7", losses)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", ": holds 0 losses; give at least two, one per line"),
        (b"3\n", ": holds 1 losses; give at least two, one per line"),
        (b"3\nnan\n", ", line 2: the loss is 'nan'; give a finite number on every line"),
        (b"3\n\nx\n", ", line 3: the loss is 'x'; give a finite number on every line"),
        (b"a,loss\n1,2\n1\n", ", line 3: the loss is ''; give a finite number on every line"),
        (b"a,b\n1,2\n", ", line 1: there is no column 'loss'; choose one of 'a', 'b'"),
        (b"\xff\xfe", ": cannot be read (it is not UTF-8 text); check the path"),
    ],
)
def test_malformed_text_gets_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    """File, line, what was found, and what to do about it."""
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(WorkloadError) as raised:
        read_losses(path)
    assert str(raised.value) == f"{path}{sentence}"


def test_a_sample_draws_every_label_equally_often_and_repeats_late() -> None:
    """A label of one curve comes as often as one of five, whose curves all come before any returns."""
    curves = [CurveShape("rare", np.array([9.0, 1.0]))]
    curves += [CurveShape("common", np.array([9.0, float(number)])) for number in range(5)]
    workload = sample(curves, 20, np.random.default_rng(0), WorkloadShape(mean_arrival=2.0))
    assert Counter(job.algorithm for job in workload) == {"rare": 10, "common": 10}
    drawn = [float(job.losses[-1]) for job in workload if job.algorithm == "common"]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len({spec.id for spec in workload.specs}) == 20


def test_a_sample_repeats_with_its_seed_and_needs_a_curve() -> None:
    """Chance is an argument; nothing comes from nothing."""
    curves = [CurveShape("a", np.array([2.0, 1.0])), CurveShape("b", np.array([3.0, 1.0]))]
    first, again = (sample(curves, 9, np.random.default_rng(4)) for _ in range(2))
    assert first == again
    with pytest.raises(ValueError, match="no curve"):
        sample([], 1, np.random.default_rng(0))
