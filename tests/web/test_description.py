"""The API keeps to its own description, whatever it is asked: schemathesis over a real server and real stores.

``ONCEWARD_TEST_API_EXAMPLES=500`` makes a campaign of it, with requests that break the description too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings

from onceward.runtime.clock import wall_ms
from onceward.sources import Stripe
from onceward.testing.servers import unique_name
from onceward.web.api.calls import ENDPOINTS
from onceward.web.api.openapi import document
from tests.web.site_server import START_SECONDS, Server
from tests.web.test_site import SECRET, make_shop

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES = int(os.environ.get("ONCEWARD_TEST_API_EXAMPLES", "5"))
RUN = {"run_id": ["run_00000000000000000000000000"], "delivery_id": ["del_x"], "bulk_id": ["b1"]}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param == "postgres":
        postgres: Any = request.getfixturevalue("postgres_server")
        name = unique_name()
        url = postgres.create_database(name)
    else:
        path: Path = tmp_path_factory.mktemp("api")
        url = f"sqlite:///{path / 'store.db'}"
    with Server(make_shop(url)) as found:
        body = b'{"id": "evt_1", "type": "invoice.paid"}'
        headers = Stripe(secrets=[SECRET]).sign(body, wall_ms())
        reply = requests.post(f"{found.url}/hooks/stripe", body, headers=headers)
        RUN["run_id"].append(reply.json()["events"][0]["runs"][0])
        yield found
    if request.param == "postgres":
        postgres.drop_database(name)


def with_ids(described: dict[str, Any]) -> dict[str, Any]:
    """Give the description with ids that there are, so that what is behind them is met too."""
    described = deepcopy(described)
    for methods in described["paths"].values():
        for operation in methods.values():
            for one in operation["parameters"]:
                if one["in"] == "path" and one["name"] in RUN:
                    one["schema"] = {"enum": RUN[one["name"]]}
    return described


@pytest.mark.parametrize("mode", ["positive", *(["negative"] if EXAMPLES > 5 else [])])
@pytest.mark.parametrize(
    ("method", "path"), [(one.method, one.path) for one in ENDPOINTS if one.gives is not None]
)
def test_a_call_does_as_it_is_described(server: Server, method: str, path: str, mode: str) -> None:
    schema = schemathesis.openapi.from_dict(with_ids(document()))
    schema.config.update(base_url=f"{server.url}/api/v1")
    operation = schema[path][method]
    session = requests.Session()
    headers = {"Authorization": f"Bearer {server.token}"}
    # Some rules are not of a schema: a bulk action needs a filter, an event's id its source.
    excluded = [positive_data_acceptance]
    asked = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=EXAMPLES == 5,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        reply = case.call(headers=headers, session=session, timeout=START_SECONDS)
        case.validate_response(reply, excluded_checks=excluded)

    ask()

    assert asked > 0
    session.close()
