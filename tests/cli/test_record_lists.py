"""A zone in one document, from the manifests to the file of the zone and back."""

from pathlib import Path

TREE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: small}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: zone}
spec: {type: zonefile}
---
apiVersion: reconciler/v1
kind: RecordList
metadata: {name: all}
spec:
  zone: example.test
  names:
    www.example.test: {CNAME: n0.example.test}
"""


def tree(directory: Path, count: int) -> Path:
    directory.mkdir(exist_ok=True)
    names = "".join(f"    n{index}.example.test: {{A: 192.0.2.{index}}}\n" for index in range(count))
    (directory / "all.yaml").write_text(TREE + names)
    return directory


def test_a_record_list_is_planned_set_by_set_and_applied(home: Path, tmp_path: Path, reconcile) -> None:
    path = str(tree(tmp_path / "manifests", 20))
    planned = reconcile("plan", path)
    assert "[] 1 recordlist/all: records 20 record sets of example.test. in zone" in planned.out
    assert planned.out.count(".example.test. A nothing -> 192.0.2.") == 20
    assert reconcile("plan", path, "-o", "json").document["steps"][0]["changes"][0].startswith("n0.example.test. A")

    assert reconcile("apply", path, "--yes").code == 0
    again = reconcile("plan", path)
    assert "nothing to do" in again.out
    assert "with 1 provider, 1 record list" in reconcile("validate", path).out

    tree(tmp_path / "manifests", 19)
    assert "n19.example.test. A 192.0.2.19 ttl 300 -> nothing" in reconcile("plan", path).out
    assert reconcile("apply", path, "--yes").code == 0
    assert "nothing to do" in reconcile("plan", path).out
