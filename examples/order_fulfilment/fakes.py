"""The services that the shop uses, as tests know them."""

from __future__ import annotations

from examples.order_fulfilment import shop
from onceward.testing import Answer, Asked, Outside


def services(outside: Outside, *, is_sold_out: bool = False) -> None:
    """Say what they answer, and watch the shop's table.

    Args:
        outside: of the test.
        is_sold_out: the warehouse refuses every parcel.
    """

    def booked(asked: Asked) -> Answer:
        return Answer(409, "sold out") if is_sold_out else Answer(201, f"parcel of {asked.json()['order']}")

    def parcels(_asked: Asked) -> list[str]:
        return ["parcel of A-1"] * outside.count(f"POST {shop.WAREHOUSE}/parcels")

    outside.http.post(f"{shop.PAYMENTS}/charges", {"id": "ch_1"})
    outside.http.post(f"{shop.PAYMENTS}/charges/*/refund", {"id": "re_1"})
    outside.http.post(f"{shop.WAREHOUSE}/parcels", booked, knows_keys=False)
    outside.http.get(f"{shop.WAREHOUSE}/parcels", parcels)
    outside.http.post(f"{shop.MAIL}/letters", {})
    outside.table(shop.connect, "claim")
