"""How the service logs: one line for each event, as text or as JSON, and no flood of events of one kind."""

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from slaq.core.visible import visible

#: Lines of one kind and one user that are written in one period, and its seconds.
MOST_LINES, PERIOD = 120, 60.0
#: Kinds that are counted apart; all further ones count as one.
MOST_KINDS = 1000
#: Letters of one value in a text line.
LONGEST_VALUE = 2000

#: The attributes of every record; any other was given as `extra`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure_logs(form: str, level: str) -> None:
    """Write every log record of at least this level to standard error in this form."""
    out = Handler()
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


@dataclass(slots=True)
class _Kind:
    """The lines of one kind in the present period."""

    began: float
    written: int = 0
    left_out: int = 0


class Handler(logging.StreamHandler[Any]):
    """Writes to standard error: so many lines a minute of each kind and user, and later how many more came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(sys.stderr)
        self._clock = clock
        self._kinds: dict[tuple[str, ...], _Kind] = {}

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.tell_left_out()
        kind = _kind_of(record)
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = ("everything else",)
        lines = self._kinds.setdefault(kind, _Kind(self._clock()))
        if lines.written < MOST_LINES:
            lines.written += 1
            super().emit(record)
        else:
            lines.left_out += 1

    def tell_left_out(self) -> None:
        """Write how many lines were left out in periods that are over."""
        now = self._clock()
        self.acquire()
        try:
            over = [kind for kind, lines in self._kinds.items() if now - lines.began >= PERIOD]
            for kind in over:
                lines = self._kinds.pop(kind)
                if lines.left_out:
                    told = {
                        "count": lines.left_out,
                        "seconds": round(now - lines.began),
                        "like": ", ".join(kind),
                    }
                    about = {"name": __name__, "levelname": "WARNING", "msg": "lines left out", **told}
                    super().emit(logging.makeLogRecord(about))
        finally:
            self.release()


def tell_left_out() -> None:
    """Write how many lines the service's log has left out lately."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Handler):
            handler.tell_left_out()


def _kind_of(record: logging.LogRecord) -> tuple[str, ...]:
    """Return what makes records alike: where they come from, what they say first, and about whom."""
    extra = vars(record)
    whose = (str(extra[name]) for name in ("user", "owner", "uid", "address") if extra.get(name) is not None)
    return record.name, record.levelname.lower(), str(record.msg).partition("\n")[0][:80], *whose


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
        line = visible(line)
        return (
            f"{line}\n{visible(self.formatException(record.exc_info), lines=True)}"
            if record.exc_info
            else line
        )


def _shown(value: object) -> str:
    text = str(value)[:LONGEST_VALUE]
    return (
        json.dumps(text) if not text or any(letter.isspace() or letter in '"=' for letter in text) else text
    )
