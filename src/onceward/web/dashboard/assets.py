"""The files that pages name: style, scripts, the icon; read once, kept by browsers for ever.

Their addresses hold a hash of all of them, so that a new version is a new address and the relative
imports between the scripts stay within one version.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}


class Assets:
    """Every file of ``static/``."""

    def __init__(self) -> None:
        folder = files("onceward.web.dashboard") / "static"
        self._files = {
            path.name: path.read_bytes()
            for path in sorted(folder.iterdir(), key=lambda path: path.name)
            if path.name.rpartition(".")[2] in _TYPES
        }
        digest = hashlib.sha256()
        for name, content in self._files.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.version = digest.hexdigest()[:16]

    @property
    def prefix(self) -> str:
        """Give what comes before a file's name, relative to the dashboard."""
        return f"static/{self.version}/"

    async def serve(self, request: Request) -> Response:
        """Answer a request for one of them."""
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None or request.path_params["version"] != self.version:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(
            content,
            media_type=f"{_TYPES[name.rpartition('.')[2]]}",
            headers={
                "Cache-Control": "public, max-age=31536000, immutable",
                "X-Content-Type-Options": "nosniff",
                # An SVG opened by itself is a document too.
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
            },
        )
