"""Manifests per CPU second, from bytes to checked models, compared with ruamel's round trip and the same models.

Both report file, line and column for every error: this project finds positions in a second pass after an error, the round trip
keeps them on every value. One document per file. Peer and reconciler alternate three times on the same documents, and the medians
of CPU seconds count, because only ratios within one run can be compared.

Run: python bench/manifest_loading.py [DOCUMENTS]
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

from ruamel.yaml import YAML

from manifests.gc_pause import collector_paused
from manifests.kinds import KINDS
from manifests.kinds.validate import validate
from manifests.yaml.read import read_file

DOCUMENT = """\
apiVersion: reconciler/v1
kind: Workload
metadata:
  name: web-{n}
spec:
  nodes: [host-a]
  replicas: 3
  minReadySeconds: 5
  template:
    metadata:
      labels: {{app: web-{n}, tier: front}}
    spec:
      terminationGracePeriodSeconds: 20
      containers:
        - name: app
          command: [python3, server.py]
          args: [--port, "8080"]
          env:
            - name: MODE
              value: production
          ports:
            - name: http
              containerPort: 8080
          livenessProbe:
            httpGet: {{path: /live, port: http}}
            periodSeconds: 5
          readinessProbe:
            httpGet:
              path: /ready
              port: 8080
            periodSeconds: 2
            failureThreshold: 2
  restarts: {{limit: 3, window: 5m}}
  drain:
    max: 15s
"""
ROUNDS = 3
PEER_SHARE = 10
"""The peer gets one document in this many: it is slower by about this factor, and its cost is linear."""


def ours(documents: list[bytes]) -> None:
    with collector_paused():
        for number, data in enumerate(documents):
            parsed, problems = read_file(f"{number}.yaml", data)
            declared, errors = validate(parsed[0])
            assert declared is not None
            assert declared.manifest is not None
            assert not problems
            assert not errors


def round_trip(documents: list[bytes]) -> None:
    yaml = YAML(typ="rt")
    for data in documents:
        value = yaml.load(data)
        assert value.lc.line == 0
        KINDS[value["kind"]].model_validate(value)


def cpu_seconds(work: Callable[[list[bytes]], None], documents: list[bytes]) -> float:
    before = time.process_time()
    work(documents)
    return (time.process_time() - before) / len(documents)


def main(count: int) -> None:
    documents = [DOCUMENT.format(n=n).encode() for n in range(count)]
    few = documents[: max(count // PEER_SHARE, 1)]
    ours(few)
    round_trip(few[:20])
    mine, peer = [], []
    for _ in range(ROUNDS):
        peer.append(cpu_seconds(round_trip, few))
        mine.append(cpu_seconds(ours, documents))
    rows = [
        ("ruamel round trip + pydantic", statistics.median(peer)),
        ("manifests.yaml.read + manifests.kinds.validate", statistics.median(mine)),
    ]
    versions = ", ".join(f"{name} {version(name)}" for name in ("ruamel.yaml", "ruamel.yaml.clib", "pydantic"))
    lines = len(DOCUMENT.splitlines())
    print(
        f"Python {platform.python_version()}, {versions}; {count} documents of {lines} lines, medians of {ROUNDS} rounds\n"
    )
    print("| loader | documents per CPU second | ratio |")
    print("|---|---:|---:|")
    for name, seconds in rows:
        print(f"| {name} | {1 / seconds:,.0f} | {rows[0][1] / seconds:.1f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
