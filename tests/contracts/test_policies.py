"""Every policy that slaq brings keeps the policy contract."""

from collections.abc import Sequence
from typing import ClassVar

from slaq.bootstrap import LIVE_POLICIES, make_policy
from slaq.core.allocation import Policy
from slaq.core.policies import Deadline, MinQuality, TotalQuality
from slaq.testing import PolicyContract


class TestPolicies(PolicyContract):
    policies: ClassVar[Sequence[Policy]] = [make_policy(name) for name in LIVE_POLICIES]


class TestHighFloors(PolicyContract):
    policies: ClassVar[Sequence[Policy]] = [TotalQuality(0.5), MinQuality(0.5), Deadline(0.5)]
