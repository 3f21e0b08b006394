"""The address: schemes, replaced keys, and what may be shown."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.urls import realtime_url, redact_url


@pytest.mark.parametrize(("given", "scheme"), [("http", "ws"), ("https", "wss"), ("ws", "ws"), ("WSS", "wss")])
def test_schemes_become_websocket_ones(given: str, scheme: str) -> None:
    assert urlsplit(realtime_url(f"{given}://host:1/x")).scheme == scheme


@pytest.mark.parametrize("url", ["ftp://host/x", "host:8000", "", "ws://", "file:///etc/passwd"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        realtime_url(url)


def test_keys_replace_what_the_url_had_and_others_stay() -> None:
    url = realtime_url(
        "ws://h/v1/realtime?model=old&model=older&keep=1&duplex=0",
        model="new name",
        duplex=True,
        autostart=False,
        session_id="s",
        native_duplex=True,
    )
    query = parse_qs(urlsplit(url).query)
    assert query == {
        "keep": ["1"],
        "model": ["new name"],
        "duplex": ["1"],
        "autostart": ["0"],
        "session_id": ["s"],
        "native_duplex": ["1"],
    }


def test_without_a_path_the_usual_one_is_taken() -> None:
    assert urlsplit(realtime_url("http://h:8000")).path == "/v1/realtime"


def test_shown_addresses_hold_no_secret() -> None:
    assert redact_url("wss://user:pass@h:1/p?api_key=secret#x") == "wss://h:1/p"
