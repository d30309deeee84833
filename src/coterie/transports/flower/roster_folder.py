"""The folder of a population's rosters: a file for each version, so that whoever missed some can be shown them all."""

from pathlib import Path

from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError
from coterie.files import write_once

_SUFFIX = ".roster"


class RosterFolder:
    """All versions of one roster, on the server's side."""

    def __init__(self, folder: Path) -> None:
        """Read what is there; every version must follow the one before."""
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
        """The roster as it is now; None before the first."""
        return self.versions[-1] if self.versions else None

    def add(self, roster: Roster) -> None:
        """Keep a new version; it is refused if somebody else was faster, or if it could not be read again."""
        if self.versions:
            self.versions[-1].check_successor(roster)
        body = roster.to_bytes()
        if Roster.from_bytes(body).to_bytes() != body:
            raise ConfigError("not a roster: it would be read as another one")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{roster.version:06d}{_SUFFIX}"
        # Clients trust it for good: a version lost with the power, or half of one, would be a fork.
        if not write_once(path, body):
            raise ConfigError(f"{path} is there already: another run changes this roster")
        self.versions.append(roster)

    def since(self, digest: bytes, pin: bytes = b"") -> list[Roster]:
        """Return the versions that somebody has to be shown who trusts the one with this digest.

        Somebody who trusts none yet is shown the latest alone, unless it says which one it is pinned to: that one and
        all after it are then shown, so that it can follow the links from there.
        """
        number = {roster.digest: place for place, roster in enumerate(self.versions)}
        begin = number[digest] + 1 if digest in number else len(self.versions) - 1
        return self.versions[min(begin, number.get(pin, begin)) :]
