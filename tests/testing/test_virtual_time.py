"""Time that jumps."""

import asyncio

import pytest

from moorage.testing.virtual_time import StalledError, run_virtually


def test_virtual_hours_pass_instantly_and_in_order():
    seen = []

    async def sleeper(seconds):
        await asyncio.sleep(seconds)
        seen.append((seconds, asyncio.get_running_loop().time()))

    async def main():
        await asyncio.gather(*(sleeper(seconds) for seconds in (7200, 1, 3600)))

    run_virtually(main())
    assert [seconds for seconds, _ in seen] == [1, 3600, 7200]
    assert [at for _, at in seen] == pytest.approx([1, 3600, 7200])


def test_a_time_limit_ends_a_wait():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == pytest.approx(60)


def test_waiting_without_a_timer_is_an_error():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(StalledError):
        run_virtually(main())
