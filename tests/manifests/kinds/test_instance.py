"""The Instance: networks that health checks of names may reach, and restarts of foreign containers."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from manifests.kinds.instance import InstanceSpec
from tests.manifests.trees import GOOD, INSTANCE, load_files


def spec(*networks: str) -> InstanceSpec:
    return InstanceSpec.model_validate({"id": "my-host", "allowAddresses": list(networks)})


def test_networks_and_single_addresses_have_one_canonical_form() -> None:
    assert spec("127.0.0.0/8", "::1", "169.254.169.254").allow_addresses == (
        "127.0.0.0/8",
        "::1/128",
        "169.254.169.254/32",
    )


def test_nothing_is_allowed_by_default() -> None:
    assert InstanceSpec.model_validate({"id": "my-host"}).allow_addresses == ()


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("127.0.0.1/8", "host bits"),
        ("localhost", "is not a network"),
        ("127.0.0.0/33", "is not a network"),
        ("", "is not a network"),
    ],
)
def test_a_bad_network_is_refused_with_an_example(network: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(network)


def test_a_network_is_in_the_list_once() -> None:
    with pytest.raises(ValidationError):
        spec("::1", "::1/128")


def test_labelled_containers_restart_only_where_the_instance_allows_it(tmp_path: Path):
    assert not load_files(tmp_path / "a", GOOD).instance.enhanced_liveness
    enabled = INSTANCE.replace("spec: {", "spec: {enhancedLiveness: true, ")
    assert load_files(tmp_path / "b", {**GOOD, "instance.yaml": enabled}).instance.enhanced_liveness
