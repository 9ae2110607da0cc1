// The README's story, told with the types that openapi-typescript makes of the OpenAPI document and calls
// of openapi-fetch. The compiler checks every field; then node runs it: story.mjs ADDRESS KEY.

import createClient from "openapi-fetch";
import type { components, paths } from "./gate.js";

declare const process: { argv: string[] };

const [address, key] = process.argv.slice(2);
const gate = createClient<paths>({ baseUrl: address, headers: { Authorization: `Bearer ${key}` } });

function check(holds: unknown, about: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(about));
}

// Hand over a task, twice: the same task. Another payload under the same key is refused.
const greet = (name: string) =>
  gate.POST("/v1/tasks", {
    body: { type: "greet", payload: { name }, principal_id: "alice", idempotency_key: "greet-ada" },
  });
const created = await greet("Ada");
check(created.data && created.response.status === 201, created.error);
const { task_id } = created.data;
const again = await greet("Ada");
check(again.data?.duplicate && again.data.task_id === task_id, again);
const refused = await greet("Bob");
const conflict: components["schemas"]["Code"] = "IDEMPOTENCY_CONFLICT";
check(refused.error?.code === conflict && refused.response.status === 422, refused);

// Alice is owed it.
const owed = () => gate.GET("/v1/obligations/open", { params: { query: { principal_id: "alice" } } });
const before = await owed();
check(before.data?.open_obligations.length === 1, before);
check(before.data.open_obligations[0].task_id === task_id, before);

// A worker does it.
const claimed = await gate.POST("/v1/leases/claim", { body: { worker_id: "w1", wait_seconds: 30 } });
check(claimed.data?.tasks.length === 1, claimed);
const held: components["schemas"]["LeasedTask"] = claimed.data.tasks[0];
check(held.task_id === task_id, held);
const path = { task_id };
const done = await gate.POST("/v1/tasks/{task_id}/complete", {
  params: { path },
  body: {
    lease_id: held.lease_id,
    worker_id: "w1",
    result: { text: "Hello Ada" },
    artifacts: [{ type: "s3", url: "s3://greetings/ada.txt" }],
  },
});
check(done.data?.ok && !done.data.duplicate, done);

// The outcome is there, the obligation is closed, and receipts tell the story.
const task = await gate.GET("/v1/tasks/{task_id}", { params: { path } });
check(task.data?.status === "succeeded", task);
const after = await owed();
check(after.data?.open_obligations.length === 0, after);
const inbox = await gate.GET("/v1/receipts", { params: { query: { principal_id: "alice" } } });
const types = inbox.data?.receipts.map((receipt) => receipt.receipt_type);
check(types?.join() === "task.assigned,task.completed,task.result_ready", types);
const story = await gate.GET("/v1/receipts/ledger", { params: { query: { task_id } } });
check(story.data?.receipts.some((receipt) => receipt.receipt_id === done.data?.receipt_id), story);

// A message goes and comes.
const payload_b64 = btoa("paint the fence");
const message = { topic: "jobs", idem_key: "fence-1", payload_b64 };
const sent = await gate.POST("/v1/send", { body: message });
check(sent.data && !sent.data.duplicate, sent);
const received = await gate.POST("/v1/recv", {
  body: { topic: "jobs", visibility_ms: 60_000, wait_seconds: 30 },
});
check(received.data?.messages.length === 1, received);
const envelope: components["schemas"]["Envelope"] = received.data.messages[0];
check(envelope.msg_id === sent.data.msg_id && envelope.payload_b64 === payload_b64, envelope);
const acked = await gate.POST("/v1/ack/{msg_id}", {
  params: { path: { msg_id: envelope.msg_id } },
  body: { lease: envelope.lease! },
});
check(acked.data?.ok, acked);

// May this happen now?
const one = await gate.POST("/v1/limits/check", { body: { policy: "client", key: "alice" } });
check(one.data?.allowed, one);
const many = await gate.POST("/v1/limits/check", {
  body: { checks: [{ policy: "client", key: "alice" }, { policy: "standard", key: "all" }] },
});
check(many.data?.allowed && many.data.results?.length === 2, many);

// Nobody passes who should not.
const nobody = createClient<paths>({ baseUrl: address, headers: { Authorization: "Bearer wrong" } });
const stranger = await nobody.GET("/v1/receipts");
check(stranger.error?.code === "UNAUTHORIZED" && stranger.response.status === 401, stranger);
const health = await createClient<paths>({ baseUrl: address }).GET("/v1/health");
check(health.data?.status === "healthy", health);

// @ts-expect-error: the compiler does check.
void (() => gate.POST("/v1/tasks", { body: { type: 7 } }));
console.log("the end");
