"""Stages of a log: proofs over the rationals for many clients and many rounds at once.

A *stage* is an independent row of a connected part of the matrix, and the dependent rows after it. The row space does
not change within a stage. If the kernel of all rows up to the end of the stage has as many dimensions over the
rationals as modulo the prime, then the rows that are dependent modulo the prime are dependent. If all vectors of that
kernel are zero in a column, then the client is exposed.

The kernel of a stage is proved in one of three ways:

* It is zero modulo the prime. Nothing is left to prove.
* **Alone**: its vectors are searched among those that are zero in every column that is exposed modulo the prime by
  then. If many clients are exposed, few columns remain (:mod:`coterie.auditing.kernel`). If there are enough of
  these vectors, they span the kernel.
* **On a walk** through all rows of the part, if many of its stages need a proof. The reduced rows modulo a larger prime
  have a null vector for each free column. If all of them are short, they hold over the rationals
  (:mod:`coterie.auditing.row_space`).
"""

from collections import Counter
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from coterie.auditing.elimination import Elimination, Positions
from coterie.auditing.kernel import prove_kernel
from coterie.auditing.modular import Echelon

_WALK_PRIME = 2**31 - 1
_MOST_WALKED = 4096  # columns of a part
_FEW = 25  # a walk pays off if a part has more stages to prove than 1 / 25 of its columns


class Stages:
    """The stages of a log, found by an elimination modulo its prime.

    ``since`` has the row since which each column is exposed modulo the prime, or the number of rows.
    """

    def __init__(self, found: Elimination, since: Positions, rng: np.random.Generator) -> None:
        self._found, self._since, self._rng = found, since, rng
        matrix = found.matrix
        self._height, width = matrix.shape
        _, parts = connected_components(sp.bmat([[None, matrix], [matrix.T, None]]), directed=False)
        self._row_part, self._column_part = parts[: self._height], parts[self._height :]
        self._columns = matrix.tocsc()
        self._columns.sort_indices()
        self._first = np.full(width, self._height)  # the first row of each column
        filled = np.flatnonzero(np.diff(self._columns.indptr))
        self._first[filled] = self._columns.indices[self._columns.indptr[filled]]
        self._proved: dict[tuple[int, int], bool] = {}
        self._dimensions: dict[tuple[int, int], int] = {}
        self._walked: set[int] = set()

    def is_trivial(self, row: int) -> bool:
        """Return whether nothing is left to prove in the stage of this row, or it is proved already."""
        part, stage = self._place(row)
        return self._proved.get((part, stage), False) or self._dimension(part, stage) == 0

    def prove(self, row: int) -> bool:
        """Prove the kernel in the stage of this row; return whether a proof was found.

        Then all dependent rows of the stage are dependent over the rationals, and all columns that are exposed since
        its first row modulo the prime are truly exposed since then.
        """
        part, stage = self._place(row)
        if self.is_trivial(row):
            return True
        if part not in self._walked and self._pays_off(part):
            self._walked.add(part)
            self._walk(part)
        if (part, stage) not in self._proved:
            self._proved[part, stage] = self._prove_alone(part, stage)
        return self._proved[part, stage]

    @cached_property
    def _independent(self) -> dict[int, Positions]:
        """The independent rows of each part, in order."""
        parts = self._row_part[self._found.rows]
        order = np.argsort(parts, kind="stable")
        names, starts = np.unique(parts[order], return_index=True)
        return dict(zip(names.tolist(), np.split(self._found.rows[order], starts[1:]), strict=True))

    @cached_property
    def _waiting(self) -> Counter[tuple[int, int]]:
        """The number of columns and dependent rows to prove in each stage."""
        exposed = self._since[self._since < self._height]
        return Counter(map(self._place, [*exposed.tolist(), *self._found.dependent.tolist()]))

    def _place(self, row: int) -> tuple[int, int]:
        """Return the part of a row, and the number of its independent rows up to this one."""
        part = int(self._row_part[row])
        independent = self._independent.get(part)
        return part, 0 if independent is None else int(np.searchsorted(independent, row, side="right"))

    def _span(self, part: int, stage: int) -> tuple[int, int]:
        """Return the first row of a stage, and the first row after it."""
        independent = self._independent.get(part, np.zeros(0, dtype=np.int64))
        end = int(independent[stage]) if stage < len(independent) else self._height
        return int(independent[stage - 1]) if stage else 0, end

    def _known(self, part: int, end: int) -> NDArray[np.bool_]:
        """Return the columns of a part that have ones before row ``end``."""
        known: NDArray[np.bool_] = (self._column_part == part) & (self._first < end)
        return known

    def _dimension(self, part: int, stage: int) -> int:
        """Return the dimension of the kernel in a stage, modulo the prime."""
        if (part, stage) not in self._dimensions:
            known = self._known(part, self._span(part, stage)[1])
            self._dimensions[part, stage] = int(np.count_nonzero(known)) - stage
        return self._dimensions[part, stage]

    def _prove_alone(self, part: int, stage: int) -> bool:
        begin, end = self._span(part, stage)
        known = self._known(part, end)
        remaining = np.flatnonzero(known & (self._since > begin))
        effort = float(self._waiting[part, stage]) * stage**3  # the effort of proving each stage alone
        rows = self._columns[:, remaining][:end].tocsc()
        return prove_kernel(rows, self._dimension(part, stage), self._found.prime, effort, self._rng)

    def _pays_off(self, part: int) -> bool:
        columns = int(np.count_nonzero(self._column_part == part))
        stages = sum(one == part and self._dimension(one, stage) > 0 for one, stage in self._waiting)
        return columns <= _MOST_WALKED and _FEW * stages > columns

    def _walk(self, part: int) -> None:
        """Prove the stages of a part whose null vectors are short, modulo a larger prime."""
        columns = np.flatnonzero(self._column_part == part)
        rows = self._found.matrix[:, columns].astype(np.bool_)
        independent = set(self._independent[part].tolist())
        echelon = Echelon(len(columns), _WALK_PRIME)
        everything = np.ones(len(columns), dtype=np.bool_)
        for row in np.flatnonzero(self._row_part == part).tolist():
            if row in independent and self._waiting[part, echelon.rank]:
                self._conclude(part, echelon, columns, everything)
            if echelon.push(rows[[row]].toarray()[0]) != (row in independent):
                return  # the primes disagree
        self._conclude(part, echelon, columns, everything)

    def _conclude(self, part: int, echelon: Echelon, columns: Positions, everything: NDArray[np.bool_]) -> None:
        """Prove the stage that ends here, if all null vectors are short and zero where columns are exposed.

        Every null vector of the pushed rows is a combination of these, including those of columns without any ones so
        far.
        """
        begin, _ = self._span(part, echelon.rank)
        exposed = set(np.flatnonzero(self._since[columns] == begin).tolist())
        zero = np.flatnonzero(~np.any(echelon.body, axis=1)).tolist()
        if exposed <= {echelon.pivots[at] for at in zero} and echelon.has_short_null_vectors(everything):
            self._proved[part, echelon.rank] = True
