"""The promise of a run: the privacy of every client, given all sums of the run, and its description in words.

The words promise no more than SECURITY.md does: T is the size of the smallest circle, colluders are subtracted, and on
a sparse graph nothing over several rounds is promised against a malicious server.
"""

from dataclasses import dataclass

from coterie.runs.sections.collusion import PRIVACY_BITS


@dataclass(frozen=True)
class Promise:
    """The promise of a run for any number of rounds."""

    circle: int = 1
    """The size of the smallest circle; 1 if no clients are kept together, or the server sees every update."""
    colluders: int = 0
    """c: how many members of a circle may help the server; if it is malicious, how many of all clients may."""
    clients: int = 0
    """The number of clients."""
    active: bool = False
    """Whether the server may be malicious."""
    sparse: bool = False
    """Whether some session's graph is not complete."""
    planned: bool = True
    """Whether sparse graphs and thresholds come from this planner; how often others fail is not known."""
    drawn: bool = False
    """Whether circles are drawn at random, so that circles with many colluders are rare."""
    varying: bool = False
    """Whether clients or their examples count differently in each round, so that many sums say more about each."""

    @property
    def cut(self) -> bool:
        """Whether the server can cut sessions into parts. T then holds for whole sums, not for partial ones."""
        return self.active and self.sparse

    @property
    def privacy(self) -> int:
        """T: every combination of the sums is about at least this many clients together; 1 if nothing is promised."""
        return 1 if self.cut or self.unproven else self.circle

    @property
    def unproven(self) -> bool:
        """Whether sessions are on sparse graphs for which no bound is known."""
        return self.sparse and not self.planned

    @property
    def honest(self) -> int:
        """T - c: the number of honest clients among these if all colluders are among them."""
        return max(0, self.privacy - self.colluders)

    @property
    def holds(self) -> bool:
        """Whether an honest client is always mixed with another honest one."""
        return self.honest > 1

    @property
    def lasting(self) -> str:
        """The T that holds for any number of rounds, in a few words."""
        lasting = f"T = {self.privacy} promised for any number of rounds" if self.privacy > 1 else "no T promised"
        if self.privacy > 1 and self.colluders:
            lasting += f" (T - c = {self.honest} with c = {self.colluders} colluders)"
        return lasting

    def describe(self, so_far: int | None) -> str:
        """Return the promised T, and the T found so far, which later rounds may lower."""
        return f"{self.lasting}, nothing revealed yet" if so_far is None else f"{self.lasting}, T = {so_far} so far"

    def beside_audit(self) -> str:
        """Return the promise and its assumptions, for display beside a verdict on the sums of the ledger."""
        server = "a malicious server" if self.active else "an honest-but-curious server"
        setting = f"against {server}, on a {'sparse' if self.sparse else 'complete'} graph, with c = {self.colluders}"
        if self.circle == 1:
            return f"{setting}: {self.lasting}, because no circles keep clients together in all rounds."
        return f"{setting}: {self.lasting}; {self}. The verdict is about the sums in the ledger, not about this."

    def __str__(self) -> str:
        """Return what the promise means for the clients, as long as every row of the ledger keeps it."""
        if self.cut:
            return (
                "on a sparse graph a server that lies can make chosen clients drop out, cut a session into parts and "
                f"learn the sum of each, of two honest clients or more. T = {self.circle} holds for the sums that the "
                "ledger records, not for such parts. With aggregation.topology = complete it holds against this server"
            )
        if self.unproven:
            return (
                "it is not known how often a session on this sparse graph falls into parts, each with its own sum: the "
                "graph or its threshold was not planned, or by an earlier version, which did not count that whoever "
                f"drops out takes a circle along. T = {self.circle} holds for the sums in the ledger, not for such "
                "parts. Begin a run with aggregation.connection = 0 and aggregation.threshold = 0, or with "
                "aggregation.topology = complete"
            )
        if not self.holds:
            return (
                f"every combination of the sums is about groups of {self.privacy} clients or more, but "
                f"{self._colluders} may be among them: T - c = {self.honest}. Then an honest client is alone with "
                f"colluders, and its updates are known. Raise cohort.privacy to c + 2 = {self.colluders + 2} or more, "
                f"or lower aggregation.collusion to what there may be{self._caveats}"
            )
        lies = ", also if it lies" if self.active else ""
        helped = f"; if {self._colluders} help it, T - c = {self.honest} of these are honest" if self.colluders else ""
        return (
            f"every combination of all the sums that the server ever sees{lies} is about groups of {self.privacy} "
            f"clients or more{helped}. No number of rounds changes that{self._caveats}"
        )

    @property
    def _colluders(self) -> str:
        group = f"all {self.clients:,} clients" if self.active else "the members of a circle"
        return f"c = {self.colluders} of {group}"

    @property
    def _caveats(self) -> str:
        """Return the further assumptions of the sentence."""
        said = ""
        if self.sparse:
            said += (
                ". On a sparse graph this can fail, with the probability that coterie plan prints: at most "
                f"2^-{PRIVACY_BITS:g} in a round, if who drops out does not depend on the graph"
            )
        if self.active:
            said += (
                f". c = {self.colluders} must cover the colluders among all {self.clients:,} clients: a server that "
                "lies chooses who is in a session"
            )
        elif self.colluders and self.drawn:
            said += (
                ". Circles are drawn at random among all clients, colluders too: one has more than c of them with a "
                f"probability of 2^-{PRIVACY_BITS:g} at most"
            )
        if self.varying:
            said += (
                ". What sums reveal about a group together is not bounded by T. In this run the weights of clients and "
                "examples change from round to round, and for simple models such sums were enough to compute the data "
                "of both members of a circle of two. Two settings help: noise, which bounds it; or fedavg or fedprox "
                "with a constant learning rate and training.shuffle = false, which keeps the weights the same. The "
                "page on the threat model has more"
            )
        return said


NO_PROMISE = Promise()
"""No promise."""
