"""Inspections and list entries are read without an engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.facts import ContainerState, mark_labels
from providers.runtime.docker.inspection import listed_container, policy_body, read_container
from tests.providers.runtime.docker.containers import MARK, NAME, exited_container


def test_an_unknown_status_is_neither_running_nor_startable() -> None:
    assert exited_container(status="hibernating").state is ContainerState.STOPPING


@pytest.mark.parametrize(
    ("name", "labels", "mine"),
    [
        (NAME, {}, True),
        (f"{NAME}-log", {"reconciler.container": "log"}, True),
        (f"{NAME}-log", {"reconciler.container": "proxy"}, False),
        (f"{NAME}-log", {}, False),
        (NAME, {"reconciler.container": "log"}, False),
        ("copy", {}, False),
    ],
)
def test_an_owner_mark_counts_only_under_its_own_name(name: str, labels: dict[str, str], mine: bool) -> None:
    named = exited_container(name=name, labels={**mark_labels(MARK, 1), **labels})
    assert (named.mark == (MARK, False)) == mine
    assert (named.mark == (None, True)) == (not mine)


def test_an_inspection_of_the_oldest_engines_and_of_podman_is_read() -> None:
    inspected = read_container(
        {
            "Id": "x",
            "Name": NAME,
            "State": {"Status": "configured", "StartedAt": "0001-01-01T00:00:00Z"},
            "Config": {"Labels": None, "ExposedPorts": {"80/tcp": {}, "53/udp": {}, "all/tcp": {}}},
            "HostConfig": {"NanoCpus": 1_500_000_000, "Memory": -1, "RestartPolicy": {"Name": ""}},
            "NetworkSettings": {"Networks": {"podman": {"IPAddress": "10.88.0.2"}}},
        }
    )
    assert (inspected.state, inspected.ports, inspected.cpu, inspected.memory, inspected.restart) == (
        ContainerState.CREATED, (53, 80), 1500, 0, "no",
    )  # fmt: skip
    assert inspected.address == "10.88.0.2"


@given(st.sampled_from(["no", "always", "unless-stopped", "on-failure", "on-failure:3"]))
def test_a_restart_policy_is_written_as_it_was_read(text: str) -> None:
    inspection = {
        "Id": "x",
        "Name": "/n",
        "State": {},
        "Config": {},
        "HostConfig": {"RestartPolicy": policy_body(text)},
    }
    assert read_container(inspection).restart == text


def test_a_container_that_cannot_be_inspected_is_read_from_the_list() -> None:
    entry = {"Id": "x", "Names": ["/other/alias", "/shop"], "State": "dead", "Labels": None, "Image": "shop:1"}
    listed = listed_container(entry)
    assert (listed.name, listed.status, listed.image, listed.started_at) == ("shop", "dead", "shop:1", 0)


@pytest.mark.parametrize("labels", [{"a": ["b"]}, {"a": None}, ["a"], "a=b", 7])
def test_labels_that_are_not_texts_are_refused(labels: object) -> None:
    inspection = {"Id": "x", "Name": "/n", "State": {}, "Config": {"Labels": labels}, "HostConfig": {}}
    with pytest.raises(TypeError, match="labels are not texts"):
        read_container(inspection)
    with pytest.raises(TypeError, match="labels are not texts"):
        listed_container({"Id": "x", "Names": ["/n"], "State": "running", "Labels": labels})
