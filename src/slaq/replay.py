"""Answers one what-if question of the service: `python -m slaq.replay`, JSON in on standard input and out."""

import json
import os
import sys
from typing import Any

from slaq.bootstrap import make_live_policy
from slaq.core.policies import BetweenOwners, searching
from slaq.service.replaying import Question
from slaq.simulation.whatif import Alternative, replay

#: Niceness of a replay, so that jobs and the service get CPU first.
NICENESS = 10


def answer(question: Question) -> list[dict[str, Any]]:
    """Return how the jobs fare under each alternative."""
    alternatives = [
        Alternative(
            name=asked.name,
            policy=BetweenOwners(searching(make_live_policy(asked.policy)), **question.sharing),
            capacity=asked.cores,
        )
        for asked in question.alternatives
    ]
    replays = replay(question.situation, alternatives, horizon=question.horizon, seed=question.seed)
    return [
        {**played.as_json(), "policy": asked.policy, "cores": asked.cores}
        for played, asked in zip(replays, question.alternatives, strict=True)
    ]


if __name__ == "__main__":
    os.nice(NICENESS)
    json.dump(answer(Question.of(json.load(sys.stdin))), sys.stdout)
