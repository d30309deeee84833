"""Places in the steps of a session at which a test can hold or kill a process, and a record of its answers."""

import hashlib
import json
import os
import time
from pathlib import Path

import msgspec
from flwr.app import RecordDict

PAPERS = {0: "advertise", 2: "share", 4: "mask", 6: "confirm", 8: "reveal"}
STEPS = {**PAPERS, 10: "contribute", 12: "survivors", 14: "proof"}  # by the tag of the server's message
LONGEST_HOLD = 300.0


def folder() -> Path:
    return Path(os.environ["COTERIE_HOME"]).parent / "places"


def payload(records: RecordDict) -> bytes:
    found = records.array_records.get("coterie-payload")
    return found["bytes"].numpy().tobytes() if found else b""


def step_of(records: RecordDict) -> str:
    message = payload(records)
    return STEPS[message[1]] if message else "hello"


def reach(who: str, step: str, when: str) -> None:
    """Record that this place is reached, and wait there until a test releases it."""
    place = folder() / f"{who}.{step}.{when}"
    hold = place.with_name(f"{place.name}.hold")
    if not hold.exists():
        return
    place.write_text(str(os.getpid()))
    give_up = time.monotonic() + LONGEST_HOLD
    while hold.exists() and time.monotonic() < give_up:
        time.sleep(0.05)


def note_answer(who: str, request: RecordDict, reply: RecordDict) -> None:
    """Record the answer to a step of a session."""
    asked = payload(request)
    if not asked:
        return
    terms = msgspec.msgpack.decode(asked[:-16])[1]
    note = {"session": terms.hex(), "step": step_of(request), "reply": hashlib.sha256(payload(reply)).hexdigest()}
    with (folder() / f"{who}.answers").open("a") as file:
        file.write(json.dumps(note) + "\n")
