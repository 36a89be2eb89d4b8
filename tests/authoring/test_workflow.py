"""What a workflow's function is called with, for each way in which its run came about."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import App, ConfigError, Context, Event, Retry, StepMisuse, SyncContext
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


async def takes_nothing() -> None: ...


async def takes_the_event_first(event: Event) -> None: ...


async def takes_an_argument_first(order: str) -> None: ...


async def takes_a_mapping_first(lines: dict[str, int]) -> None: ...


async def takes_the_plain_context(ctx: SyncContext) -> None: ...


def takes_the_async_context(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "fault", "right"),
    [
        (takes_nothing, "takes no parameters", "async def takes_nothing(ctx: Context"),
        (takes_the_event_first, "'event', of type Event", "(ctx: Context, …)"),
        (takes_an_argument_first, "'order', of type str", "(ctx: Context, …)"),
        (takes_a_mapping_first, "'lines', of type dict", "(ctx: Context, …)"),
        (takes_the_plain_context, "an async function and takes a SyncContext", "(ctx: Context, …)"),
        (
            takes_the_async_context,
            "a plain function and takes a Context",
            "`def takes_the_async_context(ctx: SyncContext",
        ),
    ],
)
def test_a_function_that_would_take_the_context_for_something_else_is_refused(
    function: Any, fault: str, right: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        app.workflow(function)

    assert fault in str(refused.value)
    assert right in str(refused.value)
    assert function.__name__ not in app.workflows


@pytest.mark.parametrize("annotation", ["Context", "onceward.Context", Context, Any, object])
def test_a_function_that_may_take_the_context_is_accepted(annotation: object) -> None:
    async def fine(ctx: object, order: str) -> str:
        return order

    fine.__annotations__["ctx"] = annotation

    assert App("sqlite:///:memory:").workflow(fine).name == "fine"


@pytest.mark.parametrize("decorate", [app.step, app.workflow])
@pytest.mark.parametrize(
    ("retry", "right"), [(5, "max_tries=5"), ("often", "max_tries=3"), (None, "max_tries=3")]
)
def test_a_retry_that_is_no_policy_is_refused_before_anything_fails(
    decorate: Any, retry: object, right: str
) -> None:
    with pytest.raises(ConfigError, match=right):
        decorate(retry=retry)(takes_nothing)


def test_a_retry_is_accepted() -> None:
    assert app.step(retry=Retry(max_tries=5))(takes_nothing).options.retry.max_tries == 5


def test_a_workflow_that_is_called_as_a_function_says_what_to_write() -> None:
    with pytest.raises(StepMisuse, match=r"ctx\.step\.call\(name, keep, …\).*app\.start\(keep, …\)"):
        keep("a")  # type: ignore[operator]
