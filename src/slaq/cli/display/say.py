"""The only way to write text to a terminal: what jobs and other users chose cannot control it."""

import codecs
from typing import Any

import click

from slaq.core.visible import visible

#: Erases the rest of a line, so that nothing of what stood there mixes with what comes.
_ERASE = "\x1b[K"


def say(text: str = "", *, err: bool = False, nl: bool = True, file: Any = None) -> None:
    """Print lines of text, on stderr if `err`; control characters in them are written as escapes."""
    click.echo(visible(text, lines=True), err=err, nl=nl, file=file)


def pass_on(data: bytes) -> None:
    """Print on stderr, byte for byte, what a command prints that whoever sits at the terminal has started here."""
    click.echo(data, err=True, nl=False)


def cleaned(value: Any) -> Any:
    """Return JSON in which every text is fit for one line of a terminal."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {cleaned(name): cleaned(one) for name, one in value.items()}
    return [cleaned(one) for one in value] if isinstance(value, list | tuple) else value


class LogText:
    """Turns the bytes of a log, as they come, into text for a terminal.

    A carriage return begins the line anew, as progress bars do, and erases what stood there. Bytes that are no
    UTF-8 are written as escapes too.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        #: A carriage return that may belong to a line break.
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Return the text of the next bytes, as far as it is complete."""
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        if text.endswith("\r") and not final:
            text, self._held = text[:-1], "\r"
        pieces = text.replace("\r\n", "\n").split("\r")
        return f"\r{_ERASE}".join(visible(piece, lines=True) for piece in pieces)
