// BullMQ: so many adds under way, and a worker that does so many at a time.

import { Queue, Worker } from 'bullmq';
import { Backlog, data, loops, measure, settings } from './window.mjs';

const connection = { host: '127.0.0.1', port: settings.port };
const queue = new Queue('jobs', { connection, defaultJobOptions: { removeOnComplete: true } });
const worker = new Worker('jobs', async () => {}, {
  connection: { ...connection, maxRetriesPerRequest: null },
  concurrency: settings.in_flight,
});
worker.on('error', (error) => { throw error; });

await measure(async (run) => {
  const backlog = new Backlog();
  worker.on('completed', () => {
    backlog.shrink();
    run.done();
  });
  await loops(settings.in_flight, run, async () => {
    await backlog.grow();
    await queue.add('job', data);
  });
});
process.exit(0);
