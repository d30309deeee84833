"""Notes in Markdown files, which say where numbers come from: reading, checking, and comparing with commands.

A note is an HTML comment directly before the text whose numbers it explains; it reaches to the next note or blank line.
CONTRIBUTING.md says how to write one. ``python -m tests.support.numbers FILE...`` runs the commands of some files
and prints their numbers as they are today.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tests.support.outputs import NUMBER, PROJECT, Near, NoteError, Value, average, evaluate, load, run_command

MARKS = {
    "constant": "chosen or computed by hand, not measured",
    "once": "measured once; no command of this version prints it",
    "paper": "printed in a paper or a publication",
    "test": "asserted by the test that is named",
    "timing": "a time, a ratio of times or memory; another machine has others",
}
MOST_MINUTES = 10
SHOWN = "Shown by `"
"""A paragraph that ends so names the test or the report behind its numbers, and needs no note."""

_TOKEN = re.compile(
    rf"(?<![\w.,^/⁻])(?<!\w-)(?<!\d[-–−]){NUMBER}(?![\w^])(?!,\d)(?!\.\d)"
    rf"(?P<percent> ?%|(?= (?:±|to) {NUMBER} ?%))?"
)
_UNIT = re.compile(r" ?(?:±|MW|dB|µs|ms|kB|MB|GB|points|bytes|of \d+)(?!\w)")
# Not claims: code, targets of links, comments, numbers of tables and versions, and parameters such as p = 0.7.
_NO_CLAIM = re.compile(
    r"`[^`]*`|\]\([^)]*\)|<!--.*?-->"
    r"|\b(?:Tables?|Figures?|Sections?|Algorithms?|Theorems?|Python|Flower|Coterie|numpy|cryptography|pfl)\**:? "
    r"[A-Z]?\.?\d[\d.]*(?:(?:,| and| to) [A-Z]?\.?\d[\d.]*)*|\b[A-F]\.\d"
    rf"|(?:\b[A-Za-z]\*?|[λδγτ]|\blambda|\bdelta|\balpha) (?:[=<>≥]|up to) {NUMBER}"
)
_NOTE = re.compile(r"<!-- numbers: (?P<body>.*?)-->", re.DOTALL)
_HEAD = re.compile(r"(?P<minutes>[\d.]+) minutes?(?:; (?P<why>.+))?")
_FENCE = re.compile(r"^ *```([\w{]*)")
_COMMAND = re.compile(r"^(?:\$ )?(?:coterie|pytest|make|pip|flwr|python)\b")


@dataclass(frozen=True)
class Number:
    """A number as a document has it."""

    text: str
    line: int
    percent: bool = False

    def printed(self, value: float | str) -> str:
        """Write a value with as many digits as the document has."""
        if isinstance(value, str):
            return value
        digits = len(self.text.partition(".")[2])
        scaled = f"{100 * value if self.percent else value:.{digits}f}"
        return scaled.removeprefix("-") if not float(scaled) else scaled

    def agrees(self, value: "Value") -> bool:
        """Return whether a value is this number to its last digit or as near as the note says, or a true comparison."""
        plain = self.text.replace(",", "").replace("−", "-").removeprefix("+")
        plain = plain if float(plain) else plain.removeprefix("-")
        if isinstance(value, bool):
            return value
        if isinstance(value, Near):
            return abs(float(plain) / (100 if self.percent else 1) - value) <= value.within
        if isinstance(value, str):
            return plain == value.replace(",", "").replace("−", "-").removeprefix("+")
        return plain == self.printed(value)


@dataclass(frozen=True)
class Item:
    """The source of one number: an expression over a command's output, or a mark."""

    text: str
    node: ast.expr
    prefix: ast.expr | None = None

    @property
    def mark(self) -> str | None:
        """The mark, if it is one."""
        return self.node.id if isinstance(self.node, ast.Name) and self.node.id in MARKS else None

    @property
    def near(self) -> bool:
        """Whether it may be off."""
        return any(isinstance(node, ast.Name) and node.id == "near" for node in ast.walk(self.node))

    def value(self, output: Any) -> Value:  # noqa: ANN401
        """Find the value in an output."""
        found = evaluate(self.node, evaluate(self.prefix, output, output) if self.prefix else output, output)
        if not isinstance(found, bool | int | float | str):
            raise NoteError(f"{self.text} is not a number but {str(found)[:80]}")
        return found


@dataclass(frozen=True)
class Source:
    """A source of numbers: commands, whose values are averaged if there are several, or a committed file."""

    commands: tuple[str, ...] = ()
    file: str = ""
    items: list[Item] = field(default_factory=list)


@dataclass(frozen=True)
class Note:
    """A note and the numbers that it is about."""

    file: str
    line: int
    kind: str
    """A mark, "result" (of commands) or "committed" (of files)."""
    about: str = ""
    minutes: float = 0.0
    sources: tuple[Source, ...] = ()
    numbers: list[Number] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        """All commands that the note names."""
        named = [command for source in self.sources for command in source.commands]
        return named + [part.strip() for part in self.about.split(";")] if self.kind == "timing" else named

    @property
    def where(self) -> str:
        """Its place, as editors understand it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Compared:
    """A number of a document, and the value of its source today."""

    note: Note
    number: Number
    item: str
    today: str
    agrees: bool

    def __str__(self) -> str:
        sign = "=" if self.agrees else "DIFFERS FROM"
        percent = "%" if self.number.percent else ""
        return f"{self.note.file}:{self.number.line}  {self.number.text}{percent} {sign} {self.today}  {self.item}"


def documents() -> list[str]:
    """Return the files whose numbers are checked. Reports in docs/results are rewritten from their trials instead."""
    found = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("examples/**/*.md")]
    names = sorted(str(path.relative_to(PROJECT)) for path in found)
    skipped = re.compile(r"docs/results/.+/README\.md|CHANGELOG\.md|CONTRIBUTING\.md")
    return [name for name in names if not skipped.fullmatch(name)]


def read_notes(text: str, file: str = "") -> list[Note]:
    """Return the notes of a document with their numbers; numbers without a note get one of the kind "missing"."""
    notes: list[Note] = []
    current: Note | None = None
    for line, kind, content in [*_pieces(text), (0, "end", "")]:
        if kind == "note":
            current = _read_note(content, file, line)
            notes.append(current)
        elif kind == "end":
            current = None
        elif content.startswith(SHOWN):
            if current is not None and current.kind == "missing":
                notes.remove(current)
        else:
            for number in _numbers(content, line, cells=kind == "row"):
                if current is None:
                    current = Note(file, line, "missing")
                    notes.append(current)
                current.numbers.append(number)
    return notes


def faults(note: Note) -> Iterator[str]:
    """Yield what is wrong with a note, before anything is run."""
    shown = ", ".join(number.text + "%" * number.percent for number in note.numbers)
    items = [item for source in note.sources for item in source.items]
    if note.kind == "missing":
        yield f"{note.where}: no note says where {shown} come from"
    elif not note.numbers:
        yield f"{note.where}: no number follows this note"
    elif items and len(items) != len(note.numbers):
        yield f"{note.where}: the note explains {len(items)} numbers, and the text has {len(note.numbers)}: {shown}"
    elif any(item.near for item in items) and not note.about:
        yield f"{note.where}: say why numbers may be off, behind the minutes: 2 minutes; noise is drawn anew"
    elif note.kind in ("result", "committed") and not items:
        yield f"{note.where}: the note does not say what the numbers are"


def compare(note: Note, run: Callable[[str], Any]) -> list[Compared]:
    """Compare a note's numbers with what its commands, or its files, have today."""
    compared = []
    waiting = iter(note.numbers)
    for source in note.sources:
        outputs = [run(command) for command in source.commands] or [load(PROJECT / source.file)]
        for item in source.items:
            number = next(waiting)
            if item.mark:
                continue
            try:
                values = [item.value(output) for output in outputs]
            except (LookupError, TypeError, ValueError) as error:
                raise NoteError(f"{note.where}: {item.text}: {error!r}") from None
            today = values[0] if len(values) == 1 else average(values)
            compared.append(Compared(note, number, item.text, number.printed(today), number.agrees(today)))
    return compared


def _pieces(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the parts of a document: notes, lines of prose and output, rows of tables, and the end of each block."""
    lines = text.splitlines()
    fence, table, index = "", 0, 0
    while index < len(lines):
        line, number = lines[index], index + 1
        index += 1
        if opened := _FENCE.match(line):
            if fence:
                yield number, "end", ""
            fence = "" if fence else opened.group(1) or "output"
        elif fence:
            if fence == "output" and (not _COMMAND.match(line) or re.search(r": \d", line)):
                yield number, "text", line
        elif "<!-- numbers:" in line:
            comment = [line]
            while "-->" not in comment[-1] and index < len(lines):
                comment.append(lines[index])
                index += 1
            yield number, "note", "\n".join(comment)
        elif not line.strip():
            table = 0
            if not all(near.startswith("    ") for near in lines[index - 2 : index + 1 : 2]):  # indented output goes on
                yield number, "end", ""
        elif line.lstrip().startswith("|"):
            table += 1
            if table > 2:  # below the header and the line under it
                yield number, "row", line
        else:
            yield number, "text", line


def _numbers(line: str, at: int, cells: bool) -> Iterator[Number]:
    if cells:
        for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))[1:]:  # the first one is a label
            figures = re.match(rf"[*≤≥<>~ ]*(?:{NUMBER}|±)(?![\w^])", cell) is not None
            yield from _claims(cell, at, every=figures)
    else:
        yield from _claims(re.sub(r"^ *(?:\d+\.|[-*]) ", "", line), at, every=False)


def _claims(text: str, at: int, every: bool) -> Iterator[Number]:
    text = _NO_CLAIM.sub(lambda found: " " * len(found.group()), text).replace("*", " ")
    for found in _TOKEN.finditer(text):
        digits, percent = found.group().removesuffix("%").strip(), found.group("percent") is not None
        telling = _UNIT.match(text, found.end()) or re.search(r"(?:epsilon|ε) (?:=|of) $", text[: found.start()])
        if every or percent or "." in digits or "," in digits or telling:
            yield Number(digits, at, percent)


def _read_note(comment: str, file: str, line: int) -> Note:
    where = f"{file}:{line}"
    found = _NOTE.search(comment)
    if not found:
        raise NoteError(f"{where}: a note begins with <!-- numbers: and ends with -->")
    head, *rest = [part.strip() for part in found.group("body").strip().splitlines()]
    word, _, about = head.partition(" ")
    if word in MARKS:
        if rest:
            raise NoteError(f"{where}: a mark is one line; put the command, the test or the reason behind {word}")
        if not about and word in ("timing", "test", "once"):
            raise NoteError(f"{where}: {word} needs its command, its test or its reason")
        return Note(file, line, word, about)
    sources = tuple(_read_sources(rest, where))
    if head == "committed":
        return Note(file, line, head, sources=sources)
    if result := _HEAD.fullmatch(head):
        return Note(file, line, "result", result["why"] or "", float(result["minutes"]), sources)
    raise NoteError(f"{where}: {head!r} is none of: N minutes, committed, {', '.join(MARKS)}")


def _read_sources(lines: list[str], where: str) -> Iterator[Source]:
    source: Source | None = None
    for line in lines:
        if line.startswith(("$ ", "< ")):
            if source:
                yield source
            rest = line[2:].strip()
            source = Source(_expand(rest)) if line[0] == "$" else Source(file=rest)
        elif source is None:
            raise NoteError(f"{where}: a command ($ coterie ...) or a file (< docs/...) comes before {line!r}")
        else:
            source.items.extend(_read_items(line, where))
    if source:
        yield source


def _expand(command: str) -> tuple[str, ...]:
    """Expand ``{0,1,2}`` as a shell does."""
    parts = re.split(r"\{([^{}=]*,[^{}=]*)\}", command)
    choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
    return tuple("".join(chosen) for chosen in product(*choices))


def _read_items(line: str, where: str) -> Iterator[Item]:
    """Read ``a, b``, or ``scope: a, b``, in which names are keys of the scope."""
    cuts = [found.start() for found in re.finditer(": ", line)]
    for scope, expressions in [("", line), *((line[:cut], line[cut + 2 :]) for cut in cuts)]:
        try:
            before = ast.parse(scope, mode="eval").body if scope else None
            body = ast.parse(expressions, mode="eval").body
        except SyntaxError:
            continue
        for node in body.elts if isinstance(body, ast.Tuple) else [body]:
            yield Item(f"{scope + ': ' if scope else ''}{ast.unparse(node)}", node, before)
        return
    raise NoteError(f"{where}: cannot read {line!r}")


def main(files: list[str]) -> None:
    """Print the numbers of some files as they are today."""
    for file in files or documents():
        for note in read_notes((PROJECT / file).read_text(encoding="utf-8"), file):
            for fault in faults(note):
                print(fault)
            if note.kind in ("result", "committed") and note.minutes < MOST_MINUTES:
                print(*compare(note, run_command), sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
