"""The page "Write your own policy" keeps its word: what it shows can be tested, installed and used by name."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

PAGE = Path(__file__).parents[2] / "docs" / "write-your-own-policy.md"
#: The laws are tried at length over our own policies.
FEW_EXAMPLES = """
from hypothesis import settings

settings.register_profile("few", max_examples=10)
settings.load_profile("few")
"""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def install(folder: Path) -> None:
    """Lay the files of the page into a folder, as an installed package and its tests."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    policy, _, contract, engine = (code for language, code in found if language == "python")
    (package,) = (tomllib.loads(code)["project"] for language, code in found if language == "toml")
    (folder / "worst_first.py").write_text(policy)
    (folder / "test_worst_first.py").write_text(contract)
    (folder / "test_engine.py").write_text(engine)
    (folder / "conftest.py").write_text(FEW_EXAMPLES)
    record = folder / "worst_first-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package['name']}\nVersion: {package['version']}\n"
    )
    groups = package["entry-points"].items()
    lines = [
        f"[{group}]\n" + "\n".join(f"{name} = {to}" for name, to in points.items())
        for group, points in groups
    ]
    (record / "entry_points.txt").write_text("\n".join(lines))


def python(folder: Path, *words: str) -> str:
    """Run Python in the folder, with the package there; return what it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_keeps_the_contracts(tmp_path: Path) -> None:
    """pytest runs every law over the policy and the engine of the page, and all hold."""
    install(tmp_path)
    printed = python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert re.search(r"^\d{2,} passed", printed, re.MULTILINE)


def test_the_example_is_used_by_name(tmp_path: Path) -> None:
    """Installed as the page says, the policy has a name on the command line."""
    install(tmp_path)
    python(tmp_path, "-m", "slaq", "workload", "generate", "-o", "jobs.jsonl", "--jobs", "4")
    printed = python(tmp_path, "-m", "slaq", "simulate", "jobs.jsonl", "--policy", "worst-first")
    assert "worst-first" in printed
