"""How the service logs: one line for each event, as text or as JSON."""

import json
import logging
import sys
import time
from typing import Any

from typing_extensions import override

#: The attributes of every record; any other was given as `extra`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure_logs(form: str, level: str) -> None:
    """Write every log record of at least this level to standard error in this form."""
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(JsonLines() if form == "json" else Text())
    root = logging.getLogger()
    for other in list(root.handlers):
        root.removeHandler(other)
    root.addHandler(out)
    set_level(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # The service itself logs its start and stop.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Set the minimum log level."""
    logging.getLogger().setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _USUAL}


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class Text(logging.Formatter):
    """Time, level and event, and its data as key=value."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        given = [f"{name}={_shown(value)}" for name, value in _extra(record).items()]
        line = f"{moment} {record.levelname.lower():<7} {' '.join([record.getMessage(), *given])}"
        # Text that a user chose must not begin lines of its own, nor send codes to the terminal.
        line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: object) -> str:
    text = str(value)
    return (
        json.dumps(text) if not text or any(letter.isspace() or letter in '"=' for letter in text) else text
    )
