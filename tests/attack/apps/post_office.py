"""An app that takes Mailgun's events, whose signatures cover nothing of them."""

from onceward import App, Context, Event
from onceward.sources import Mailgun

app = App()
mail = app.source(Mailgun(secrets="a signing key of the post office"))


@app.workflow(on=mail["*"])
async def note(ctx: Context, event: Event) -> str:
    return event.id
