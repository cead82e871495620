"""The tables of docs/healing.md, from the outcomes of `make incidents`."""

import re
from pathlib import Path

from tests.incidents.cases import RULES, Case, Outcome
from tests.incidents.score import Row
from tests.incidents.traces import TRACES

PAGE = Path(__file__).parents[2] / "docs" / "healing.md"
SECTION = re.compile(r"<!-- incidents -->\n.*?<!-- /incidents -->", re.DOTALL)
SIZES = (10, 3, 1)
"""Numbers of replicas in the tables. A trace of single workloads has one row, with 30 of them."""

WHAT_HAPPENS = {
    "1": "one canary is restarted; all the others keep running and keep their traffic, and the pause to the next try doubles",
    "2": "the canary recovers, then the other hung replicas are restarted one at a time, as the rate allows",
    "3a": "as with a wrong probe: one canary after another with growing pauses, and the traffic stays",
    "3b": "as 3a; endpoints that all fail readiness stay in the pool",
    "3c": "as 3b; when the dependency is back, the first canary that recovers lets the others follow",
    "4a": "probes that time out are failures: one canary is restarted, and the traffic stays",
    "4b": "probes that find no route have no result: nothing is restarted, and the traffic stays",
    "5a": "nothing is stopped or started while the runtime does not answer; the traffic stays",
    "5b": "a hung replica is restarted when the runtime answers again",
    "6": "the replica loses its traffic in each bad spell, and is restarted with growing back-off",
    "6b": "restarts that were called off, because the replica passed again, delay the restart that helps",
    "7a": "each replica is restarted when it hangs",
    "7b": "the canary recovers, then the others are restarted one at a time, as the rate allows",
    "8a": "the hung replica is restarted; replicas that are overloaded meanwhile may be restarted, one at a time",
    "8b": "as 8a; replicas that fail readiness too lose their traffic while another one is ready",
    "8c": "replicas that time out are restarted one at a time; the pool is never emptied",
    "9": "the rollout stops at the first replica that crashes; the old replicas keep the traffic",
    "10a": "the same as 2: time is that of the instance, not of the wall clock",
    "10b": "the same as 1",
    "11a": "four starts begin at once; a workload that needs longer than its startup probe allows is restarted",
    "11b": "as 11a; the engine has started all of them already",
    "12": "a replica loses its traffic for as long as its readiness fails; nothing is restarted",
}
"""What this program does, for an operator who wants to predict it."""

LEGEND = """`make incidents` lets the same incidents happen to this program, to models of other tools, and to a rule that knows which restart would
help, and writes these tables. This program is its real loop in virtual time, over a balancer that counts requests in flight. The others are written from their documentation and
source ([peers.py](../tests/incidents/peers.py)); their stops take 1 s, also where a hung container would take 10 s or 30 s.

A cell is: restarts/those that cured nothing, without starts after a crash · lowest percentage of replicas that serve · minutes with an empty pool · minutes from the end of the cause until
all serve for good · thousands of requests lost, of 100 a second. Probes: startup 5 s x 20; liveness and readiness 10 s x 3, in 6 and 6b 5 s x 2, readiness in 12 10 s x 1.
docker-autoheal has no balancer: its outages show in lost requests. In 10 the others run without the steps of the clock."""


def sizes_shown(key: str) -> tuple[int, ...]:
    """The numbers of replicas with which a trace is in the tables."""
    trace = TRACES[key]
    return (30,) if trace.alone else tuple(size for size in SIZES if size in trace.sizes)


def shown() -> dict[str, list[Case]]:
    """The cases of each table, by its heading."""
    keys = {size: [key for key in TRACES if size in sizes_shown(key)] for size in (*SIZES, 30)}
    return {
        "10 replicas (11: 30 workloads)": [
            Case(key, 10 if key in keys[10] else 30) for key in TRACES if key in keys[10] + keys[30]
        ],
        "3 replicas": [Case(key, 3) for key in keys[3]],
        "1 replica": [Case(key, 1) for key in keys[1]],
    }


def cell(row: Row) -> str:
    """One rule on one incident."""
    recovery = "never" if row.recovery is None else f"{row.recovery:.1f}"
    return f"{row.restarts}/{row.useless} · {row.lowest} · {row.empty:.1f} · {recovery} · {row.lost:.1f}"


def section(outcomes: list[Outcome]) -> str:
    """The part of the page between the markers."""
    rows = {outcome.case: outcome.rows for outcome in outcomes}
    lines = [
        "<!-- incidents -->",
        LEGEND,
        "",
        "| incident | what happens | what this program does |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {key} | {trace.title} | {WHAT_HAPPENS[key]} |" for key, trace in TRACES.items()]
    for heading, cases in shown().items():
        lines += ["", f"### {heading}", "", f"| incident | {' | '.join(RULES)} |", "| --- |" + " --- |" * len(RULES)]
        lines += [f"| {case.key} | {' | '.join(cell(rows[case][name]) for name in RULES)} |" for case in cases]
    return "\n".join([*lines, "<!-- /incidents -->"])


def write(outcomes: list[Outcome]) -> None:
    """Replace the part between the markers."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SECTION.sub(lambda _: section(outcomes), text), encoding="utf-8")
