"""Parts of transcripts that both protocols record in the same way."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from coterie.crypto.entropy import Entropy
from coterie.errors import CoterieError
from coterie.secagg import Rejected, Terms


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


def refusals(cases: Mapping[str, bytes], name: str, answer: Callable[[bytes], object]) -> Iterator[dict[str, str]]:
    """Record why a client refuses each of these messages. It refuses all of them."""
    for case, message in cases.items():
        try:
            answer(message)
        except CoterieError as error:
            kind, reason = type(error).__name__, str(error)
            yield {"case": case, "client": name, "message": message.hex(), "error": kind, "reason": reason}
        else:
            raise AssertionError(case)


def rejections(
    cases: Mapping[str, bytes], name: str, receive: Callable[[str, bytes], Rejected | None]
) -> Iterator[dict[str, str]]:
    """Record why the server rejects each of these messages from a client. It rejects all of them."""
    for case, message in cases.items():
        rejected = receive(name, message)
        assert rejected is not None, case
        yield {"case": case, "client": name, "message": message.hex(), "reason": rejected.reason}
