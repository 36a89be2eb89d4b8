"""What a workflow's function is called with, for each way in which its run came about."""

from __future__ import annotations

import pytest

from onceward import App, Context, Event
from onceward.authoring.event import Event as SeenEvent
from onceward.core.model import EventRow

app = App("sqlite:///:memory:")


@app.workflow(on="order.paid")
async def keep(ctx: Context, payload: dict[str, str]) -> dict[str, str]:
    return payload


@app.workflow(on="order.paid")
async def watch(ctx: Context, event: Event) -> str:
    return event.id


def event(source: str, type_: str, payload: str, event_id: str = "1") -> SeenEvent:
    return SeenEvent(EventRow(source=source, id=event_id, type=type_, payload=payload, received_at=0))


@pytest.mark.parametrize(
    ("source", "event_id", "type_", "payload"),
    [
        ("emit/order.paid", "1", "order.paid", '{"order":"A-1"}'),
        ("run/run_1", '[1,"tell","",1]', "order.paid", '{"order":"A-1"}'),
        ("run/run_1", '[1,"body","",1,2]', "keep", '{"order":"A-1"}'),  # emitted with the workflow's name
        ("start/keep", "1", "keep", '{"args":[{"order":"A-1"}]}'),
        ("run/run_1", '[1,"call","",1,"start"]', "keep", '{"args":[],"kwargs":{"payload":{"order":"A-1"}}}'),
    ],
)
def test_an_event_and_a_start_give_the_function_the_same_argument(
    source: str, event_id: str, type_: str, payload: str
) -> None:
    args, kwargs = keep.unpack(event(source, type_, payload, event_id))

    assert [*args, *kwargs.values()] == [{"order": "A-1"}]


def test_a_function_that_takes_the_event_gets_it() -> None:
    seen = event("run/run_1", "order.paid", "null")

    assert watch.unpack(seen) == ((seen,), {})
