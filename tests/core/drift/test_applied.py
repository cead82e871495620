"""Which documents are moving: by what they declare, and neither by where they stand nor by how they are written."""

from pathlib import Path

from manifests.values.desired import Desired
from reconciler import tree
from reconciler.core.drift import applied
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from tests.manifests.trees import INSTANCE, write

PROVIDER = "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: local}\nspec: {type: process}\n"
WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web, tier: front}}
    spec:
      containers: [{name: a, command: [serve], env: [{name: A, value: "1"}]}]
"""
API = WEB.replace("name: web", "name: api").replace("app: web", "app: api")


def desired(base: Path, files: dict[str, str]) -> Desired:
    for file in base.glob("*.yaml"):
        file.unlink()
    write(base, {"instance.yaml": INSTANCE, "local.yaml": PROVIDER, **files})
    return tree.load(base)


def settled(made: Desired) -> Ledger:
    """The ledger of a world that has converged to these manifests."""
    begun = applied.begin(made, Ledger())
    assert begun.moving == {workload.key for workload in made.workloads}
    rows = {workload.key: applied.declaration(workload, {}) for workload in made.workloads}
    return Ledger(applied=rows, applied_of=made.revision)


def test_a_comment_another_order_or_another_file_moves_nothing(tmp_path):
    tmp_path.joinpath("t").mkdir()
    ledger = settled(desired(tmp_path / "t", {"web.yaml": WEB, "api.yaml": API}))
    written_otherwise = {
        "one.yaml": f"# first\n{API}---\n\n# and now the other\n"
        + WEB.replace("{app: web, tier: front}", "{tier: front, app: web}").replace('"1"', "'1'")
    }
    after = applied.begin(desired(tmp_path / "t", written_otherwise), ledger)
    assert after.moving == frozenset()


def test_only_the_document_that_declares_something_else_is_moving(tmp_path):
    tmp_path.joinpath("t").mkdir()
    ledger = settled(desired(tmp_path / "t", {"web.yaml": WEB, "api.yaml": API}))
    for change in ("replicas: 3", "replicas: 2\n  nodes: [local]\n  rollout: {strategy: recreate}"):
        edited = {"web.yaml": WEB.replace("replicas: 2", change), "api.yaml": API}
        after = applied.begin(desired(tmp_path / "t", edited), ledger)
        assert after.moving == {"workload/web"}
    after = applied.begin(desired(tmp_path / "t", {"web.yaml": WEB}), ledger)
    assert (after.moving, after.applied.keys()) == (frozenset(), {"workload/web"})


def test_the_rows_come_back_from_the_store(tmp_path):
    tmp_path.joinpath("t").mkdir()
    made = desired(tmp_path / "t", {"web.yaml": WEB})
    ledger = applied.begin(made, Ledger())
    assert from_rows(to_rows(ledger)) == ledger
    assert from_rows(to_rows(settled(made))) == settled(made)
