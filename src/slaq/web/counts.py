"""The HTTP metrics: requests by route and status, and how long they took."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestCounts:
    """Counts requests; a registry of its own, so that several services can live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "slaq_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "slaq_http_request_seconds",
            "Seconds from the head of a request to the end of its response.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> str:
        """Return the counts in the text format of Prometheus."""
        return generate_latest(self._registry).decode()
