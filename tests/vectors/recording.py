"""Parts of transcripts that both protocols record in the same way."""

from typing import Any

import msgspec

from coterie.crypto.entropy import Entropy
from coterie.secagg import Terms


class RecordedEntropy:
    """Passes random bytes on and writes them down."""

    def __init__(self, source: Entropy) -> None:
        self.source = source
        self.drawn: dict[str, str] = {}

    def draw(self, label: str, size: int) -> bytes:
        drawn = self.source.draw(label, size)
        self.drawn[label] = drawn.hex()
        return drawn


def write_terms(terms: Terms) -> dict[str, Any]:
    """The terms with their bytes in hexadecimal."""
    fields: dict[str, Any] = msgspec.to_builtins(terms, builtin_types=(bytes,))
    fields |= {name: fields[name].hex() for name in ("session", "roster", "content")}
    return fields | {"identities": [key.hex() for key in terms.identities]}
