"""The settings of a name server in a manifest."""

import pytest
from pydantic import ValidationError

from manifests.values.desired import SECOND
from providers import registry
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.spi import Context

KEY = {"name": "update.key", "secret": {"env": "UPDATE_KEY"}}


def test_all_settings_are_read() -> None:
    settings = RFC2136Settings.model_validate(
        {
            "server": "192.0.2.53",
            "port": 5353,
            "updateKey": KEY,
            "transferKey": {"name": "transfer.key", "algorithm": "hmac-sha512", "secret": {"file": "/run/key"}},
            "timeout": "2s",
            "readBack": "queries",
        }
    )
    assert (settings.server, settings.port, settings.timeout) == ("192.0.2.53", 5353, 2 * SECOND)
    assert settings.update_key is not None
    assert settings.update_key.algorithm == "hmac-sha256"


@pytest.mark.parametrize(
    "invalid",
    [
        {"server": "ns1.example.net"},
        {"port": 0},
        {"timeout": "0s"},
        {"timeout": "1h"},
        {"readBack": "ixfr"},
        {"tsig": "x"},
        {"updateKey": KEY | {"algorithm": "hmac-md5"}},
        {"updateKey": KEY | {"secret": "c2VjcmV0"}},
        {"updateKey": {"name": "update.key"}},
        {"updateKey": KEY | {"name": "update..key"}},
    ],
)
def test_invalid_settings_are_refused(invalid: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RFC2136Settings.model_validate({"server": "192.0.2.53"} | invalid)


def test_a_secret_in_the_manifest_is_refused_and_not_shown() -> None:
    settings = {"updateKey": KEY | {"secret": "sentinel-7a11"}}
    with pytest.raises(Exception, match=r"updateKey\.secret") as caught:
        registry.create("rfc2136", "edge", settings, Context("demo", "/nonexistent"))
    assert "sentinel-7a11" not in str(caught.value)
