"""Takes deduplication out of a source, so that the story can show that it would be missed."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from onceward.core.arrival import Incoming
from onceward.core.messages import HttpRequest
from onceward.sources import Source


def without_dedup(*sources: Source) -> None:
    """Let each delivery of these sources look like an event that was never seen."""
    for source in sources:
        source.normalize = _under_new_ids(source.normalize)  # type: ignore[method-assign, assignment]


def _under_new_ids(
    normalize: Callable[[HttpRequest], list[Incoming]],
) -> Callable[[HttpRequest], list[Incoming]]:
    def forgetful(request: HttpRequest) -> list[Incoming]:
        return [msgspec.structs.replace(one, id=uuid.uuid4().hex) for one in normalize(request)]

    return forgetful
