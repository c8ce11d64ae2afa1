"""Laws of the environment that goes along with a job: what is on the list, all of it, and nothing else."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slaq.client.endpoint import PASSED_ON, PASSED_ON_BEGINNINGS, surroundings

PAGE = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text(encoding="utf-8")


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,12}", fullmatch=True), st.text(max_size=5)))
def test_nothing_else_goes_along(environ: dict[str, str]) -> None:
    """What goes along has its value, and a name that is listed or begins as listed."""
    for name, value in surroundings(environ).items():
        assert environ[name] == value
        assert name in PASSED_ON or name.startswith(PASSED_ON_BEGINNINGS)


def test_what_people_rely_on_goes_along() -> None:
    """Devices, trackers, frameworks, virtual environments and the locale are those of the shell."""
    relied_on = {
        *(
            "CUDA_VISIBLE_DEVICES",
            "WANDB_API_KEY",
            "HF_HOME",
            "HF_TOKEN",
            "MLFLOW_TRACKING_URI",
            "VIRTUAL_ENV",
        ),
        *("TRANSFORMERS_CACHE", "KERAS_BACKEND", "TORCH_HOME", "CONDA_PREFIX", "PATH", "LC_NUMERIC", "LANG"),
    }
    environ = dict.fromkeys(relied_on | {"AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "OMP_NUM_THREADS"}, "x")
    assert surroundings(environ).keys() == relied_on


def test_the_list_is_the_documented_one() -> None:
    """docs/scripts.md lists every name and every beginning, and no other."""
    section = PAGE.split("## The environment")[1].split("`--env NAME=VALUE`")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("| ") and "`" in line)
    named = set(re.findall(r"`([A-Z_0-9]+\*?)`", rows))
    small = {name for name in PASSED_ON if name.islower()}
    assert named == (PASSED_ON - small) | {f"{beginning}*" for beginning in PASSED_ON_BEGINNINGS}
    assert {name.upper() for name in small} <= named
