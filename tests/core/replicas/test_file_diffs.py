"""What a plan shows of files that differ: digests always, lines only of short texts without secrets."""

from reconciler.core.replicas import file_diffs
from reconciler.core.replicas.file_diffs import ALL_LINES, LINES, LONGEST_LINES, LONGEST_TEXT, FileDiff

NO_END = "\\ No newline at end of file"


def compare(before: dict[str, bytes], after: dict[str, bytes], secret: bytes = b"KEY") -> tuple[FileDiff, ...]:
    old, new = ({name: (data, False) for name, data in side.items()} for side in (before, after))
    return file_diffs.compare(
        "workload/web", "conf", "rollout", old, new, lambda data: "a key" if secret in data else ""
    )


def test_changed_lines_are_shown_with_the_lines_around_them() -> None:
    (diff,) = compare({"a": b"1\n2\n3\n4\n5\n", "same": b"x"}, {"a": b"1\n2\n3\nfour\n5\n", "same": b"x"})
    assert diff.lines == ("@@ -2,4 +2,4 @@", " 2", " 3", "-4", "+four", " 5")
    head, *rest = file_diffs.to_lines([diff])
    assert head.startswith("file workload/web: volume conf: a: ")
    assert head.endswith("; new containers replace those that run")
    assert rest == [f"    {line}" for line in diff.lines]


def test_the_end_of_a_file_is_no_line_of_its_own() -> None:
    (diff,) = compare({"a": b"level: 1\n"}, {"a": b"level: 2\n"})
    assert diff.lines == ("@@ -1 +1 @@", "-level: 1", "+level: 2")
    (diff,) = compare({"a": b"1\n"}, {"a": b"1"})
    assert diff.lines == ("@@ -1 +1 @@", "-1", "+1", NO_END)


def test_new_and_removed_files_have_one_digest() -> None:
    removed, new = compare({"a": b"1"}, {"b": b"2"})
    assert (bool(removed.before), removed.after, removed.lines) == (True, "", ("@@ -1 +0,0 @@", "-1", NO_END))
    assert (new.before, bool(new.after), new.lines) == ("", True, ("@@ -0,0 +1 @@", "+2", NO_END))
    assert "(none)" in file_diffs.to_lines([new])[0]
    assert file_diffs.to_json([new])[0]["before"] is None


def test_secrets_binaries_and_long_files_show_only_their_digests() -> None:
    hidden = {
        "binary": (b"\xff", b"\xfe"),
        "nul": (b"a\0", b"b\0"),
        "secret-before": (b"KEY hunter2", b"x"),
        "secret-after": (b"x", b"KEY hunter2"),
        "long": (b"x" * LONGEST_TEXT, b"x" * (LONGEST_TEXT + 1)),
        "lines": (b"\n" * LONGEST_LINES, b"\n" * (LONGEST_LINES + 1)),
        "many": (b"\n".join(b"%d" % n for n in range(LINES)), b""),
    }
    diffs = compare({name: old for name, (old, _) in hidden.items()}, {name: new for name, (_, new) in hidden.items()})
    assert [(diff.lines, diff.why.startswith("not shown: ")) for diff in diffs] == [((), True)] * len(hidden)
    assert all(diff.before and diff.after for diff in diffs)
    assert "hunter2" not in f"{file_diffs.to_lines(diffs)}{file_diffs.to_json(diffs)}"


def test_a_mode_that_differs_is_said() -> None:
    (diff,) = file_diffs.compare("workload/web", "c", "signal", {"a": (b"1", False)}, {"a": (b"1", True)}, lambda _: "")
    assert (diff.before, diff.why) == (diff.after, "it may be executed now")


def test_all_differences_of_a_plan_are_bounded() -> None:
    text = b"\n".join(b"%d" % n for n in range(39)) + b"\n"
    number = ALL_LINES // 40 + 5
    diffs = file_diffs.bounded(compare({}, {f"{index:03}": text for index in range(number)}))
    assert len(diffs) == number
    assert sum(len(diff.lines) for diff in diffs) <= ALL_LINES
    assert diffs[-1].why == "not shown: the plan is long"
