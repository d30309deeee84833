"""The report: the rule beside its table, times beside times, and growth beside the orders of Table 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.graphs.guarantees import majority_threshold, paper_parameters
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import mean_and_spread, write_interval
from coterie.reproduce.graph_costs.figures import draw_growth, draw_ratios, draw_rule
from coterie.reproduce.graph_costs.orders import CCESA_CLAIMED, QUANTITIES, Course, Quantity
from coterie.reproduce.graph_costs.ratios import Pair, pairs_of
from coterie.reproduce.graph_costs.settings import BELL, CCESA, SA, WRONG, GraphCostsSettings, Outcomes, PrintedTimes
from coterie.reproduce.verdicts import RULE, Scale, Verdict, correct, decided, judge_mean, settle

_NEAR = 0.06  # the ratios of the printed times are as near as this to p
_GROWS = 0.05  # growth this much above an order's counts as the same: the parts of lower order are left out of it
_SAVINGS = (0.2, 0.3)  # the share of SA's resources that the abstract names
_ABOUT = (
    "*The rule*: p* is the larger of the bounds of Theorems 3 and 4, and t the threshold of Remark 4. It has no "
    "randomness. *Times*: sessions of SA and CCESA with real cryptography run in alternation, one client each, on one "
    "core. All clients are timed. Inputs are {length:,} numbers of the ring modulo 2^{bits}, and each client drops "
    "out of every step with the same probability, of both sessions alike. Times are processor times: of a client, the "
    "median over the clients of a session; of the server, all of its steps. Tables have the minimum over the trials, "
    "because other work on the machine can only add to times; ratios are means over trials ± their standard "
    "deviation. *Growth*: operations are counted on random graphs without playing sessions; a test compares the "
    "counts with what real sessions do. Bytes are lengths of our messages without the masked vector. Costs of a "
    "client are means over clients when nobody drops out; costs of the server are those after {dropout:.0%} of the "
    "clients have dropped out of the four steps. Bell's degree and threshold are those of the least Harary graph that "
    "keeps privacy failures below 2^-40 and reliability failures below 2^-20."
)


def report(experiment: GraphCostsSettings, outcomes: Outcomes) -> Findings:
    """Turn outcomes into findings."""
    pairs = pairs_of(outcomes.played)
    courses = {
        scheme: Course.of(scheme, [one for one in outcomes.counted if one.scheme == scheme])
        for scheme in (SA, CCESA, BELL)
        if any(one.scheme == scheme for one in outcomes.counted)
    }
    claims = correct(
        [
            *_rule_claims(experiment),
            *_savings_claim(experiment, pairs),
            *_growth_claims(experiment, courses),
            *_ratio_claims(pairs),
        ]
    )
    trials = len({one.trial for one in outcomes.played} | {one.trial for one in outcomes.counted})
    return Findings(
        headlines=list(decided(claims, trials)),
        about=_ABOUT.format(length=experiment.length, bits=experiment.bits, dropout=experiment.growth.dropout),
        tables=[
            _rule_table(experiment),
            *([_times_table(experiment, pairs), _ratio_table(experiment, pairs)] if pairs else []),
            *([_growth_table(courses)] if courses else []),
        ],
        claims=claims,
        claims_note=RULE,
        claims_last=True,
        drawings=[
            Drawing("rule.png", partial(draw_rule, experiment)),
            *([Drawing("ratios.png", partial(draw_ratios, experiment, pairs))] if pairs else []),
            *([Drawing("growth.png", partial(draw_growth, courses))] if courses else []),
        ],
    )


# The rule: Table F.4, and p and t of Table 5.1.


def _rule_claims(experiment: GraphCostsSettings) -> Iterator[Claim]:
    entries = list(_entries(experiment))
    if entries:
        right = sum(_right(value, printed) for _, _, value, printed in entries)
        wrong = sum(abs(value - printed) > WRONG for _, _, value, printed in entries)
        yield settle(
            f"Table F.4: all {len(entries)} entries are p* to three digits",
            f"{right} are, {wrong} are off by more than {WRONG:g}, {len(entries) - right - wrong} in the last digit",
            Verdict.exact(right == len(entries)),
        )
    if experiment.times:
        right = sum(_follows_rule(row) for row in experiment.times)
        yield settle(
            "Table 5.1: p and t are those of each protocol's rule",
            f"{right} of {len(experiment.times)} rows",
            Verdict.exact(right == len(experiment.times)),
        )


def _entries(experiment: GraphCostsSettings) -> Iterator[tuple[float, int, float, float]]:
    """Yield dropout, clients, p* and what is printed, for each entry of Table F.4."""
    for row in experiment.probabilities:
        for clients, printed in zip(experiment.rule.clients, row.probabilities, strict=True):
            yield row.dropout, clients, paper_parameters(clients, row.dropout).connection_probability, printed


def _right(value: float, printed: float) -> bool:
    return f"{value:.3f}" == f"{printed:.3f}"


def _follows_rule(row: PrintedTimes) -> bool:
    if row.scheme == SA:
        return (row.threshold, row.probability) == (majority_threshold(row.clients), 1.0)
    rule = paper_parameters(row.clients, row.dropout)
    return row.threshold == rule.threshold and f"{row.probability:.4f}" == f"{rule.connection_probability:.4f}"


def _rule_table(experiment: GraphCostsSettings) -> Table:
    printed = {(dropout, clients): entry for dropout, clients, _, entry in _entries(experiment)}
    rows = []
    for dropout in experiment.rule.dropouts:
        rules = [paper_parameters(clients, dropout) for clients in experiment.rule.clients]
        name = f"q_total = {dropout:g}"
        rows.append([f"{name}: p*", *(f"{rule.connection_probability:.4f}" for rule in rules)])
        if (dropout, experiment.rule.clients[0]) in printed:
            entries = [printed[dropout, clients] for clients in experiment.rule.clients]
            values = zip(rules, entries, strict=True)
            rows.append(["printed", *(_entry(rule.connection_probability, entry) for rule, entry in values)])
        rows.append(["t", *(str(rule.threshold) for rule in rules)])
    return Table(
        "Figure 4.1 and Table F.4: the rule",
        ["n", *(f"{clients:,}" for clients in experiment.rule.clients)],
        rows,
        "*digit*: the last digit differs from that of p*. **wrong**: off by more.",
    )


def _entry(value: float, printed: float) -> str:
    if _right(value, printed):
        return f"{printed:.3f}"
    return f"{printed:.3f} " + ("**wrong**" if abs(value - printed) > WRONG else "*digit*")


# Times: Table 5.1.


def _ratio_claims(pairs: Sequence[Pair]) -> Iterator[Claim]:
    for one in pairs:
        off = one.ratios(1, 2) / one.probability
        yield settle(
            f"Table 5.1, {one.name}: steps 1 and 2 take p = {one.probability:.4f} of SA's time, to {_NEAR:.0%}",
            write_interval(off, ".3f", " of p"),
            judge_mean(off, 1 - _NEAR, 1 + _NEAR),
            ours=True,
        )


def _savings_claim(experiment: GraphCostsSettings, pairs: Sequence[Pair]) -> Iterator[Claim]:
    """Judge the abstract where it has the best chance: by a client's time on the sparsest graph of Table 5.1."""
    printed = [row for row in experiment.times if row.scheme == CCESA]
    if not printed or not pairs:
        return
    paper = min(printed, key=lambda row: row.probability)
    best = min(pairs, key=lambda one: one.probability)
    ratios = best.ratios(0, 1, 2, 3)
    low, high = _SAVINGS
    yield settle(
        f"Abstract: 20 to 30% of SA's resources; a client's time with the least p of Table 5.1 ({best.name})",
        write_interval(100 * ratios, ".1f", "%"),
        judge_mean(ratios, low, high),
        Scale(participants=best.clients).shortfalls(Scale(participants=paper.clients)),
    )


def _times_table(experiment: GraphCostsSettings, pairs: Sequence[Pair]) -> Table:
    rows = []
    for scheme in (SA, CCESA):
        for one in pairs:
            printed = experiment.printed(scheme, one.clients, one.dropout)
            spent = [*one.client_ms(scheme).min(axis=0), one.server_ms(scheme).min()]
            theirs = [*printed.client_ms, printed.server_ms] if printed else [None] * len(spent)
            threshold = majority_threshold(one.clients) if scheme == SA else one.threshold
            probability = "1" if scheme == SA else f"{one.probability:.4f}"
            cells = [_ms(ours, paper) for ours, paper in zip(spent, theirs, strict=True)]
            rows.append([scheme, str(one.clients), f"{one.dropout:g}", str(threshold), probability, *cells])
    return Table(
        "Table 5.1: milliseconds of a client's steps and of the server",
        ["scheme", "n", "q_total", "t", "p", "step 0", "step 1", "step 2", "step 3", "server"],
        rows,
        "Ours, and in brackets what is printed: another machine, Shamir's sharing in Python, and masks that are not "
        "cryptographic. Our clients agree on all keys in step 1, so step 2 only opens shares and masks; in the paper "
        "half of the agreements are part of step 2.",
    )


def _ms(ours: float, printed: float | None) -> str:
    return f"{ours:.3g}" + ("" if printed is None else f" ({printed:,.0f})")


def _ratio_table(experiment: GraphCostsSettings, pairs: Sequence[Pair]) -> Table:
    def printed(one: Pair, *steps: int) -> str:
        ratio = experiment.printed_ratio(one.clients, one.dropout, *steps)
        return "" if ratio is None else f"{ratio:.3f}"

    return Table.of(
        "CCESA's share of SA's time",
        pairs,
        [
            ("", lambda one: one.name),
            ("p", lambda one: f"{one.probability:.4f}"),
            ("step 1", lambda one: mean_and_spread(one.ratios(1), ".3f")),
            ("step 2", lambda one: mean_and_spread(one.ratios(2), ".3f")),
            ("steps 1 and 2", lambda one: mean_and_spread(one.ratios(1, 2), ".3f")),
            ("printed", lambda one: printed(one, 1, 2)),
            ("step 3", lambda one: mean_and_spread(one.ratios(3), ".3f")),
            ("printed", lambda one: printed(one, 3)),
            ("steps 0 to 3", lambda one: mean_and_spread(one.ratios(0, 1, 2, 3), ".3f")),
            ("server", lambda one: mean_and_spread(one.server_ratios, ".3f")),
            ("printed", lambda one: printed(one)),
            ("bytes of a client", lambda one: mean_and_spread(one.byte_ratios, ".3f")),
        ],
        f"Bytes are everything that a client sends and receives, with the vector of {experiment.length:,} numbers. "
        + " ".join(_sparse_enough(experiment)),
    )


def _sparse_enough(experiment: GraphCostsSettings) -> Iterator[str]:
    """Say from how many clients on p* is at most what the abstract calls 30% of the resources."""
    most = _SAVINGS[1]
    for dropout in experiment.rule.dropouts:
        sizes = experiment.rule.clients
        found = [n for n in sizes if paper_parameters(n, dropout).connection_probability <= most]
        where = f"from {min(found):,} clients on" if found else f"at none of up to {max(sizes):,} clients"
        yield f"For q_total = {dropout:g}, p* is at most {most:g} {where}."


# Growth: Table 1.


def _growth_claims(experiment: GraphCostsSettings, courses: dict[str, Course]) -> Iterator[Claim]:
    course = courses.get(CCESA)
    if course is None or (ends := course.doubling) is None:
        return
    few, many = ends
    scale = Scale(participants=many).shortfalls(Scale(participants=max(experiment.rule.clients)))
    for quantity in QUANTITIES:
        if quantity.field in CCESA_CLAIMED:
            order = quantity.orders[CCESA]
            off = course.factors(quantity, few, many) / order.factor(few, many)
            yield settle(
                f"Table 1, CCESA, {quantity.name}: from {few:,} to {many:,} clients they grow at most as "
                f"O({order.words}), to {_GROWS:.0%}",
                write_interval(off, ".3f", " of its growth"),
                judge_mean(off, -inf, 1 + _GROWS),
                scale,
            )


def _growth_table(courses: dict[str, Course]) -> Table:
    first = next(iter(courses.values()))
    ends = first.doubling
    factor = f"{ends[0]:,} to {ends[1]:,}" if ends else "doubled"
    low, high = f"n = {first.clients[0]:,}", f"n = {first.clients[-1]:,}"
    headings = ["", "scheme", "Table 1", low, high, factor, "by Table 1", "exponent", "by Table 1"]
    rows = [_growth_row(quantity, course) for quantity in QUANTITIES for course in courses.values()]
    return Table(
        "Table 1: operations, and how they grow",
        headings,
        rows,
        "m is the length of the vector. The parts of what Table 1 adds up are counted separately, each with its order "
        "in Table 1. *Exponent*: that of a power of n fitted to all sizes, beside the same fit to the order. SA's "
        "server makes about n³/4 products, because it makes the weights of every secret anew. That is within O(mn²) "
        "as long as m is at least n, so n stands for m there.",
    )


def _growth_row(quantity: Quantity, course: Course) -> list[str]:
    order, means = quantity.orders[course.scheme], course.means(quantity)
    sizes = np.array(course.clients, float)
    ordered = np.array([order.at(size) for size in sizes])
    growth = ["", ""]
    if course.doubling:
        growth = [f"{course.factors(quantity, *course.doubling).mean():.2f}", f"{order.factor(*course.doubling):.2f}"]
    exponents = [f"{_exponent(sizes, values):.2f}" for values in (means, ordered)] if sizes.size > 1 else ["", ""]
    ends = [f"{means[0]:,.0f}", f"{means[-1]:,.0f}"]
    return [quantity.name, course.scheme, f"O({order.words})", *ends, *growth, *exponents]


def _exponent(sizes: Reals, values: Reals) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
