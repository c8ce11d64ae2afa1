"""Laws that every algorithm keeps, whatever it computes."""

import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from slaq.algorithms import ALGORITHMS, Algorithm, KMeans, MLPClassifier, Model
from slaq.algorithms.gradient_boosting import MEMO
from slaq.core.errors import DataError, HyperparameterError, ModelError, SlaqError, UnknownNameError
from slaq.jobs.context import Cancelled
from slaq.jobs.data import Dataset
from slaq.jobs.inline import InlineContext
from tests.algorithms.samples import CASES, corpus, diabetes, sparse, three_classes, two_classes

every_case = pytest.mark.parametrize("case", CASES)


def arrays(model: Model) -> dict[str, Any]:
    """Return the fields of a model, tuples of arrays as one."""
    return {
        field.name: np.concatenate([np.ravel(item) for item in value])
        if isinstance(value := getattr(model, field.name), tuple) and field.name != "losses"
        else value
        for field in fields(model)
    }


def assert_alike(model: Model, other: Model, rtol: float) -> None:
    """Fail unless two models are equal up to rounding."""
    assert type(model) is type(other)
    for name, value in arrays(model).items():
        found = arrays(other)[name]
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            np.testing.assert_allclose(found, value, rtol, rtol * np.abs(value).max(initial=0), err_msg=name)
        elif name == "losses" or isinstance(value, float):
            np.testing.assert_allclose(found, value, rtol, err_msg=name)
        else:
            np.testing.assert_equal(found, value, err_msg=name)


@every_case
def test_the_cut_into_partitions_changes_nothing(case: str) -> None:
    """One partition and seven give the same losses and the same model, up to rounding."""
    algorithm, data = CASES[case]
    assert_alike(algorithm.fit(*data(), partitions=1), algorithm.fit(*data(), partitions=7), 1e-7)


@every_case
def test_sparse_rows_are_rows(case: str) -> None:
    """CSR input gives the same model as the same rows dense."""
    algorithm, data = CASES[case]
    x, y = data()
    assert_alike(algorithm.fit(x, y, partitions=3), algorithm.fit(sparse(x), y, partitions=3), 1e-7)


@every_case
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_numbers_of_any_type_are_numbers(case: str, kind: str) -> None:
    """Bytes and single-precision floats give the model that the same numbers in double precision give."""
    algorithm, data = CASES[case]
    x, y = data()
    x = np.clip(np.round(20 * x + 100 * (x.min() < 0)), 0, 255).astype(kind)
    expected = replace(algorithm, iterations=3).fit(x.astype(float), y)
    assert_alike(expected, replace(algorithm, iterations=3).fit(x, y), 1e-4)
    assert_alike(expected, replace(algorithm, iterations=3).fit(sparse(x), y), 1e-4)


class Interrupted(InlineContext):
    """Ends the job when it makes its n-th report, before what follows."""

    def __init__(self, data: Dataset, reports: int, **options: Any) -> None:
        super().__init__(data, **options)
        self._reports = reports

    @override
    def report(
        self, loss: float, *, step: float | None = None, total: float | None = None, **metrics: float
    ) -> None:
        if len(self.losses) == self._reports:
            raise Cancelled
        super().report(loss, **metrics)


@every_case
@pytest.mark.parametrize("reports", [1, 4])
def test_a_resumed_run_ends_as_one_that_was_never_stopped(case: str, reports: int) -> None:
    """The model, bit for bit, and the losses after the checkpoint are those of an unbroken run."""
    algorithm, data = CASES[case]
    dataset = Dataset(*data())
    whole = InlineContext(dataset, partitions=2)
    expected = algorithm(whole)
    first = Interrupted(dataset, reports, partitions=2)
    with pytest.raises(Cancelled):
        algorithm(first)
    MEMO.clear()
    second = InlineContext(dataset, partitions=2, restored=pickle.loads(pickle.dumps(first.kept)))
    assert_alike(expected, algorithm(second), 0.0)
    assert second.losses == whole.losses[-len(second.losses) :]
    assert len(first.losses) + len(second.losses) >= len(whole.losses)


@every_case
def test_a_run_that_was_over_stays_over(case: str) -> None:
    """A restart after the last checkpoint reports nothing more and returns the same model."""
    algorithm, data = CASES[case]
    dataset = Dataset(*data())
    first = InlineContext(dataset)
    model = algorithm(first)
    second = InlineContext(dataset, restored=first.kept)
    assert_alike(model, algorithm(second), 0.0)
    assert second.losses == []


class Remote(InlineContext):
    """Sends functions, arguments and results through pickle, and runs every task twice, as after a fault."""

    @override
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        sent = pickle.dumps((function, args))
        results = []
        for partition in self._partitions:
            once, again = (
                pickle.dumps(f(partition, *a)) for f, a in (pickle.loads(sent), pickle.loads(sent))
            )
            assert pickle.loads(once) is not None
            assert once == again
            results.append(pickle.loads(again))
        return results


@every_case
def test_tasks_can_be_sent_and_run_again(case: str) -> None:
    """Tasks and what they return can be pickled, a task returns the same twice, and data is never written to."""
    algorithm, data = CASES[case]
    x, y = data()
    x = x.copy()
    x.flags.writeable = False
    kept = x.copy()
    remote = Remote(Dataset(x, y), partitions=3)
    assert_alike(algorithm(remote), algorithm.fit(x, y, partitions=3), 0.0)
    np.testing.assert_array_equal(x, kept)


@every_case
def test_the_first_report_is_the_loss_before_the_first_iteration(case: str) -> None:
    """Without iterations there is one loss; with n there are n + 1, beginning with that one; the loss falls."""
    algorithm, data = CASES[case]
    none = replace(algorithm, iterations=0).fit(*data())
    model = algorithm.fit(*data())
    assert len(none.losses) == 1
    assert model.losses[0] == none.losses[0]
    assert len(model.losses) == algorithm.iterations + 1
    assert model.losses[-1] < model.losses[0]


@every_case
def test_a_tolerance_ends_a_run(case: str) -> None:
    """The run ends with the first iteration that changes the loss by less than its share."""
    algorithm, data = CASES[case]
    if "online" in case:
        pytest.skip("the loss of online LDA is noisy, so that it takes no tolerance")
    losses = replace(algorithm, iterations=40, tolerance=0.02).fit(*data()).losses
    changes = np.abs(np.diff(losses)) / np.abs(losses[:-1])
    assert np.all(changes[:-1] >= 0.02)
    assert len(losses) == 41 or changes[-1] < 0.02


@every_case
def test_a_saved_model_is_the_model(case: str, tmp_path: Path) -> None:
    """What is loaded equals what was saved, by its own class and by Model, and predicts alike."""
    algorithm, data = CASES[case]
    x, y = data()
    model = algorithm.fit(x, y)
    model.save(tmp_path / "model")
    for loaded in (type(model).load(tmp_path / "model"), Model.load(tmp_path / "model")):
        assert_alike(model, loaded, 0.0)
        use = "transform" if "lda" in case else "predict"
        np.testing.assert_array_equal(getattr(loaded, use)(x), getattr(model, use)(x))
        assert len(getattr(loaded, use)(sparse(x))) == len(x)


def test_the_table_names_the_nine() -> None:
    """Every algorithm of Table 1 has a name for job files, and a case here."""
    assert len(ALGORITHMS) == 9
    assert {type(algorithm) for algorithm, _ in CASES.values()} == set(ALGORITHMS.values())


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    """Missing files, other files and other models are told apart, in one sentence each."""
    algorithm, data = CASES["kmeans"]
    path = tmp_path / "model.npz"
    with pytest.raises(ModelError, match="does not exist"):
        Model.load(path)
    algorithm.fit(*data()).save(path)
    other = type(CASES["lda em"][0].fit(*corpus()))
    with pytest.raises(ModelError, match="holds a KMeansModel, not a LDAModel"):
        other.load(path)
    for content in (b"", b"not an archive", b"PK\x03\x04 a broken archive"):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="not a saved model"):
            Model.load(path)
    np.savez(path, model=np.array('{"class": "KMeansModel"}'))
    with pytest.raises(ModelError, match="incomplete"):
        Model.load(path)
    np.savez(path, np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ModelError, match="not a saved model"):
        Model.load(path)


WRONG_OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("kmeans", {"k": 0}, "KMeans: k must be a whole number of at least 1, not 0"),
    ("kmeans", {"k": "eight"}, "KMeans: k must be a whole number of at least 1, not 'eight'"),
    ("kmeans", {"init": "best"}, "KMeans: init must be 'k-means++' or 'sample', not 'best'"),
    ("kmeans", {"iterations": True}, "iterations must be a whole number of at least 0, not True"),
    ("kmeans", {"tolerance": -1}, "tolerance must be a number of at least 0, not -1"),
    ("logistic-regression", {"l2": float("nan")}, "l2 must be a number of at least 0, not nan"),
    ("logistic-regression", {"learning_rate": 0}, "learning_rate must be a number above 0, not 0"),
    ("linear-svm", {"intercept": 1}, "intercept must be true or false, not 1"),
    ("polynomial-svm", {"degree": 2.5}, "degree must be a whole number of at least 1, not 2.5"),
    ("gbt-classifier", {"bins": 300}, "bins must be at most 256, not 300"),
    ("gbt-regressor", {"depth": 30}, "GBTRegressor: depth must be at most 12, not 30"),
    ("mlp-classifier", {"hidden": 5}, "hidden must be a list of whole numbers of at least 1, not 5"),
    ("mlp-classifier", {"activation": "sin"}, "activation must be 'tanh' or 'logistic' or 'relu', not 'sin'"),
    ("lda", {"optimizer": "online", "tolerance": 0.1}, "tolerance must be 0 with the online optimizer"),
    ("linear-regression", {"memory": None}, "memory must be a whole number of at least 1, not None"),
]


@pytest.mark.parametrize(("name", "options", "text"), WRONG_OPTIONS)
def test_wrong_hyperparameters_are_refused(name: str, options: dict[str, Any], text: str) -> None:
    """A value that makes no sense is named in one sentence, before anything starts."""
    with pytest.raises(HyperparameterError) as caught:
        ALGORITHMS[name].from_options(options)
    assert text in str(caught.value)


def test_unknown_hyperparameters_are_refused() -> None:
    """A misspelt name is answered by the one that was meant; lists from a job file become tuples."""
    with pytest.raises(UnknownNameError, match="did you mean 'iterations'"):
        ALGORITHMS["lda"].from_options({"iteration": 3})
    assert ALGORITHMS["mlp-classifier"].from_options({"hidden": [3, 4]}) == MLPClassifier(hidden=(3, 4))


def wrong_data() -> list[tuple[Algorithm[Any], Any, Any, str]]:
    """Return data that cannot be trained on, and what is said about it."""
    x, y = two_classes()
    holes = np.where(x > 2, np.nan, x)
    counts, _ = corpus()
    classifiers = [
        ALGORITHMS[name](iterations=1)
        for name in (
            "logistic-regression",
            "linear-svm",
            "polynomial-svm",
            "gbt-classifier",
            "mlp-classifier",
        )
    ]
    regressors = [ALGORITHMS[name](iterations=1) for name in ("linear-regression", "gbt-regressor")]
    cases: list[tuple[Algorithm[Any], Any, Any, str]] = []
    for algorithm in classifiers:
        cases += [
            (algorithm, x, x[:, 0], "y must name classes; it holds fractions such as"),
            (algorithm, x, np.full(len(x), 3), "two classes or more; y holds only 3"),
            (algorithm, x, np.full(len(x), np.datetime64("2026-01-01")), "labels must be numbers or strings"),
        ]
    for algorithm in regressors:
        cases += [
            (algorithm, x, y, "y must hold finite numbers"),
            (algorithm, x, np.full(len(x), np.inf), "y must hold finite numbers"),
        ]
    for algorithm in classifiers + regressors:
        good = y if algorithm in classifiers else x[:, 0]
        cases += [
            (algorithm, x, None, "there are no targets; submit it with data=(x, y)"),
            (algorithm, x, np.stack([good, good], axis=1), "y must have one value per row, not (2,)"),
            (algorithm, holes, good, "the features must be finite numbers"),
            (algorithm, x[:0], good[:0], "there is no data to train on"),
        ]
    kmeans, lda = KMeans(k=400), ALGORITHMS["lda"]()
    return [
        *cases,
        (kmeans, x, None, "KMeans: 400 clusters need as many rows; there are 300"),
        (kmeans, holes, None, "the features must be finite numbers"),
        (lda, counts - 1, None, "LDA: entries count words and cannot be negative; found -1"),
        (lda, 0 * counts, None, "there are no words"),
        (ALGORITHMS["gbt-classifier"](), *three_classes(), "it separates two classes; y holds 3"),
    ]


@pytest.mark.parametrize(("algorithm", "x", "y", "text"), wrong_data())
def test_wrong_data_is_refused(algorithm: Algorithm[Any], x: Any, y: Any, text: str) -> None:
    """Data that cannot be trained on is named in one sentence, however it is cut."""
    for partitions in (1, 3):
        with pytest.raises(DataError) as caught:
            algorithm.fit(x, y, partitions=partitions)
        assert text in str(caught.value)
        assert str(caught.value).startswith(type(algorithm).__name__)


def test_predictions_are_asked_of_the_features_trained_on() -> None:
    """Rows of another width, and targets of another length, are refused by name."""
    algorithm, data = CASES["linear regression"]
    x, y = data()
    model = algorithm.fit(x, y)
    with pytest.raises(DataError, match=r"trained on 10 features; found data of shape \(442, 9\)"):
        model.predict(x[:, 1:])
    with pytest.raises(DataError, match="442 rows of features but targets of shape"):
        model.score(x, y[1:])


def test_every_error_is_one_of_ours() -> None:
    """What a user can do wrong ends in one root, so that a front end can catch it."""
    assert all(issubclass(kind, SlaqError) for kind in (DataError, HyperparameterError, ModelError))


def test_what_workers_keep_changes_no_result() -> None:
    """Boosting gives the same trees when every task has to make its bins and margins anew."""

    class Forgetful(InlineContext):
        @override
        def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
            MEMO.clear()
            return super().map(function, *args)

    algorithm = ALGORITHMS["gbt-regressor"](iterations=5)
    dataset = Dataset(*diabetes())
    assert_alike(algorithm(InlineContext(dataset)), algorithm(Forgetful(dataset)), 0.0)
