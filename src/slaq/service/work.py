"""Converts a submission to the spec for the scheduler."""

import re
from dataclasses import replace

from slaq.core.job import JobSpec
from slaq.jobs.specs import spec_of
from slaq.service.records import Submission


def identifier(name: str) -> str:
    """Return a name as it can stand in a job's id."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-")[:60] or "job"


def spec_for(submission: Submission, job_id: str, owner: str, *, now: float, watched: bool) -> JobSpec:
    """Return the spec of a submitted job; a watched job gets no cores."""
    spec = spec_of(submission.options, job_id, now=now, owner=owner)
    return replace(spec, trains=False, reserved=0.0) if watched else spec
