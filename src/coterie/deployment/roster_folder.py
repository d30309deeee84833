"""The folder of a population's rosters: one file for each version, so that a node can get all that it missed."""

from pathlib import Path

from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError
from coterie.files import write_once

_SUFFIX = ".roster"


class RosterFolder:
    """All versions of one roster, on the server's side."""

    def __init__(self, folder: Path) -> None:
        """Read all versions; each must follow the one before."""
        self._folder = folder
        self.versions: list[Roster] = []
        for number, path in enumerate(sorted(folder.glob(f"*{_SUFFIX}"))):
            try:
                roster = Roster.from_bytes(path.read_bytes())
                if number:
                    self.versions[-1].check_successor(roster)
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from None
            self.versions.append(roster)

    def __repr__(self) -> str:
        return f"<RosterFolder {self._folder}, {len(self.versions)} versions>"

    @property
    def latest(self) -> Roster | None:
        """The latest roster; None before the first."""
        return self.versions[-1] if self.versions else None

    def add(self, roster: Roster) -> None:
        """Add a version; :class:`ConfigError` if another run was faster, or if it could not be read again."""
        if self.versions:
            self.versions[-1].check_successor(roster)
        body = roster.to_bytes()
        if Roster.from_bytes(body).to_bytes() != body:
            raise ConfigError("not a roster: it would be read as another one")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{roster.version:06d}{_SUFFIX}"
        # Clients never forget a version, so one that is lost in a power failure, or half written, would cause a fork.
        if not write_once(path, body):
            raise ConfigError(f"{path} exists: another run changes this roster at the same time")
        self.versions.append(roster)

    def since(self, digest: bytes, pin: bytes = b"") -> list[Roster]:
        """Return the versions that a node needs if it trusts the one with this digest.

        A node that trusts none yet gets all of them, because prekeys are signed for the first. A node that is pinned to
        a version it has not seen gets that one and all later ones, so that it can follow the links from there.
        """
        number = {roster.digest: place for place, roster in enumerate(self.versions)}
        begin = number[digest] + 1 if digest in number else 0
        return self.versions[min(begin, number.get(pin, begin)) :]

    @property
    def population(self) -> bytes:
        """The digest of the first version, which prekeys are signed for."""
        if not self.versions or (first := self.versions[0]).version > 1:
            raise ConfigError(f"{self._folder} lacks the first roster: restore it, or set protocol='papers'")
        return first.predecessor or first.digest
