"""Write the test vectors: complete transcripts of sessions whose randomness comes from labelled streams.

Another implementation of the protocol that is given the same terms, inputs and entropy must produce the same bytes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.support.cast import Cast, make_terms, names

from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.secagg import Step, Terms

FOLDER = Path(__file__).parent
ENTROPY = "coterie test vectors"

SESSIONS: dict[str, tuple[Terms, Mapping[Step, Sequence[str]]]] = {
    "complete": (make_terms(4, topology=Complete(), bits=16, length=3), {}),
    "complete-dropouts": (
        make_terms(6, topology=Complete(), bits=20, length=5, threshold=3),
        {Step.SHARE: names(6)[:1], Step.MASK: names(6)[3:4], Step.REVEAL: names(6)[5:]},
    ),
    "erdos-renyi": (make_terms(7, topology=ErdosRenyi(0.8), bits=32, length=2), {Step.MASK: names(7)[2:3]}),
    "harary-batches": (
        make_terms(8, topology=Harary(6), bits=33, length=4, circles=(0, 0, 1, 1, 2, 2, 3, 3)),
        {Step.MASK: names(8)[6:7]},
    ),
    "active-server": (
        make_terms(5, topology=Harary(4), bits=24, length=3, active=True),
        {Step.MASK: names(5)[4:]},
    ),
}


def transcript(terms: Terms, dropouts: Mapping[Step, Sequence[str]]) -> dict[str, Any]:
    """Play one session and write down everything that passes between the parties."""
    cast = Cast(terms, seed=ENTROPY.encode())
    return {
        "terms": msgspec.to_builtins(terms)
        | {
            "session": terms.session.hex(),
            "roster": terms.roster.hex(),
            "identities": [key.hex() for key in terms.identities],
        },
        "terms_digest": terms.digest.hex(),
        "inputs": {name: vector.tolist() for name, vector in cast.inputs.items()},
        "dropouts": {step.value: list(clients) for step, clients in dropouts.items()},
        "steps": list(_steps(cast, dropouts)),
        "aggregated": list(cast.server.aggregated),
        "sum": cast.unmask().total.tolist(),
    }


def _steps(cast: Cast, dropouts: Mapping[Step, Sequence[str]]) -> Iterator[dict[str, Any]]:
    while True:
        step = cast.server.step
        replies = cast.replies([name for name in cast.inbox if name not in dropouts.get(step, ())])
        cast.deliver(replies)
        uploads = {name: message.hex() for name, message in replies.items()}
        if step is Step.REVEAL:
            yield {"step": step.value, "uploads": uploads}
            return
        cast.inbox = cast.server.close()
        downloads = {name: message.hex() for name, message in cast.inbox.items()}
        yield {"step": step.value, "uploads": uploads, "downloads": downloads}


def main() -> None:
    """Write one file for each session."""
    for name, (terms, dropouts) in SESSIONS.items():
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(transcript(terms, dropouts), indent=1) + "\n")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
