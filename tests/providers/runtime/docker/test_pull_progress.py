"""A whole run that waits for a pull reports the progress."""

import asyncio
import io
import re
import uuid
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.facts import ContainerState
from reconciler import wire
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.progress import Progress, Screen
from reconciler.exits import Exit
from reconciler.intent import Intent
from reconciler.tree import Location
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import NETWORK, image_tar
from tests.providers.runtime.docker.registry import RegistryServer, SlowProxy, forget
from tests.sim.clock import VirtualClock

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("docker-registry")]

MANIFESTS = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: pull}}
spec: {{id: {instance}}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: local}}
spec: {{type: docker, settings: {{socket: {socket}}}}}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  template:
    spec:
      networks: [{network}]
      containers:
        - {{name: web, image: "{image}", command: [/bin/sleep, "300"]}}
"""


async def test_a_run_that_waits_for_a_pull_reports_its_progress_every_10_s(
    tmp_path: Path, docker_socket: str, bench: Bench
) -> None:
    stream, clock = io.StringIO(), VirtualClock()
    reporter = Progress(Screen(stream, live=False), clock, Paint(False))
    with RegistryServer(tmp_path / "registry", docker_socket) as server:
        name, source = f"team/{uuid.uuid4().hex[:8]}:1", f"reconciler-test/{bench.instance}:1"
        bench.api.import_image(source, image_tar(4_000_000))
        server.push(source, name)
        forget(bench.api, source)
        proxy = SlowProxy(server.host, 2_000_000)
        image = f"{proxy.host}/{name}"
        tree = tmp_path / "tree"
        tree.mkdir()
        values = {"instance": bench.instance, "socket": docker_socket, "network": NETWORK, "image": image}
        (tree / "all.yaml").write_text(MANIFESTS.format(**values))
        run = asyncio.create_task(
            wire.run_once(
                Location(tree, state=tmp_path / "state"),
                intent=Intent(),
                within=300 * SECOND,
                wait=True,
                reporter=reporter,
            )
        )
        progress = re.compile(
            r": 0 done, local: pulling \S+: 0 of 1 layers fetched, [12]\.\d of \d\.\d MB, create \S+ on local for "
        )
        try:
            async with asyncio.timeout(120):
                while not progress.search(stream.getvalue()) and not run.done():
                    clock.advance(10 * SECOND)
                    reporter.tick()
                    await asyncio.sleep(0.02)
                proxy.open()
                summary = await run
        finally:
            run.cancel()
            proxy.close()
        assert progress.search(stream.getvalue()), stream.getvalue()
        assert summary.exit is Exit.OK
        assert [
            fact.state for fact in bench.runtime.observe() if fact.mark and fact.mark.instance == bench.instance
        ] == [ContainerState.RUNNING]
        bench.api.clean(bench.instance)
        forget(bench.api, image)
