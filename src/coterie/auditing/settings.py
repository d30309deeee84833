"""Settings of an audit: how the log is read, and which T is required. The command line is derived from them."""

from dataclasses import dataclass
from typing import Annotated

from coterie.settings import MOST_SEED, Option, Settings


@dataclass(frozen=True)
class LogSettings(Settings):
    """How a participation log is read; audits and attacks on saved sums share these settings."""

    format: Annotated[str | None, Option("Format of the log; recognised from the content unless given.")] = None
    round_column: Annotated[
        str | None, Option("The column or field with the rounds; or its number.", metavar="NAME")
    ] = None
    client_column: Annotated[
        str | None, Option("The column or field with the clients; or its number.", metavar="NAME")
    ] = None
    where: Annotated[
        tuple[str, ...],
        Option(
            "Read only rows with this value in this column; * is any value. May be repeated: values of one column are "
            "alternatives, and conditions on several columns must all hold.",
            metavar="COLUMN=VALUE",
        ),
    ] = ()
    encoding: Annotated[str | None, Option("Encoding of a log that is not UTF-8, as in latin-1.", metavar="NAME")] = (
        None
    )
    keep_order: Annotated[
        bool, Option("Rounds took place in the order of the log, whatever their labels are.", name="--keep-order")
    ] = False
    as_written: Annotated[
        bool,
        Option(
            "Take names and rounds as they are written: names that look alike are different clients, a name with "
            "commas is one client, and a round that occurs again later is the same round.",
            name="--as-written",
        ),
    ] = False
    window: Annotated[
        str | None,
        Option(
            "A round is all rows of one minute, hour, day or week; --round-column has their times.",
            metavar="WINDOW",
        ),
    ] = None


@dataclass(frozen=True)
class AuditSettings(LogSettings):
    """Find the clients whose updates the sums of past rounds reveal, in the log of any federated learning system.

    LOG says who was aggregated in each round. It is a file, which may be packed with gzip,
    - for standard input, the URL of a ledger's database, or the folder of a run. The formats are
    FORMATS

    An ambiguous log is refused, with the option that resolves it.
    Rounds are put in the order of their numbers, dates or times.
    The output begins with how the log was read.

    [bold]Exit status[/]
    0  no client is exposed, and the required T holds if one is given; or --report-only
    1  a client is exposed, or the required T does not hold or could not be shown to hold;
    or the output cannot be written, which a line on stderr says
    2  wrong usage, or the log or some of its lines could not be read: do not rely on the verdict
    3  refused: the ledger was tampered with, or the log is above the limit
    70  a fault in Coterie itself
    130  interrupted: what is known by then is shown
    141  the reader of the output stopped before its end
    If strong T is 1 and no client is exposed, the status is 0; with --require 2 it is 1.

    [dim]Examples[/]
    coterie audit rounds.csv --html audit.html
    coterie audit - --require 6 --json < rounds.csv
    coterie audit events.csv --round-column iteration --client-column device --where event=aggregated
    coterie audit events.csv --round-column time --window day --summary board.html
    coterie audit rounds.csv --forecast --what-if circles=4 --colluders ann,bob
    coterie audit sweep.csv --all-runs --exposed exposed.csv
    """

    require: Annotated[int | None, Option("Also fail if T is below this.", least=1, metavar="T")] = None
    weak: Annotated[bool, Option("Which T is required; weak T promises much less.", name="--weak/--strong")] = False
    collusion: Annotated[
        int, Option("Also report, and require, the T that is left if C members collude.", least=0, metavar="C")
    ] = 0
    colluders: Annotated[
        tuple[str, ...],
        Option(
            "Also report what these clients, separated by commas, and the server together learn about the others; or, "
            "for “any 5”, whether any 5 clients could isolate another one. Fail if they can isolate a client.",
            metavar="NAMES",
        ),
    ] = ()
    forecast: Annotated[
        bool,
        Option(
            "Also simulate how many rounds are left until the first, and the last, client is exposed.",
            name="--forecast",
        ),
    ] = False
    what_if: Annotated[
        str | None,
        Option(
            "Also report T and exposures if only whole circles of N clients had been summed in the same rounds.",
            metavar="circles=N",
        ),
    ] = None
    seed: Annotated[int, Option("For the random draws of --forecast and --what-if.", least=0, most=MOST_SEED)] = 0
    all_runs: Annotated[
        bool, Option("Audit each run in LOG separately. The exit status is that of the worst.", name="--all-runs")
    ] = False
    report_only: Annotated[
        bool, Option("Exit with status 0 whatever is found; fail only if the log cannot be read.", name="--report-only")
    ] = False
    weak_seconds: Annotated[
        float | None,
        Option(
            "Seconds to search for the exact weak T; then bounds are shown.", least=0, default="60 if required, else 2"
        ),
    ] = None
    witnesses: Annotated[
        int | None,
        Option(
            "Compute how the first N exposed clients are isolated.",
            least=0,
            metavar="N",
            default="10 for the text and all for the JSON, as long as that is quick",
        ),
    ] = None
    head: Annotated[
        str | None,
        Option(
            "For a ledger: a head of it that you noted earlier. The audit fails if the end of the ledger was cut off.",
            metavar="SEQUENCE:DIGEST",
        ),
    ] = None
    limit: Annotated[float, Option("Refuse a log that is larger than this when unpacked.", least=0, metavar="MB")] = 250
