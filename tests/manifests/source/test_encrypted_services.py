"""Key services that an encrypted file names: SOPS's parsers and Python's read some texts differently, and no address may hide in that."""

import pytest

from manifests.source.encrypted_file import Unusable, read_sops

GOOD, EVIL = "https://vault.example.com", "https://evil.example.com"
FLAT = "hc_vault__list_0__map_vault_address"


def services(name: str, text: str) -> tuple[str, ...]:
    return read_sops(name, text.encode()).services


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.env", f"A=x\nsops_mac=x\nsops_{FLAT}={EVIL}\nsops_{FLAT} ={GOOD}\n"),
        ("a.env", f"A=x\nsops_mac=x\nsops_{FLAT}={EVIL}\nA=\x0bsops_{FLAT}={GOOD}\n"),
        ("a.env", f"A=x\nsops_mac=x\nsops_{FLAT.upper().replace('__MAP_', '__map_')}={EVIL}\n"),
        ("a.ini", f"[a]\nb=x\n[sops]\nmac = x\n  {FLAT} = {EVIL}\n"),
        ("a.ini", f"[a]\nb=x\n[sops]\nmac = x\n`{FLAT}` = {EVIL}\n"),
        ("a.ini", f'[a]\nb=x\n[sops]\nmac = x\n"{FLAT}" : {EVIL}\n'),
        ("a.ini", f"[a]\nb=x\n[sops]\nmac = x\n{FLAT} = {EVIL}\n[sops]\n{FLAT} = {GOOD}\n"),
        ("a.json", f'{{"a": "x", "sops": {{"mac": "x", "hc_vault": [{{"Vault_Address": "{EVIL}"}}]}}}}'),
        ("a.json", f'{{"a": "x", "sops": {{"mac": "x", "hc_vault": [{{"vault_addre\u017f\u017f": "{EVIL}"}}]}}}}'),
        ("a.json", f'{{"Sops": {{"hc_vault": [{{"vault_address": "{EVIL}"}}]}}, "sops": {{"mac": "x"}}}}'),
        ("a.bin", f'{{"data": "x", "sops": {{"mac": "x", "azure_kv": [{{"VaultUrl": "{EVIL}"}}]}}}}'),
    ],
)
def test_no_address_of_a_key_service_is_overlooked(name: str, text: str) -> None:
    assert EVIL in services(name, text)


@pytest.mark.parametrize("value", [f"{GOOD}\\", f'"""{GOOD}', "%(other)s", f"{GOOD} ; x", f"`{GOOD}`"])
def test_an_address_in_an_unusual_notation_is_not_an_allowed_one(value: str) -> None:
    assert set(services("a.ini", f"[sops]\nmac = x\n{FLAT} = {value}\n")) != {GOOD}


def test_a_name_that_is_twice_in_a_file_is_refused() -> None:
    text = f'{{"sops": {{"hc_vault": [{{"vault_address": "{EVIL}"}}]}}, "sops": {{"mac": "x"}}}}'
    with pytest.raises(Unusable, match="the same name twice"):
        services("a.json", text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.env", f"VAULT_URL=ENC[x]\nsops_mac=x\nsops_{FLAT}={GOOD}/\n"),
        ("a.ini", f'[a]\nvault_url = ENC[x]\n[sops]\nmac = x\n{FLAT} = "{GOOD}/"\n'),
        ("a.json", f'{{"VAULT_URL": "ENC[x]", "sops": {{"mac": "x", "hc_vault": [{{"vault_address": "{GOOD}/"}}]}}}}'),
        ("a.yaml", f"VAULT_URL: ENC[x]\nsops: {{mac: x, hc_vault: [{{vault_address: {GOOD}/}}]}}\n"),
    ],
)
def test_an_address_is_found_as_it_is_allowed_and_values_are_no_addresses(name: str, text: str) -> None:
    assert services(name, text) == (GOOD,)
