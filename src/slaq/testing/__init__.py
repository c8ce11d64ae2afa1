"""Contract suites: the laws that every policy, engine and store obeys, as test classes to subclass.

They need pytest and hypothesis, which `slaq[testing]` installs.
"""

from slaq.core.extras import needs

with needs("testing"):
    import hypothesis  # noqa: F401
    import pytest

# The suites are not test modules themselves, so pytest has to be told to explain their assertions.
pytest.register_assert_rewrite(
    *(f"slaq.testing.{name}" for name in ("engine_contract", "policy_contract", "store_contract"))
)

from slaq.testing.engine_contract import Bench, EngineContract  # noqa: E402
from slaq.testing.policy_contract import PolicyContract  # noqa: E402
from slaq.testing.store_contract import StoreContract, SubmittingStore  # noqa: E402
from slaq.testing.strategies import candidates, equal_jobs  # noqa: E402

__all__ = [
    "Bench",
    "EngineContract",
    "PolicyContract",
    "StoreContract",
    "SubmittingStore",
    "candidates",
    "equal_jobs",
]
