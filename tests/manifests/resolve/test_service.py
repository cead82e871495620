"""Services: the workloads that they select, the addresses of their endpoints, and their pools."""

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict

from manifests.load import load
from manifests.problems import Code
from manifests.values.desired import AddressFrom, Role
from tests.manifests.trees import (
    GOOD,
    SERVICE,
    WORKLOAD,
    known_types,
    load_files,
    networked,
    problems_of,
    settings_model,
    write,
)


def test_a_service_selects_every_workload_with_its_labels(tmp_path: Path) -> None:
    more = WORKLOAD.replace("name: web", "name: api", 1).replace("{app: web}", "{app: web, tier: api}")
    files = GOOD | {
        "api.yaml": more.replace("8080", "9090"),
        "api-service.yaml": SERVICE.replace("name: web", "name: api")
        .replace("{app: web}", "{app: web, tier: api}")
        .replace("be_web", "be_api"),
    }

    value = load_files(tmp_path, files)

    assert value.services_of == {
        "workload/api": (("service/api", 9090), ("service/web", 9090)),
        "workload/web": (("service/web", 8080),),
    }


def test_endpoints_have_the_containers_own_addresses_by_default(tmp_path: Path):
    (service,) = load_files(tmp_path, networked()).services
    assert (service.address_from, service.network) == (AddressFrom.CONTAINER, "")


def test_an_address_may_be_in_a_network_or_of_the_host(tmp_path: Path):
    (service,) = load_files(tmp_path / "a", networked(address="{from: container, network: back}")).services
    assert (service.address_from, service.network) == (AddressFrom.CONTAINER, "back")
    (service,) = load_files(tmp_path / "b", networked(port=", hostPort: 80", address="{from: host}")).services
    assert service.address_from is AddressFrom.HOST


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{from: host}", "port http of workload/web is not published on its host"),
        ("{from: container, network: other}", "workload/web is not in network 'other'"),
        ("{from: host, network: edge}", "network does nothing with from: host"),
        ("{from: somewhere}", "expected one of container, host"),
    ],
)
def test_an_address_that_balancers_cannot_reach_is_refused(tmp_path: Path, address, message):
    problems = problems_of(tmp_path, networked(address=address))
    assert any(message in problem.message for problem in problems), problems


def test_two_services_cannot_share_a_pool(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, GOOD | {"z.yaml": SERVICE.replace("name: web", "name: zzz")})

    assert [(problem.code, problem.path) for problem in problems] == [(Code.CONFLICT, "spec.balancers[0].pool")]
    assert "service.yml:1:1" in problems[0].message


class _Slotted(BaseModel):
    model_config = ConfigDict(extra="allow")

    takes_slots: ClassVar[bool] = True


def test_slots_are_part_of_the_pool_where_the_provider_has_slots(tmp_path: Path) -> None:
    text = SERVICE.replace("pool: be_web", "pool: be_web, slots: web")
    path = write(tmp_path, GOOD | {"service.yml": text})

    def models(name: str) -> tuple[Role, type[BaseModel]] | None:
        known = settings_model(name)
        return (Role.ENDPOINTS, _Slotted) if known is not None and known[0] is Role.ENDPOINTS else known

    value = load(path, settings_model=models, known_types=known_types)

    assert value.services[0].balancers[0].pool == "be_web:web"


def test_slots_are_refused_where_the_provider_has_none(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path, GOOD | {"service.yml": SERVICE.replace("pool: be_web", "pool: be_web, slots: web")}
    )

    assert [(problem.code, problem.path) for problem in problems] == [(Code.BAD_VALUE, "spec.balancers[0].slots")]
