"""The session of a demonstration: many clients, dropouts in every step, and a check of every result.

Each client's private vector is an artificial fingerprint. The session runs the real protocol on encoded messages,
with randomness from the operating system.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from coterie.arithmetic import Layout, Quantizer, RingVector
from coterie.cohorts.circles import circle_sizes
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.demo.fingerprint import fingerprint
from coterie.demo.report import Cost, DemoPlan, DemoReport, ServerView, StepView, Vectors
from coterie.demo.settings import DemoSettings
from coterie.errors import ConfigError, VerificationError
from coterie.graphs import Complete
from coterie.graphs.failures import ThreatModel
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.graphs.table import assess, searches
from coterie.rounds import one_off
from coterie.secagg import Aggregate, Step, Terms, ThreatMode, messages
from coterie.secagg.prekeys.messages import MaskedContribution
from coterie.transports.faults import Fault, FaultKind, Faults
from coterie.transports.memory import Carrier, Session, Watch, make_book

UNMASK = "unmask"
COLLUSION = 0.1
PRECISION = 16
SESSION_BYTES = 16


def make_plan(settings: DemoSettings, missing: int) -> DemoPlan:
    """Find a graph and a threshold that tolerate ``missing`` clients, or a complete graph and a majority otherwise.

    All clients that are missing from the sum count as dropouts, including members of broken circles that stay.
    """
    known = searches()
    if settings.topology not in known:
        raise ConfigError(f"the topology is one of {', '.join(known)}, not {settings.topology!r}")
    try:
        model = ThreatModel(settings.clients, missing / settings.clients, COLLUSION, active=settings.active)
        found = known[settings.topology](model)
        if settings.two_trips and settings.active and model.quorum > found.threshold:
            found = assess(model, found.topology, model.quorum)
    except ConfigError as error:
        everybody = settings.clients
        threshold = majority_threshold(everybody)
        if settings.two_trips and settings.active:
            threshold = quorum_of(everybody, int(COLLUSION * everybody))
        return DemoPlan(Complete(), everybody - 1, threshold, COLLUSION, shortcoming=str(error))
    return DemoPlan(
        found.topology,
        found.degree,
        found.threshold,
        COLLUSION,
        found.privacy_failure_log2,
        found.reliability_failure_log2,
    )


def schedule(settings: DemoSettings, names: Sequence[str]) -> dict[Step, tuple[str, ...]]:
    """Choose which clients drop out in which step. The numbers per step differ by at most one."""
    order = np.random.default_rng([settings.seed, 0]).permutation(len(names))[: settings.leaving]
    leaving = [names[client] for client in order]
    return {step: tuple(leaving[first :: len(settings.steps)]) for first, step in enumerate(settings.steps)}


class Demo(Watch):
    """One demonstration. :meth:`rows` may be called from another thread while :meth:`run` runs."""

    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.report: DemoReport | None = None
        width = len(str(settings.clients))
        names = tuple(f"client-{number:0{width}}" for number in range(1, settings.clients + 1))
        circles, leaving = _circles(settings), schedule(settings, names)
        missing = _missing(names, circles, leaving)
        self.plan = make_plan(settings, missing)
        self.quantizer = Quantizer(clip=1.0, precision=PRECISION, clients=settings.clients)
        entropy = SystemEntropy()
        identities = {name: Identity.generate(entropy) for name in names} if settings.active else {}
        self.terms = Terms(
            session=entropy.draw("session", SESSION_BYTES),
            clients=names,
            bits=self.quantizer.ring.bits,
            length=settings.length + 1,  # the first entry is the weight
            topology=self.plan.topology,
            threshold=self.plan.threshold,
            circles=circles,
            minimum=max(2, settings.clients - missing),
            colluders=int(self.plan.collusion * settings.clients),
            mode=ThreatMode.ACTIVE_SERVER if settings.active else ThreatMode.HONEST_BUT_CURIOUS,
            identities=tuple(identity.public for identity in identities.values()),
        )
        self.pixels = {name: fingerprint(settings.length, self._rng("input", name)) for name in names}
        faults = Faults(rules=tuple(Fault(FaultKind.DROP, step, gone) for step, gone in leaving.items()))
        members = one_off(self.terms, self._encode, identities=identities)
        book = make_book(self.terms, members) if settings.two_trips else None
        self.session = Session(self.terms, members, Carrier(faults, watch=self), book)
        self._candidates = self._expected_clients(leaving)
        self._shown, self._shown_upload = "", b""
        self._arrived: defaultdict[Step, set[str]] = defaultdict(set)
        self._progress: dict[Step, tuple[int, int]] = {}
        self._receiving_seconds = 0.0
        self._over = False
        self._aggregate: Aggregate | None = None

    def run(self) -> tuple[DemoReport, Vectors]:
        """Run the session and check its result.

        Raises :class:`~coterie.errors.RoundAborted` if too many clients dropped out, and
        :class:`~coterie.errors.VerificationError` if the sum is wrong, which would be a bug.
        """
        try:
            aggregate = self._aggregate = self.session.run()
        finally:
            self._over = True
        clients, length, ring, report = aggregate.clients, self.settings.length, self.terms.ring, self.session.report
        expected = ring.sum(map(self._encode, clients), self.terms.length)
        wrong = int(np.count_nonzero(aggregate.total != expected))
        if wrong:
            raise VerificationError(f"the sum is wrong in {wrong} of {expected.size} entries; this is a bug in Coterie")

        began = time.perf_counter()
        plain = np.zeros(length, np.float32)
        for name in clients:
            plain += self.pixels[name]
        plain /= len(clients)
        plain_seconds = time.perf_counter() - began

        # Means in float64: rounding to integers is then the only error.
        plain_mean = sum((self.pixels[name].astype(np.float64) for name in clients), np.zeros(length)) / len(clients)
        decoded = self.quantizer.decode(aggregate.total, Layout(((length,),), ("float64",)), len(clients))
        decoded_mean = decoded.mean[0].astype(np.float64)
        error = float(np.abs(decoded_mean - plain_mean).max())
        bound = self.quantizer.error_bound(len(clients), decoded.total_weight)
        if error > bound:
            raise VerificationError(f"the mean is off by {error:.3g}; rounding explains no more than {bound:.3g}")

        upload: MaskedContribution | messages.MaskedInput
        if self.settings.two_trips:
            upload = messages.decode(self._shown_upload, MaskedContribution, self._shown, None)
        else:
            upload = messages.decode(self._shown_upload, messages.MaskedInput, self._shown, None)
        received = ring.unpack(upload.payload, self.terms.length)[1:]
        quantised = ring.lift(self._encode(self._shown))[1:]
        steps = self.rows()
        self.report = DemoReport(
            settings=self.settings,
            plan=self.plan,
            ring_bits=ring.bits,
            precision_bits=PRECISION,
            steps=steps,
            aggregated=clients,
            stranded=tuple(sorted(set(self.session.server.survivors) - set(clients))),
            exact=wrong == 0,
            mean_error=error,
            mean_error_bound=bound,
            cost=Cost(
                upload_bytes=report.upload_bytes,
                download_bytes=report.download_bytes,
                client_ms=sum(row.client_ms for row in steps),
                server_ms=1e3 * report.server_seconds,
                session_ms=1e3 * report.seconds,
                plain_upload_bytes=plain.nbytes,
                plain_integer_bytes=length * PRECISION // 8,
                plain_ms=1e3 * plain_seconds,
            ),
            view=ServerView(
                client=self._shown,
                masked_vectors=len(self.session.server.survivors),
                correlation=float(np.corrcoef(quantised, received)[0, 1]),
                chance=length**-0.5,
            ),
        )
        return self.report, Vectors(quantised, received, plain_mean, decoded_mean)

    def rows(self) -> tuple[StepView, ...]:
        """Return the current state of each step, and of the unmasking."""
        costs, present = dict(self.session.report.steps), list(self.terms.clients)
        rows = []
        first, *others = self.settings.steps
        confirmed = [Step.CONFIRM] if Step.CONFIRM in costs and Step.CONFIRM not in others else []
        for step in (first, *confirmed, *others):
            if step not in costs:
                rows.append(StepView(step))
                continue
            cost, arrived = costs[step], self._arrived[step].copy()
            answered, asked = self._progress.get(step, (0, len(present)))
            done = self._over or step is not list(costs)[-1]
            rows.append(
                StepView(
                    step,
                    asked,
                    asked if done else answered,
                    len(arrived),
                    tuple(name for name in present if name not in arrived) if done else (),
                    _median(cost.upload_bytes),
                    _median(cost.download_bytes),
                    1e3 * cost.median_client_seconds,
                    1e3 * (self._receiving_seconds if step is Step.REVEAL else cost.server_seconds),
                    done,
                )
            )
            present = [name for name in present if name in arrived]
        if self._aggregate is None:
            return (*rows, StepView(UNMASK))
        unmasking = costs[Step.REVEAL].server_seconds - self._receiving_seconds
        return (*rows, StepView(UNMASK, left=len(self._aggregate.clients), server_ms=1e3 * unmasking, done=True))

    def _rng(self, purpose: str, name: str) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, 1 + self.terms.index[name], *purpose.encode()])

    def _encode(self, name: str) -> RingVector:
        return self.quantizer.encode(self.pixels[name], self._rng("rounding", name)).vector

    def on_answer(self, step: Step, done: int, asked: int) -> None:
        """Record the progress of a step."""
        self._progress[step] = done, asked
        if step is Step.REVEAL:
            self._receiving_seconds = self.session.report.steps[step].server_seconds

    def on_message(self, step: Step, client: str, message: bytes) -> None:
        """Record a message's sender, and keep the masked input of one client."""
        self._arrived[step].add(client)
        if step is self.settings.masking and not self._shown and client in self._candidates:
            self._shown, self._shown_upload = client, message

    def _expected_clients(self, leaving: Mapping[Step, Collection[str]]) -> frozenset[str]:
        """Return the clients that are aggregated if there are no other dropouts; others are never aggregated."""
        early = (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.CONTRIBUTE)
        gone = {name for step in early for name in leaving.get(step, ())}
        survivors = [number for number, name in enumerate(self.terms.clients) if name not in gone]
        return frozenset(self.terms.clients[number] for number in self.terms.aggregated(survivors))


def _circles(settings: DemoSettings) -> tuple[int, ...] | None:
    if settings.circle_size is None:
        return None
    sizes = circle_sizes(settings.clients, settings.circle_size)
    return tuple(np.repeat(np.arange(sizes.size), sizes).tolist())


def _missing(names: Sequence[str], circles: Sequence[int] | None, leaving: Mapping[Step, Collection[str]]) -> int:
    """Count the clients that drop out at some point, together with the other members of their circles."""
    circles = circles or range(len(names))
    gone = {name for step in leaving.values() for name in step}
    broken = {circle for name, circle in zip(names, circles, strict=True) if name in gone}
    return sum(circle in broken for circle in circles)


def _median(sizes: Collection[int]) -> int:
    return int(statistics.median(sizes)) if sizes else 0
