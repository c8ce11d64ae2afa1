"""Laws of rankings: the best comes first, and never a job that diverged."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slaq.jobs.ranking import diverged, ranked, unfinished, winner

JOBS = st.lists(
    st.builds(
        lambda best, diverged, state: {"best_loss": best, "diverged": diverged, "state": state},
        st.none() | st.sampled_from([0.5, 1.0, 2.0]) | st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.sampled_from(["queued", "running", "completed", "failed"]),
    ),
    max_size=12,
)


@given(JOBS, st.booleans())
def test_a_ranking_is_in_order(jobs: list[dict[str, Any]], maximize: bool) -> None:
    """Jobs with a loss that have not diverged come first, the best ahead; then diverged ones; then the others."""
    jobs = [{**job, "number": number, "maximize": maximize} for number, job in enumerate(jobs)]
    found = ranked(jobs)
    assert sorted(job["number"] for job in found) == list(range(len(jobs)))
    kinds = [2 if job["best_loss"] is None else int(diverged(job)) for job in found]
    assert kinds == sorted(kinds)
    for first, second in pairwise(found):
        if first["best_loss"] is None or second["best_loss"] is None or diverged(first) != diverged(second):
            continue
        gap = first["best_loss"] - second["best_loss"]
        assert gap >= 0 if maximize else gap <= 0
        # Ties stay in the order in which the jobs came.
        assert gap != 0 or first["number"] < second["number"]


@given(JOBS)
def test_the_best_has_a_loss_and_has_not_diverged(jobs: list[dict[str, Any]]) -> None:
    """There is a best job where any has a loss and has not diverged, and none else."""
    fit = [job for job in jobs if job["best_loss"] is not None and not job["diverged"]]
    best = winner(jobs)
    assert (best is None) == (not fit)
    assert best is None or best["best_loss"] == min(job["best_loss"] for job in fit)
    assert unfinished(jobs) == sum(job["state"] in ("queued", "running") for job in jobs)
