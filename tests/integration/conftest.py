"""Fixtures that several integration tests share."""

from tests.integration.opening import open_service

__all__ = ["open_service"]
