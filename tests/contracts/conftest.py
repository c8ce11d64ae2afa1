"""The contracts are not test modules themselves, so pytest has to be told to explain their assertions."""

import pytest

pytest.register_assert_rewrite("tests.contracts.engine_contract", "tests.contracts.store_contract")
