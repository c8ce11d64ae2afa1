"""Laws of the experiments on elastic training: how a diary is read, what is planned, and what arms may hold."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication import elastic_crowd, elastic_price, elastic_simulation
from replication.elastic_crowd import ELASTIC, FIXED, QUICK, measure, plan
from replication.elastic_price import BATCH, gaps_of, price, told
from replication.elastic_simulation import ARMS, OWNERS, Case, demand_of, missed
from replication.elastic_ways import DiaryReader, Line, line_of
from replication.experiment import CURVES, Experiment, Settings, SkippedError
from replication.simulated import Load


def diary(times: Sequence[float], numbers: Sequence[int] | None = None) -> list[Line]:
    """Return the lines of updates made at these times."""
    return [
        Line(at=at, number=number, workers=1, checksum=number, lost=0.0, twice=0.0, pids=())
        for at, number in zip(times, numbers or range(1, len(times) + 1), strict=True)
    ]


def test_an_event_costs_its_longest_silence_and_what_is_done_again() -> None:
    """A training that is silent for 5 s and then makes 2 of its updates again has regained all with the third."""
    lines = diary([1, 2, 3, 4, 9, 10, 11, 12], [1, 2, 3, 4, 3, 4, 5, 6])
    found = price(lines, at=4.5, until=12.0)
    assert found == {"silence": 5.0, "usual": 1.0, "regained": 6.0, "redone": 2.0 * BATCH}


@given(st.lists(st.floats(0.01, 5.0), min_size=6, max_size=30), st.integers(2, 4))
def test_a_training_that_redoes_nothing_pays_its_longest_gap(gaps: list[float], before: int) -> None:
    """Where no update is made again, all is regained when the longest gap ends, and nothing is redone."""
    times = np.cumsum(gaps).tolist()
    found = price(diary(times), at=times[before], until=times[-1])
    assert found["silence"] == found["regained"] == pytest.approx(max(gaps[before + 1 :]))
    assert found["redone"] == 0.0


def test_bits_are_compared_at_the_same_update() -> None:
    """The weights at the end count as the same where the undisturbed run had them after as many updates."""
    undisturbed = diary([1, 2, 3, 4, 5, 6])
    same, other = diary([1, 2, 3, 7]), diary([1, 2, 3, 7])
    other[-1] = replace(other[-1], checksum=-1)
    events = [{"event": "a join", "at": 2.5, "until": 7.0}]
    assert told(same, events, undisturbed)["same_bits"]
    assert not told(other, events, undisturbed)["same_bits"]
    assert gaps_of(undisturbed) == {"median": 1.0, "longest": 1.0}


def test_a_line_that_is_half_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    """The reader of a diary gives whole lines only, each once."""
    path = tmp_path / "diary"
    reader = DiaryReader(path)
    assert reader.look() == []
    line = '{"at": 1.0, "number": 7, "workers": 2, "checksum": 5, "lost": 0.0, "twice": 0.0, "pids": [3]}\n'
    path.write_text(line + line[:20])
    assert [one.number for one in reader.look()] == [7]
    with path.open("a") as file:
        file.write(line[20:].replace("7", "8"))
    assert [one.number for one in reader.look()] == [7, 8]
    assert reader.reached == 8
    assert reader.lines[0] == line_of(
        {"at": 1.0, "number": 7, "workers": 2, "checksum": 5, "lost": 0.0, "twice": 0.0, "pids": [3]}
    )


def test_a_crowd_is_its_seed() -> None:
    """A seed gives the same jobs every time, in the order of arrival; another gives others."""
    assert plan(QUICK, 1) == plan(QUICK, 1) != plan(QUICK, 2)
    arrivals = [job.arrival for job in plan(elastic_crowd.FULL, 1)]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0.0


def test_a_crowd_is_measured_by_the_best_of_all_ways() -> None:
    """A job's best loss is the best that any way found; a way that never comes near has no time to 90%."""

    def way(curve: list[tuple[float, float]]) -> dict[str, Any]:
        run = {"curve": curve, "accuracy": 90.0, "samples": 100, "shared": 0.5, "ended_at": curve[-1][0]}
        return {"runs": {"a": run}, "cpu": 1.0}

    found = {
        FIXED: way([(1.0, 1.0), (2.0, 0.5), (4.0, 0.05)]),
        ELASTIC: way([(1.0, 1.0), (3.0, 0.08), (5.0, 0.0)]),
    }
    measure(found)
    assert [one["to_90"] for one in found.values()] == [4.0, 3.0]
    assert [one["speed"] for one in found.values()] == [25.0, 20.0]


@given(st.sampled_from(ARMS), st.sampled_from(elastic_simulation.FIXED), st.floats(4.0, 32.0))
def test_a_fixed_job_holds_its_workers_or_none(arm: str, chosen: int, worth: float) -> None:
    """A job of a fixed number of workers has one size, an elastic one any whole number; all are worth the same."""
    demand = demand_of(arm, chosen, worth)
    assert demand.worth == worth
    if arm == elastic_simulation.ELASTIC:
        assert demand.sizes == "whole"
    else:
        assert demand.sizes == (demand.most,)
        assert arm != OWNERS or demand.most == chosen


def test_arms_differ_only_in_what_jobs_can_hold() -> None:
    """The jobs of a seed have the same arrivals, costs, losses and worth in every arm."""
    load = Load(seed=1, jobs=3, curves=CURVES)
    fixed, elastic = (Case(load=load, arm=arm).workload() for arm in (ARMS[0], ARMS[-1]))
    for one, other in zip(fixed, elastic, strict=True):
        demand = one.spec.demand
        assert demand != other.spec.demand
        assert replace(other, spec=replace(other.spec, demand=demand)) == one
        assert other.spec.demand.worth == demand.worth


def test_a_change_that_misses_is_told() -> None:
    """What reaches the aim is not told of; what misses it, or what was wanted at least, is, by name."""

    def change(mean: float) -> dict[str, float]:
        return {"mean": mean, "low": mean, "high": mean, "n": 1}

    assert missed("it", change(-0.3), -0.3, -0.15) == ""
    assert "−30% was aimed at" in missed("it", change(-0.2), -0.3, -0.15)
    assert "−15% was the least wanted" in missed("it", change(-0.1), -0.3, -0.15)
    assert "grow in no case" in missed("it", change(0.1), -0.1, 0.0)


@pytest.mark.parametrize("experiment", [elastic_price.EXPERIMENT, elastic_crowd.EXPERIMENT])
def test_without_pytorch_the_experiment_is_skipped(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where PyTorch is missing, the experiment says what to install."""

    def missing(name: str) -> ModuleType | None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    for module in (elastic_price, elastic_crowd):
        monkeypatch.setattr(module, "find_spec", missing)
    with pytest.raises(SkippedError, match=r"pip install slaq\[torch\]"):
        experiment.run(Settings(quick=True))
