// graphile-worker: tasks are added one by one or in batches, while a worker does them.

import { EventEmitter } from 'node:events';
import { Backlog, data, loops, measure, settings } from './window.mjs';

// A line for each task would be most of the work. The library reads this when it is loaded.
process.env.NO_LOG_SUCCESS = '1';
const { Logger, makeWorkerUtils, run: runWorker } = await import('graphile-worker');

const { batch, in_flight, port } = settings;
const alone = batch === 1;

const connectionString = `postgres://postgres@127.0.0.1:${port}/postgres?options=-c%20jit%3Doff`;
const together = { localQueue: { size: batch }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const worker = {
  connectionString,
  concurrentJobs: in_flight,
  maxPoolSize: in_flight / 2,
  ...(alone ? {} : together),
};
const logger = new Logger(() => (level, message) => {
  if (level === 'error') throw new Error(message);
});
const utils = await makeWorkerUtils({ connectionString, logger, maxPoolSize: in_flight / 2 });
await utils.migrate();
const events = new EventEmitter();
await runWorker({ preset: { worker }, events, logger, noHandleSignals: true, taskList: { job: async () => {} } });

const jobs = Array.from({ length: batch }, () => ({ identifier: 'job', payload: data }));
let added = 0;

/** Counts tasks that are gone from the database: the worker tells of one before it is. */
async function finished() {
  const sql = 'SELECT count(*)::int AS left FROM graphile_worker._private_jobs';
  const { rows } = await utils.withPgClient((client) => client.query(sql));
  return added - rows[0].left;
}

await measure(async (run) => {
  const backlog = new Backlog(10 * Math.max(batch, 100));
  events.on('job:complete', () => backlog.shrink());
  await loops(alone ? in_flight : 4, run, async () => {
    await backlog.grow(batch);
    await (alone ? utils.addJob('job', data) : utils.addJobs(jobs));
    added += batch;
  });
}, finished);
process.exit(0);
