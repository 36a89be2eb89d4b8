"""The plainest case of the generic source: JSON in the body, an HMAC of the body in a header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from onceward.sources.generic import Generic


class Hmac(Generic):
    """Deliveries whose body is JSON and whose signature is an HMAC of the body.

    Args:
        name: see `Source`; required, there is no provider to name it after.
        secrets: see `Source`; each is used as the text it is.
        header: the header with the signature.
        id_from: where the event's id stands: a JSON pointer (``/data/id``), ``header:<name>`` or
            another `Place`. It must be the same on every redelivery of one event, and different for
            every event. ``derived``: the sender gives none, and the body's content decides.
        type_from: where the type stands; ``const:<text>`` where all events are of one type.
        subject_from: where the subject stands, or None.
        algorithm: ``sha1``, ``sha256``, ``sha384`` or ``sha512``.
        encoding: of the signature; hexadecimal in either case, base64 with or without padding.
        prefix: what stands before the signature in the header, e.g. ``sha256=``; it must be there.
        insecure: see `Source`.
    """

    kind: ClassVar[str] = "hmac"

    def __init__(
        self,
        *,
        name: str,
        header: str,
        id_from: str,
        type_from: str,
        subject_from: str | None = None,
        secrets: str | Sequence[str] = (),
        algorithm: str = "sha256",
        encoding: Literal["hex", "base64"] = "hex",
        prefix: str = "",
        insecure: bool = False,
    ) -> None:
        super().__init__(
            name=name,
            secrets=secrets,
            insecure=insecure,
            signature={"header": header, "algorithm": algorithm, "encoding": encoding, "prefix": prefix},
            id=id_from,
            type=type_from,
            subject=subject_from if subject_from is not None else (),
        )
