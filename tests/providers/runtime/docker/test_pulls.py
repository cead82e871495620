"""Pulls from a real registry: names and digests, policies and logins, and registries that are stopped or hang."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.values.pod import PullPolicy
from providers.errors import Rejected, Unreachable
from providers.facts import ContainerFact, ContainerState
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.pull import Images
from providers.runtime.docker.runtime import DockerRuntime
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, Api, container, image_tar, template
from tests.providers.runtime.docker.registry import PASSWORD, USER, RegistryServer, SlowProxy, forget

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("docker-registry")]

MEGABYTE = 1_000_000


@pytest.fixture
def server(tmp_path: Path, docker_socket: str) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path / "registry", docker_socket) as started:
        yield started


@pytest.fixture
def closed_server(tmp_path: Path, docker_socket: str) -> Iterator[RegistryServer]:
    """A registry that requires a login."""
    with RegistryServer(tmp_path / "registry", docker_socket, login=True) as started:
        yield started


@pytest.fixture
def name() -> str:
    """The name of an image that no other test uses: all tests share the engine."""
    return f"team/{uuid.uuid4().hex[:8]}:1"


def create(bench: Bench, image: str, ordinal: int = 0, pull: PullPolicy = PullPolicy.IF_NOT_PRESENT) -> ContainerFact:
    return bench.create(template(container(image=image, pull=pull)), ordinal)


def image_of(bench: Bench, fact: ContainerFact) -> str:
    """The id of the image that a container is made from."""
    return str(bench.api.inspect(fact.name)["Image"])


def id_of(api: Api, image: str) -> str:
    return str(api.link.get(f"/images/{image}/json", image)["Id"])


def newer(api: Api, label: str) -> str:
    """The name of another image: the test image with one more label."""
    made = f"reconciler-test/{label}:1"
    source = api.create(label)
    api.link.post("/commit", label, {"Labels": {"newer": label}}, container=source, repo=made[:-2], tag="1")
    api.remove(label)
    return made


# --- what is pulled, and when -----------------------------------------------------------------------------------------


def test_a_missing_image_is_pulled_by_its_tag_and_runs(server: RegistryServer, bench: Bench, name: str) -> None:
    server.push(IMAGE, name)
    image = f"{server.host}/{name}"
    assert not bench.api.has_image(image)
    assert bench.start(create(bench, image)).state is ContainerState.RUNNING
    assert bench.api.has_image(image)


def test_a_digest_is_pulled_and_an_unknown_digest_is_refused(server: RegistryServer, bench: Bench, name: str) -> None:
    repository = f"{server.host}/{name[:-2]}"
    digest = server.push(IMAGE, name)
    fact = create(bench, f"{repository}@{digest}")
    assert image_of(bench, fact) == id_of(bench.api, IMAGE)
    with pytest.raises(Rejected, match="cannot pull image") as caught:
        create(bench, f"{repository}@sha256:{'0' * 64}", 1)
    assert "correct the image" in caught.value.next_step


def test_if_not_present_asks_no_registry_for_a_present_image(server: RegistryServer, bench: Bench, name: str) -> None:
    server.push(IMAGE, name)
    image = f"{server.host}/{name}"
    create(bench, image)
    server.stop()
    assert create(bench, image, 1).state is ContainerState.CREATED


def test_never_uses_a_present_image_and_pulls_nothing(server: RegistryServer, bench: Bench, name: str) -> None:
    server.push(IMAGE, name)
    image = f"{server.host}/{name}"
    with pytest.raises(Rejected, match="imagePullPolicy is Never"):
        create(bench, image, pull=PullPolicy.NEVER)
    assert not bench.api.has_image(image)
    create(bench, image, 1)
    assert create(bench, image, 2, PullPolicy.NEVER).state is ContainerState.CREATED


def test_always_pulls_the_present_image_of_the_tag(server: RegistryServer, bench: Bench, name: str) -> None:
    image = f"{server.host}/{name}"
    server.push(IMAGE, name)
    old = bench.start(create(bench, image))
    other = newer(bench.api, bench.instance)
    wanted = id_of(bench.api, other)
    server.push(other, name)
    forget(bench.api, other)
    bench.api.link.post(f"/images/{IMAGE}/tag", image, repo=image[:-2], tag="1")
    assert image_of(bench, create(bench, image, 1)) != wanted
    assert image_of(bench, create(bench, image, 2, PullPolicy.ALWAYS)) == wanted
    assert bench.fact(old.name) == old
    # The registry decides which image is the newest: without it there is none.
    server.stop()
    with pytest.raises(Unreachable, match="cannot pull image"):
        create(bench, image, 3, PullPolicy.ALWAYS)


# --- logins -----------------------------------------------------------------------------------------------------------


def logged_in(bench: Bench, server: RegistryServer, **login: object) -> DockerRuntime:
    return bench.make(registries=[{"server": server.host, "username": USER, **login}])


def test_a_corrected_login_is_used_by_the_next_pull(
    closed_server: RegistryServer, bench: Bench, name: str, tmp_path: Path
) -> None:
    closed_server.push(IMAGE, name)
    running = bench.run()
    image = f"{closed_server.host}/{name}"
    secret = tmp_path / "password"
    secret.write_text("sentinel-of-this-test\n")
    secret.chmod(0o600)
    runtime = logged_in(bench, closed_server, password={"file": str(secret)})
    action = bench.creation(template(container(image=image)), 1)
    with pytest.raises(Rejected, match="cannot pull image") as caught:
        runtime.perform(action)
    assert caught.value.next_step == (
        f"correct the login for {closed_server.host} in settings.registries (username {USER}, password in file {secret}), "
        "or the image"
    )
    assert "sentinel" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert bench.runtime.observe([action.name]) == ()
    secret.write_text(f"{PASSWORD}\n")
    runtime.perform(action)
    runtime.close()
    assert bench.state(action.name) is ContainerState.CREATED
    assert bench.fact(running.name) == running


def test_without_a_login_the_error_says_where_to_add_one(
    closed_server: RegistryServer, bench: Bench, name: str
) -> None:
    closed_server.push(IMAGE, name)
    with pytest.raises(Rejected, match="cannot pull image") as caught:
        create(bench, f"{closed_server.host}/{name}")
    assert caught.value.next_step == (
        f"correct the image, or add a login for {closed_server.host} to settings.registries of the provider (now: none)"
    )


def test_a_missing_image_is_no_failure_of_the_login(
    closed_server: RegistryServer, bench: Bench, name: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    runtime = logged_in(bench, closed_server, password={"file": str(secret)})
    with pytest.raises(Rejected, match="cannot pull image") as caught:
        runtime.perform(bench.creation(template(container(image=f"{closed_server.host}/{name}"))))
    runtime.close()
    assert caught.value.next_step == "correct the image: its registry does not have it"


# --- registries that are gone, hang or are slow -----------------------------------------------------------------------


def test_a_stopped_registry_is_unreachable_and_replicas_keep_running(
    server: RegistryServer, bench: Bench, name: str
) -> None:
    running = bench.run()
    server.push(IMAGE, name)
    server.stop()
    with pytest.raises(Unreachable, match="connection refused") as caught:
        create(bench, f"{server.host}/{name}", 1)
    assert "check whether the node reaches the registry" in caught.value.next_step
    assert bench.fact(running.name) == running
    server.start()
    assert create(bench, f"{server.host}/{name}", 1).state is ContainerState.CREATED


def test_a_pull_continues_when_a_hanging_registry_answers_again(
    server: RegistryServer, bench: Bench, name: str
) -> None:
    running = bench.run()
    server.push(IMAGE, name)
    image = f"{server.host}/{name}"
    link = EngineClient("local", bench.socket)
    images = Images(link, (), patience=0.2)
    server.freeze()
    with pytest.raises(Unreachable, match="is being pulled: no answer from the registry yet; the pull continues"):
        images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
    assert images.progress() == (f"pulling {image}: no answer from the registry yet",)
    assert bench.fact(running.name) == running
    server.thaw()
    wait_until(lambda: bench.api.has_image(image), "the pull continued")
    wait_until(lambda: images.progress() == (), "nothing is under way any more")
    images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
    link.close()


def test_the_progress_of_a_pull_has_layers_and_bytes(server: RegistryServer, bench: Bench, name: str) -> None:
    source = f"reconciler-test/{bench.instance}:1"
    bench.api.import_image(source, image_tar(4 * MEGABYTE))
    server.push(source, name)
    forget(bench.api, source)
    proxy = SlowProxy(server.host, 2 * MEGABYTE)
    image = f"{proxy.host}/{name}"
    link = EngineClient("local", bench.socket)
    images = Images(link, (), patience=0.2)
    part = re.compile(r"0 of 1 layers fetched, [12]\.\d of \d\.\d MB")
    try:
        with pytest.raises(Unreachable, match="is being pulled"):
            images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
        wait_until(
            lambda: any(part.search(line) for line in images.progress()), f"a part is fetched: {images.progress()}"
        )
        with pytest.raises(Unreachable, match=part):
            images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
        proxy.open()
        wait_until(lambda: images.progress() == (), "the pull ended")
        images.ensure("web", [(image, PullPolicy.IF_NOT_PRESENT)])
        assert bench.api.has_image(image)
    finally:
        proxy.close()
        forget(bench.api, image)
        link.close()


def test_the_images_of_a_pod_are_pulled_in_parallel(server: RegistryServer, bench: Bench) -> None:
    names = [f"{server.host}/team/{uuid.uuid4().hex[:8]}:1" for _ in range(2)]
    for image in names:
        server.push(IMAGE, image.partition("/")[2])
    link = EngineClient("local", bench.socket)
    images = Images(link, (), patience=0.2)
    wanted = [(image, PullPolicy.IF_NOT_PRESENT) for image in names]
    server.freeze()
    with pytest.raises(Unreachable) as caught:
        images.ensure("web", wanted)
    assert all(f"image {image} is being pulled" in caught.value.cause for image in names)
    assert len(images.progress()) == 2
    server.thaw()
    wait_until(lambda: images.progress() == (), "both pulls ended")
    images.ensure("web", wanted)
    assert all(bench.api.has_image(image) for image in names)
    link.close()


def test_a_refused_image_fails_while_another_one_is_still_pulled(
    server: RegistryServer, bench: Bench, name: str
) -> None:
    server.push(IMAGE, name)
    proxy = SlowProxy(server.host, 0)  # not a byte of an answer
    slow, none = f"{proxy.host}/{name}", f"{server.host}/team/none:1"
    link = EngineClient("local", bench.socket)
    images = Images(link, (), patience=5)
    try:
        with pytest.raises(Rejected, match=r"cannot pull image .*team/none"):
            images.ensure("web", [(slow, PullPolicy.IF_NOT_PRESENT), (none, PullPolicy.IF_NOT_PRESENT)])
        assert len(images.progress()) == 1
        proxy.open()
        wait_until(lambda: images.progress() == (), "the other pull ended")
    finally:
        proxy.close()
        forget(bench.api, slow)
        link.close()


def test_no_image_of_a_pod_is_pulled_when_one_must_not_be_pulled(
    server: RegistryServer, bench: Bench, name: str
) -> None:
    server.push(IMAGE, name)
    image = f"{server.host}/{name}"
    sidecar = container("side", image="reconciler-test/none:1", pull=PullPolicy.NEVER)
    with pytest.raises(Rejected, match=r"reconciler-test/none:1 is not on local"):
        bench.create(template(container(image=image), sidecar))
    assert not bench.api.has_image(image)
