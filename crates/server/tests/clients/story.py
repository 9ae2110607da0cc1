"""The README's story, told by the client that openapi-python-client makes of the OpenAPI document.

Usage: story.py ADDRESS KEY, with the generated package `gate` beside it.
"""

import base64
import sys

from gate import AuthenticatedClient, Client
from gate.api.admission import host_check_nonces, limits_check
from gate.api.mailbox import mailbox_ack, mailbox_recv, mailbox_send
from gate.api.server import health
from gate.api.tasks import (
    complete,
    create_task,
    get_task,
    lease_next,
    list_ledger,
    list_open_obligations,
    list_receipts,
)
from gate.models import (
    AckBody,
    CheckLimit,
    CheckLimits,
    CheckNonce,
    Code,
    CompleteBody,
    CreateTaskInput,
    Error,
    LeaseNextInput,
    LimitCheck,
    RecvInput,
    SendText,
    TaskStatus,
)

address, key = sys.argv[1:]
# A status that the document does not list is an error of the document.
gate = AuthenticatedClient(base_url=address, token=key, raise_on_unexpected_status=True)
alice = "alice"


def greet(name):
    payload = {"name": name}
    task = CreateTaskInput(type_="greet", payload=payload, principal_id=alice, idempotency_key="greet-ada")
    return create_task.sync_detailed(client=gate, body=task)


# Hand over a task, twice: the same task. Another payload under the same key is refused.
created = greet("Ada")
assert created.status_code == 201, created
task_id = created.parsed.task_id
again = greet("Ada")
assert again.status_code == 200 and again.parsed.duplicate, again
assert again.parsed.task_id == task_id, again
refused = greet("Bob")
assert refused.status_code == 422, refused
assert isinstance(refused.parsed, Error) and refused.parsed.code == Code.IDEMPOTENCY_CONFLICT, refused

# Alice is owed it.
owed = list_open_obligations.sync(client=gate, principal_id=alice)
assert [receipt.task_id for receipt in owed.open_obligations] == [task_id], owed

# A worker does it.
claimed = lease_next.sync(client=gate, body=LeaseNextInput(worker_id="w1", wait_seconds=30))
(held,) = claimed.tasks
assert held.task_id == task_id and held.payload == {"name": "Ada"}, held
done = complete.sync(
    task_id,
    client=gate,
    body=CompleteBody(
        lease_id=held.lease_id,
        worker_id="w1",
        result={"text": "Hello Ada"},
        artifacts=[{"type": "s3", "url": "s3://greetings/ada.txt"}],
    ),
)
assert done.ok and not done.duplicate, done

# The outcome is there, the obligation is closed, and receipts tell the story.
task = get_task.sync(str(task_id), client=gate)
assert task.status is TaskStatus.SUCCEEDED and task.result.result == {"text": "Hello Ada"}, task
owed = list_open_obligations.sync(client=gate, principal_id=alice)
assert owed.open_obligations == [], owed
inbox = list_receipts.sync(client=gate, principal_id=alice)
types = [receipt.receipt_type for receipt in inbox.receipts]
assert types == ["task.assigned", "task.completed", "task.result_ready"], types
story = list_ledger.sync(client=gate, task_id=task_id)
assert done.receipt_id in [receipt.receipt_id for receipt in story.receipts], story

# A message goes and comes.
content = base64.b64encode(b"paint the fence").decode()
message = SendText(topic="jobs", idem_key="fence-1", payload_text="paint the fence")
sent = mailbox_send.sync(client=gate, body=message)
assert mailbox_send.sync(client=gate, body=message).duplicate
received = mailbox_recv.sync(client=gate, body=RecvInput(topic="jobs", visibility_ms=60_000, wait_seconds=30))
(envelope,) = received.messages
assert envelope.msg_id == sent.msg_id and envelope.payload_b64 == content, envelope
assert envelope.payload_text == "paint the fence", envelope
assert mailbox_ack.sync(envelope.msg_id, client=gate, body=AckBody(lease=envelope.lease)).ok
empty = mailbox_recv.sync(client=gate, body=RecvInput(topic="jobs"))
assert empty.messages == [], empty

# May this happen now?
verdict = limits_check.sync(client=gate, body=CheckLimit(policy="client", key=alice))
assert verdict.allowed and verdict.remaining < verdict.limit, verdict
several = [LimitCheck(policy="client", key=alice), LimitCheck(policy="standard", key="all")]
verdicts = limits_check.sync(client=gate, body=CheckLimits(checks=several))
assert verdicts.allowed and len(verdicts.results) == 2, verdicts
nonce = CheckNonce(namespace="ab" * 32, nonce="ZGVsaXZlcnktMTc", ttl_secs=60)
assert host_check_nonces.sync(client=gate, body=nonce).result == "accepted"
assert host_check_nonces.sync(client=gate, body=nonce).result == "replay"

# Nobody passes who should not.
nobody = AuthenticatedClient(base_url=address, token="wrong", raise_on_unexpected_status=True)
refused = list_open_obligations.sync_detailed(client=nobody)
assert refused.status_code == 401 and refused.parsed.code == Code.UNAUTHORIZED, refused
assert health.sync(client=Client(base_url=address)).status == "healthy"
print("the end")
