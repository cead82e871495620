"""A look at 200 unchanged containers, compared with the list of the SDK and the bare request.

All three alternate in one process against one engine, for five rounds. The ratio within the run counts:

- the bare list: one request over a kept-alive connection, JSON parsed;
- the look: engine, list, events, and the facts of every container;
- `docker.from_env().containers.list(all=True)`: the list, then an inspection of each container.
"""

import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CONTAINERS = 200
ROUNDS = 5


def main() -> int:
    import docker  # noqa: PLC0415

    from providers.actions import CreateContainer  # noqa: PLC0415
    from providers.facts import Mark, container_name  # noqa: PLC0415
    from providers.runtime.docker.runtime import DockerRuntime, DockerSettings  # noqa: PLC0415
    from providers.spi import Context  # noqa: PLC0415
    from tests.providers.runtime.docker.engine import DOCKER_SOCKET, Api, answers, container, ensure_docker, template  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as state:
        if not answers(DOCKER_SOCKET):
            ensure_docker(Path(state))
        instance = f"b{uuid.uuid4().hex[:8]}"
        api = Api(DOCKER_SOCKET)
        runtime = DockerRuntime("local", DockerSettings(), Context(instance, state))
        sdk = docker.DockerClient(base_url=f"unix://{DOCKER_SOCKET}")
        made = template(container("web", "/bin/sleep", "100000", stop_signal="SIGKILL"))
        try:
            for ordinal in range(CONTAINERS):
                mark = Mark(instance, "web", ordinal, made.revision)
                runtime.perform(CreateContainer("local", container_name(mark), mark, made, "/"))
            ours = f"reconciler.instance={instance}"
            filters = json.dumps({"label": [ours]})
            runtime.observe()
            time.sleep(1.0)  # earlier events do not count as changes since the last look any more
            runtime.observe()
            ways: dict[str, Callable[[], object]] = {
                "the bare list": lambda: api.link.get("/containers/json", "bench", all="1", filters=filters),
                "a look without changes": runtime.observe,
                "`containers.list()` of the SDK": lambda: sdk.containers.list(all=True, filters={"label": ours}),
            }
            wall: dict[str, list[float]] = {way: [] for way in ways}
            cpu: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for way, act in ways.items():
                    began, used = time.perf_counter(), time.process_time()
                    act()
                    wall[way].append((time.perf_counter() - began) * 1000)
                    cpu[way].append((time.process_time() - used) * 1000)
        finally:
            api.clean(instance)
            runtime.close()
            sdk.close()
            api.close()
    print(f"## A look at {CONTAINERS} containers\n")
    print(f"Docker Engine with {CONTAINERS} created containers, medians of {ROUNDS} alternating rounds.\n")
    print("| method | wall ms | client CPU ms | share of the SDK's wall time |\n|---|---|---|---|")
    slowest = statistics.median(wall["`containers.list()` of the SDK"])
    for way in ways:
        middle = statistics.median(wall[way])
        print(f"| {way} | {middle:.1f} | {statistics.median(cpu[way]):.1f} | {middle / slowest:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
