"""The code keeps its shape: functions fit a screen, and a name of a class has one meaning."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "slaq"
#: A function may not reach this many lines; 95 of a hundred have no more than `USUAL`.
TOO_LONG, USUAL = 60, 25


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Yield every node of every module."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(SOURCES), node


def test_functions_fit_a_screen() -> None:
    """No function has 60 lines, and 95 of a hundred have 25 at most."""
    lengths = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {where: length for where, length in lengths.items() if length >= TOO_LONG} == {}
    assert sorted(lengths.values())[int(0.95 * len(lengths))] <= USUAL


def test_no_two_classes_have_one_name() -> None:
    """A reader who finds a class by its name has found the right one."""
    names = Counter(node.name for _, node in nodes() if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []
