"""slaq: a scheduler that gives capacity to the training jobs whose loss will fall the most.

The names below load on first use, so that `import slaq` costs a training script next to nothing.
"""

from importlib import import_module

# Type checkers read any constant of this name as true; importing the one in typing takes longer than all
# the rest here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from slaq.cluster import Cluster
    from slaq.core.errors import SlaqError
    from slaq.core.forecast import Forecast, forecast
    from slaq.elastic_training import elastic
    from slaq.handle import Job
    from slaq.jobs.context import Cancelled, Context
    from slaq.jobs.data import Dataset
    from slaq.jobs.share import Share, share
    from slaq.reporting import announce, can_use, report

    __version__: str

__all__ = [
    "Cancelled",
    "Client",
    "Cluster",
    "Context",
    "Dataset",
    "Forecast",
    "Job",
    "Share",
    "SlaqError",
    "__version__",
    "announce",
    "can_use",
    "connect",
    "elastic",
    "forecast",
    "report",
    "share",
]

_HOME = {
    "Cancelled": "slaq.jobs.context",
    "Client": "slaq.client",
    "Cluster": "slaq.cluster",
    "Context": "slaq.jobs.context",
    "Dataset": "slaq.jobs.data",
    "Forecast": "slaq.core.forecast",
    "Job": "slaq.handle",
    "Share": "slaq.jobs.share",
    "SlaqError": "slaq.core.errors",
    "announce": "slaq.reporting",
    "can_use": "slaq.reporting",
    "connect": "slaq.client",
    "elastic": "slaq.elastic_training",
    "forecast": "slaq.core.forecast",
    "report": "slaq.reporting",
    "share": "slaq.jobs.share",
}

# Hidden from type checkers, which would otherwise take every misspelt name for a lazy one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            value = version("slaq")
        elif name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        else:
            raise AttributeError(f"module 'slaq' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
