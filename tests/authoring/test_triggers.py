"""What a workflow may be on: what would never start it is refused when it is registered."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import App, ConfigError, Context, Event
from onceward.core.triggers import OWN, Trigger
from onceward.sources import Stripe


def make_app() -> tuple[App, Stripe]:
    app = App("sqlite:///:memory:")
    return app, app.source(Stripe(secrets="whsec_c2VjcmV0"))


async def flow(ctx: Context, event: Event) -> None: ...


@pytest.mark.parametrize("on", ["stripe.charge.succeeded", "stripe.*", "stripe", ["other", "stripe.x"]])
@pytest.mark.parametrize("is_source_first", [True, False])
def test_a_text_that_begins_with_a_sources_name_says_what_to_write(on: Any, is_source_first: bool) -> None:
    app = App("sqlite:///:memory:")

    def add_source() -> None:
        app.source(Stripe(secrets="whsec_c2VjcmV0"))

    def add_workflow() -> None:
        app.workflow(on=on)(flow)

    first, second = (add_source, add_workflow) if is_source_first else (add_workflow, add_source)
    first()

    with pytest.raises(ConfigError, match=r'Write on=stripe\["[a-z.*]+"\], without quotes') as refused:
        second()

    assert "begins with the name of a source" in refused.value.what


def test_a_source_without_a_type_says_what_to_write() -> None:
    app, stripe = make_app()

    for on in (stripe, [stripe], (stripe["a"], stripe)):
        with pytest.raises(ConfigError, match="on the source 'stripe', without a type") as refused:
            app.workflow(on=on)(flow)  # type: ignore[arg-type]

        assert 'on=stripe["invoice.paid"]' in refused.value.todo


@pytest.mark.parametrize("on", [7, b"order.paid", [None], {"stripe": "x"}, Stripe, object()])
def test_what_is_no_trigger_at_all_is_refused(on: Any) -> None:
    app, _ = make_app()

    with pytest.raises(ConfigError, match="cannot be on"):
        app.workflow(on=on)(flow)

    assert app.workflows == {}


@pytest.mark.parametrize(
    "on", ["order.paid", "stripes.paid", ["a.b", "a.*"], Trigger(OWN, "stripe.synced"), (), None]
)
def test_what_can_start_it_is_accepted(on: Any) -> None:
    app, stripe = make_app()

    app.workflow(on=on)(flow)
    app.workflow(on=stripe["charge.*"], name="other")(flow)

    assert len(app.workflows) == 2
