"""Differences between a foreign container and a template: every field, without values."""

from dataclasses import replace

import pytest

from manifests.values.desired import Container, Engine, Port, Template
from manifests.values.pod import Live, Mount, VolumeKind
from manifests.values.secret_sources import SecretSource
from providers.facts import ContainerFact, ContainerState, MountFact, PortFact, Setup, fingerprint
from reconciler.core.replicas.template_fit import differing, policy_kept
from tests.builders import NOW, SEEN

ENGINE = Engine(
    secret_env=(("TOKEN", SecretSource(env="TOKEN")),),
    user="1000",
    mounts=(
        Mount(VolumeKind.NAMED, "data", "/data"),
        Mount(VolumeKind.BIND, "/etc/shop/", "/etc/shop", read_only=True),
        Mount(VolumeKind.TMPFS, "", "/run/"),
    ),
)
TEMPLATE = Template((), Container("web", ("serve", "--port", "80"), env=(("MODE", "fast"),), engine=ENGINE))

IMAGE = Setup(("entry",), ("default",), (("LANG", fingerprint("C")), ("PATH", fingerprint("/bin"))), "app")


def env(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, fingerprint(value)) for name, value in values.items()))


FITS = Setup(
    ("serve",),
    ("--port", "80"),
    env(MODE="fast", TOKEN="sentinel-token", LANG="C", PATH="/bin", HOME="/root"),
    "1000",
    (MountFact("/data", "data", False), MountFact("/etc/shop", "/etc/shop", True), MountFact("/run", "", False)),
)


def foreign(setup: Setup | None, image: Setup | None = IMAGE, **changes: object) -> ContainerFact:
    fact = ContainerFact("here", "web-1", "id", ContainerState.RUNNING, NOW.wall, SEEN, setup=setup, image_setup=image)
    return replace(fact, **changes)


def test_a_container_that_fits_has_no_differences():
    assert differing(TEMPLATE, foreign(FITS)) == []


def test_an_unknown_setup_is_no_difference():
    assert differing(TEMPLATE, foreign(None)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entrypoint": ("shell",)}, "it runs shell, not serve"),
        ({"arguments": ("--port", "sentinel-port")}, "it runs serve with other arguments"),
        ({"env": env(MODE="sentinel-slow", TOKEN="x")}, "variable MODE has another value"),
        ({"env": env(TOKEN="x")}, "variable MODE is not set"),
        ({"env": env(MODE="fast")}, "variable TOKEN is not set"),
        (
            {"env": env(MODE="fast", TOKEN="x", DEBUG="sentinel-one", LANG="sentinel-two")},
            "variable DEBUG, LANG is set, but not in the template",
        ),
        ({"user": ""}, "user is root, not 1000"),
        ({"mounts": FITS.mounts[1:]}, "nothing is mounted at /data"),
        (
            {"mounts": (MountFact("/data", "shop_data", False), *FITS.mounts[1:])},
            "shop_data is mounted at /data, not data",
        ),
        (
            {"mounts": (MountFact("/data", "data", True), *FITS.mounts[1:])},
            "/data is mounted read-only",
        ),
        (
            {"mounts": (*FITS.mounts, MountFact("/cache", "cache", False))},
            "cache at /cache is mounted, but not in the template",
        ),
    ],
)
def test_every_difference_is_reported_without_values(changes, message):
    differences = differing(TEMPLATE, foreign(FITS._replace(**changes)))
    assert differences == [message]
    assert "sentinel" not in "".join(differences)


@pytest.mark.parametrize(
    ("container", "actual"),
    [
        (Container("web", ()), IMAGE),
        (Container("web", (), engine=Engine(args=("mine",))), IMAGE._replace(arguments=("mine",))),
        (Container("web", (), engine=Engine(user="0")), IMAGE._replace(user="root")),
    ],
)
def test_fields_that_the_template_lacks_are_compared_with_the_image(container, actual):
    template = Template((), container)
    assert differing(template, foreign(actual)) == []
    other = actual._replace(entrypoint=("other",))
    assert differing(template, foreign(other)) == ["it runs other, not entry"]


def test_without_the_setup_of_the_image_only_template_fields_are_compared():
    assert differing(Template((), Container("web", ())), foreign(FITS._replace(mounts=()), None)) == []
    wrong = FITS._replace(env=(*FITS.env, ("DEBUG", fingerprint("1"))), user="1001")
    assert differing(TEMPLATE, foreign(wrong, None)) == ["user is 1001, not 1000"]


def test_ports_and_networks_are_compared_while_it_runs():
    container = Container("web", ("serve",), ports=(Port("http", 8080, host_port=80),))
    template = Template((), container, networks=("edge",))
    wrong = foreign(None, addresses=(("shop_default", "10.1.0.1"),))
    assert differing(template, wrong) == ["port 8080 is not published as hostPort 80", "it is not in network edge"]
    assert differing(template, replace(wrong, state=ContainerState.EXITED)) == []
    fine = foreign(None, addresses=(("edge", "10.1.0.1"),), published=(PortFact(8080, "192.0.2.1", 80),))
    assert differing(template, fine) == []


@pytest.mark.parametrize(
    ("actual", "wanted", "reported"),
    [
        ("no", "unless-stopped", True),
        ("on-failure:3", "unless-stopped", True),
        ("always", "unless-stopped", False),
        ("unless-stopped", "unless-stopped", False),
        ("unless-stopped", "no", True),
        ("always", "no", False),
    ],
)
def test_a_kept_restart_policy_is_reported_where_it_differs(actual, wanted, reported):
    template = replace(TEMPLATE, live=(Live("", restart=wanted), Live("proxy", restart="no")))
    fact = foreign(FITS, live=(Live("", restart=actual),))
    assert policy_kept(template, fact) == ((actual, wanted) if reported else None)


def test_a_runtime_without_policies_keeps_none():
    assert policy_kept(replace(TEMPLATE, live=(Live(""),)), foreign(FITS)) is None
