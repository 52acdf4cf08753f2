"""The audit by sampling: fit, choose, count; each step on draws that no other step sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from dither.audit.certify.task import Certified, Task, fingerprints, probed
from dither.audit.claims import Claim
from dither.audit.counting import Enclosure, epsilon_down, event_intervals
from dither.audit.drawing import clock
from dither.audit.drawing.draws import LARGEST_BLOCK, Draws, collect
from dither.audit.drawing.workers import blocks, totals
from dither.audit.events.choose import Choice, Event, Merit, choose, decided, objectives, sketch_of
from dither.audit.outputs.layout import Block, Columns, Layout, expect_independent, layout_of
from dither.mechanisms.base import Floats

# A block is short enough that the clock is looked at often, and long enough that counting costs little beside drawing.
LONGEST_STEP = 0.2
# Part of the remaining time that is planned for; a busy machine may need the rest.
PLANNED = 0.85
# Copies of the process have this long to begin.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """How much of an audit's time and failure one round of fit, choose and count gets, and how many draws at most."""

    failure: float
    seconds: float
    fit: int
    choose: int
    count: int | None = None


# Before the long round, two short ones: gross violations show at once. They pay with a part of the allowed failure.
ROUNDS = (
    Round(failure=0.05, seconds=0.05, fit=3_000, choose=10_000, count=1 << 16),
    Round(failure=0.1, seconds=0.1, fit=20_000, choose=100_000, count=1 << 21),
    Round(failure=0.85, seconds=1.0, fit=100_000, choose=1_000_000),
)
ONE_ROUND = (Round(failure=1.0, seconds=1.0, fit=100_000, choose=1_000_000),)
# With time for fewer draws than this of each input, none is spent on timing.
FEW = 40
# With time for fewer than this, the first one is all that is known about the time that draws take.
AGAIN = 8
# Sizes are tried in steps of this, and no longer than for this part of the time.
STEP, TRIED = 4, 0.02
# Short rounds are worth their time only where so many outputs can be had in the first one.
QUICK = 2_000


def by_sampling(task: Task) -> list[Certified]:
    """All that sampling finds until the time is over, or until the claim is refuted."""
    pair = task.draws()
    raw = (pair[0](1), pair[1](1))
    if task.left > AGAIN * sum(draws.each for draws in pair):
        # whatever is loaded or compiled at the first call isn't what a draw costs
        raw = (pair[0](1), pair[1](1))
    if task.left > FEW * sum(draws.each for draws in pair):
        raw = collect(pair, most=64, seconds=0.02 * task.left)
    reading = _reading(raw)
    each = sum(draws.each + reading for draws in pair)
    short = task.stop and task.claim is not None and ROUNDS[0].seconds * task.left / each > QUICK
    findings: list[Certified] = []
    for plan in ROUNDS if short else ONE_ROUND:
        findings += _round(task, pair, plan, reading)
        if task.stop and any(finding.refutes for finding in findings):
            break
    return findings


def _reading(raw: tuple[Block, Block]) -> float:
    """Seconds that it takes to make columns of one output, which for objects is more than to draw it."""
    layout = layout_of(*raw)
    start = clock.now()
    layout.read(raw[0])
    return (clock.now() - start) / len(raw[0])


def _round(task: Task, pair: tuple[Draws, Draws], plan: Round, reading: float) -> list[Certified]:
    if task.left <= 0:
        return []
    seconds = plan.seconds * task.left
    end = clock.now() + seconds
    task.tell("fitting scores of outputs")
    # settling the layout takes as long as reading
    raw = collect(pair, most=plan.fit, seconds=0.1 * seconds, later=2 * reading)
    if task.left <= 0:
        return []
    layout = layout_of(*raw)
    fit = (layout.read(raw[0]), layout.read(raw[1]))
    task.tell("choosing an event")
    raw = collect(pair, most=plan.choose, seconds=0.12 * seconds, later=reading)
    if task.left <= 0:
        return []
    sample = (layout.read(raw[0]), layout.read(raw[1]))
    del raw
    for side in sample:
        expect_independent(side)
    merits = objectives(task.delta, task.claim)
    choice = choose(layout, fit, sample, merits, 0.15 * seconds)
    if plan.count is None:
        choice = _final(pair, layout, choice, merits, 0.08 * seconds)
    return list(_counted(task, pair, plan, layout, choice, sample, end))


def _final(
    pair: tuple[Draws, Draws], layout: Layout, choice: Choice, merits: tuple[Merit, ...], seconds: float
) -> Choice:
    """Let the finalists meet on more draws than fit into memory: none of these counts for the bound."""
    end = clock.now() + seconds
    events = tuple(dict.fromkeys(event for finalists in choice.finalists for event in finalists))
    if len(events) < 2 or seconds < FEW * sum(draws.each for draws in pair):
        return choice
    tally, _ = _sized(pair, layout, events, 0.5, seconds)
    total = tally()
    while clock.now() < end:
        total = total + tally()
    size = int(min(total[-1]))
    inside = {event: (int(total[place, 0]), int(total[place, 1])) for place, event in enumerate(events)}
    return decided(choice, inside, size, merits)


@dataclass(frozen=True, slots=True)
class Tally:
    """One block: so many draws of each input, and how many of them lie in each event."""

    pair: tuple[Draws, Draws]
    layout: Layout
    events: tuple[Event, ...]
    sizes: tuple[int, int]

    def __call__(self) -> Floats:
        """Counts under x, then under x_neighbour, event by event; last how many were drawn."""
        found = np.zeros((len(self.events) + 1, 2))
        for side, (draws, size) in enumerate(zip(self.pair, self.sizes, strict=True)):
            columns = self.layout.read(draws(size))
            scored: dict[int, Floats] = {}
            for place, event in enumerate(self.events):
                if id(event.score) not in scored:
                    scored[id(event.score)] = event.score.of(columns)
                found[place, side] = np.count_nonzero(event.holds(scored[id(event.score)]))
            found[-1, side] = size
        return found

    def probe(self) -> frozenset[bytes]:
        """Fingerprints of the next draws."""
        size = probed(self.pair[0].each)
        return fingerprints(self.layout.read(self.pair[0](size)))


def _counted(
    task: Task,
    pair: tuple[Draws, Draws],
    plan: Round,
    layout: Layout,
    choice: Choice,
    sample: tuple[Columns, Columns],
    end: float,
) -> Iterator[Certified]:
    """Count the chosen events on fresh draws, and say at each look what follows."""
    task.tell("counting")
    workers = 1 if plan.count is not None else task.workers
    left = max(0.0, end - clock.now())
    tally, each = _sized(pair, layout, choice.events, choice.share_of_first, left)
    planned = max(1, int(PLANNED * max(0.0, end - clock.now()) * workers / max(each, 1e-9)))
    if plan.count is not None:
        planned = min(planned, max(1, plan.count // sum(tally.sizes)))
    with closing(blocks(tally, tally.probe, workers, patience=min(PATIENCE, left / 2))) as arriving:
        for look, counts in totals(arriving, planned, min(end, task.until)):
            task.tell("counting")
            failure = task.failure * plan.failure * look.share / len(choice.events)
            found = [
                _finding(task, event, counts[place], counts[-1], failure, sample)
                for place, event in enumerate(choice.events)
            ]
            yield from found
            if task.stop and any(finding.refutes for finding in found):
                return
            if plan.count is not None and look.blocks >= planned:
                return


def _sized(
    pair: tuple[Draws, Draws], layout: Layout, events: tuple[Event, ...], share: float, seconds: float
) -> tuple[Tally, float]:
    """Blocks of a good length, from the time that a small one takes; and the time of one."""
    each = (pair[0].each + pair[1].each) / 2
    if each <= TRIED * seconds:
        # many at once are often cheaper than one by one, by how much only a trial tells
        trial = max(1, min(1 << 14, int(TRIED / 4 * seconds / max(each, 1e-9))))
        while True:
            start = clock.now()
            Tally(pair, layout, events, (trial, trial))()
            took = clock.now() - start
            each = took / (2 * trial)
            if trial >= 1 << 14 or STEP * took > TRIED * seconds:
                break
            trial *= STEP
    step = min(LONGEST_STEP, seconds / 50)
    most = max(2, LARGEST_BLOCK // max(1, layout.width))
    size = max(2, min(most, int(step / max(each, 1e-10))) // 2 * 2)
    first = min(size - 1, max(1, round(share * size)))
    return Tally(pair, layout, events, (first, size - first)), each * size


def _finding(
    task: Task, event: Event, inside: Floats, drawn: Floats, failure: float, sample: tuple[Columns, Columns]
) -> Certified:
    mine, others = (0, 1) if event.first else (1, 0)
    p, q = event_intervals(int(inside[mine]), int(drawn[mine]), int(inside[others]), int(drawn[others]), failure)
    # what is known about an event is known about its complement
    either = [(event, p, q), (event.complement, q.complement, p.complement)]
    verdicts = [(_refuted(task.claim, p, q), epsilon_down(p.low, q.high, task.delta)) for _, p, q in either]
    refutes, epsilon = max(verdicts)
    chosen, p, q = either[verdicts.index((refutes, epsilon))]
    return Certified(
        epsilon=epsilon,
        refutes=refutes,
        event=str(chosen),
        first=chosen.first,
        p=p,
        q=q,
        draws=int(drawn.sum()),
        sketch=lambda: sketch_of(chosen, sample),
    )


def _refuted(claim: Claim | None, p: Enclosure, q: Enclosure) -> bool:
    """An event more likely than the claim allows."""
    return claim is not None and p.low > float(claim.largest(np.array([q.high]))[0])
