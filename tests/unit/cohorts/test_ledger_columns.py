"""A column of the ledger is added in one file: the change is made to its text, in another process."""

import subprocess
import sys
from pathlib import Path

from tests.support.rounds import make_roster

from coterie.cohorts.ledger import Ledger
from coterie.rounds.row import LedgerRow

CHANGED = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

VALUE = [7]


class Changed(SourceFileLoader):
    def get_code(self, fullname):
        text = Path(self.path).read_text(encoding="utf-8")
        assert text.count("    recipe: bytes\\n") == text.count('"recipe": roster.recipe_digest}') == 1
        text = text.replace("    recipe: bytes\\n", "    country: int\\n    recipe: bytes\\n")
        text = text.replace('"recipe": roster.recipe_digest}', '"recipe": roster.recipe_digest, "country": VALUE[0]}')
        return compile("from __main__ import VALUE\\n" + text, self.path, "exec")


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "coterie.cohorts.ledger_columns":
            return None
        spec = super().find_spec(name, path, target)
        spec.loader = Changed(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder)

from tests.support.rounds import make_roster

from coterie.cohorts.ledger import EntryKind, Ledger
from coterie.errors import LedgerConflict
from coterie.rounds.row import LedgerRow

roster = make_roster()
everybody = tuple(roster.names)
with Ledger.open(sys.argv[1]) as ledger:
    LedgerRow(ledger, 2, roster, 2, resuming=False).reveal(everybody)
with Ledger.open(sys.argv[1]) as ledger:
    old, new = [entry.columns for entry in ledger.entries() if entry.kind is EntryKind.REVEAL]
    assert "country" not in old, old
    assert new["country"] == 7, new
    head = ledger.verify()
    LedgerRow(ledger, 2, roster, 2, resuming=True).reveal(everybody)  # the same row
    assert ledger.verify() == head
    VALUE[0] = 8
    try:
        LedgerRow(ledger, 2, roster, 2, resuming=True).reveal(everybody)
    except LedgerConflict:
        print("stored, chained and compared")
"""


def test_a_column_is_declared_in_one_file_and_old_entries_stay_valid(tmp_path: Path) -> None:
    roster, path = make_roster(), tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        LedgerRow(ledger, 1, roster, 2, resuming=False).reveal(tuple(roster.names))
    command = [sys.executable, "-c", CHANGED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert (done.stdout, done.stderr) == ("stored, chained and compared\n", "")
