"""Finds named numbers, steps and totals in the lines that a job prints, whatever framework prints them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from slaq.detection.lines import seen
from slaq.detection.names import HELD_OUT, LONGEST_NAME, LOSS, STEPS, TRAINING, Rank, rank, tokens

#: Pairs of a name and a number that are looked at in one line, and columns of a table.
MOST_PAIRS = MOST_COLUMNS = 40
#: The largest step, and the largest number of steps.
LARGEST_STEP = 2**53
#: Characters of a place: the words of a line before a number.
LONGEST_PLACE = 80

_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eEdD][-+]?\d{1,4})?"
    r"|[-+]?(?:nan|inf(?:inity)?)"
)
_PAIR = re.compile(
    r"(?<![\w.])(?P<name>[a-z_](?:[\w./@-]|'s\b){0,90})(?P<aside>\s?\([a-z_ ]{1,20}\))?[\"'`]?"
    r"(?:\s+(?:at|after|for|in|on)\s+(?:the\s+)?(?:[a-z_]{1,12}\s+)?#?\d{1,12}\b(?![.,]\d))?"
    r"(?:\s*(?:->|=>|==|[:=|])\s*|\s+(?:is|was|of)\s+|\s{1,8})"
    r"[\"'(\[]?\s*(?:[a-z_.]{0,20}(?:tensor|array|float\d*)\()?"
    rf"(?P<value>{_NUMBER})(?![\w%]|[.:/-]\d|\s?/\s?\d|\s?%)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_]\w*(?:'s\b)?")
# Numbers with what is attached to them: 0:01, 9.61it/s, 40ms/step; and a rate that is not known yet.
_COUNTED = re.compile(r"[-+]?\d[\w.,:/<%]*|\?\w{0,20}/s\b")
_FRACTION = re.compile(
    # "11/19 10:07:01" is a date.
    r"(?<![\w./:-])(\d{1,15})\s?/\s?(\d{1,15})(?![\w/-]|[.:]\d|\s+\d{1,2}:\d)"
    r"|\b(\d{1,15})\s+of\s+(?:\w+:\s*)?(\d{1,15})\b"
)
_PASS = re.compile(r"\b(?:epoch|epochs|ep|pass)\b(?:\s?\([a-z]{1,12}\))?[\s#:=\[(]{0,8}$", re.IGNORECASE)
_PASS_NUMBER = re.compile(
    r"\b(?:epoch|ep|pass)\b(?:\s?\([a-z]{1,12}\))?[\s#:=\[(]{0,8}(\d{1,15})(?![\d.])", re.IGNORECASE
)
# "[0/6][150/500]".
_PASS_AND_STEP = re.compile(r"\[\s*\d{1,15}\s?/\s?\d{1,15}\s*\]\s*\[\s*\d{1,15}\s?/\s?\d{1,15}\s*\]")
_STEP_NUMBER = re.compile(
    r"^\[(\d{1,15})\]|^\s*(\d{1,15}):\s|\b(?:iteration|iter|step|batch|round|global_step)\b\s*[#:=\[(]*\s*(\d{1,15})(?![\d.])",
    re.IGNORECASE,
)
_TQDM = re.compile(
    r"(?<![\w.])([\d.]{1,15}[kMGT]?)(?:/([\d.]{1,15}[kMGT]?)|\w{0,12}) \[[\d:?]+(?:<[\d:?]+)?[, ]"
)
# A word right before a name, and whether a label begins with it.
_LABEL = re.compile(r"(?P<begins>(?:^|[|│,;\[({\t\d.]|\s-)\s*)?\b(?P<word>[A-Za-z]{1,20}) $")
_GLYPHS = re.compile(r"[━█▏▎▍▌▋▊▉╸╺]|\[=*>?\.*\]")
_CATBOOST = re.compile(r"^\d{1,15}:\tlearn: ")
_GAP = re.compile(r"\s*[|│┃]\s*|\s*[,;]\s*| *\t *|\s{2,}")
# Of a table whose last line is also that of a bar, what the bar shows begins here.
_BAR_PART = re.compile(r":?\s+\d{1,3}%(?=[|\s])")
# A line after which the number of an earlier iteration is told again.
_BEST = re.compile(r"\bbest\b.*:\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A named number in a line, with where in the training it was printed."""

    name: str
    #: The words before it, by which the same name in other lines is told apart.
    place: str
    value: float
    rank: Rank | None
    #: The pass and the step that the line names, and how many of each there will be.
    passed: int | None = None
    passes: int | None = None
    step: int | None = None
    steps: int | None = None
    #: How a progress bar draws the line: "tqdm", "bar", or empty for a line of its own.
    bar: str = ""
    #: What tqdm shows as its count, which it does not always bring up to date.
    count: str = ""
    #: The step and the steps of a bar that is drawn between such lines.
    near: tuple[int, int] | None = None


@dataclass(slots=True)
class OutputParser:
    """Reads one line after another; keeps only the heading of a table and the pass that was last named."""

    heading: list[str] = field(default_factory=list)
    passed: int | None = None
    passes: int | None = None
    #: The steps that a bar without a number of its own last showed: a line between two draws belongs to them.
    steps: int | None = None
    at_step: int | None = None
    #: Whether that bar was drawn since the last loss.
    drawn: bool = False
    #: Whether the next line tells again what an earlier one has told.
    again: bool = False

    def feed(self, line: bytes, only: str = "") -> list[Found]:
        """Return the named numbers in a line, in order; with `only` perhaps only those of one name."""
        text = seen(line)
        if not text.strip():
            return []
        where = _Where.of(text)
        again, self.again = self.again, bool(_BEST.search(text))
        if again:
            return []
        if where.passed is not None:
            self.passed, self.passes = where.passed, where.passes or self.passes
        found = self._pairs(text, where, only)
        # Of several bars, the longest is that of the training.
        longest = where.bar and where.steps is not None and where.steps >= (self.steps or 0)
        if any(one.rank is not None for one in found):
            self.drawn = False
        elif longest and not (self.drawn and where.steps == self.steps):
            # The first draw after a loss is that of its step.
            self.at_step, self.steps, self.drawn = where.step, where.steps, True
        return found or self._row(text, where)

    def state(self) -> list[object]:
        """Return what it keeps, as JSON can hold it."""
        return [self.heading, self.passed, self.passes, self.steps, self.at_step, self.drawn, self.again]

    @classmethod
    def of(cls, state: Sequence[object]) -> "OutputParser":
        """Return a parser that goes on from a state."""
        return cls(*state)  # type: ignore[arg-type]

    def _pairs(self, text: str, where: "_Where", only: str) -> list[Found]:
        found: list[Found] = []
        known: set[tuple[str, str]] = set()
        # What stands between the pairs names the line; pairs may come and go.
        between, end = "", 0
        for match in islice(_PAIR.finditer(text), MOST_PAIRS):
            between, end = f"{between} {text[end : match.start()]}"[-400:], match.end()
            value = _number(match["value"])
            if value is None or (only and match["name"].rstrip("'.:-") not in only):
                continue
            before = text[max(match.start() - 400, 0) : match.start()]
            words = _WORD.findall(_COUNTED.sub(" ", before))
            name = _full_name(match["name"].rstrip("'.:-"), before)
            if match["aside"] and set(tokens(match["aside"])) & (TRAINING | HELD_OUT):
                name += match["aside"]
            role = _role(words)
            ranked = rank(name, held_out=role == "held out", trained=role == "training")
            if ranked is None and name in ("learn", "test") and _CATBOOST.match(text):
                ranked = Rank.METRIC if name == "learn" else Rank.HELD_OUT_METRIC
            if name[:LONGEST_NAME].isprintable() and "\ufffd" not in name:
                steady = (w for w in _WORD.findall(_COUNTED.sub(" ", between)) if w.lower() not in _UNSTEADY)
                place = " ".join((role, *steady) if role == "held out" else steady)[:LONGEST_PLACE]
                if (name, place) in known:
                    continue
                known.add((name, place))
                found.append(self._placed(name[:LONGEST_NAME], place, value, ranked, where))
        return found

    def _placed(self, name: str, place: str, value: float, ranked: Rank | None, where: "_Where") -> Found:
        return Found(
            name=name,
            place=place,
            value=value,
            rank=ranked,
            passed=self.passed,
            passes=self.passes,
            step=where.step,
            steps=where.steps,
            bar=where.bar,
            count=where.count,
            near=self._near() if where.steps is None else None,
        )

    def _near(self) -> tuple[int, int] | None:
        return None if self.at_step is None or self.steps is None else (self.at_step, self.steps)

    def _row(self, text: str, where: "_Where") -> list[Found]:
        """Read a line of a table, or its heading."""
        if where.bar:
            text = _BAR_PART.split(text, maxsplit=1)[0]
        cells = _cells(text, len(self.heading))
        values = [_number(cell.rstrip("s%")) for cell in cells]
        if self._fits(cells, values):
            if where.step is None and values[0] is not None and 0 <= values[0] < LARGEST_STEP:
                where = replace(where, step=int(values[0]))
            return [
                self._placed(name, "table", value, rank(name), where)
                for name, value in zip(self.heading, values, strict=True)
                if value is not None and name.isprintable()
            ]
        if (
            any(rank(cell) is not None for cell in cells)
            and len(cells) >= 2
            and not re.search("\\d{2}|[.:=\ufffd]", text)
        ):
            self.heading = [cell[:LONGEST_NAME] for cell in cells[:MOST_COLUMNS]]
        return []

    def _fits(self, cells: Sequence[str], values: Sequence[float | None]) -> bool:
        """Return whether the cells are those of a row, which begins with a count where its heading does."""
        if not self.heading or len(cells) != len(self.heading) or all(value is None for value in values):
            return False
        counts = frozenset(tokens(self.heading[0])) & STEPS
        return not counts or values[0] is not None or bool(_FRACTION.match(cells[0]))


#: Words that come and go between lines of one kind.
_UNSTEADY = frozenset({"nan", "inf", "it", "s", "ms", "eta", "i", "is"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """Where in the training a line says it was printed."""

    passed: int | None = None
    passes: int | None = None
    step: int | None = None
    steps: int | None = None
    bar: str = ""
    count: str = ""

    @classmethod
    def of(cls, text: str) -> "_Where":
        passed, passes, step, steps = None, None, None, None
        tqdm = _TQDM.search(text)
        plain: list[tuple[int, int, int]] = []
        for match in _FRACTION.finditer(text):
            n, of = int(match[1] or match[3]), int(match[2] or match[4])
            if not 0 < of < LARGEST_STEP or n > of:
                continue
            if passed is None and _PASS.search(text[max(match.start() - 20, 0) : match.start()]):
                passed, passes = n, of
            else:
                plain.append((n, of, match.start()))
        drawn = [one for one in plain if tqdm is not None and one[2] == tqdm.start()]
        if drawn and passed is None and plain[0][2] < drawn[0][2]:
            # "2/5: 3/16 [00:01<00:09]" is a bar in the second pass of five.
            passed, passes, _ = plain[0]
        elif passed is None and len(plain) > 1 and _PASS_AND_STEP.search(text):
            (passed, passes, _), *plain = plain
        if plain or drawn:
            step, steps, _ = (drawn or plain)[0]
        if passed is None and (named := _PASS_NUMBER.search(text)):
            passed = int(named[1])
        if step is None and (named := _STEP_NUMBER.search(text)):
            step = int(named[1] or named[2] or named[3])
        if tqdm:
            return cls(passed=passed, passes=passes, step=step, steps=steps, bar="tqdm", count=tqdm[1])
        bar = "bar" if step is not None and _GLYPHS.search(text) else ""
        return cls(passed=passed, passes=passes, step=step, steps=steps, bar=bar)


def _full_name(name: str, before: str) -> str:
    """Return a name with the words right before it that belong to it, as in `Train Loss` and `Avg. loss`."""
    parts = [name]
    for word in reversed(re.findall(r"[A-Za-z_][\w']*[.:]?(?=\s)|[^\s]+", before[-60:])[-2:]):
        if not before[-1:].isspace() or not _belongs(word):
            break
        parts.insert(0, word.rstrip(":"))
    return " ".join(parts) if len(parts) > 1 else _labelled(name, before)


def _labelled(name: str, before: str) -> str:
    """Return a name with the one word before it that tells which loss it is, as in `lm loss` and `Loss D`."""
    match = _LABEL.search(before[-60:])
    if match is None:
        return name
    word, words = match["word"], frozenset(tokens(name))
    if words <= LOSS and match["begins"] is not None:
        return name if word.lower() in _NO_LABELS or not rank(f"{word} {name}") else f"{word} {name}"
    named = word.lower() in LOSS and name.isalpha() and rank(f"{word} {name}") is Rank.PART
    return f"{word} {name}" if named else name


def _belongs(word: str) -> bool:
    found = tokens(word)
    if not found or not re.fullmatch(r"[A-Za-z_][\w']*[.:]?", word):
        return False
    plain = {token for token in found if not token.isdecimal()}
    return plain <= TRAINING | HELD_OUT | _QUALIFIERS and not (word.endswith(":") and plain & _QUALIFIERS)


_QUALIFIERS = frozenset(
    (
        "avg",
        "average",
        "mean",
        "running",
        "total",
        "log",
        "cross",
        "entropy",
        "mini",
        "batch",
        "squared",
        "root",
        "d",
        "g",
    )
)


#: Words before a loss that do not tell which one it is.
_NO_LABELS = frozenset(
    (
        *("the", "a", "an", "my", "our", "its", "it", "this", "that", "with", "and", "to", "new", "by", "of"),
        *("has", "had", "got", "gives", "gave", "is", "at", "in", "on", "for", "after", "done", "finished"),
        *("debug", "info", "notice", "warning", "warn", "error", "critical", "trace"),
        *("s", "ms", "batches", "samples", "tokens"),
    )
)


def _role(words: Sequence[str]) -> str:
    """Return of which data a line speaks, by the last word that says so."""
    for word in reversed(words):
        lower = word.lower().removesuffix("'s")
        if lower in HELD_OUT:
            return "held out"
        if lower in TRAINING:
            return "training"
    return ""


def _cells(text: str, wanted: int) -> list[str]:
    """Return the cells of a line of a table, divided as there are so many of them if they can be."""
    stripped = text.strip().strip("|│┃").strip()
    cells = [cell.strip() for cell in _GAP.split(stripped)]
    plain = stripped.split()
    chosen = plain if len(cells) < 2 or (wanted == len(plain) != len(cells)) else cells
    return chosen if len(chosen) <= MOST_COLUMNS else []


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "").replace("D", "e").replace("d", "e"))
    except ValueError:
        return None
