"""Finding types: built in, from other packages, and packages with mistakes."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.values.desired import Role
from providers import registry
from providers.endpoints.file.provider import FileEndpoints, FileSettings
from providers.errors import Rejected
from providers.spi import Context

CONTEXT = Context("demo", "/nowhere")
Install = Callable[..., None]

NEEDED: dict[str, dict[str, object]] = {"powerdns": {"apiKey": {"env": "KEY"}}}
"""Settings without which a type cannot be made."""

GOOD = """
from providers.testing.memory import MemoryDNS
class Names(MemoryDNS):
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with one entry point, as pip would lay it out."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(package: str, type_name: str, value: str, source: str = GOOD) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[reconciler.providers]\n{type_name} = {value}\n")
        importlib.invalidate_caches()

    return put


def test_every_built_in_type_can_be_loaded_and_made() -> None:
    for type_name in registry.BUILT_IN:
        found = registry.settings_model(type_name)
        assert found is not None
        provider = registry.create(type_name, "one", NEEDED.get(type_name, {}), CONTEXT)
        assert (provider.role, provider.Settings, provider.name) == (*found, "one")
        provider.close()


@pytest.mark.parametrize("type_name", registry.BUILT_IN)
def test_checking_settings_loads_no_client_library(type_name: str) -> None:
    program = (
        "import sys; from providers import registry; registry.settings_model(sys.argv[1]);"
        "print(*({'boto3', 'botocore', 'dns', 'docker', 'httpx'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program, type_name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "\n"


@pytest.mark.parametrize("type_name", ["docker", "process", "memory-runtime"])
def test_checking_a_pod_template_loads_no_client_library(type_name: str) -> None:
    program = (
        "import sys; from providers import registry; registry.template_support(sys.argv[1]);"
        "print(*({'boto3', 'botocore', 'dns', 'docker', 'httpx'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program, type_name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "\n"


def test_a_built_in_type_has_its_role_and_settings() -> None:
    assert registry.settings_model("file") == (Role.ENDPOINTS, FileSettings)
    assert "zonefile" in registry.known_types()
    assert list(registry.known_types()) == sorted(registry.known_types())


def test_an_unknown_type_is_refused_with_a_suggestion() -> None:
    assert registry.settings_model("zonefil") is None
    with pytest.raises(Rejected, match=r"provider dns: unknown provider type 'zonefil'; did you mean 'zonefile'\?"):
        registry.create("zonefil", "dns", {}, CONTEXT)
    with pytest.raises(Rejected, match=r"known types: .*file, "):
        registry.create("quux", "dns", {}, CONTEXT)


def test_bad_settings_are_reported_by_key_without_their_values() -> None:
    with pytest.raises(Rejected, match="directory: Input should be a valid string") as caught:
        registry.create("file", "edge", {"directory": 5, "hunter2": "hunter3"}, CONTEXT)
    assert "hunter2: Extra inputs are not permitted" in str(caught.value)
    assert "hunter3" not in str(caught.value)


def test_a_type_of_another_package_is_found(install: Install) -> None:
    install("good_names", "acme-dns", "good_names:Names")
    assert "acme-dns" in registry.known_types()
    found = registry.settings_model("acme-dns")
    assert found is not None
    assert found[0] is Role.DNS
    assert registry.create("acme-dns", "zone", {}, CONTEXT).name == "zone"


def test_a_broken_package_is_named_and_others_still_work(install: Install) -> None:
    install("broken_names", "broken-dns", "broken_names:Names", "raise OSError('no such library')")
    install("working_names", "working-dns", "working_names:Names")
    with pytest.raises(Rejected, match=r"cannot load broken_names:Names of package broken_names: OSError"):
        registry.settings_model("broken-dns")
    assert registry.settings_model("working-dns") is not None
    assert {"broken-dns", "working-dns"} <= set(registry.known_types())


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("Names = 5", "not a class"),
        ("class Names: pass", "no role"),
        ("from manifests.values.desired import Role\nclass Names: role = Role.DNS", "Settings is not a pydantic model"),
        (
            "from pydantic import BaseModel\nfrom manifests.values.desired import Role\n"
            "class Names:\n  role = Role.DNS\n  Settings = BaseModel\n  def observe(self, zones): ...\n",
            "it lacks perform, close",
        ),
        ("", "AttributeError"),
    ],
)
def test_what_is_not_a_provider_is_refused(
    install: Install, source: str, cause: str, request: pytest.FixtureRequest
) -> None:
    package = f"odd_names_{abs(hash(request.node.name))}"
    install(package, "odd-dns", f"{package}:Names", source)
    with pytest.raises(Rejected, match=cause):
        registry.create("odd-dns", "zone", {}, CONTEXT)


def test_two_packages_with_one_type_are_refused_by_name(install: Install) -> None:
    install("first_names", "twice-dns", "first_names:Names")
    install("second_names", "twice-dns", "second_names:Names")
    with pytest.raises(Rejected, match="by package first_names and package second_names"):
        registry.settings_model("twice-dns")


def test_a_built_in_type_cannot_be_shadowed(install: Install) -> None:
    install("shadow", "file", "shadow:Names")
    assert registry.settings_model("file") == (Role.ENDPOINTS, FileSettings)
    assert isinstance(registry.create("file", "edge", {}, CONTEXT), FileEndpoints)
    assert registry.known_types().count("file") == 1


def test_the_registry_alone_imports_no_provider() -> None:
    program = (
        "import sys, providers.registry; print(*sorted(m for m in sys.modules if m.startswith(('dns', 'providers.'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    contract = [
        "providers.actions",
        "providers.capabilities",
        "providers.errors",
        "providers.facts",
        "providers.registry",
        "providers.spi",
    ]
    assert done.stdout.split() == contract
