"""Files that workloads refer to come from the commit that their manifests come from."""

import os
from pathlib import Path

import pytest

from reconciler.git.reader import GitReader
from tests.git.upstream import Upstream

WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  template:
    spec:
      containers:
        - name: web
          image: app:1
          envFile: [app.env]
          volumeMounts: [{name: conf, mountPath: /etc/app}]
      volumes:
        - name: conf
          files: {from: conf}
"""


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit(
        {"set/web.yaml": WEB, "set/conf/app.conf": "level info\n", "set/app.env": "A=1\n", "set/notes.txt": "x\n"}
    )
    return made


@pytest.fixture
def reader(tmp_path: Path, upstream: Upstream) -> GitReader:
    return upstream.reader(tmp_path, "//set?ref=main")


def contents(reader: GitReader) -> dict[str, dict[str, bytes]]:
    reader.hurry()
    return {found.path: {file.name: file.data for file in found.files} for found in reader.read().tree.sets}


def test_a_set_has_the_files_that_it_refers_to_and_no_others(reader: GitReader) -> None:
    assert contents(reader) == {"app.env": {"": b"A=1\n"}, "conf": {"app.conf": b"level info\n"}}
    assert not os.path.exists(os.path.join(reader.read().tree.root, "notes.txt"))


def test_a_commit_that_changes_only_such_a_file_is_a_new_revision(reader: GitReader, upstream: Upstream) -> None:
    before = reader.read()
    upstream.commit({"set/notes.txt": "y\n"})
    assert contents(reader)["conf"] == {"app.conf": b"level info\n"}
    assert reader.read().state == before.state
    upstream.commit({"set/conf/app.conf": "level debug\n"})
    assert contents(reader)["conf"] == {"app.conf": b"level debug\n"}
    assert reader.read().state != before.state


def test_a_file_that_goes_is_reported_as_missing_and_may_come_back(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({"set/app.env": None})
    reader.hurry()
    (gone,) = [found for found in reader.read().tree.sets if found.path == "app.env"]
    assert gone.missing
    upstream.commit({"set/app.env": "A=2\n"})
    assert contents(reader)["app.env"] == {"": b"A=2\n"}
