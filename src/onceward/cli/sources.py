"""``onceward sources``: which senders are known, how each is configured, where its docs are."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from datetime import timedelta

    from onceward.sources.base import Source

# Every source has these; they are not told again for each.
_COMMON = ("self", "name", "secrets", "insecure")


@click.command("sources", short_help="List the senders that are known, or tell of one.")
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list, or the one as an object.")
def command(kind: str | None, as_json: bool) -> None:
    """List the kinds of sources, or tell of one: scheme, options, example deliveries.

    The secrets of a source are those of its provider's page; several are listed during a rotation.
    """
    from onceward.sources import kinds, source_class

    if kind is not None:
        told = facts(source_class(kind))
        click.echo(json.dumps(told, indent=2) if as_json else _page(told, source_class(kind)))
        return
    rows = [facts(source_class(known)) for known in kinds()]
    click.echo(json.dumps(rows, indent=2) if as_json else _table(rows))


def facts(source: type[Source]) -> dict[str, Any]:
    """Give what a class of sources says of itself, as JSON."""
    from onceward.core.duration import show
    from onceward.sources.fixture import fixtures_of

    def length(value: timedelta | None) -> str | None:
        return None if value is None else show(round(value.total_seconds() * 1000))

    parameters = inspect.signature(source.__init__).parameters
    return {
        "kind": source.kind,
        "class": f"onceward.sources.{source.__name__}",
        "scheme": _scheme(source),
        "handshake": source.handshake_phase if _asks(source) else None,
        "is_batching": source.is_batching,
        "is_ordered": source.is_ordered,
        "retry_horizon": length(source.retry_horizon),
        "retry_docs": source.retry_docs or None,
        "reply_deadline": length(source.reply_deadline),
        "options": {
            name: None if one.default is inspect.Parameter.empty else _default(source, one)
            for name, one in parameters.items()
            if name not in (*_COMMON, *_unused(source)) and one.kind is inspect.Parameter.KEYWORD_ONLY
        },
        "examples": list(fixtures_of(source.kind)),
        "docs_url": source.docs_url,
        "docs_date": source.docs_date or None,
    }


def _unused(source: type[Source]) -> frozenset[str]:
    from onceward.sources.generic import Generic

    return source.options_unused() if issubclass(source, Generic) else frozenset()


def _asks(source: type[Source]) -> bool:
    """Say whether the provider asks questions."""
    from onceward.sources.base import Source as Base
    from onceward.sources.generic import Generic

    if issubclass(source, Generic) and source.handshake is Generic.handshake:
        return source.scheme_default is not None and bool(source.scheme_default.handshake)
    return source.handshake is not Base.handshake


def _scheme(source: type[Source]) -> str:
    """Give the first sentence of its module without the provider's name, which is told anyway.

    A described kind has no module of its own, and its description says it.
    """
    from onceward.sources.described.scheme import in_words
    from onceward.sources.generic import Generic

    if issubclass(source, Generic) and source.scheme_default is not None:
        return in_words(source.scheme_default)
    text = import_module(source.__module__).__doc__ or ""
    first = " ".join(text.partition("\n\n")[0].split()).replace("``", "")
    _, colon, rest = first.partition(": ")
    return (rest if colon else first).removesuffix(".")


def _default(source: type[Source], parameter: inspect.Parameter) -> str:
    """Give what holds when the option is left out, as text."""
    from datetime import timedelta

    from onceward.core.duration import show

    default = parameter.default
    if default is None:  # a class may say what stands for it
        default = getattr(source, f"{parameter.name}_default", None)
    if isinstance(default, timedelta):
        return show(round(default.total_seconds() * 1000))
    return "none" if default in (None, (), "") else str(default)


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("KIND", "ASKS", "BATCH", "RETRIES", "REPLY IN", "OPTIONS")
    cells = [head] + [
        (
            row["kind"],
            row["handshake"] or "-",
            "yes" if row["is_batching"] else "-",
            _retries(row),
            row["reply_deadline"] or "?",
            " ".join(row["options"]) or "-",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head) - 1)]
    lines = [
        "  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]]) for line in cells
    ]
    about = "?: not known; ~: no page of the sender's was found that says so"
    return "\n".join([*lines, "", about, "One of them: onceward sources KIND"])


def _retries(told: dict[str, Any]) -> str:
    """Give how long the provider tries again, and whether a page of its own says so."""
    return f"{'' if told['retry_docs'] else '~'}{told['retry_horizon']}" if told["retry_horizon"] else "?"


def _options(options: dict[str, str | None]) -> str:
    texts = [f"{name}=…" if default is None else f"{name}={default}" for name, default in options.items()]
    return " ".join(texts) or "-"


def _for_people(about: Sequence[str]) -> Iterator[str]:
    """Give the lines of a docstring as they are read here: without marks, and what every source has."""
    for line in about:
        said = re.sub(r"see `\w+`[;:,.]? ?", "", line)
        if said == line or not said.rstrip().endswith(":"):
            yield said.replace("Args:", "Options:").replace("`", "")


def _page(told: dict[str, Any], source: type[Source]) -> str:
    about = inspect.getdoc(source) or ""
    horizon, deadline = told["retry_horizon"], told["reply_deadline"] or "not known"
    said = told["retry_docs"] or "no page of the sender's was found that says so"
    lines = [
        f"{told['kind']}: {about.partition(chr(10))[0]}",
        "",
        f"  scheme      {told['scheme']}",
        f"  asks        {told['handshake'] or 'nothing'}",
        f"  batches     {'yes' if told['is_batching'] else 'no'}",
        f"  retries     {f'{horizon} ({said})' if horizon else 'none published'}",
        f"  reply in    {deadline}",
        f"  options     {_options(told['options'])}",
        f"  docs        {told['docs_url']}" + (f" ({told['docs_date']})" if told["docs_date"] else ""),
        f"  in code     {told['class']}(secrets=[…])",
        f'  by name     onceward.sources.create("{told["kind"]}", secrets=[…])',
        "",
        *(f"  {line}" if line else "" for line in _for_people(about.split("\n")[2:])),
    ]
    if told["examples"]:
        lines += ["", f"Example deliveries, for onceward send {told['kind']} TYPE --to URL:"]
        lines += [f"  {event_type}" for event_type in told["examples"]]
    return "\n".join(lines)
