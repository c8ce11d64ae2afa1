"""Simulates the present cluster in a separate process, because the service must not stop deciding."""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slaq.core.errors import ConflictError
from slaq.core.job import JobSpec
from slaq.simulation.whatif import Situation
from slaq.stores.sqlite.packing import rebuilt

#: Seconds that a replay may take.
LONGEST = 300.0
#: The program that answers a question: JSON in on standard input, JSON out on standard output.
PROGRAM = "slaq.replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAlternative:
    """One policy and capacity to simulate, by name and number."""

    name: str
    policy: str
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to simulate, how far ahead, and under which policies."""

    situation: Situation
    alternatives: Sequence[NamedAlternative]
    #: How capacity is shared between owners: the arguments of `BetweenOwners` beside the policy.
    sharing: Mapping[str, Any]
    #: Seconds to look ahead.
    horizon: float
    seed: int | None

    def as_json(self) -> dict[str, Any]:
        """Return a form that JSON can hold."""
        plain = asdict(self)
        plain["situation"]["roster"] = base64.b64encode(self.situation.roster).decode()
        return plain

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Question":
        """Return the question that `as_json` wrote."""
        said = dict(found["situation"])
        said["roster"] = base64.b64decode(said["roster"])
        said["queued"] = tuple(rebuilt(JobSpec, spec) for spec in said["queued"])
        alternatives = [NamedAlternative(**one) for one in found["alternatives"]]
        return cls(**{**found, "situation": Situation(**said), "alternatives": alternatives})


def ask(question: Question) -> list[dict[str, Any]]:
    """Return how the jobs fare under each alternative, as JSON."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM],
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
