"""A captured signature that covers nothing of the event, sent to other processes and after a restart."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from onceward.core.messages import HttpRequest
from tests.attack.site import Process, Site, at_once

EVENT = {"event": "delivered", "id": "mg-1", "timestamp": 1_760_000_000.5}


def post(process: Process, request: HttpRequest) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=20)
    try:
        headers = {name.decode(): value.decode() for name, value in request.headers}
        connection.request("POST", "/hooks/mailgun", request.body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def forged(genuine: HttpRequest, **event: Any) -> HttpRequest:
    """Put another event under the captured signature."""
    body = json.loads(genuine.body) | {"event-data": EVENT | event}
    return HttpRequest.of(json.dumps(body).encode(), {"Content-Type": "application/json"})


def test_only_what_came_first_under_a_token_is_taken_by_any_process(site: Site) -> None:
    first, second = site.serve("post_office:app"), site.serve("post_office:app")
    desk = site.desk("post_office")
    body = json.dumps({"event-data": EVENT}).encode()
    genuine = desk.mail.signed_request(body, time.time_ns() // 1_000_000)

    assert post(first, genuine) == 200
    assert post(second, genuine) == 200
    assert post(second, forged(genuine, id="mg-2")) == 401
    assert post(second, forged(genuine, event=7)) == 401
    first.kill()
    third = site.serve("post_office:app")
    assert post(third, forged(genuine, id="mg-3")) == 401
    assert post(third, genuine) == 200

    [event] = desk.app.sync.events(source="mailgun")
    assert desk.app.sync.event("mailgun", event.id).delivery_count == 3
    assert desk.app.sync.deliveries(state="unparsed") == []


def test_of_different_events_under_one_token_at_once_one_is_taken(site: Site) -> None:
    processes = [site.serve("post_office:app") for _ in range(2)]
    desk = site.desk("post_office")
    body = json.dumps({"event-data": EVENT}).encode()
    genuine = desk.mail.signed_request(body, time.time_ns() // 1_000_000)

    def send(number: int) -> int:
        return post(processes[number % 2], forged(genuine, id=f"mg-{number // 2}"))

    replies = at_once(*(lambda number=number: send(number) for number in range(16)))

    assert sorted(set(replies)) == [200, 401]
    assert replies.count(200) == 2  # the one that came first, by both processes
    assert len(desk.app.sync.events(source="mailgun")) == 1
