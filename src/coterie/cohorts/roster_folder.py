"""The folder of a population's rosters: a file for each version, so that whoever missed some can be shown them all."""

import os
from pathlib import Path

from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError

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
        """Keep a new version; it is refused if somebody else was faster."""
        if self.versions:
            self.versions[-1].check_successor(roster)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{roster.version:06d}{_SUFFIX}"
        try:
            with path.open("xb") as file:
                file.write(roster.to_bytes())
                file.flush()
                os.fsync(file.fileno())  # clients trust it for good: a version lost with the power would be a fork
        except FileExistsError:
            raise ConfigError(f"{path} is there already: another run changes this roster") from None
        self.versions.append(roster)

    def since(self, digest: bytes) -> list[Roster]:
        """Return the versions that somebody has to be shown who trusts the one with this digest.

        Somebody who trusts none yet is shown the latest alone: it may not be on the ones before.
        """
        known = [number for number, roster in enumerate(self.versions) if roster.digest == digest]
        return self.versions[known[0] + 1 :] if known else self.versions[-1:]
