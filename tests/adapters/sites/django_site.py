"""A Django site in one file, for both kinds of server, with middleware that parses every body."""

from __future__ import annotations

import asyncio
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from onceward.adapters.django import Adapter
from tests.adapters.sites.shop import app, greet, linger

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    SECRET_KEY="not a secret",
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[
        "django.middleware.common.CommonMiddleware",
        f"{__name__}.parses",
    ],
    DATA_UPLOAD_MAX_MEMORY_SIZE=100,
)
django.setup()
hooks = Adapter(app)


def parses(get_response: Any) -> Any:
    def middleware(request: Any) -> Any:
        assert not request.POST
        assert request.body == b""
        response = get_response(request)
        response["X-Parsed"] = "state"
        return response

    return middleware


def start(request: HttpRequest, name: str) -> JsonResponse:
    return JsonResponse(hooks.start(greet, name, id=name).run_id, safe=False)


async def start_other(request: HttpRequest, name: str) -> JsonResponse:
    run = await asyncio.to_thread(hooks.start, greet, name, id=name)
    return JsonResponse(run.run_id, safe=False)


def emit(request: HttpRequest, name: str) -> JsonResponse:
    emitted = hooks.emit("order.paid", {"order": name}, id=name)
    return JsonResponse(emitted.runs[0].run_id, safe=False)


async def result(request: HttpRequest, name: str) -> JsonResponse:
    return JsonResponse(await asyncio.to_thread(hooks.run(name).result, "20s"), safe=False)


def begin(request: HttpRequest, name: str) -> JsonResponse:
    return JsonResponse(hooks.start(linger, name).run_id, safe=False)


urlpatterns = [
    path("start/<name>", start),
    path("start-other/<name>", start_other),
    path("emit/<name>", emit),
    path("result/<name>", result),
    path("linger/<name>", begin),
]

wsgi = hooks.mount(get_wsgi_application())
asgi = hooks.mount(get_asgi_application())
