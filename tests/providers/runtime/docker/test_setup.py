"""The setup of a foreign container and of its image: enough to decide whether it fits a template."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Template
from manifests.values.pod import Mount, VolumeKind
from manifests.values.secret_sources import SecretSource
from providers.facts import ContainerFact, MountFact, fingerprint
from providers.runtime.docker.spec import payload
from reconciler.core.replicas.template_fit import differing
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import POLITE, container, image_tar, template

SETTINGS = "reconciler-test/settings:1"


def pod(bench: Bench, host: Path) -> Template:
    """One container with everything that is compared, of an image with settings of its own."""
    mounts = (
        Mount(VolumeKind.NAMED, f"{bench.instance}-data", "/data"),
        Mount(VolumeKind.BIND, str(host), "/tmp/host", read_only=True),
        Mount(VolumeKind.TMPFS, "", "/scratch"),
    )
    secret = (("TOKEN", SecretSource(env="TOKEN")),)
    made = container("web", *POLITE, image=SETTINGS, mounts=mounts, user="1000", secret_env=secret)
    return template(replace(made, env=(("MODE", "fast"),)))


@pytest.fixture
def theirs(engine: Bench, tmp_path: Path) -> Iterator[ContainerFact]:
    """A running foreign container that was created by the template."""
    if not engine.api.has_image(SETTINGS):
        changes = ("ENV LANG=C", "VOLUME /cache", 'CMD ["/bin/sleep", "300"]', "USER 1001")
        engine.api.import_image(SETTINGS, image_tar(), *changes)
    made = pod(engine, tmp_path)
    body = payload(
        made.container,
        made,
        engine.mark(made),
        {"TOKEN": "sentinel"},
        made.networks[0],
        podman=engine.runtime._observer.podman(),
    )
    name = f"{engine.instance}-theirs"
    engine.api.link.post("/containers/create", name, {**body, "Labels": {}}, name=name)
    engine.api.start(name)
    yield engine.looked(name)
    engine.api.remove(name)
    engine.api.link.delete(f"/volumes/{engine.instance}-data", name)


def test_a_container_of_the_template_fits_and_each_difference_is_listed(
    engine: Bench, theirs: ContainerFact, tmp_path: Path
) -> None:
    made = pod(engine, tmp_path)
    assert differing(made, theirs) == []
    assert engine.fact(theirs.name) == theirs

    assert theirs.setup is not None
    assert theirs.setup.mounts == (
        MountFact("/data", f"{engine.instance}-data", False),
        MountFact("/scratch", "", False),
        MountFact("/tmp/host", str(tmp_path), True),
    )
    assert ("TOKEN", fingerprint("sentinel")) in theirs.setup.env
    assert theirs.image_setup is not None
    assert ("LANG", fingerprint("C")) in theirs.image_setup.env

    bare = replace(
        made.container, argv=(), env=(), engine=replace(made.container.engine, mounts=(), user="", secret_env=())
    )
    assert differing(replace(made, container=bare), theirs) == [
        "it runs /bin/sh, not /bin/sleep",
        "variable MODE, TOKEN is set, but not in the template",
        "user is 1000, not 1001",
        f"{engine.instance}-data at /data, a tmpfs at /scratch, {tmp_path} at /tmp/host is mounted, but not in the template",
    ]


def test_a_container_with_our_mark_has_no_setup(engine: Bench) -> None:
    fact = engine.run()
    assert (fact.setup, fact.image_setup) == (None, None)
