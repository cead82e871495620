"""Some of the incidents with real processes, and the same in the simulation: `python -m tests.incidents.real [KEY ...]`.

It shows that the simulation is honest. `reconcile --watch` runs the replicas as processes behind a pool in a file; a program answers each of their
probes and requests as the physics says. One request a second goes to each member, and what is not answered is lost. The simulation then
gets the phases that the probes really had: these come from the ids of the containers, and decide how soon a fault is noticed. The exit code is 1
when the restarts differ, or the lost requests by more than a third. `make soak` runs it; it takes nine minutes.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path

from manifests.values.desired import SECOND
from providers.facts import ContainerFact, ContainerState, Generation
from providers.runtime.process.runtime import ProcessRuntime, ProcessSettings
from providers.runtime.process.store import Store
from providers.spi import Context
from reconciler.probes.schedule import phase_of
from reconciler.shell.clock import SystemClock
from tests.incidents import product
from tests.incidents.score import Row, Score
from tests.incidents.traces import (
    DegradedDependency,
    Event,
    Flap,
    HalfHangs,
    Overload,
    Reboot,
    Slot,
    Trace,
)
from tests.providers.runtime.docker.claims import Claim

ROOT = Path(__file__).resolve().parents[2]
POLL = 0.1
"""Seconds between two looks at processes; orders are so old at most."""

PATIENCE = 240.0
"""Seconds in which all replicas are ready on a busy machine."""

SETTLE = 35.0
"""Seconds after that before the incident: each probe has passed in its phase."""

CLIENT = 0.8
"""Time-out of a request, seconds: the next one begins a second later."""

ALLOWED = 0.1
"""Thousands of requests by which two runs may always differ: the part of one second."""

CLOCK = SystemClock()

WORKLOAD = """
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: app
          command: ["{python}", "{app}"]
          env: [{{name: ORDERS, value: "{orders}"}}]
          ports: [{{name: http, containerPort: 8080}}]
          startupProbe: {{httpGet: {{path: /startup, port: http}}, periodSeconds: 5, failureThreshold: 20}}
          livenessProbe: {{httpGet: {{path: /liveness, port: http}}, periodSeconds: {live.period}, failureThreshold: {live.failures}}}
          readinessProbe: {{httpGet: {{path: /readiness, port: http}}, periodSeconds: {ready.period}, failureThreshold: {ready.failures}}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {name}}}, port: http, balancers: [{{provider: pool, pool: {name}}}]}}
"""

INSTANCE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: incident}}
spec: {{id: "{id}"}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: local}}
spec: {{type: process}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: pool}}
spec: {{type: file}}
"""


class ShortHalf(HalfHangs):
    duration = 300.0


class ShortDependency(DegradedDependency):
    cause_end, duration = 400.0, 480.0


class ShortFlap(Flap):
    cause_end, duration = 300.0, 420.0


class ShortOverload(Overload):
    duration = 420.0


class Outage(Reboot):
    """All processes end at once, for a minute, and start with as much work as 30 workloads have."""

    title = "all processes end, and nothing runs for a minute; the starts slow each other down"
    duration, work = 420.0, 60.0
    events = (Event(0, "end", None),)


SHORT: dict[str, tuple[type[Trace], int]] = {
    "2": (ShortHalf, 3),
    "3a": (ShortDependency, 3),
    "6": (ShortFlap, 3),
    "8a": (ShortOverload, 3),
    "11": (Outage, 10),
}
"""The traces, shortened, and their numbers of replicas."""


def clock() -> float:
    """The clock of the probe engine, seconds."""
    return CLOCK.now().steady / SECOND


class Run:
    """One trace with real processes, below `base`."""

    def __init__(self, key: str, trace: Trace, base: Path) -> None:
        self.key, self.trace = key, trace
        self.score = Score(trace, exit=product.LAG + product.DRAIN_MAX)
        self.id = f"incident-{secrets.token_hex(4)}"
        self.claim = Claim(self.id, directory=str(base))
        self.orders, self.manifests = base / "orders", base / "manifests"
        self.orders.mkdir(parents=True)
        self.manifests.mkdir()
        names = [f"w{number:02}" for number in range(trace.size)] if trace.alone else ["web"]
        text = INSTANCE.format(id=self.id) + "".join(
            WORKLOAD.format(
                name=name,
                replicas=1 if trace.alone else trace.size,
                python=sys.executable,
                app=Path(__file__).with_name("real_app.py"),
                orders=self.orders,
                live=trace.live,
                ready=trace.ready,
            )
            for name in names
        )
        (self.manifests / "all.yaml").write_text(text, encoding="utf-8")
        self.env = {**os.environ, "XDG_STATE_HOME": str(base / "home")}
        self.state = base / "home" / "reconciler" / self.id
        self.log = (base / "watch.log").open("w")
        self.runtime = ProcessRuntime("local", ProcessSettings(), Context(self.id, str(self.state)))
        self.store = Store(str(self.state), "local")
        self.daemon: subprocess.Popen[bytes] | None = None
        self.zero = clock() + 10 * PATIENCE
        self.running: dict[str, Generation] = {}
        self.given: dict[str, tuple[Generation, str]] = {}
        self.facts: dict[str, ContainerFact] = {}
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.ending = False
        self.broken: BaseException | None = None
        self.tail = ""

    def now(self) -> float:
        return clock() - self.zero

    # --- the program ------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Start the daemon."""
        command = [sys.executable, "-m", "reconciler", "--watch", str(self.manifests)]
        self.daemon = subprocess.Popen(command, env=self.env, cwd=ROOT, stdout=self.log, stderr=self.log)

    def play(self) -> Row:
        """The whole incident. All that was started is stopped at the end."""
        follower = threading.Thread(target=self.follow)
        try:
            self.watch()
            follower.start()
            self.wait_until_ready()
            self.begin()
            self.watch_requests()
        finally:
            self.over.set()
            follower.join()
            self.clean()
        if self.broken is not None:
            raise self.broken
        return self.score.row()

    def wait_until_ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.weights()) < self.trace.size:
            if time.monotonic() > end:
                raise TimeoutError(f"trace {self.key}: not all replicas are ready after {PATIENCE:g} s")
            time.sleep(1)
        time.sleep(SETTLE)

    def begin(self) -> None:
        """Now is the beginning: what ran before began before it."""
        with self.lock:
            moved, self.zero = -self.now(), clock()
            for process in self.trace.processes.values():
                process.since += moved
                process.passed = process.since
            steady = int(self.zero * SECOND)
            for fact in self.facts.values():
                (port,) = fact.ports
                for name in ("startup", "liveness", "readiness"):
                    cadence = {"liveness": self.trace.live, "readiness": self.trace.ready}.get(name, product.STARTUP)
                    period = cadence.period * SECOND
                    phase = phase_of(f"{fact.id} {name} {port.address} {port.number}", period)
                    self.trace.phases[self.slot(fact.name), name] = (phase - steady) % period / SECOND

    def watch_requests(self) -> None:
        """One request a second to each member."""
        events = sorted(self.trace.events)
        with ThreadPoolExecutor(self.trace.size) as clients:
            for second in range(int(self.trace.duration)):
                time.sleep(max(0.0, second - self.now()))
                while events and events[0].at <= second:
                    events.pop(0)
                    self.end_all()
                if self.ending and second >= 60:
                    self.ending = False
                    self.watch()
                weights = self.weights()
                addresses = self.addresses()
                answers = dict(zip(weights, clients.map(ask, map(addresses.get, weights)), strict=True))
                with self.lock:
                    self.score.sample(
                        second, {} if self.ending else weights, None, partial(self.shares, second, answers)
                    )

    def shares(self, second: int, answers: Mapping[Slot, int]) -> dict[Slot, float]:
        """The part of its requests that each member answered: none, or as many as it can."""
        return {slot: (self.trace.share(slot, second) or 1.0) * (status == 200) for slot, status in answers.items()}

    def end_all(self) -> None:
        """Kill the daemon and all replicas: nothing runs until `ending` is over."""
        self.ending = True
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()
        with self.lock:
            for name in self.facts:
                generation = self.store.generation(name)
                assert generation is not None
                os.kill(generation.shim, signal.SIGKILL)

    def clean(self) -> None:
        """Stop all that was started."""
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(60)
        command = [sys.executable, "-m", "reconciler", "destroy", str(self.manifests), "--yes"]
        subprocess.run(command, env=self.env, cwd=ROOT, stdout=self.log, stderr=self.log, timeout=120, check=False)
        self.close()

    def close(self) -> None:
        """Release files and the claim."""
        self.runtime.close()
        self.log.close()
        self.tail = Path(self.log.name).read_text(encoding="utf-8", errors="replace")[-3000:]
        self.claim.drop()

    # --- the physics ------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Report starts and ends to the physics, and order the answers of all replicas, until the end."""
        try:
            while not self.over.wait(POLL):
                facts = {fact.name: fact for fact in self.runtime.observe()} if self.state.exists() else {}
                with self.lock:
                    self.facts = facts
                    self.sync()
                    for fact in facts.values():
                        self.order(fact)
        except Exception as error:  # noqa: BLE001  (raised by the thread that waits for this one)
            self.broken = error

    def sync(self) -> None:
        now = self.now()
        for name, generation in list(self.running.items()):
            fact = self.facts.get(name)
            if fact is None or fact.generation != generation or fact.state is not ContainerState.RUNNING:
                del self.running[name]
                if not self.ending:
                    self.score.restart(now, self.slot(name), "restart")
                self.trace.stopped(self.slot(name), now)
        for name, fact in self.facts.items():
            if fact.state is ContainerState.RUNNING and name not in self.running:
                self.running[name] = fact.generation
                self.trace.started(self.slot(name), now)

    def order(self, fact: ContainerFact) -> None:
        """Write what a replica answers from now on."""
        slot, now = self.slot(fact.name), self.now()
        answers = {probe: self.trace.answer(slot, probe, now).value for probe in ("startup", "liveness", "readiness")}
        process = self.trace.processes.get(slot)
        if answers["readiness"] == "pass" and process is not None and process.passed is None:
            process.passed = now
        hangs = self.trace.warm(slot, now) and not self.trace.serves(slot, now)
        answers[""] = "pass" if self.trace.serves(slot, now) else "timeout" if hangs else "fail"
        text = json.dumps(answers)
        if self.given.get(fact.name) == (fact.generation, text):
            return
        self.given[fact.name] = (fact.generation, text)
        file = self.orders / fact.ports[0].address
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(file)

    # --- what is seen -----------------------------------------------------------------------------------------

    def slot(self, name: str) -> Slot:
        _, workload, _, ordinal = name.rsplit("-", 3)
        return int(workload[1:]) if self.trace.alone else int(ordinal)

    def addresses(self) -> dict[Slot, str]:
        with self.lock:
            return {
                self.slot(fact.name): f"{fact.ports[0].address}:{fact.ports[0].number}" for fact in self.facts.values()
            }

    def weights(self) -> dict[Slot, float]:
        """The weights in the files of the pools."""
        slots = {address: slot for slot, address in self.addresses().items()}
        members = []
        for file in (self.state / "pools").glob("*.json"):
            with suppress(OSError, ValueError):
                members += json.loads(file.read_text())["members"]
        return {
            slots[key]: float(member["weight"])
            for member in members
            if member["weight"] and (key := f"{member['address']}:{member['port']}") in slots
        }


def ask(address: str | None, path: str = "/") -> int:
    """The status of an answer, 0 when there is none in time."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=CLIENT) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, ValueError, HTTPException):
        return 0


def simulated(run: Run) -> Score:
    """The same incident in the simulation, with the phases of the real run."""
    trace = type(run.trace)(run.trace.size)
    trace.phases = run.trace.phases
    score, _ = product.run(trace, counted=False)
    return score


def agrees(real: Row, simulation: Row) -> bool:
    """Whether both made as many restarts, and lost about as many requests."""
    allowed = max(simulation.lost / 3, ALLOWED)
    return real.restarts == simulation.restarts and abs(real.lost - simulation.lost) <= allowed


def compare(keys: list[str]) -> bool:
    """Play these traces side by side, print both outcomes, and return whether all of them agree."""
    with tempfile.TemporaryDirectory(prefix="incidents-") as directory, ThreadPoolExecutor(len(keys)) as players:
        runs = []
        for key in keys:
            kind, size = SHORT[key]
            runs.append(Run(key, kind(size), Path(directory) / key))
        plays = [players.submit(run.play) for run in runs]
        rows = [play.result() if play.exception() is None else None for play in plays]
    good = True
    for run, play, row in zip(runs, plays, rows, strict=True):
        if row is None:
            good = False
            print(f"trace {run.key}: {play.exception()}\n{run.tail}")
            continue
        score = simulated(run)
        simulation = score.row()
        same = agrees(row, simulation)
        good &= same
        print(f"trace {run.key}, {run.trace.size} replicas: real / simulated{'' if same else '   DIFFERS'}")
        for name in ("restarts", "useless", "lowest", "emptied", "recovery", "lost"):
            print(f"  {name:9} {getattr(row, name)} / {getattr(simulation, name)}")
        print(f"  real      {[(restart.at, restart.slot) for restart in run.score.restarts]}")
        print(f"  simulated {[(restart.at, restart.slot) for restart in score.restarts]}", flush=True)
    return good


def main() -> int:
    keys = sys.argv[1:] or list(SHORT)
    unknown = sorted(set(keys) - set(SHORT))
    if unknown:
        print(f"incidents: no such trace: {', '.join(unknown)}; choose from {', '.join(SHORT)}", file=sys.stderr)
        return 64
    return 0 if compare(keys) else 1


if __name__ == "__main__":
    sys.exit(main())
