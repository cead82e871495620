"""Which incidents are run, and running them in processes side by side."""

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process

from tests.incidents import product
from tests.incidents.peers import PEERS
from tests.incidents.score import Restart, Row
from tests.incidents.traces import SIZES, TRACES, Cadence, Trace

PRODUCT = "reconciler"
RULES = (PRODUCT, *PEERS)
USUAL_SIZES = (1, 3, 10)
FAST, SLOW = Cadence(5, 2), Cadence(30, 3)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One incident: trace, replicas, seed of the probes' phases, whether drains are counted, and the probes where they are others."""

    key: str
    size: int
    seed: int = 1
    counted: bool = True
    cadence: Cadence | None = None

    def trace(self) -> Trace:
        """The physics, from the beginning."""
        return TRACES[self.key](self.size, self.seed, self.cadence)

    def __str__(self) -> str:
        parts = [f"{self.key} n={self.size} seed={self.seed}", "counted" if self.counted else "uncounted"]
        if self.cadence is not None:
            parts.append(f"{self.cadence.period}s x {self.cadence.failures}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: the row of each rule, and our restarts one by one."""

    case: Case
    rows: dict[str, Row]
    restarts: tuple[Restart, ...] = ()


def run(case: Case, rules: tuple[str, ...] = RULES) -> Outcome:
    """Run one case under these rules."""
    rows: dict[str, Row] = {}
    restarts: tuple[Restart, ...] = ()
    for name in rules:
        if name == PRODUCT:
            score, _ = product.run(case.trace(), case.counted)
            restarts = tuple(score.restarts)
        else:
            score = PEERS[name](case.trace()).run()
        rows[name] = score.row()
    return Outcome(case, rows, restarts)


def everything() -> list[Case]:
    """The cases of `make incidents`: each trace at each size, uncounted drains, three seeds, and faster and slower probes."""
    cases: list[Case] = []
    for key, trace in TRACES.items():
        usual = [size for size in trace.sizes if size in USUAL_SIZES]
        cases += [Case(key, size) for size in trace.sizes]
        cases += [Case(key, size, counted=False) for size in usual]
        cases += [Case(key, size, seed) for size in usual for seed in (2, 3)]
        cases += [Case(key, size, cadence=FAST) for size in usual if size > 1]
        cases += [Case(key, 3, cadence=SLOW)]
    return cases


def chosen(
    keys: Iterable[str],
    sizes: Iterable[int] = (),
    seeds: Iterable[int] = (1,),
    drains: Iterable[bool] = (True, False),
    cadence: Cadence | None = None,
) -> list[Case]:
    """The cases of an operator's choice. A size that is too small for a trace is left out."""
    sizes = sorted(set(sizes or SIZES))
    return [
        Case(key, size, seed, counted, cadence)
        for key in keys
        for size in sizes
        if size >= min(TRACES[key].sizes)
        for seed in seeds
        for counted in drains
    ]


def end_with_parent() -> None:
    """Let this worker end when its parent does, also when that was killed."""
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def run_all(cases: list[Case], jobs: int, rules: tuple[str, ...] = RULES) -> Iterator[Outcome]:
    """Run cases in `jobs` processes, and yield each when it has ended. The longest begin first.

    The other rules know no drains, so they run once for both kinds.
    """
    peers = tuple(name for name in rules if name != PRODUCT)
    tasks: list[tuple[Case, tuple[str, ...]]] = []
    if PRODUCT in rules:
        tasks += [(case, (PRODUCT,)) for case in cases]
    if peers:
        tasks += [(case, peers) for case in sorted({replace(case, counted=True) for case in cases}, key=str)]
    tasks.sort(key=lambda task: -task[0].size * task[0].trace().duration)
    rows: dict[Case, dict[str, Row]] = {}
    ours: dict[Case, tuple[Restart, ...]] = {}
    left = set(cases)
    # Spawned: a forked process would inherit whatever its parent has begun.
    with ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent) as pool:
        for future in as_completed([pool.submit(run, *task) for task in tasks]):
            outcome = future.result()
            for case in (
                [outcome.case] if PRODUCT in outcome.rows else [outcome.case, replace(outcome.case, counted=False)]
            ):
                rows.setdefault(case, {}).update(outcome.rows)
                if outcome.restarts:
                    ours[case] = outcome.restarts
                if case in left and len(rows[case]) == len(rules):
                    left.remove(case)
                    yield Outcome(case, rows[case], ours.get(case, ()))
