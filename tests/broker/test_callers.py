"""Who may call the API on loopback: programs by its address, and no web page by a trick."""

import pytest

from fixtures.planes import stage

LETTERS = "/v1/queues"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:3550", "localhost", "LocalHost:3550", "[::1]:3550", "10.1.2.3:80", ""],
)
async def test_an_address_and_localhost_are_names_of_ours(host: str) -> None:
    async with stage() as scene:
        assert (await scene.api.call("GET", LETTERS, headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:3550",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "a:b",
    ],
)
async def test_a_name_that_somebody_leads_to_loopback_is_refused_with_a_sentence(
    host: str,
) -> None:
    async with stage() as scene:
        refused = await scene.api.call("GET", LETTERS, headers={"Host": host})
        assert (refused.status, refused.code) == (403, "FOREIGN_HOST")
        assert "http://127.0.0.1:3550" in refused.json["detail"]
        same = {"Host": host, "Origin": f"http://{host}"}
        assert (await scene.api.call("POST", "/drain", b"", same)).code == "FOREIGN_HOST"
        assert not scene.plane.draining


async def test_health_and_metrics_may_be_asked_for_by_any_name() -> None:
    async with stage() as scene:
        for path in ("/healthz/live", "/metrics"):
            seen = await scene.observers.call("GET", path, headers={"Host": "pod.example"})
            assert seen.status == 200
