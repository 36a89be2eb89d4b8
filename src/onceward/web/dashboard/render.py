"""Pages: templates, their helpers, the headers that keep stored text inert.

Every value is escaped by the template engine, an undefined name is an error, and the policy that
goes with each page lets no script run but our own files: text that a stranger sent is shown, never
obeyed. All addresses are relative to the page's depth, so that any prefix before us works.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from onceward.console.audit import said
from onceward.console.workflow_words import rules_told, starts_on
from onceward.core.glossary import TOLD
from onceward.core.model import Millis
from onceward.core.nouns import counted
from onceward.version import __version__
from onceward.web.access import Principal, Role
from onceward.web.auth import headers
from onceward.web.dashboard import words
from onceward.web.dashboard.assets import Assets
from onceward.web.receiver import path_below_mount

HEADERS = {name.decode(): value.decode() for name, value in headers.HEADERS}
"""On pages themselves as well: routes that are mounted without the site are no less inert."""
THEME_COOKIE = "onceward_theme"
THEMES = ("light", "dark")

Who = Callable[[Request], Principal | None]


class Renderer:
    """Renders templates for one mounted dashboard.

    Args:
        who: gives who asks; None where nobody has to say.
        assets: the files that pages name.
        api: where the REST API is, relative to the dashboard; None without one.
        logout: where a person logs out, relative to the dashboard; None where nobody logs in.
        address: gives where the app is reached; for commands.
        now: gives the time.
    """

    def __init__(
        self,
        who: Who,
        assets: Assets,
        *,
        api: str | None = None,
        logout: str | None = None,
        address: Callable[[], str] | None = None,
        now: Callable[[], Millis] | None = None,
    ) -> None:
        self.who = who
        self.api = api
        self.now = now or (lambda: time.time_ns() // 1_000_000)
        self.address = address or (lambda: "http://127.0.0.1:8000")
        self._logout = logout
        self._assets = assets
        self._environment = Environment(
            loader=PackageLoader("onceward.web.dashboard", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            # Not the engine's own urlencode, which lets a slash through: it would lead out of the page.
            part=lambda text: quote(str(text), safe="", errors="replace"),
            lasting=words.length,
            brief=words.brief,
            skew=words.skew,
            exact=words.exact,
            machine_time=words.machine_time,
            pretty=words.pretty,
            plain=words.plain,
            meaning=words.meaning,
            counted=counted,
            said=said,
            told=lambda outcome: TOLD.get(outcome, outcome),
            starts_on=starts_on,
            rules_told=rules_told,
            gist=lambda failure: words.gist(failure.type, failure.message),
        )

    def page(
        self, request: Request, template: str, values: Mapping[str, Any] | None = None, *, status: int = 200
    ) -> HTMLResponse:
        """Give a page as a response."""
        now = self.now()
        root = root_of(request)
        theme = request.cookies.get(THEME_COOKIE)
        principal = self.who(request)
        text = self._environment.get_template(template).render(
            root=root,
            static=f"{root}{self._assets.prefix}",
            here=section_of(request),
            now=now,
            ago=lambda at: words.ago(at, now),
            principal=principal,
            csrf=principal.csrf if principal else "",
            may_act=may(principal, Role.OPERATOR),
            theme=theme if theme in THEMES else "",
            api=self.api,
            logout=self._logout,
            address=self.address(),
            version=__version__,
            new_request_id=lambda: secrets.token_hex(16),
            **(values or {}),
        )
        # Half a surrogate pair is text in JSON, and none in UTF-8.
        return HTMLResponse(text.encode("utf-8", "replace"), status, headers=HEADERS)


def may(principal: Principal | None, role: Role) -> bool:
    """Say whether somebody may do what needs *role*; nobody in particular may, where none is asked."""
    return principal is None or principal.may(role)


def root_of(request: Request) -> str:
    """Give the way from a page to the dashboard's first one: ``./``, ``../``, ``../../``."""
    return "../" * (path_below_mount(request.scope).count("/") - 1) or "./"


def section_of(request: Request) -> str:
    """Give the first part of the path: which entry of the menu is current."""
    return path_below_mount(request.scope).split("/")[1]


def moved(request: Request, to: str) -> Response:
    """Send a browser on to a page of ours, with GET."""
    return Response(status_code=303, headers={**HEADERS, "Location": f"{root_of(request)}{to}"})
