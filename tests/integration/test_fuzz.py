"""Rubbish into every file that users write: one clear error or none, never a crash, never a hang.

What jobs write is in tests/fuzz.
"""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slaq.bootstrap import LIVE_POLICIES, jobs_vocabulary
from slaq.config import read_job, read_jobs_file
from slaq.config.service import AllowedNames, SettingsSources, read_settings
from slaq.config.tokens import read_tokens
from slaq.core.errors import SlaqError

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: Text that looks a little like what is read.
WORDS = st.sampled_from(
    [
        *(
            "[cluster]",
            "[[job]]",
            "[service]",
            "[users.x]",
            "[[token]]",
            "name",
            "=",
            '"a"',
            "algorithm",
            "command",
        ),
        *(
            "{grid = [1]}",
            "data",
            "lda",
            "-1",
            "1e999",
            "nan",
            "[",
            "]",
            "{",
            "}",
            '"""',
            "#",
            "\n",
            "\t",
            ",",
            "\\",
        ),
        *(
            "policy",
            "tcp",
            '"0.0.0.0:1"',
            "weight",
            "epoch_seconds",
            "0",
            "true",
            "loss",
            "iteration",
            "\r\n",
            "é",
        ),
    ]
)
TOMLISH = st.lists(WORDS, max_size=40).map(" ".join)
JSONISH: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["algorithm", "program", "command", "data", "parameters", "name", "weight", "max_cores", "target", "grid"]
)


@quick
@given(TOMLISH | st.text(max_size=200))
def test_jobs_files(tmp_path: Path, text: str) -> None:
    """A jobs file is read, or refused with its mistakes."""
    path = tmp_path / "jobs.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass" if text.isprintable() else "replace")
    with suppress(SlaqError):
        read_jobs_file(path, jobs_vocabulary())


@quick
@given(st.dictionaries(KEYS | st.text(max_size=8), JSONISH, max_size=5))
def test_job_tables(tmp_path: Path, table: dict[str, object]) -> None:
    """A table that came over the network is read, or refused with its mistakes."""
    with suppress(SlaqError):
        read_job(table, tmp_path / "job.toml", jobs_vocabulary())


@quick
@given(TOMLISH | st.text(max_size=200))
def test_settings_files(tmp_path: Path, text: str) -> None:
    """A file of settings is read, or refused with its mistakes; so is one of tokens."""
    path = tmp_path / "slaq.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    given_ = SettingsSources(config=path, texts={"home": str(tmp_path)})
    with suppress(SlaqError):
        read_settings(given_, AllowedNames(policies=LIVE_POLICIES, throttles=("cgroup1",)))
    with suppress(SlaqError):
        read_tokens(path)


@pytest.mark.parametrize("text", ["\0", "[[job]]\n" * 5000, "a" * 100_000, "[" * 10_000, "x = " + "[" * 5000])
def test_large_and_deep_files(tmp_path: Path, text: str) -> None:
    """Size and depth are no way to crash the reading of a file."""
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    with pytest.raises(SlaqError):
        read_jobs_file(path, jobs_vocabulary())
