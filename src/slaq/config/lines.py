"""Finds the line of each table and each key of a TOML text; `tomllib` gives lines of syntax errors only."""

import re
from collections import Counter

#: Where something stands in the parsed value: keys, and places in lists.
Place = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"[ \t]*(\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*")
#: What a value is made of: strings and comments as wholes, since brackets inside them mean nothing.
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'|#[^\n]*|.",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class Lines:
    """An index of a text that is valid TOML."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line: dict[Place, int] = {(): 1}
        #: How many times each `[[...]]` was opened.
        self._opened: Counter[Place] = Counter()
        self._scan()

    def of(self, place: Place) -> int:
        """Return the line, counted from 1, of a table or key; for an element of a list, the line of its key."""
        while place not in self._line:
            place = place[:-1]
        return self._line[place]

    def _scan(self) -> None:
        table: Place = ()
        while (start := self._skip_blank()) < len(self._text):
            if self._text[start] != "[":
                place = self._resolve(table, self._keys())
                self._note(place, start)
                self._at += 1  # past the equals sign
                self._skip_value()
                continue
            several = self._text.startswith("[[", start)
            self._at += 2 if several else 1
            table = self._resolve((), self._keys())
            self._at += 2 if several else 1
            if several:
                self._note(table, start)
                self._opened[table] += 1
                table = (*table, self._opened[table] - 1)
            self._note(table, start)

    def _note(self, place: Place, start: int) -> None:
        line = self._text.count("\n", 0, start) + 1
        for length in range(1, len(place) + 1):
            self._line.setdefault(place[:length], line)

    def _resolve(self, table: Place, keys: list[str]) -> Place:
        """Return the place that dotted keys lead to: in a list of tables, to the last one."""
        place = table
        for key in keys[:-1]:
            place = (*place, key)
            if self._opened[place]:
                place = (*place, self._opened[place] - 1)
        return (*place, keys[-1])

    def _keys(self) -> list[str]:
        keys = []
        while True:
            match = _KEY.match(self._text, self._at)
            assert match is not None, "the text is valid TOML"
            keys.append(_plain(match[1]))
            self._at = match.end()
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _skip_blank(self) -> int:
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._at

    def _skip_value(self) -> None:
        depth = 0
        while self._at < len(self._text):
            piece = _PIECE.match(self._text, self._at)
            assert piece is not None
            self._at = piece.end()
            if piece[0] in ("[", "{"):
                depth += 1
            elif piece[0] in ("]", "}"):
                depth -= 1
            elif piece[0] == "\n" and depth == 0:
                return


def _plain(key: str) -> str:
    """Return a key without its quotes and escapes."""
    if key[0] == "'":
        return key[1:-1]
    if key[0] != '"':
        return key
    return _ESCAPE.sub(_unescaped, key[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _SHORT.get(code, code)
