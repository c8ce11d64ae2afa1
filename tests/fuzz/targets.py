"""What fuzz targets share: how long they run, what they are fed, and which values are bounded."""

import functools
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from slaq.core.demand import Demand
from slaq.core.job import Observation
from slaq.engines.node.reports import NewDemand, NewRate, NewSource, NewTotal, Reading, as_json, item_from
from slaq.jobs.options import MOST_CORES

#: Seconds for all targets together, by hand; 0 for the few examples that every run of the tests tries.
SECONDS = float(os.environ.get("SLAQ_FUZZ_SECONDS", "0"))
EXAMPLES = 300
#: Seconds in which any parser has to be done with one example, on the slowest machine.
PATIENCE = 60.0

#: The bounds that hold for all that a job writes.
LARGEST_INTEGER, LARGEST_PID = 2**53, 2**31 - 1
MOST_METRICS, LONGEST_NAME, LONGEST_NOTICE = 64, 100, 600
MOST_SECONDS = 1e12

_laws: list[str] = []


def fuzz(**fed: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Turn a law into a test: on a few examples, always the same, or on random ones for its part of SECONDS."""

    def decorate(law: Callable[..., None]) -> Callable[[], None]:
        _laws.append(law.__name__)
        plan = settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=not SECONDS,
            database=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )

        @functools.wraps(law)
        def bounded_in_time(**example: Any) -> None:
            note(f"{example!r:.3000}")
            with finite_time():
                law(**example)

        try_examples = plan(given(**fed)(bounded_in_time))

        def test() -> None:
            until = time.monotonic() + SECONDS / len(_laws)
            try_examples()
            while time.monotonic() < until:
                try_examples()

        test.__name__, test.__qualname__, test.__doc__ = law.__name__, law.__qualname__, law.__doc__
        test.__module__ = law.__module__
        return test

    return decorate


@contextmanager
def finite_time() -> Iterator[None]:
    """Raise TimeoutError in a body that does not end."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done within {PATIENCE:g} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    left = signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, before)


# What they are fed: mutated real lines, lines of hostile values, raw bytes.

NUMBERS = st.sampled_from(
    [
        *(0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400, True),
        *(0.0, 0.5, -0.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, 1.7e9),
    ]
)
TEXTS = st.text(st.characters(), max_size=8) | st.sampled_from(
    [
        "",
        "1e999",
        "nan",
        "9" * 5000,
        "\ud800",
        "\udcff\ud83d",
        "\x1b[2J",
        "a\nb",
        "x" * 5000,
        "\0",
        "٣",
        "1_0",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | NUMBERS | st.floats() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
METRICS = st.dictionaries(TEXTS | st.sampled_from(["accuracy", "loss"]), VALUES, max_size=5) | st.integers(
    60, 400
).map(lambda count: {f"m{number}": 1.0 for number in range(count)})
DEMANDS = st.fixed_dictionaries(
    {},
    optional={
        "min_cores": VALUES,
        "max_cores": VALUES,
        "sizes": VALUES | st.sampled_from(["any", "whole"]) | st.lists(NUMBERS, max_size=4),
        "more": VALUES,
    },
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "iteration": st.integers(0, 20) | VALUES,
        "loss": st.floats() | VALUES,
        "time": st.just(1.5e9) | VALUES,
        "cpu": st.just(1.5) | VALUES,
        "pid": st.just(7) | VALUES,
        "metrics": METRICS | VALUES,
        "learning_rate": VALUES,
        "can_use": DEMANDS | VALUES,
        "step": st.integers(0, 20) | VALUES,
        "total": st.integers(0, 20) | VALUES,
    },
)


def _line(record: object) -> bytes:
    return json.dumps(record).encode()


def spoilt(lines: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return the lines with bytes replaced, left out or put in between."""
    change = st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3))

    def spoil(line: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
        for place, cut, put in changes:
            at = place % (len(line) + 1)
            line = line[:at] + put + line[at + cut :]
        return line

    return st.builds(spoil, lines, st.lists(change, max_size=4))


#: A report that is well but for one of its values, as most of a hostile job's would be.
REAL = st.builds(
    lambda odd: _line(
        {"iteration": 0, "loss": 0.5, "time": 1.7e9, "cpu": 1.5, "pid": 7, "metrics": {"accuracy": 1.0}} | odd
    ),
    st.sampled_from(["iteration", "loss", "time", "cpu", "pid", "learning_rate", "step", "total"]).flatmap(
        lambda key: st.fixed_dictionaries({key: NUMBERS | VALUES})
    )
    | st.fixed_dictionaries({"metrics": METRICS})
    | st.fixed_dictionaries({"can_use": DEMANDS}),
)
REPORTS = REAL | RECORDS.map(_line) | spoilt(REAL) | st.binary(max_size=60) | st.just(b"[" * 100_000)
REPORT_FILES = st.lists(REPORTS, max_size=8).map(b"\n".join)

CELLS = st.sampled_from(
    [
        *(
            b"loss",
            b"step,loss",
            b"0.5",
            b"3,0.25",
            b"nan",
            b"-inf",
            b"1e400",
            b"1_0",
            b"",
            b'"',
            b'"0.5',
            b",",
        ),
        *(
            b"\xff\xfe",
            b"\0",
            b"\xef\xbb\xbfloss",
            b"a;loss",
            b"a\tloss",
            b'{"loss": 0.5}',
            b'{"loss": "1e5"}',
        ),
        *(b'{"loss": 1' + b"0" * 500 + b"}", b"[" * 3000, b"x" * 70_000, b"0.5\r", b"\x0b0.5", b"\x85"),
    ]
)
LOSS_FILES = st.lists(CELLS | st.binary(max_size=30), max_size=8).map(b"\n".join)


# Which values are bounded.


def check_number(value: object) -> None:
    """A real number, which may be NaN or infinite."""
    assert type(value) is float


def check_seconds(value: object) -> None:
    """A finite number of seconds, or a moment, that arithmetic and stores can take."""
    assert isinstance(value, float)
    assert abs(value) <= MOST_SECONDS


def check_whole(value: object) -> None:
    """A whole number that a float holds exactly and a database takes."""
    assert type(value) is int
    assert 0 <= value <= LARGEST_INTEGER


def check_text(value: object, longest: int) -> None:
    """A text that can be stored and sent."""
    assert isinstance(value, str)
    assert len(value) <= longest
    value.encode()


def check_metrics(metrics: Mapping[str, float]) -> None:
    """A few numbers with names that can be shown."""
    assert len(metrics) <= MOST_METRICS
    for name, value in metrics.items():
        check_text(name, LONGEST_NAME)
        assert name.isprintable()
        check_number(value)


def check_demand(demand: Demand) -> None:
    """What an owner could have asked for."""
    assert 0.0 <= demand.least <= MOST_CORES
    assert demand.most is None or 0.0 < demand.most <= MOST_CORES
    if not isinstance(demand.sizes, str):
        assert list(demand.sizes) == sorted(set(demand.sizes))
        assert 0 < len(demand.sizes) <= 1000
        assert all(0.0 < size <= MOST_CORES for size in demand.sizes)


def check_item(item: object) -> None:
    """One loss, learning rate, demand or number of iterations, as it was read."""
    if isinstance(item, NewTotal):
        check_whole(item.iterations)
        assert item.iterations > 0
        check_seconds(item.at)
    elif isinstance(item, NewSource):
        sent = item_from(as_json(item))
        assert isinstance(sent, NewSource)
        assert len(sent.others) <= MOST_METRICS
        for text in (sent.series, sent.place, sent.trouble, *sent.others):
            check_text(text, LONGEST_NOTICE)
            assert text.isprintable()
    elif isinstance(item, NewDemand):
        check_demand(item.demand)
        check_seconds(item.at)
    elif isinstance(item, NewRate):
        check_number(item.learning_rate)
        check_seconds(item.at)
    else:
        assert isinstance(item, Reading)
        check_number(item.loss)
        for whole in (item.iteration, item.reach):
            if whole is not None:
                check_whole(whole)
        if item.at is not None:
            check_seconds(item.at)
        if item.cpu is not None:
            check_seconds(item.cpu)
            assert item.cpu >= 0.0
        check_metrics(item.metrics)


def check_observation(seen: Observation) -> None:
    """What is stored of a loss."""
    check_whole(seen.iteration)
    check_number(seen.loss)
    for seconds in (seen.cpu_seconds, seen.wall_seconds):
        check_seconds(seconds)
        assert seconds >= 0.0
