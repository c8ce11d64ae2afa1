"""Text of others as it can be shown: nothing in it controls a terminal, hides, or changes the order of letters."""

import unicodedata


def visible(text: str, *, lines: bool = False) -> str:
    """Return the text with every letter that has no shape of its own written as an escape, such as \\x1b.

    These are control characters, marks of direction, separators of lines and paragraphs, halves of surrogate
    pairs, and all that Unicode has not assigned. Spaces of any width stay, and with `lines` line breaks and tabs.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(letter if _shown(letter) or letter in kept else repr(letter)[1:-1] for letter in text)


def _shown(letter: str) -> bool:
    return letter.isprintable() or unicodedata.category(letter) == "Zs"
