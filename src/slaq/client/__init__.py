"""The client of the service: `slaq.connect()`, and the same handle to a job as in the embedded cluster."""

from slaq.client.client import Client, connect
from slaq.client.job import ServiceJob

__all__ = ["Client", "ServiceJob", "connect"]
