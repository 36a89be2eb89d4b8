"""The shop of the example dies at every moment, and ships, or refunds, each order once."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.order_fulfilment import fakes, shop
from onceward.testing import AppInTest, Outside, crash_matrix, delivery, emitted

PAID = delivery("stripe", "checkout.session.completed", set={"data.object.client_reference_id": "A-1"})
HANDED_OVER = emitted("parcel.handed_over", subject="parcel of A-1")


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "DATABASE", tmp_path / "shop.db")


def begin_anew() -> None:
    shop.DATABASE.unlink(missing_ok=True)


@pytest.mark.parametrize("is_on_postgres", [False, True])
def test_an_order_is_claimed_charged_and_shipped_once(
    is_on_postgres: bool, request: pytest.FixtureRequest
) -> None:
    outside = Outside()
    fakes.services(outside)

    report = crash_matrix(
        shop.app,
        shop.fulfil,
        [PAID, HANDED_OVER],
        outside=outside,
        again=PAID.under_new_id(),
        fresh=begin_anew,
        store=request.getfixturevalue("postgres_dsn") if is_on_postgres else None,
    )

    report.assert_safe()
    assert {(effect, times) for _, effect, times in report.effects} == {
        ("rows of claim", 1),
        (f"POST {shop.PAYMENTS}/charges", 1),
        (f"POST {shop.WAREHOUSE}/parcels", 1),
        (f"POST {shop.MAIL}/letters", 1),
    }


def test_an_order_that_is_sold_out_is_undone_once() -> None:
    outside = Outside()
    fakes.services(outside, is_sold_out=True)

    report = crash_matrix(shop.app, shop.fulfil, PAID, outside=outside, ends="failed", fresh=begin_anew)

    report.assert_safe()
    assert ("charge (undo)", f"POST {shop.PAYMENTS}/charges/*/refund", 1) in report.effects
    assert shop.connect().execute("select count(*) from claim").fetchone() == (0,)


def test_an_order_takes_its_time() -> None:
    outside = Outside()
    fakes.services(outside)

    with AppInTest(shop.app, outside=outside) as test:
        test.send(PAID, PAID)
        assert outside.count(f"POST {shop.WAREHOUSE}/parcels") == 0
        test.advance("3h")
        assert outside.count(f"POST {shop.MAIL}/letters") == 0
        test.send(HANDED_OVER)
        assert test.wait(test.run("fulfil").result()) == "parcel of A-1"


def test_a_parcel_that_is_never_handed_over_is_paid_back() -> None:
    outside = Outside()
    fakes.services(outside)

    with AppInTest(shop.app, outside=outside) as test:
        test.send(PAID)
        test.advance("15d")
        assert test.runs("fulfil")[0].state == "failed"
        assert outside.count(f"POST {shop.PAYMENTS}/charges/*/refund") == 1
