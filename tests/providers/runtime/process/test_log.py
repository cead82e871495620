"""The log of a replica."""

from providers.runtime.process.log import LIMIT, tail
from tests.providers.runtime.process.bench import python


def test_the_log_keeps_the_newest_output_within_its_limit(bench):
    code = "import sys\nfor n in range(60000): sys.stdout.write(f'line {n:06} ' + 'x' * 40 + '\\n')"
    argv = list(python(code))
    argv.remove("-u")
    fact = bench.ended(bench.run(*argv))
    files = [bench.directory(fact) / name for name in ("log", "log.1")]
    assert LIMIT // 2 < sum(path.stat().st_size for path in files) <= LIMIT
    lines = bench.runtime().logs(fact.name, 3)
    assert [line[:11] for line in lines] == ["line 059997", "line 059998", "line 059999"]
    assert fact.exit_code == 0


def test_log_lines_come_from_both_files_oldest_first(tmp_path):
    (tmp_path / "log.1").write_bytes(b"one\ntwo\n")
    (tmp_path / "log").write_bytes(b"three\nfour \xff\n")
    assert tail(str(tmp_path), 3) == ("two", "three", "four \ufffd")
    assert tail(str(tmp_path), 9) == ("one", "two", "three", "four \ufffd")
    assert tail(str(tmp_path), 1) == ("four \ufffd",)
    assert tail(str(tmp_path), 0) == ()
