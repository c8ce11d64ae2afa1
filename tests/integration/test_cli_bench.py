"""Laws of `slaq bench decide`."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from slaq.cli.main import main
from slaq.core.policies import TotalQuality
from slaq.simulation.rehearsal import rehearse

DECIDE = ["bench", "decide", "--json"]
FIELDS = {"jobs", "units", "policy", "decisions", "median_ms", "p99_ms", "peak_memory_mb"}


def test_json_has_the_documented_fields() -> None:
    """--json prints one object, with the reference and what it was scaled from."""
    result = CliRunner().invoke(main, [*DECIDE, "--jobs", "40", "--units", "100", "--repeat", "3"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == FIELDS | {"reference_ms", "reference_scaled_from"}
    assert found["reference_scaled_from"] == {"fits": 30, "units": 100}
    assert found["decisions"] == 3


def test_the_reference_can_be_left_out() -> None:
    """--no-reference times slaq alone; the table still comes."""
    alone = ["--jobs", "10", "--units", "10", "--repeat", "1", "--no-reference"]
    assert set(json.loads(CliRunner().invoke(main, [*DECIDE, *alone]).stdout)) == FIELDS
    assert "median of 1" in CliRunner().invoke(main, [*DECIDE[:2], *alone]).stdout


@pytest.mark.parametrize("jobs", [1, 7, 1500])
def test_a_rehearsed_decision_is_a_real_one(jobs: int) -> None:
    """Each decision takes in one loss per job and hands out every unit that can be used."""
    rehearsal = rehearse(jobs, 200, TotalQuality(), np.random.default_rng(0))
    before = rehearsal.roster.observed.sum()
    decision = rehearsal.decide()
    assert rehearsal.roster.observed.sum() == before + jobs
    limit = rehearsal.roster.most[rehearsal.roster.rows()].sum()
    assert decision.cores.sum() == min(200, limit)
    assert len(decision.expected) == jobs
