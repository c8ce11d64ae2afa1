"""Takes keys out of one table of the file: each with the type and range it must have, else a mistake."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from slaq.config.lines import Lines, Place
from slaq.core.errors import JobsFileError, SlaqError, UnknownNameError

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_SECONDS = (86400.0, 3600.0, 60.0, 1.0)
DURATION_REMEDY = 'give seconds, or a text such as "90s", "10m" or "1h30m"'


class Mistake(NamedTuple):
    """One thing that has to be put right."""

    #: Counted from 1.
    line: int
    found: str
    remedy: str


class Notes:
    """Collects the mistakes of a file, so that all of them are told at once."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = Lines(text)
        # A grid repeats the mistakes of its job: each is kept once.
        self._mistakes: dict[Mistake, None] = {}

    def add(self, place: Place, found: str, remedy: str) -> None:
        """Note a mistake."""
        self._mistakes[Mistake(line=self._lines.of(place), found=found, remedy=remedy)] = None

    def add_error(self, place: Place, error: SlaqError) -> None:
        """Note what an error says: what was found, and after the semicolon what to do."""
        found, _, remedy = str(error).partition("; ")
        self.add(place, found, remedy or "correct it")

    def __len__(self) -> int:
        return len(self._mistakes)

    def raise_any(self) -> None:
        """Raise all mistakes there are, in the order of the file."""
        if self._mistakes:
            ordered = sorted(self._mistakes, key=lambda mistake: mistake.line)
            raise JobsFileError(str(self.path), ordered)


class Section:
    """One table. Whatever is not taken from it by the end is a mistake."""

    def __init__(self, values: Mapping[str, Any], place: Place, notes: Notes) -> None:
        self.values = dict(values)
        self._given = values
        self.place = place
        self.notes = notes
        self._asked: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def had(self, key: str) -> bool:
        """Return whether the key was there, taken or not."""
        return key in self._given

    def given(self, key: str) -> Any:
        """Return the value of a key as it was, taken or not."""
        return self._given[key]

    def note(self, key: str, found: str, remedy: str) -> None:
        """Note a mistake at a key."""
        self.notes.add((*self.place, key), found, remedy)

    def take(self, key: str, wanted: str, *types: type) -> Any:
        """Take the value of a key if it has one of the types; None where it has not, or there is none."""
        self._asked.append(key)
        if key not in self.values:
            return None
        value = self.values.pop(key)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            self.note(key, f"{key} is {described(value)}", f"give {wanted}")
            return None
        return value

    def whole(self, key: str, *, least: int) -> int | None:
        """Take a whole number of at least so much."""
        wanted = f"a whole number of at least {least}"
        value = self.take(key, wanted, int)
        if value is not None and not least <= value < 2**53:
            self.note(key, f"{key} is {value}", f"give {wanted}")
            return None
        return value  # type: ignore[no-any-return]

    def number(
        self,
        key: str,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
        wanted: str = "a number",
    ) -> float | None:
        """Take a finite number within the bounds."""
        value = self.take(key, wanted, int, float)
        if value is None:
            return None
        if not (math.isfinite(value) and above < value and least <= value <= most):
            self.note(key, f"{key} is {value}", f"give {wanted}")
            return None
        return float(value)

    def duration(self, key: str, *, zero: bool = False) -> float | None:
        """Take seconds, given as a number or as a text with units; above 0 unless `zero` is as good."""
        value = self.take(key, DURATION_REMEDY.removeprefix("give "), int, float, str)
        if value is None:
            return None
        seconds = seconds_of(value) if isinstance(value, str) else float(value)
        if seconds is None or not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
            self.note(key, f"{key} is {value!r}", DURATION_REMEDY)
            return None
        return seconds

    def text(self, key: str, wanted: str = "a text") -> str | None:
        """Take a text that is not empty."""
        value = self.take(key, wanted, str)
        if value is not None and not value.strip():
            self.note(key, f"{key} is empty", f"give {wanted}")
            return None
        return value  # type: ignore[no-any-return]

    def choice(self, key: str, kind: str, known: Sequence[str]) -> str | None:
        """Take one of the known names."""
        value = self.text(key, f"one of {', '.join(known)}")
        if value is not None and value not in known:
            self.notes.add_error((*self.place, key), UnknownNameError(kind, value, known))
            return None
        return value

    def path(self, key: str) -> Path | None:
        """Take a path, relative to the file's folder."""
        value = self.text(key, "a path, relative to this file")
        return None if value is None else self.notes.path.parent / Path(value).expanduser()

    def table(self, key: str, wanted: str) -> "Section | None":
        """Take a table within this one."""
        value = self.take(key, wanted, dict)
        return None if value is None else Section(value, (*self.place, key), self.notes)

    def pass_over(self, *keys: str) -> None:
        """Let the keys be, whatever they hold."""
        for key in keys:
            self._asked.append(key)
            self.values.pop(key, None)

    def refuse(self, keys: Sequence[str], why: str, remedy: str) -> None:
        """Note each of the keys that is there as one that belongs elsewhere."""
        for key in keys:
            if self.values.pop(key, None) is not None:
                self.note(key, f"{key} {why}", remedy)

    def close(self, kind: str) -> None:
        """Note every key that nobody asked for."""
        for key in self.values:
            close = get_close_matches(key, self._asked, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            self.note(key, f"{kind} has no key {key!r}", f"{hint}known: {', '.join(self._asked)}")


def seconds_of(text: str) -> float | None:
    """Return the seconds that a text such as 1h30m names; None where it names none."""
    match = _DURATION.fullmatch(text.strip().replace(" ", ""))
    if match is None or not any(match.groups()):
        try:
            return float(text)
        except ValueError:
            return None
    return sum(float(part) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True) if part)


def described(value: object) -> str:
    """Return what a TOML value is, for a person: its kind, and the value where that is short."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a text"),
        (list, "a list"),
        (dict, "a table"),
        ((date, time), "a date or time"),
    )
    kind = next((name for types, name in kinds if isinstance(value, types)), type(value).__name__)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    shown = repr(value)
    return f"the text {shown}" if isinstance(value, str) and len(shown) <= 40 else kind
