"""Laws of the runs that compare rules for the learning rate of elastic training."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from replication import elastic_accuracy, elastic_rules
from replication.elastic_rules import (
    FIXED,
    KINDS,
    RULES,
    SIZES,
    TRACES,
    Case,
    cases,
    shocks,
    train,
    walk,
)


def case(kind: str = "images", trace: str = "1 → 16", rule: str = "auto", seed: int = 1) -> Case:
    """Return a run that takes less than a second."""
    size = replace(SIZES["quick"][kind], samples=32 * SIZES["quick"][kind].base_batch)
    return Case(kind=kind, trace=trace, rule=rule, seed=seed, size=size, data=None, device="cpu")


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("seed", range(5))
def test_a_trace_stays_between_one_and_sixteen(name: str, seed: int) -> None:
    """Whatever the seed, a trace names 1 to 16 base batches at every share of the samples."""
    ks = [TRACES[name](share, seed) for share in np.linspace(0.0, 1.0, 200, endpoint=False)]
    assert set(ks) <= {1, 2, 4, 8, 16}


@pytest.mark.parametrize("seed", range(5))
def test_the_walk_doubles_or_halves_twenty_four_times(seed: int) -> None:
    """Each of the 24 changes of the walk is by a factor of 2, and the seed decides which way."""
    ks = [walk((place + 0.5) / 25, seed) for place in range(25)]
    assert all(max(a, b) == 2 * min(a, b) for a, b in pairwise(ks))


def test_every_rule_meets_every_trace_and_the_small_batch_once() -> None:
    """For each kind and seed there is one run of each rule on each trace, and one with the small batch."""
    chosen = cases("quick", (1, 2), None, "cpu")
    assert len(chosen) == len(set(chosen)) == len(KINDS) * 2 * (1 + len(TRACES) * len(RULES))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_ends_the_same(kind: str) -> None:
    """A run depends on its case only; the factor and the updates are those of its trace."""
    first, again = train(case(kind)), train(case(kind))
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    fixed = train(case(kind, trace=FIXED, rule=FIXED))
    assert fixed["updates"] == 32
    # 11 updates are a third of the samples; the other 21 base batches are two updates.
    assert first["updates"] == 13
    assert fixed["curve"]["factor"] == [1.0] * 32


def test_a_shock_is_the_worst_loss_after_a_change() -> None:
    """The worst mean loss after a change counts relative to the level before it, and the way back in updates."""
    losses = np.ones(400)
    losses[200:230] = 3.0
    ks = np.where(np.arange(400) < 200, 1, 2)
    found = shocks(np.arange(1, 401) * 8, losses, ks, base_batch=8)
    assert found["worst"] == pytest.approx(3.0)
    assert found["recovery"] == pytest.approx(40, abs=16)
    assert shocks(np.arange(1, 401) * 8, losses, np.ones(400), 8) == {"worst": None, "recovery": None}


def test_the_runs_need_nothing_but_torch_and_numpy(tmp_path: Path) -> None:
    """The command runs where neither Matplotlib nor rich is installed, and its file is a record of the report."""
    script = """
import sys
for missing in ("matplotlib", "rich", "scipy", "click", "cloudpickle"):
    sys.modules[missing] = None
from dataclasses import replace
from itertools import pairwise
from replication import elastic_rules
quick = elastic_rules.SIZES["quick"]
elastic_rules.SIZES = {"quick": {name: replace(size, samples=8 * size.base_batch) for name, size in quick.items()}}
sys.exit(elastic_rules.main(
    ["--out", sys.argv[1], "--size", "quick", "--kinds", "text", "--seeds", "7", "--processes", "1"]
))
"""
    out = tmp_path / "elastic_rules.json"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script, str(out)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    assert record["experiment"] == elastic_accuracy.EXPERIMENT.name == elastic_rules.NAME
    (section,) = elastic_accuracy.sections(record["results"])
    assert "AdamW" in section.title
    assert section.ours.count("\n| ") >= len(RULES)
    assert len(elastic_accuracy.key_figures(record["results"])) == len(TRACES)
