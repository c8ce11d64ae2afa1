"""Values that options of jobs refuse, and the sentence that they are refused with."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from slaq.core.errors import JobOptionError
from slaq.jobs.options import OptionSet

NAN, INFINITY = math.nan, math.inf
#: Values that each option refuses, as Python, TOML and JSON hold them.
BAD: dict[str, list[Any]] = {
    "name": ["", "two words", "../x", ".hidden", "x" * 81, 3],
    "weight": [0, -1, NAN, INFINITY, 1e7, "much", True],
    "min_cores": [-1, NAN, INFINITY, "two"],
    "max_cores": [0, -2, NAN, INFINITY, True],
    "sizes": ["half", [], [0], [1, NAN], [1, "two"], 2],
    "target_loss": [NAN, INFINITY, -INFINITY, "low"],
    "stop_at": [0, 1.5, -0.1, NAN, "95%"],
    "deadline": [0, -5, NAN, INFINITY, "soon", "1m2h"],
    "max_iterations": [0, 1.5, NAN, INFINITY, "many"],
    "on_nan": ["ask", 1, True],
    "trains": ["no", 0],
    "maximize": ["yes", 1],
    "arrival": [-1, NAN, INFINITY, "tomorrow"],
    "after": ["net", ["", "a"], [1]],
    "after_any": ["net", ["", "a"], [1]],
    "time_budget": [0, NAN, INFINITY, "tomorrow"],
    "partitions": [0, 2.5, NAN, "all"],
    "memory": [0, -1, NAN, INFINITY, 0.5, "4 pages"],
    "threads": [0, -1, 1.5, NAN, "many"],
    "retry": [-1, 0.5, NAN, "often"],
    "task_timeout": [0, NAN, "never"],
    "checkpoint": ["", 3],
    "tags": ["night", ["two words"], [""], [1], [f"t{k}" for k in range(51)]],
    "group": ["", "two words", "../x", "x" * 81, 3],
    "policy": ["", "fair", "best_first", 1],
    "stop_losers": ["yes", 1],
    "parameters": ["lr=1", {"a b": 1}, {"": 1}, {"a": [1]}, {"a": None}, {"a": "x" * 1001}, {"a": 2**63}],
    "notify": ["", 3, ["mail"], "x" * 10_001],
    "user": ["", "two words", 3],
    "if_lost": ["ask", 1],
    "grace": [-1, NAN, INFINITY, 601, "soon"],
    "cwd": ["", 3],
    "env": [{"A": 1}, {"A=B": "c"}, {"": "c"}, ["A"]],
    "python": ["", 3],
    "loss_pattern": ["(", "loss", "(a)(b)", "", 3],
    "loss_file": ["", 3],
    "loss_column": ["", 3],
    "loss": ["", 3],
}
#: Sound options that do not go together, and the one that is refused.
CONFLICTS: list[tuple[str, dict[str, Any]]] = [
    ("min_cores", {"min_cores": 2, "max_cores": 1}),
    ("sizes", {"sizes": [2, 4], "max_cores": 1}),
    ("loss_file", {"loss_pattern": "loss (.+)", "loss_file": "l.csv"}),
    ("loss_column", {"loss_column": "error"}),
    ("loss", {"loss": "rmse", "loss_pattern": "loss (.+)"}),
    ("trains", {"loss": "rmse", "trains": False}),
    ("trains", {"trains": False, "loss_file": "l.csv"}),
    ("stop_losers", {"stop_losers": True}),
    ("policy", {"policy": "best-first", "group": "net", "trains": False}),
]
REFUSED = [(name, {name: value}) for name, values in BAD.items() for value in values] + CONFLICTS


def sentence_of(name: str, options: Mapping[str, Any], taken: OptionSet[Any]) -> str:
    """Return the sentence that the definition refuses the options with."""
    with pytest.raises(JobOptionError) as refused:
        taken.complete(options)
    assert refused.value.option == name
    return str(refused.value)
