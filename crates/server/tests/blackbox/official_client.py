"""Drives a server with the official Python client of MCP, in both eras, over HTTP and over stdio.

Usage: official_client.py http URL | stdio COMMAND [ARGUMENT...]
The key is in ASYNCGATE_API_KEY. The test that starts this shows what it prints if it fails.
"""

import asyncio
import contextlib
import os
import re
import sys

import httpx2
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

KEY = os.environ["ASYNCGATE_API_KEY"]
# What the strictest hosts and model providers allow.
NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
# Longer than any of this takes on a busy machine; a server that hangs fails the test, not the run.
PATIENCE_SECONDS = 300


@contextlib.asynccontextmanager
async def transport(kind, place, tools):
    """Connects to the server, to be shown these toolsets."""
    if kind == "stdio":
        command, *args = [*place, "--tools", tools]
        server = StdioServerParameters(command=command, args=args, env={"ASYNCGATE_API_KEY": KEY})
        async with stdio_client(server) as streams:
            yield streams
        return
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http:
        url = f"{place[0]}?tools={tools}"
        async with streamable_http_client(url, http_client=http) as streams:
            yield streams


@contextlib.asynccontextmanager
async def newer(kind, place, tools):
    """A client that asks `server/discover`, as those of 2026-07-28 do."""
    async with Client(transport(kind, place, tools)) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        assert "asyncgate_create_task" in client.instructions, client.instructions
        yield client


@contextlib.asynccontextmanager
async def older(kind, place, tools):
    """A client that shakes hands, as those up to 2025-11-25 do."""
    async with transport(kind, place, tools) as (read, write):
        async with ClientSession(read, write) as session:
            agreed = await session.initialize()
            assert agreed.protocol_version == "2025-11-25", agreed
            assert "asyncgate_create_task" in agreed.instructions, agreed
            yield session


async def done(client, tool, /, **arguments):
    """Calls a tool. The client itself holds the output against the schema that the list declares."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, (tool, result)
    return result.structured_content


async def story(client, era):
    """A task is created, done by a worker and proved."""
    tools = (await client.list_tools()).tools
    names = [tool.name for tool in tools]
    assert all(NAME.match(name) for name in names), names
    assert {"asyncgate_create_task", "asyncgate_get_task", "asyncgate_lease_next"} <= set(names), names
    hints = {tool.name: tool.annotations for tool in tools}
    assert not hints["asyncgate_complete"].destructive_hint, hints
    assert hints["asyncgate_cancel_task"].destructive_hint, hints

    created = await done(client, "asyncgate_create_task", type=era, payload={"n": 1.5})
    leased = await done(client, "asyncgate_lease_next", worker_id="w", accept_types=[era])
    [task] = leased["tasks"]
    assert (task["task_id"], task["payload"]) == (created["task_id"], {"n": 1.5}), task
    held = {"task_id": task["task_id"], "lease_id": task["lease_id"], "worker_id": "w"}
    proved = await done(client, "asyncgate_complete", **held, result=[era], artifacts=[{"url": "s3://out"}])
    # The dotted name of the same tool.
    ended = await done(client, "asyncgate.get_task", task_id=task["task_id"], wait_seconds=10)
    assert (ended["status"], ended["result"]["result"]) == ("succeeded", [era]), ended
    owed = await done(client, "asyncgate_list_open_obligations")
    assert owed["open_obligations"] == [], owed

    for tool, arguments in [
        ("get_task", {"task_id": task["task_id"]}),
        ("list_tasks", {"status": "succeeded"}),
        ("list_receipts", {}),
        ("list_ledger", {"task_id": task["task_id"]}),
        ("get_receipt", {"receipt_id": proved["receipt_id"]}),
        ("ack_receipt", {"receipt_id": proved["receipt_id"]}),
    ]:
        await done(client, f"asyncgate_{tool}", **arguments)

    # A tool that the list does not show can be called too.
    assert "mailbox_topics" not in names
    await done(client, "mailbox_topics")
    refused = await client.call_tool("asyncgate_get_task", {"task_id": "!"})
    assert refused.is_error and "BAD_REQUEST" in refused.content[0].text, refused


async def others(client, era):
    """What the other toolsets answer has the shape that they declare."""
    await client.list_tools()
    topic = f"t-{era}"
    await done(client, "mailbox_send", topic=topic, idem_key="1", payload_b64="aGk=")
    batch = [{"topic": topic, "idem_key": key, "payload_b64": "aGk="} for key in "12"]
    await done(client, "mailbox_send_batch", messages=[*batch, {**batch[0], "payload_b64": "b3RoZXI="}])
    await done(client, "mailbox_peek", topic=topic)
    received = await done(client, "mailbox_recv", topic=topic, visibility_ms=60_000)
    one, two = received["messages"]
    await done(client, "mailbox_extend", msg_id=one["msg_id"], lease=one["lease"])
    await done(client, "mailbox_ack", msg_id=one["msg_id"], lease=one["lease"])
    lost = {"msg_id": two["msg_id"], "lease": one["lease"]}
    await done(client, "mailbox_ack_batch", acks=[lost, {"msg_id": two["msg_id"], "lease": two["lease"]}])
    key = "07" * 32
    subject = {"kind": "holder_key", "key": key}
    limit = {"policy": "client", "key": era}
    revoked = await done(client, "host_revoke", subject=subject, reason="lost")
    for tool, arguments in [
        ("mailbox_topics", {}),
        ("mailbox_dlq", {}),
        ("mailbox_heads", {}),
        ("limits_policies", {}),
        ("limits_check", limit),
        ("limits_check", {"checks": [limit, limit]}),
        ("host_check_nonces", {"namespace": key, "nonce": "AAAA", "ttl_secs": 60}),
        ("host_check_nonces", {"checks": [{"namespace": key, "nonce": "AAAA", "ttl_secs": 60}]}),
        ("host_increment_counter", {"namespace": key, "window_secs": 60, "limit": 1}),
        ("host_check_revocations", {"subject": subject}),
        ("host_check_revocations", {"subjects": [subject]}),
        ("host_revocations", {}),
        ("host_unrevoke", revoked["subject"]),
        ("host_verify", {"warrant": "oA", "tool": "t"}),
        ("host_health", {}),
        ("asyncgate_get_config", {}),
        ("asyncgate_get_ledger_head", {}),
        ("asyncgate_read_ledger", {}),
        ("asyncgate_bootstrap", {}),
    ]:
        await done(client, tool, **arguments)


async def main(kind, *place):
    for era, connect in {"newer": newer, "older": older}.items():
        async with connect(kind, place, "agent,worker") as client:
            await story(client, era)
        async with connect(kind, place, "all") as client:
            await others(client, era)
        print(f"{kind} {era}: good")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), PATIENCE_SECONDS))
