"""Gets tokens with the official Python client of MCP: it finds the way by itself, from the refusal of its first call.

Usage: oauth_mcp.py URL NAME
The password is in PASSWORD.
"""

import asyncio
import os
import sys
import urllib.parse

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from oauth_browser import Browser

url, name = sys.argv[1:]
password = os.environ["PASSWORD"]
# Longer than any of this takes on a busy machine; a server that hangs fails the test, not the run.
PATIENCE_SECONDS = 300


class Storage:
    """What the client would keep on its disk."""

    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Person:
    """Whoever sits before the browser that the client opens."""

    def __init__(self):
        self.logins = 0
        self.sent = None

    async def go(self, address):
        self.logins += 1
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)
        assert asked["resource"] == [url], asked
        assert asked["code_challenge_method"] == ["S256"], asked
        self.sent = await asyncio.to_thread(Browser().log_in, address, name, password)

    async def come_back(self):
        told = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.sent).query))
        return AuthorizationCodeResult(code=told["code"], state=told["state"], iss=told["iss"])


async def story(method):
    storage, person = Storage(), Person()
    metadata = OAuthClientMetadata(
        client_name="the test",
        redirect_uris=["http://127.0.0.1:33418/callback"],
        token_endpoint_auth_method=method,
    )
    auth = OAuthClientProvider(
        server_url=url,
        client_metadata=metadata,
        storage=storage,
        redirect_handler=person.go,
        callback_handler=person.come_back,
    )
    async with httpx2.AsyncClient(auth=auth, timeout=PATIENCE_SECONDS) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            created = await client.call_tool("asyncgate_create_task", {"type": "oauth", "payload": {}})
            assert not created.is_error, created
            assert person.logins == 1, person.logins
            first = storage.tokens
            assert "tasks:write" in first.scope.split(), first.scope
            # The client believes that its token is over, so it refreshes it, without anybody who logs in.
            auth.context.token_expiry_time = 1
            listed = await client.call_tool("asyncgate_list_tasks", {})
            assert not listed.is_error and len(listed.structured_content["tasks"]) >= 1, listed
            assert storage.tokens.refresh_token != first.refresh_token
            assert person.logins == 1, person.logins
            # A person who is no worker does no work, whatever the client asked for.
            refused = await client.call_tool("asyncgate_lease_next", {"worker_id": "w"})
            assert refused.is_error and "FORBIDDEN" in refused.content[0].text, refused
    return storage


async def main():
    for method in "none", "client_secret_post", "client_secret_basic":
        storage = await asyncio.wait_for(story(method), PATIENCE_SECONDS)
        assert storage.client.token_endpoint_auth_method == method, storage.client
        print("good")


asyncio.run(main())
