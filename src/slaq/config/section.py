"""Takes keys out of one TOML table, and notes values of the wrong type or range as mistakes."""

import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from slaq.config.lines import Lines, Place
from slaq.core.errors import JobOptionError, JobsFileError, SlaqError, UnknownNameError
from slaq.jobs.options import Option


class Mistake(NamedTuple):
    """One mistake in a file."""

    #: Counted from 1.
    line: int
    found: str
    remedy: str


class Diagnostics:
    """Collects the mistakes of a file, so that all of them are reported at once."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = Lines(text)
        # A grid repeats the mistakes of its job: each is kept once.
        self._mistakes: dict[Mistake, None] = {}

    def add(self, place: Place, found: str, remedy: str) -> None:
        """Note a mistake."""
        self._mistakes[Mistake(line=self._lines.of(place), found=found, remedy=remedy)] = None

    def add_error(self, place: Place, error: SlaqError) -> None:
        """Add an error whose message is what was found, a semicolon, and what to do."""
        found, _, remedy = str(error).partition("; ")
        self.add(place, found, remedy or "correct it")

    def __len__(self) -> int:
        return len(self._mistakes)

    def raise_any(self) -> None:
        """Raise the mistakes, if there are any, in the order of the file."""
        if self._mistakes:
            ordered = sorted(self._mistakes, key=lambda mistake: mistake.line)
            raise JobsFileError(str(self.path), ordered)


class Section:
    """One table; a key that is not taken from it by the end is a mistake."""

    def __init__(self, values: Mapping[str, Any], place: Place, diagnostics: Diagnostics) -> None:
        self.values = dict(values)
        self._given = values
        self.place = place
        self.diagnostics = diagnostics
        self._asked: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def had(self, key: str) -> bool:
        """Return whether the table has the key."""
        return key in self._given

    def given(self, key: str) -> Any:
        """Return the value of a key in the table."""
        return self._given[key]

    def note(self, key: str, found: str, remedy: str) -> None:
        """Note a mistake at a key."""
        self.diagnostics.add((*self.place, key), found, remedy)

    def take(self, key: str, wanted: str, *types: type) -> Any:
        """Take the value of a key if it has one of the types; None for a missing key, or for a mistake."""
        self._asked.append(key)
        if key not in self.values:
            return None
        value = self.values.pop(key)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            self.note(key, f"{key} is {described(value)}", f"give {wanted}")
            return None
        return value

    def whole(self, key: str, *, least: int) -> int | None:
        """Take a whole number of at least `least`."""
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

    def option(self, option: Option) -> Any:
        """Take an option of a job; None for a missing key, or for a mistake."""
        self._asked.append(option.name)
        if option.name not in self.values:
            return None
        try:
            return option.read(self.values.pop(option.name))
        except JobOptionError as error:
            self.note(option.name, *error.parts)
            return None

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
            self.diagnostics.add_error((*self.place, key), UnknownNameError(kind, value, known))
            return None
        return value

    def path(self, key: str) -> Path | None:
        """Take a path, relative to the file's folder."""
        value = self.text(key, "a path, relative to this file")
        return None if value is None else self.diagnostics.path.parent / Path(value).expanduser()

    def table(self, key: str, wanted: str) -> "Section | None":
        """Take a table within this one."""
        value = self.take(key, wanted, dict)
        return None if value is None else Section(value, (*self.place, key), self.diagnostics)

    def pass_over(self, *keys: str) -> None:
        """Accept the keys, whatever their values are."""
        for key in keys:
            self._asked.append(key)
            self.values.pop(key, None)

    def refuse(self, key: str, error: SlaqError) -> None:
        """Note the key as a mistake, if the table has it."""
        if self.values.pop(key, None) is not None:
            self.diagnostics.add_error((*self.place, key), error)

    def close(self, kind: str) -> None:
        """Note every key that is left as a mistake."""
        for key in self.values:
            close = get_close_matches(key, self._asked, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            self.note(key, f"{kind} has no key {key!r}", f"{hint}known: {', '.join(self._asked)}")


def described(value: object) -> str:
    """Return a TOML value as messages show it: the value if it is short, else its type."""
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
