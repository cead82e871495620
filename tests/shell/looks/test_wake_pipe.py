import asyncio
import stat

from reconciler.shell.looks.triggers import Wake
from reconciler.shell.looks.wake_pipe import FILE, wake_holder, wake_pipe


def test_a_wake_up_reaches_the_holder_and_fails_without_one(tmp_path):
    async def body() -> None:
        wake = Wake()
        with wake_pipe(tmp_path, wake):
            assert wake_holder(tmp_path) is True
            await asyncio.wait_for(wake.event.wait(), 60)
            assert wake.take() == ("a command arrived",)
        assert wake_holder(tmp_path) is False

    asyncio.run(body())
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_many_wake_ups_do_not_block_and_cause_one_wake(tmp_path):
    async def body() -> None:
        wake = Wake()
        with wake_pipe(tmp_path, wake):
            assert all(wake_holder(tmp_path) for _ in range(70_000))
            await asyncio.wait_for(wake.event.wait(), 60)

    asyncio.run(body())


def test_a_file_in_place_of_the_pipe_stays_unchanged_and_is_reported(tmp_path, caplog):
    (tmp_path / FILE).write_text("a file")

    async def body() -> None:
        with wake_pipe(tmp_path, Wake()):
            assert wake_holder(tmp_path) is False

    asyncio.run(body())
    assert (tmp_path / FILE).read_text() == "a file"
    assert "not a pipe" in caplog.text
