"""Image digests in facts, and all replicas of a revision created from the same image."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Template
from manifests.values.pod import PullPolicy
from providers.errors import Rejected, Unreachable
from providers.facts import ContainerFact
from providers.runtime.docker.digest import digest_in_repository, source_of
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, Api, container, template
from tests.providers.runtime.docker.registry import RegistryServer, forget

NAME = "registry.test/shop/web:1"
A, B = (f"sha256:{digit * 64}" for digit in "ab")


@pytest.fixture
def server(tmp_path: Path, docker_socket: str) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path / "registry", docker_socket) as started:
        yield started


@pytest.fixture
def name() -> str:
    return f"team/{uuid.uuid4().hex[:8]}:1"


def create(bench: Bench, made: Template, ordinal: int, pins: tuple[tuple[str, str], ...] = ()) -> ContainerFact:
    action = replace(bench.creation(made, ordinal), pins=pins)
    bench.runtime.perform(action)
    return bench.fact(action.name)


def move(api: Api, server: RegistryServer, name: str, label: str) -> str:
    """Move the tag to another image in the registry; its digest."""
    made = f"reconciler-test/{label}:1"
    source = api.create(label)
    api.link.post("/commit", label, {"Labels": {"newer": label}}, container=source, repo=made[:-2], tag="1")
    api.remove(label)
    digest = server.push(made, name)
    forget(api, made)
    return digest


# --- which name ---------------------------------------------------------------------------------------------------


def test_the_digest_of_the_images_own_repository_counts():
    digests = [f"mirror.test/web@{A}", f"registry.test/shop/web@{B}", "<none>@<none>"]
    assert digest_in_repository(digests, NAME) == f"registry.test/shop/web@{B}"
    assert digest_in_repository(digests, "other.test/x:1") == ""
    assert digest_in_repository([f"nginx@{A}"], "nginx:1") == f"docker.io/library/nginx@{A}"
    assert digest_in_repository([], NAME) == digest_in_repository(["<none>@<none>"], NAME) == ""


@pytest.mark.parametrize(
    ("policy", "pin", "is_present", "expected"),
    [
        (PullPolicy.ALWAYS, "", True, (NAME, PullPolicy.ALWAYS)),
        (PullPolicy.ALWAYS, f"x.test/y@{A}", True, (f"x.test/y@{A}", PullPolicy.IF_NOT_PRESENT)),
        (PullPolicy.IF_NOT_PRESENT, f"x.test/y@{A}", False, (f"x.test/y@{A}", PullPolicy.IF_NOT_PRESENT)),
        (PullPolicy.NEVER, f"x.test/y@{A}", False, (f"x.test/y@{A}", PullPolicy.NEVER)),
        (PullPolicy.ALWAYS, A, True, (A, PullPolicy.NEVER)),
        (PullPolicy.ALWAYS, A, False, (NAME, PullPolicy.ALWAYS)),
    ],
)
def test_a_pin_counts_unless_it_is_an_id_that_is_not_present(policy, pin, is_present, expected):
    assert source_of(NAME, policy, pin, lambda _: is_present, lambda _: False) == expected


@pytest.mark.parametrize(
    ("policy", "is_present", "expected"),
    [
        (PullPolicy.NEVER, False, (NAME, PullPolicy.NEVER)),
        (PullPolicy.NEVER, True, (f"x.test/y@{A}", PullPolicy.NEVER)),
        (PullPolicy.IF_NOT_PRESENT, False, (f"x.test/y@{A}", PullPolicy.IF_NOT_PRESENT)),
    ],
)
def test_an_image_that_was_loaded_without_a_digest_is_used_by_its_name(policy, is_present, expected):
    assert source_of(NAME, policy, f"x.test/y@{A}", lambda _: is_present, lambda _: True) == expected


@pytest.mark.server("dockerd")
def test_a_pin_of_another_engines_digest_is_created_from_the_loaded_image(bench: Bench) -> None:
    made = template(container(pull=PullPolicy.NEVER))
    foreign = f"docker.io/{IMAGE.rpartition(':')[0]}@{A}"
    fact = create(bench, made, 0, (("", foreign),))
    assert fact.image.endswith(IMAGE)


# --- on the engine ------------------------------------------------------------------------------------------------


@pytest.mark.server("dockerd")
@pytest.mark.server("docker-registry")
def test_a_container_has_the_digest_of_its_tag(server: RegistryServer, bench: Bench, name: str) -> None:
    digest = server.push(IMAGE, name)
    image = f"{server.host}/{name}"
    made = replace(template(container(image=image)), sidecars=(container("log", image=image),))
    fact = create(bench, made, 0)
    assert fact.image == image
    assert dict(fact.digests) == {"": f"{image[:-2]}@{digest}", "log": f"{image[:-2]}@{digest}"}


@pytest.mark.server("dockerd")
@pytest.mark.server("docker-registry")
def test_replicas_of_a_revision_share_an_image_after_its_tag_moved(
    server: RegistryServer, bench: Bench, name: str
) -> None:
    image = f"{server.host}/{name}"
    made = template(container(image=image, pull=PullPolicy.ALWAYS))
    first_digest = server.push(IMAGE, name)
    first = create(bench, made, 0)
    moved = move(bench.api, server, name, bench.instance)
    assert moved != first_digest
    second = create(bench, made, 1, first.digests)
    assert (second.image, second.digests) == (image, first.digests)
    third = create(bench, made, 2)
    assert dict(third.digests) == {"": f"{image[:-2]}@{moved}"}
    # No registry is asked for a present image.
    server.stop()
    assert create(bench, made, 3, first.digests).digests == first.digests
    with pytest.raises(Unreachable):
        create(bench, made, 4)


@pytest.mark.server("dockerd")
@pytest.mark.server("docker-registry")
def test_a_missing_pinned_image_is_pulled_by_its_digest(server: RegistryServer, bench: Bench, name: str) -> None:
    image = f"{server.host}/{name}"
    made = template(container(image=image))
    digest = server.push(IMAGE, name)
    move(bench.api, server, name, bench.instance)
    pins = (("", f"{image[:-2]}@{digest}"),)
    assert not bench.api.has_image(pins[0][1])
    assert create(bench, made, 0, pins).digests == pins
    missing = (("", f"{image[:-2]}@sha256:{'0' * 64}"),)
    with pytest.raises(Rejected, match=f"cannot pull image {missing[0][1]}"):
        create(bench, made, 1, missing)


@pytest.mark.server("dockerd")
def test_an_image_of_no_registry_is_pinned_by_its_id_while_present(bench: Bench) -> None:
    fact = create(bench, template(), 0)
    image_id = str(bench.api.inspect(fact.name)["Image"])
    assert dict(fact.digests)[""] == image_id
    assert create(bench, template(), 1, fact.digests).digests == fact.digests
    elsewhere = (("", f"sha256:{'0' * 64}"),)
    assert create(bench, template(), 2, elsewhere).digests == fact.digests


@pytest.mark.server("dockerd")
def test_foreign_containers_have_no_digests(bench: Bench) -> None:
    bench.api.create(f"{bench.instance}-other")
    try:
        wait_until(
            lambda: any(fact.name == f"{bench.instance}-other" for fact in bench.runtime.observe()), "it is observed"
        )
        [other] = [fact for fact in bench.runtime.observe() if fact.name == f"{bench.instance}-other"]
        assert other.digests == ()
        assert other.image
    finally:
        bench.api.remove(f"{bench.instance}-other")
