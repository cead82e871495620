"""Twelve changes of one manifest, made while clients ask without a pause, and what must come of each.

Made from the edge example's servers. `test_changes.py` makes each change once; `bench/changes.py` writes their table into docs/changes.md.
HAProxy has no `retries` and no `redispatch`, so that it repeats no request: each refused connection, each error and each time-out
reaches the clients and counts. Its own checks run each second. `/cgi-bin/slow` takes long enough to be cut by a stop that does not wait.
"""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype

from reconciler.shell.report.last_decision import last_decision
from tests.e2e.edge_world import ANSWER, NAME, PATIENCE, World, engine_with_image, held, image, servers, until
from tests.e2e.shop_world import tar_with

IMAGE = "reconciler-test/changes"
HEALTH = "/health-{version}"
"""Where a version of the program answers probes; the other version answers 404 there."""

VERSIONS = {"1": 8080, "2": 8080, "2-moved": 9090}
"""Tag of the image -> port that its program listens on. All of them listen on `ADMIN` too."""

ADMIN = 8081

SERVE = """#!/bin/sh
mkdir -p /www/cgi-bin
echo "version {version} of $(hostname) says $GREETING" >/www/index.html
echo ok >/www/health-{number}
for word in health slow; do ln -sf /cgi /www/cgi-bin/$word; done
trap 'kill $(jobs -p); exit 0' TERM
httpd -f -p {port} -h /www &
httpd -f -p {admin} -h /www &
wait
"""

CGI = """#!/bin/sh
word=${0##*/}
[ "$word" = slow ] && sleep 0.3
echo "request: $word" >/proc/1/fd/1
printf 'Content-Type: text/plain\\r\\n\\r\\n%s\\n' "$word"
"""

WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: 2
  rollout: {{strategy: rolling}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      networks: [{network}]
      terminationGracePeriodSeconds: 5
      containers:
        - name: web
          image: {image}:1
          imagePullPolicy: Never
          command: [/serve]
          env: [{{name: GREETING, value: hello}}]
          ports: [{{name: http, containerPort: 8080}}, {{name: admin, containerPort: 8081}}]
          livenessProbe: {{httpGet: {{path: /health-1, port: http}}, periodSeconds: 1, failureThreshold: 2}}
          readinessProbe: {{httpGet: {{path: /health-1, port: http}}, periodSeconds: 1, failureThreshold: 1}}
  restarts: {{backoff: {{initial: 1s}}}}
  drain: {{min: 1s, max: 5s}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {{name: web}}
spec:
  selector: {{app: web}}
  port: http
  balancers: [{{provider: edge-1, pool: be_web, slots: web, addresses: [127.0.0.1]}}]
---
apiVersion: reconciler/v1
kind: DNSPolicy
metadata: {{name: app}}
spec:
  host: app.edge.test
  zone: edge.test
  ttl: 1s
  treeTTL: {{host: 1s, balancer: 1s, geo: 1s}}
  routing: simple
  targets:
    - {{name: replicas, service: {{name: web, publish: endpoints}}}}
    - {{name: balancer, service: {{name: web, publish: balancer}}}}
"""


def image_tar(version: str) -> bytes:
    """The file system of one version: a static busybox and two scripts."""
    text = SERVE.format(version=version, number=version[0], port=VERSIONS[version], admin=ADMIN)
    return tar_with({"serve": text, "cgi": CGI})


def engine_with_versions(shared: Path) -> str:
    """The socket of a Docker daemon that has the image of each version. `shared` is a directory of all workers of this run."""
    path = engine_with_image(shared)
    with held(shared / "changes-image.lock"):
        for version in VERSIONS:
            if image.ask(path, "GET", f"/images/{IMAGE}:{version}/json")[0] != 200:
                repository = IMAGE.replace("/", "%2F")
                url = f"/images/create?fromSrc=-&repo={repository}&tag={version}"
                status, words = image.ask(path, "POST", url, image_tar(version))
                assert status == 200, words
    return path


@dataclass
class Load:
    """What the clients counted. A connection that carries several requests counts as one."""

    requests: int = 0
    connections: int = 0
    failures: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Instants at which no member of the pool had a weight, or the name no address."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        assert not self.failures, f"{len(self.failures)} of {self.requests} requests failed: {self.failures[:5]}"
        assert not self.empty, self.empty[:5]
        assert self.requests > 100, self.requests
        assert 20 < self.connections < self.requests, "some connections carried one request, and some many"


class Changes(World):
    """Two replicas of version 1 behind HAProxy and under a name of BIND. A client of the name goes to the replicas themselves."""

    def __init__(self, docker: str) -> None:
        super().__init__(docker, replicas=2)
        text = WEB.format(network=self.network, image=IMAGE)
        (self.manifests / "web.yaml").write_text(text)
        self.edit(f"id: {self.id}\n", f"id: {self.id}\n  intervals: {{runtime: 2s}}\n")

    def start_servers(self) -> None:
        servers.prepare(self.edge)
        path = self.directory / "haproxy.cfg"
        text = path.read_text()
        for old, new in (("    option redispatch\n", ""), ("retries 2", "retries 0"), ("inter 2s", "inter 1s")):
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        servers.start_haproxy(self.edge)
        servers.start_named(self.edge)

    def close(self) -> None:
        super().close()
        with suppress(Exception):
            self.api = type(self.api)(self.edge.docker)
            self.api.link.delete(f"/networks/{self.network}-b", "test")
        self.api.close()

    def change(self, *edits: tuple[str, str]) -> None:
        """Write all edits at once, as a commit does."""
        path = self.manifests / "web.yaml"
        text = path.read_text()
        for old, new in edits:
            words = old.format(network=self.network)
            assert words in text, words
            text = text.replace(words, new.format(network=self.network))
        fresh = path.with_name(".web.yaml.new")
        fresh.write_text(text)
        fresh.replace(path)

    def place(self, container: str) -> str:
        """The address of a container in its only network."""
        (network,) = self.api.inspect(container)["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def generations(self) -> dict[str, tuple[str, str]]:
        """Id and start of each container: its generation."""
        found = {name: self.api.inspect(name) for name in self.containers()}
        return {name: (str(fact["Id"]), str(fact["State"]["StartedAt"])) for name, fact in found.items()}

    def full(self, count: int) -> bool:
        """Whether so many containers exist, all have full weight, and the name has all of them."""
        places = {self.place(name) for name in self.containers()}
        return len(places) == count and self.pool() == dict.fromkeys(places, 100) and self.names() >= places

    def names(self) -> set[str]:
        """The addresses that BIND answers with, at the end of its CNAMEs."""
        answer = dns.query.udp(dns.message.make_query(NAME, "A"), "127.0.0.1", timeout=ANSWER, port=self.edge.dns)
        assert answer.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN), answer
        return {item.address for rrset in answer.answer if rrset.rdtype == dns.rdatatype.A for item in rrset}

    def requested(self, container: str, word: str) -> bool:
        """Whether the program of a container has answered /cgi-bin/WORD."""
        status, log = image.ask(self.edge.docker, "GET", f"/containers/{container}/logs?stdout=1")
        assert status == 200
        return f"request: {word}".encode() in log

    @contextmanager
    def load(self) -> Iterator[Load]:
        """Clients that ask all the time: over kept connections, over new ones, slowly, and by the name."""
        load, stop, began = Load(), threading.Event(), time.monotonic()
        known: list[tuple[float, list[str]]] = []

        def ask(link: http.client.HTTPConnection, path: str) -> None:
            with load.lock:
                load.requests += 1
                load.connections += link.sock is None
            try:
                link.request("GET", path)
                answer = link.getresponse()
                answer.read()
                error = "" if answer.status == 200 else f"{answer.status} {answer.reason}"
            except (OSError, http.client.HTTPException) as problem:
                error = f"{type(problem).__name__}: {problem}"
            if error:
                link.close()
                with load.lock:
                    load.failures.append(
                        f"after {time.monotonic() - began:.2f} s: {link.host}:{link.port}{path}: {error}"
                    )

        def connected(address: str, port: int) -> http.client.HTTPConnection:
            return http.client.HTTPConnection(address, port, timeout=5)

        kept = [connected("127.0.0.1", self.edge.http) for _ in range(2)]

        def keep(link: http.client.HTTPConnection) -> Callable[[], None]:
            return lambda: ask(link, "/")

        def fresh(path: str) -> Callable[[], None]:
            def once() -> None:
                link = connected("127.0.0.1", self.edge.http)
                ask(link, path)
                link.close()

            return once

        def by_name() -> None:
            # As a resolver with the records' TTL of one second does.
            now = time.monotonic()
            if not known or now - known[0][0] > 1:
                known[:] = [(now, sorted(self.names()))]
            for address in known[0][1]:
                link = connected(address, self.edge.http if address == "127.0.0.1" else ADMIN)
                ask(link, "/")
                link.close()

        def watch() -> None:
            pool, name = self.places(), self.names()
            if not any(pool.values()) or not name:
                load.empty.append(f"after {time.monotonic() - began:.2f} s: {pool} {name}")

        def again(act: Callable[[], None], pause: float) -> None:
            while not stop.wait(pause):
                with suppress(dns.exception.DNSException):
                    act()

        work = [
            *((keep(link), 0.01) for link in kept),
            (fresh("/"), 0.01),
            (fresh("/cgi-bin/slow"), 0.01),
            (by_name, 0.05),
            (watch, 0.02),
        ]
        threads = [threading.Thread(target=again, args=task) for task in work]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
            for link in kept:
                link.close()


Generations = dict[str, tuple[str, str]]
"""The containers that serve before a change, as `Changes.generations`."""


def unchanged(world: Changes, before: Generations) -> bool:
    """Whether the earlier containers still run, in the same generation and with full weight."""
    now, pool = world.generations(), world.pool()
    return all(now.get(name) == before[name] and pool.get(world.place(name)) == 100 for name in before)


def in_force(world: Changes, before: Generations) -> bool:
    """Whether the change is in force, and has replaced nothing."""
    return "the manifests changed" in world.log() and unchanged(world, before) and world.full(2)


def replaced(world: Changes, before: Generations) -> bool:
    """Whether two other containers serve, and the earlier ones are gone."""
    return not set(world.generations().values()) & set(before.values()) and world.full(2)


def one_more(world: Changes, before: Generations) -> bool:
    """Whether a third container serves."""
    return unchanged(world, before) and world.full(3)


def not_ready(world: Changes, before: Generations) -> bool:
    """Whether a new container failed its probes until it was restarted, and the earlier ones serve on."""
    new = set(world.containers()) - set(before)
    tried = any(f"stop {name} " in world.log() for name in new)
    return tried and unchanged(world, before) and not any(world.pool().get(world.place(name)) for name in new)


def proven(world: Changes, before: Generations) -> bool:
    """Whether each container has answered the new probe."""
    return in_force(world, before) and all(world.requested(name, "health") for name in before)


def unproven(world: Changes, before: Generations) -> bool:
    """Whether the probe that no container passes is reported."""
    stored = last_decision(world.state) or {}
    return in_force(world, before) and any(hold["rule"] == "ProbeUnproven" for hold in stored["holds"])


def moved(world: Changes, before: Generations) -> bool:
    """Whether the earlier containers are reached at another port, and only there."""
    places = {(row[4], row[18]) for row in world.slots() if row[4] != "127.0.0.1"}
    return places == {(world.place(name), str(ADMIN)) for name in before} and in_force(world, before)


@dataclass(frozen=True)
class Change:
    """One change: its name, what comes of it, what is edited, and how to see that this has come."""

    name: str
    outcome: str
    edits: tuple[tuple[str, str], ...]
    reached: Callable[[Changes, Generations], bool]


PATH = ("/health-1", "/health-2")
NUMBER = ("name: http, containerPort: 8080", "name: http, containerPort: 9090")
OTHERS = "two new replicas serve before the old ones leave"
NOTHING = "counts at once; the replicas stay"

CHANGES = (
    Change("image and probe path", OTHERS, ((f"{IMAGE}:1", f"{IMAGE}:2"), PATH), replaced),
    Change("image and port", OTHERS, ((f"{IMAGE}:1", f"{IMAGE}:2-moved"), PATH, NUMBER), replaced),
    Change(
        "a port that the program does not follow",
        "the new replica never becomes ready; the old ones serve on",
        (NUMBER,),
        not_ready,
    ),
    Change(
        "probe, right",
        "tried beside the old one, then counts; the replicas stay",
        (("/health-1", "/cgi-bin/health"),),
        proven,
    ),
    Change(
        "probe, wrong",
        "hold `ProbeUnproven`; the old one counts, the replicas stay",
        (("/health-1", "/wrong"),),
        unproven,
    ),
    Change("networks", OTHERS, (("networks: [{network}]", "networks: [{network}-b]"),), replaced),
    Change("replicas, one more", "a third replica serves", (("replicas: 2", "replicas: 3"),), one_more),
    Change("environment", OTHERS, (("value: hello", "value: goodbye"),), replaced),
    Change("labels", OTHERS, (("labels: {{app: web}}", "labels: {{app: web, tier: front}}"),), replaced),
    Change(
        "port of the Service",
        "the new place joins the pool before the old one leaves",
        (("port: http\n  bal", "port: admin\n  bal"),),
        moved,
    ),
    Change(
        "routing of the DNSPolicy", "the name keeps its answers", (("routing: simple", "routing: weighted"),), in_force
    ),
    Change("drain, longer", NOTHING, (("max: 5s", "max: 8s"),), in_force),
    Change("strategy", NOTHING, (("strategy: rolling", "strategy: activate"),), in_force),
)


def under_load(world: Changes, change: Change) -> Load:
    """Make one change of a world that serves, wait for its end, and return what the clients counted."""
    with world.watching():
        until(lambda: world.full(2), "two replicas serve")
        before = world.generations()
        with world.load() as load:
            time.sleep(0.5)
            world.change(*change.edits)
            until(lambda: change.reached(world, before), change.outcome)
            time.sleep(3)  # three periods of each probe
            assert change.reached(world, before), f"it does not stay so: {change.outcome}"
    return load
