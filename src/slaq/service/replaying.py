"""Plays the present cluster forward in a process of its own: `python -m slaq.service.replaying`, JSON in and out.

A replay takes seconds of CPU time, in which the service has to go on deciding.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slaq.bootstrap import make_live_policy
from slaq.core.errors import ConflictError
from slaq.core.job import JobSpec, Kind
from slaq.core.policies import BetweenOwners
from slaq.simulation.whatif import Alternative, Situation, replay

#: Seconds that a replay may take.
LONGEST = 300.0
#: How far it stands back for the jobs and the service itself.
NICENESS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One way to go on, by names and numbers."""

    name: str
    policy: str
    cores: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be played, how far ahead, and under what."""

    situation: Situation
    courses: Sequence[Course]
    #: How capacity is shared between owners: the arguments of `BetweenOwners` beside the policy.
    sharing: Mapping[str, Any]
    horizon: float
    seed: int | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        plain = asdict(self)
        plain["situation"]["roster"] = base64.b64encode(self.situation.roster).decode()
        return plain

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Question":
        """Return what `as_json` made."""
        said = dict(found["situation"])
        said["roster"] = base64.b64decode(said["roster"])
        said["queued"] = tuple(JobSpec(**{**spec, "kind": Kind(spec["kind"])}) for spec in said["queued"])
        courses = [Course(**course) for course in found["courses"]]
        return cls(**{**found, "situation": Situation(**said), "courses": courses})

    def answer(self) -> list[dict[str, Any]]:
        """Return how the jobs fare under each course."""
        alternatives = [
            Alternative(
                name=course.name,
                policy=BetweenOwners(make_live_policy(course.policy), **self.sharing),
                capacity=course.capacity,
            )
            for course in self.courses
        ]
        replays = replay(self.situation, alternatives, horizon=self.horizon, seed=self.seed)
        return [
            {**played.as_json(), "policy": course.policy, "cores": course.cores}
            for played, course in zip(replays, self.courses, strict=True)
        ]


def ask(question: Question) -> list[dict[str, Any]]:
    """Return the answer, worked out in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "slaq.service.replaying"],
            input=json.dumps(question.as_json()).encode(),
            capture_output=True,
            timeout=LONGEST,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise ConflictError(
            f"the replay took longer than {LONGEST:.0f} seconds", "give a shorter horizon"
        ) from None
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    os.nice(NICENESS)
    json.dump(Question.of(json.load(sys.stdin)).answer(), sys.stdout)
