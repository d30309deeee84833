"""A copy of the page as one file, for what needs no server: the stories, and two recorded sessions.

The file has its script, style and data in it, so it opens from a disk, and from any web server. Plans and audits need
the library; the copy says so.
"""

import base64
import hashlib
import json
from pathlib import Path

from coterie.errors import ConfigError
from coterie.explorer.leaks import STORIES, LeakSettings, play_story
from coterie.explorer.requests import describe
from coterie.explorer.server import read_static
from coterie.explorer.sessions import SessionSettings, play_session
from coterie.files import explain, write_output

SEEDS = (7, 2, 12)
"""The seeds of the stories in the copy."""


def export_page(folder: Path) -> Path:
    """Write the copy to ``index.html`` in a folder, which is made if it is missing, and return its path."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {explain(error)}") from None
    path = folder / "index.html"
    write_output(path, static_page().encode())
    return path


def static_page() -> str:
    """Return the copy: the page with its script, style and data in place of links to them."""
    data = {
        "about": describe(),
        "leaks": [play_story(LeakSettings(story=story, seed=seed)) for seed in SEEDS for story in STORIES],
        "sessions": [play_session(SessionSettings(circles=circles)) for circles in (False, True)],
    }
    script, style = read_static("explorer.js").decode(), read_static("explorer.css").decode()
    if "</script" in script.lower() or "</style" in style.lower():
        raise ConfigError("the page's script or style cannot be written into one file")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )
    # In a data block "<" must not begin an end tag, or a comment.
    block = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    page = read_static("index.html").decode()
    for link, content in (
        ('<meta name="coterie-head">', f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        ('<link rel="icon" href="icon.svg" type="image/svg+xml">', _icon()),
        ('<link rel="stylesheet" href="explorer.css">', f"<style>{style}</style>"),
        ('<script src="explorer.js" defer></script>', ""),
        (
            "</body>",
            f'<script type="application/json" id="recorded">{block}</script>\n<script>{script}</script>\n</body>',
        ),
    ):
        if page.count(link) != 1:
            raise ConfigError(f"the page must have {link} once; build it again with: make explorer")
        page = page.replace(link, content)
    return page


def _icon() -> str:
    picture = base64.b64encode(read_static("icon.svg")).decode()
    return f'<link rel="icon" href="data:image/svg+xml;base64,{picture}">'


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
