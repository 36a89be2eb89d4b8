"""What a look leads to: the next claim in time, and no run taken for lost that only came and went."""

from __future__ import annotations

import pytest

from onceward import App, Context, RunHandle, RunState
from onceward.core.ports import Owned
from onceward.runtime.looking import Looking
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async

ALONE = {"poll": "10s", "notify": "off"}
"""No look of its own accord disturbs these tests."""


async def is_in(run: RunHandle[None], state: RunState) -> bool:
    return await run.state() is state


class Owns:
    """Says to a worker's looks what it owns, and hears what it gives back."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: dict[str, Owned] = {}
        self.given_back: list[str] = []
        self._looking: Looking = app.worker.looking
        monkeypatch.setattr(app.worker.store, "owned", lambda process_id: dict(self.runs))
        monkeypatch.setattr(self._looking, "give_back", self._hear)

    async def _hear(self, run_ids: list[str]) -> None:
        self.given_back += run_ids

    async def look(self) -> None:
        await self._looking._adopt()


def test_a_run_whose_claim_was_lost_is_given_back(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(store_url, **ALONE)

    async def scenario() -> None:
        owns = Owns(app, monkeypatch)
        owns.runs = {"run_lost": Owned(is_woken=False, fence=1)}

        await owns.look()
        assert owns.given_back == []  # its batch may be under way
        await owns.look()
        assert owns.given_back == ["run_lost"]

    run_app(app, scenario)


def test_a_claim_that_is_another_is_waited_for_anew(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(store_url, **ALONE)

    async def scenario() -> None:
        owns = Owns(app, monkeypatch)
        for fence in range(1, 5):
            owns.runs = {"run_busy": Owned(is_woken=False, fence=fence)}
            await owns.look()
        assert owns.given_back == []

    run_app(app, scenario)


def test_a_run_that_came_and_went_is_not_taken_for_lost(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look's answer may be older than the end of the run."""
    app = make_app(store_url, **ALONE)

    @app.workflow
    async def brief(ctx: Context) -> None:
        await ctx.step.wait_for("word", "word", subject="me", timeout="1h")

    async def scenario() -> None:
        owns = Owns(app, monkeypatch)
        run = await app.start(brief)
        await eventually_async(lambda: is_in(run, RunState.WAITING), what="the run waits")
        owns.runs = {run.run_id: Owned(is_woken=False, fence=2)}
        await owns.look()

        await app.emit("word", {}, subject="me")
        await run.result()
        await owns.look()

        assert owns.given_back == []

    run_app(app, scenario)


def test_a_batch_that_began_during_the_look_is_waited_for(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the one that claimed what the look saw."""
    app = make_app(store_url, **ALONE)

    async def scenario() -> None:
        owns = Owns(app, monkeypatch)
        committer = app.worker.committer

        def owned(process_id: str) -> dict[str, Owned]:
            committer.batches += 1
            return {"run_new": Owned(is_woken=False, fence=1)}

        monkeypatch.setattr(app.worker.store, "owned", owned)
        await owns.look()
        await owns.look()
        assert owns.given_back == []
        committer.settled = committer.batches
        await owns.look()
        assert owns.given_back == ["run_new"]

    run_app(app, scenario)


@pytest.mark.parametrize("took_last", [False, True])
def test_a_look_follows_a_claim_that_followed_another(store_url: str, took_last: bool) -> None:
    """The first took all there was, and what became due meanwhile led to a second that found nothing."""
    app = make_app(store_url, **ALONE)

    async def scenario() -> None:
        looking = app.worker.looking
        looking._is_wanted, looking._is_look_claimed = False, True

        looking.claimed(took_some=True, is_last=False)
        assert not looking._is_wanted
        looking.claimed(took_some=took_last, is_last=True)

        assert looking._is_wanted

    run_app(app, scenario)
