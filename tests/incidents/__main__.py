"""Runs incidents and judges them: `python -m tests.incidents [--write] [KEY ...]`. Exit code 1 when a bound is broken.

Without a choice it runs everything and takes minutes (see CONTRIBUTING.md). A choice is fast: `python -m tests.incidents 2 8a --sizes 3,10
--only reconciler --restarts` shows one line for each case, and each restart.
"""

import argparse
import json
import os
import re
import sys
import time

from tests.incidents import page
from tests.incidents.cases import PRODUCT, RULES, Case, Outcome, chosen, everything, run_all
from tests.incidents.judge import AS_BEFORE, Finding, judge, load_reference, store_reference
from tests.incidents.score import Row
from tests.incidents.traces import SIZES, TRACES, Cadence

DRAINS = {"counted": True, "uncounted": False}


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def cadence(text: str) -> Cadence:
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not PERIODxFAILURES, such as 10x3")
    return Cadence(int(found[1]), int(found[2]))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.incidents", description="Run incidents and judge them.")
    parser.add_argument("keys", nargs="*", metavar="KEY", help=f"traces (default: all): {', '.join(TRACES)}")
    parser.add_argument(
        "--sizes", type=numbers, default=[], help=f"numbers of replicas (default: {','.join(map(str, SIZES))})"
    )
    parser.add_argument("--seeds", type=numbers, default=[], help="phases of probes (default: 1)")
    parser.add_argument("--drain", choices=DRAINS, help="only one kind of drain (default: both)")
    parser.add_argument(
        "--probes", type=cadence, metavar="10x3", help="period (s) and failureThreshold (default: those of the trace)"
    )
    parser.add_argument("--only", choices=RULES, help="run one rule; nothing is judged then")
    parser.add_argument("--restarts", action="store_true", help="show each restart of this program")
    parser.add_argument("--table", action="store_true", help="only the incidents in the table of docs/healing.md")
    parser.add_argument("--all", action="store_true", help="also show the bounds that are kept")
    parser.add_argument("--json", metavar="FILE", help="write all rows")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/healing.md")
    parser.add_argument(
        "--reference", action="store_true", help="store the figures of this program as those to compare with"
    )
    return parser


def selection(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Case]:
    """The cases that are asked for."""
    unknown = sorted(set(options.keys) - set(TRACES))
    if unknown:
        parser.error(f"no such trace: {', '.join(unknown)}; choose from {', '.join(TRACES)}")
    partial = bool(options.keys or options.sizes or options.seeds or options.drain or options.probes)
    if (options.write and (partial or options.only)) or (options.reference and partial):
        parser.error("--write and --reference need everything: leave out the choice")
    if options.table and not partial:
        return [case for table in page.shown().values() for case in table]
    if not partial:
        return [case for case in everything() if not options.reference or case.key in AS_BEFORE]
    drains = (True, False) if options.drain is None else (DRAINS[options.drain],)
    cases = chosen(options.keys or TRACES, options.sizes, options.seeds or [1], drains, options.probes)
    if not cases:
        parser.error("no trace has these sizes")
    return cases


def line(case: Case, name: str, row: Row) -> str:
    recovery = "never" if row.recovery is None else f"{row.recovery:.2f}"
    cells = (
        row.restarts,
        row.useless,
        f"{row.first}+{row.retries}",
        row.lowest,
        f"{row.empty:.2f}",
        f"{row.emptied:.2f}",
        f"{row.unnamed:.2f}",
    )
    return f"{case!s:34} {name:15}" + "".join(
        f"{cell:>8}" for cell in (*cells, recovery, f"{row.spell:.2f}", f"{row.lost:.2f}")
    )


HEAD = f"{'case':34} {'rule':15}" + "".join(
    f"{word:>8}"
    for word in ("all", "useless", "1st+re", "low%", "empty", "emptied", "unnamed", "recov", "spell", "lost k")
)


def show(outcome: Outcome, restarts: bool) -> None:
    for name, row in outcome.rows.items():
        print(line(outcome.case, name, row))
    for restart in outcome.restarts if restarts else ():
        print(
            f"      {restart.at:>8.1f} s  {restart.slot!s:12} {'helps' if restart.helps else 'useless':8} {restart.why}"
        )
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    parser = arguments()
    options = parser.parse_args(words)
    cases = selection(options, parser)
    rules = (options.only,) if options.only else (PRODUCT,) if options.reference else RULES
    began = time.monotonic()
    print(HEAD)
    outcomes = []
    for outcome in run_all(cases, options.jobs, rules):
        show(outcome, options.restarts)
        outcomes.append(outcome)
    print(f"incidents: {len(cases)} cases in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if options.json:
        rows = [
            {"case": str(outcome.case), "rule": name, **row.data()}
            for outcome in outcomes
            for name, row in outcome.rows.items()
        ]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=0)
    if options.reference:
        store_reference(outcomes)
        return 0
    if options.only:
        return 0
    if options.write:
        page.write(outcomes)
    reference = load_reference()
    order = {case: number for number, case in enumerate(cases)}
    outcomes.sort(key=lambda outcome: order[outcome.case])
    findings = [finding for outcome in outcomes for finding in judge(outcome, reference.get(str(outcome.case)))]
    return report(findings, options.all)


def report(findings: list[Finding], everything_too: bool) -> int:
    """Print the judgement, and return the exit code."""
    broken = [finding for finding in findings if not finding.holds]
    print()
    for finding in findings if everything_too else broken:
        print(finding)
    cases, bad = {finding.case for finding in findings}, {finding.case for finding in broken}
    print(
        f"{len(cases) - len(bad)} of {len(cases)} cases keep all bounds; {len(broken)} of {len(findings)} bounds are broken"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
