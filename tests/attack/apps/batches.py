"""A shop whose tills send what they sold in batches."""

from ledger import note

from onceward import App, Context, Event
from onceward.core.arrival import Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.sources import Source
from onceward.sources.base import parse_json
from onceward.sources.signing import hex_hmac, matching_secret, sole_header

app = App()


class Till(Source):
    """Signs a list of sales."""

    kind = "till"
    is_batching = True

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        given = sole_header(request, "X-Till-Signature")
        return Verified(matching_secret(self.secrets, request.body, [given]))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        return [Incoming(id=sale["id"], type="sold", payload=sale) for sale in parse_json(request.body)]

    def sign(self, body: bytes, now_ms: int, **_: object) -> dict[str, str]:
        return {"X-Till-Signature": hex_hmac(self.signing_key(), body).decode()}


till = app.source(Till(secrets="a secret of the till"))


@app.workflow(on=till["sold"])
async def sold(ctx: Context, event: Event) -> str:
    async def book() -> str:
        note("book", event.id)
        return event.id

    return await ctx.step.run("book", book)
