"""Which networks an Instance lets health checks of names reach."""

import pytest
from pydantic import ValidationError

from manifests.kinds.instance import InstanceSpec


def spec(*networks: str) -> InstanceSpec:
    return InstanceSpec.model_validate({"id": "my-host", "allowAddresses": list(networks)})


def test_networks_and_single_addresses_are_taken_in_one_form() -> None:
    assert spec("127.0.0.0/8", "::1", "169.254.169.254").allow_addresses == (
        "127.0.0.0/8",
        "::1/128",
        "169.254.169.254/32",
    )


def test_nothing_is_allowed_by_default() -> None:
    assert InstanceSpec.model_validate({"id": "my-host"}).allow_addresses == ()


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("127.0.0.1/8", "host bits"),
        ("localhost", "is not a network"),
        ("127.0.0.0/33", "is not a network"),
        ("", "is not a network"),
    ],
)
def test_what_is_no_network_is_refused_with_how_to_write_one(network: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec(network)


def test_a_network_stands_there_once() -> None:
    with pytest.raises(ValidationError):
        spec("::1", "::1/128")
