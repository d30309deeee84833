"""Settings of a plan, of one session or of many rounds; the command line is derived from them."""

from dataclasses import dataclass
from typing import Annotated

from coterie.settings import Option, Settings

# The same as in coterie.privacy.calibration and in coterie.graphs.ThreatModel, which take longer to import.
DELTA, PRIVACY_BITS, RELIABILITY_BITS = 1e-5, 40.0, 20.0
SESSION, ROUNDS, DEPLOYMENT = "One session", "Many rounds", "A whole deployment (with a population and rounds)"
"""The kinds of plans; an option in the panel of one kind is refused with the others."""


@dataclass(frozen=True)
class PlanSettings(Settings):
    """Plan a whole deployment (--population, --rounds), what every T costs (--population), or one session (--clients).

    A deployment: give population, cohort, both kinds of loss, colluders, model size, rounds and epsilon. The plan has
    T, the graph, over-selection, bytes and seconds of a round, its failure rate, and the noise. [bold]--config[/]
    writes the settings for [bold]coterie run[/], [bold]--threat-model[/] a page in plain words: who may attack, what
    holds and what does not.

    A session: topology, degree, threshold and the fewest clients of a sum, with the proven bounds, the costs and what
    the server learns. Nothing is promised over many rounds without [bold]--privacy T[/]. Without failure targets,
    [bold]--topology erdos-renyi[/] uses the rule of the CCESA paper.

    Many rounds: what every multi-round privacy T costs, and which T is recommended.

    Clients are missing in two ways. [bold]--absent[/]: not available when a round begins, so their circle is not
    selected. [bold]--lost[/]: dropped out during the round, so their circle is left out of the sum.

    [dim]Examples[/]
    coterie plan --population 500 --cohort 60 --absent 0.1 --lost 0.02 --rounds 200 --epsilon 8
    coterie plan --clients 1000 --lost 0.1 --collusion 0.05
    coterie plan --clients 1000 --lost 0.02 --collusion 0.05 --privacy 4
    coterie plan --clients 60 --lost 0.1 --active --roster 500 --collusion 0.02
    coterie plan --population 120 --cohort 12 --absent 0.2 --lost 0.02
    """

    clients: Annotated[int | None, Option("Clients in a session.", least=3, panel=SESSION)] = None
    lost: Annotated[
        float | None,
        Option("Dropout in the round: the probability that a client is lost after it was selected.", metavar="P"),
    ] = None
    collusion: Annotated[
        float | None,
        Option(
            "Share of all clients that collude with the server (if not given 0; with --active just under 1/3 of a "
            "session).",
            metavar="P",
        ),
    ] = None
    active: Annotated[
        bool,
        Option(
            "Plan against a malicious server, which lies and chooses whom it invites. Every session then withstands "
            "all colluders, and is on the complete graph up to 1,000 clients unless --topology says "
            "otherwise.",
            name="--active/--no-active",
        ),
    ] = False
    roster: Annotated[
        int | None,
        Option(
            "Number of all clients, if a session has only some of them; --collusion is a share of these.",
            metavar="N",
            panel=SESSION,
        ),
    ] = None
    topology: Annotated[
        str,
        Option(
            "Graph of clients that share secrets; auto; or cheapest, even if T does not hold on it. auto is the "
            "cheapest; with --active, it is the complete graph up to its limit.",
            metavar="NAME",
            table="coterie.graphs.table:searches",
            panel=SESSION,
        ),
    ] = "auto"
    privacy_bits: Annotated[
        float | None,
        Option(f"Probability of a privacy failure at most 2^-BITS ({PRIVACY_BITS:g} if not given).", metavar="BITS"),
    ] = None
    reliability_bits: Annotated[
        float | None,
        Option(
            f"Probability of a failed session at most 2^-BITS ({RELIABILITY_BITS:g} if not given).",
            metavar="BITS",
            panel=SESSION,
        ),
    ] = None
    circles: Annotated[
        int,
        Option(
            "Size of the smallest circle, if it is larger than --privacy. Larger circles make two trips cheaper.",
            least=1,
            metavar="T",
            panel=SESSION,
        ),
    ] = 1
    length: Annotated[int, Option("Numbers in each client's vector: the parameters of the model.", least=1)] = 100_000
    precision: Annotated[int, Option("Bits for each number before aggregation.")] = 16
    population: Annotated[int | None, Option("Clients to choose from in every round.", least=1, panel=ROUNDS)] = None
    cohort: Annotated[int | None, Option("K: clients in a round, at most.", least=1, panel=ROUNDS)] = None
    absent: Annotated[
        str | None,
        Option(
            "Probability that a client is absent when a round begins, before selection; or several, each for an equal "
            "share of the clients, as 0.1,0.3.",
            metavar="P",
            panel=ROUNDS,
        ),
    ] = None
    over_select: Annotated[
        bool,
        Option(
            "Select more circles, to make up for those that --lost breaks in the round.",
            name="--over-select",
            panel=ROUNDS,
        ),
    ] = False
    privacy: Annotated[
        int | None,
        Option(
            "Strong multi-round privacy T. One session: clients are in circles of T, and a client that is lost "
            "excludes its whole circle from the sum; if not given there are no circles. Many rounds: show only this T.",
            least=1,
            metavar="T",
        ),
    ] = None
    rounds: Annotated[
        int | None,
        Option(
            "Rounds of training. Plans a whole deployment: one answer instead of a table of all T.",
            least=1,
            most=1_000_000,
            panel=DEPLOYMENT,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        Option(
            "Differential privacy of each client over all rounds; noise is planned for it. Without it there is none.",
            panel=DEPLOYMENT,
        ),
    ] = None
    delta: Annotated[float, Option("The delta for which epsilon is stated.", least=0, most=1, panel=DEPLOYMENT)] = DELTA
    calibrate: Annotated[
        bool,
        Option(
            "Measure this machine for a second or two, and print the seconds of a session or round.",
            name="--calibrate/--no-calibrate",
        ),
    ] = True
    seed: Annotated[int, Option("Draws random circles and the simulated rounds.", least=0, panel=ROUNDS)] = 0
    dropout: Annotated[str | None, Option("An old name of --absent, or of --lost.", hidden=True)] = None
    survival: Annotated[float | None, Option("An old form of --lost: 1 minus its value.", hidden=True)] = None
