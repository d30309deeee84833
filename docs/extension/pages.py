"""Pages as Sphinx reads them: files of the repository become pages, and text from the code is inserted.

A page that has the line ``<!-- file: SECURITY.md -->`` shows that file. A line ``<!-- insert: NAME -->`` is replaced by
what the function of that name in :data:`INSERTS` returns. A link to a file leads to the page that shows it, or else to
a copy of the file.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from docs.extension import command_reference, settings_reference

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent.parent
PROJECT = DOCS.parent

SHOWN_FILES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/flower/README.md": "guides/flower-example.md",
    "examples/nvflare/README.md": "guides/nvflare-example.md",
}
"""Files outside this folder that are pages, each with the page that shows it."""

CHILDREN = {"attacks/README": "*", "results/README": "*/README", "security": "security/*"}
"""Pages that are lists of others, each with the pattern of those, which the navigation shows below it."""

HOME_OF_OTHERS = "guides/index"
"""The page whose navigation shows every page at the top of this folder that no other page lists."""

INSERTS: dict[str, Callable[[], str]] = {
    "settings of a run": settings_reference.describe_run,
    "settings of a server": settings_reference.describe_server,
    "settings of a client": settings_reference.describe_floor,
    "settings of attacks": settings_reference.describe_attacks,
    "commands": command_reference.describe_commands,
}

_FILE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)
_INSERT = re.compile(r"^<!-- insert: (.+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#\s:]+)(?P<place>#[^)\s]*)?\)")
_CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def read_source(app: "Sphinx", docname: str, source: list[str]) -> None:
    """Prepare the text of a page, in place, as the event ``source-read`` wants it."""
    written, source[0] = source[0], prepare(source[0], DOCS / f"{docname}.md")
    if docname in CHILDREN:
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n{CHILDREN[docname]}\n```\n"
    elif docname == HOME_OF_OTHERS and (others := find_unlisted()):
        source[0] += "\n\n```{toctree}\n:hidden:\n" + "".join(f"../{name}\n" for name in others) + "```\n"
    if docname == HOME_OF_OTHERS or _FILE.search(written) or _INSERT.search(written):
        app.env.note_reread()  # it depends on more than its own file


def find_unlisted() -> list[str]:
    """Return the pages at the top of this folder that no list of pages has, such as a guide that was just added."""
    lists = [DOCS / "index.md", *DOCS.glob("*/index.md")]
    listed = {Path(line).name for path in lists for line in path.read_text(encoding="utf-8").splitlines()}
    return sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in {*listed, "index"})


def prepare(text: str, page: Path) -> str:
    """Return the text of a page with everything in it that comes from elsewhere."""
    if shown := _FILE.search(text):
        origin = PROJECT / shown[1]
        return relink(origin.read_text(encoding="utf-8"), origin, page)
    return _INSERT.sub(lambda found: INSERTS[found[1]](), relink(text, page, page))


def relink(text: str, origin: Path, page: Path) -> str:
    """Return text of the file ``origin`` with links that are right on ``page``."""

    def write(found: re.Match[str]) -> str:
        target = find_target(found["path"], origin, page)
        return f"[{found['text']}]({target}{found['place'] or ''})" if target else found["text"]

    pieces = _CODE.split(text)  # every other piece is code, which is left as it is
    return "".join(_LINK.sub(write, piece) if not number % 2 else piece for number, piece in enumerate(pieces))


def find_target(path: str, origin: Path, page: Path) -> str | None:
    """Return where a link to a file leads on a page. A folder is its README.md, or nothing."""
    target = Path(os.path.normpath(origin.parent / path))
    if target.is_dir():
        target /= "README.md"
        if not target.exists():
            return None
    if target.is_relative_to(PROJECT):
        name = target.relative_to(PROJECT).as_posix()
        target = DOCS / SHOWN_FILES[name] if name in SHOWN_FILES else target
    return Path(os.path.relpath(target, page.parent)).as_posix()
