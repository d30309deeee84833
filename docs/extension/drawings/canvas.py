"""The parts of drawings in one style: people, servers, boxes, arrows and text, as plain SVG.

Colours are CSS variables, named for what they mean. On a page of the site they follow its theme; a file on its own
(:meth:`Canvas.standalone`) follows the preference of whoever looks at it.
"""

import math
from dataclasses import dataclass, field
from html import escape

LIGHT = {
    "ink": "#1d2b36",
    "faint": "#5b6b78",
    "line": "#9fb0bd",
    "paper": "#ffffff",
    "soft": "#eef3f6",
    "one": "#0b6e69",
    "one-soft": "#d3eeea",
    "two": "#3b5bb5",
    "two-soft": "#dfe6fa",
    "three": "#8a5a00",
    "three-soft": "#fbeccb",
    "bad": "#b3261e",
    "bad-soft": "#fbe0dd",
}
DARK = {
    "ink": "#e6edf3",
    "faint": "#a4b1bd",
    "line": "#5d6b78",
    "paper": "#131416",
    "soft": "#212a32",
    "one": "#5cc8bf",
    "one-soft": "#12403d",
    "two": "#9db4ff",
    "two-soft": "#263463",
    "three": "#f0c064",
    "three-soft": "#4d3a10",
    "bad": "#ff8a80",
    "bad-soft": "#5b1f1b",
}
SHAPES = """\
text{fill:var(--ink);font:15px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
text.small{font-size:13px;fill:var(--faint)}text.big{font-size:18px;font-weight:600}text.strong{font-weight:600}
text.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:14px}
text.mid{text-anchor:middle}text.end{text-anchor:end}
.one{--c:var(--one);--s:var(--one-soft)}.two{--c:var(--two);--s:var(--two-soft)}
.three{--c:var(--three);--s:var(--three-soft)}.bad{--c:var(--bad);--s:var(--bad-soft)}
.plain{--c:var(--line);--s:var(--soft)}.off{--c:var(--line);--s:var(--paper)}
.fill{fill:var(--s);stroke:var(--c);stroke-width:1.6}.solid{fill:var(--c)}
.stroke{fill:none;stroke:var(--c);stroke-width:1.8}.dash{stroke-dasharray:5 4}
text.one,text.two,text.three,text.bad{fill:var(--c)}"""


def variables(colours: dict[str, str]) -> str:
    """Return colours as declarations of CSS variables."""
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


def text_width(words: str) -> float:
    """Return about how wide a line of text is at most, in pixels."""
    return 8.5 * len(words)


def stylesheet() -> str:
    """Return the style of drawings for pages of the site, whose body has the theme as ``data-theme``."""
    shapes = "".join(
        f"svg.drawing {rule.strip()}}}\n" for line in SHAPES.splitlines() for rule in line.split("}") if rule.strip()
    )
    nested = shapes.replace(",text.", ",svg.drawing text.")
    dark = f"body[data-theme=dark] svg.drawing{{{variables(DARK)}}}\n"
    auto = f"@media(prefers-color-scheme:dark){{body[data-theme=auto] svg.drawing{{{variables(DARK)}}}}}\n"
    return f"svg.drawing{{{variables(LIGHT)}}}\n{dark}{auto}{nested}"


@dataclass
class Canvas:
    """A drawing in the making. Coordinates are pixels at full size; ``tone`` is one of the styles above."""

    width: int
    height: int
    title: str
    """What the drawing shows, in a sentence, for those who cannot see it."""
    parts: list[str] = field(default_factory=list)

    def add(self, element: str) -> None:
        """Add an element of SVG."""
        self.parts.append(element)

    def text(self, x: float, y: float, words: str, style: str = "mid") -> None:
        """Write a line of text; ``style`` has classes such as ``mid``, ``end``, ``small``, ``strong``, ``one``."""
        self.add(f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, tone: str = "plain", *, dash: bool = False) -> None:
        """Draw a rounded box."""
        kind = f"{tone} fill{' dash' if dash else ''}"
        self.add(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" class="{kind}"/>')

    def label(self, x: float, y: float, width: float, words: str, tone: str = "plain") -> None:
        """Draw a box of one line with its text in the middle."""
        self.box(x, y, width, 32, tone)
        self.text(x + width / 2, y + 21, words)

    def person(self, x: float, y: float, tone: str = "one", name: str = "") -> None:
        """Draw a client: head and shoulders around a point, with a name below."""
        self.add(f'<circle cx="{x:g}" cy="{y - 9:g}" r="8" class="{tone} fill"/>')
        path = f"M{x - 15:g} {y + 17:g}v-3a12 12 0 0 1 12-12h6a12 12 0 0 1 12 12v3z"
        self.add(f'<path d="{path}" class="{tone} fill"/>')
        if name:
            self.text(x, y + 35, name, "mid")

    def server(self, x: float, y: float, name: str = "server", tone: str = "plain") -> None:
        """Draw a server around a point, with a name below."""
        for row in range(3):
            top = y - 24 + 17 * row
            self.add(f'<rect x="{x - 22:g}" y="{top:g}" width="44" height="14" rx="3" class="{tone} fill"/>')
            self.add(f'<circle cx="{x + 14:g}" cy="{top + 7:g}" r="2" class="{tone} solid"/>')
        self.text(x, y + 46, name, "mid")

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, tone: str = "plain", *, dash: bool = False, both: bool = False
    ) -> None:
        """Draw an arrow to the second point; ``both`` gives it two heads."""
        kind = f"{tone} stroke{' dash' if dash else ''}"
        self.add(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"/>')
        self._head(x1, y1, x2, y2, tone)
        if both:
            self._head(x2, y2, x1, y1, tone)

    def _head(self, x1: float, y1: float, x2: float, y2: float, tone: str) -> None:
        angle = math.atan2(y2 - y1, x2 - x1)
        wings = [(x2 - 9 * math.cos(angle + side), y2 - 9 * math.sin(angle + side)) for side in (-0.45, 0.45)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *wings])
        self.add(f'<polygon points="{points}" class="{tone} solid"/>')

    def ring(self, x: float, y: float, width: float, height: float, tone: str = "one", *, dash: bool = False) -> None:
        """Draw the outline that holds a circle of clients together."""
        kind = f"{tone} stroke{' dash' if dash else ''}"
        radius = min(width, height) / 2
        self.add(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{kind}"/>')

    def cross(self, x: float, y: float, size: float) -> None:
        """Cross something out."""
        path = f"M{x - size:g} {y - size:g}l{2 * size:g} {2 * size:g}m0 {-2 * size:g}l{-2 * size:g} {2 * size:g}"
        self.add(f'<path d="{path}" class="bad stroke"/>')

    def inline(self) -> str:
        """Return the drawing for a page of the site, which has the style."""
        return self._svg('class="drawing" ', "")

    def standalone(self) -> str:
        """Return the drawing as a file of its own."""
        dark = f"@media(prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}"
        return self._svg("", f"<style>svg{{{variables(LIGHT)}}}\n{dark}\n{SHAPES}</style>\n")

    def _svg(self, attributes: str, style: str) -> str:
        head = (
            f'<svg {attributes}xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-label="{escape(self.title)}">'
        )
        return "\n".join([head, f"{style}<title>{escape(self.title)}</title>", *self.parts, "</svg>"]) + "\n"
