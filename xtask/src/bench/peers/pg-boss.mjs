// pg-boss: each loop sends, fetches and completes as many tasks as a batch has.

import { PgBoss } from 'pg-boss';
import { data, loops, measure, settings } from './window.mjs';

const { batch, in_flight, port } = settings;
const alone = batch === 1;

const boss = new PgBoss({
  host: '127.0.0.1', port, user: 'postgres', database: 'postgres',
  max: alone ? in_flight : 8,
  options: '-c jit=off',
});
boss.on('error', (error) => { throw error; });
await boss.start();
await boss.createQueue('jobs', { partition: true });

const jobs = Array.from({ length: batch }, () => ({ data }));
await measure((run) => loops(alone ? in_flight : 8, run, async () => {
  await (alone ? boss.send('jobs', data) : boss.insert('jobs', jobs));
  const fetched = await boss.fetch('jobs', { batchSize: batch });
  if (fetched.length === 0) return;
  await boss.complete('jobs', fetched.map((job) => job.id));
  run.done(fetched.length);
}));
await boss.stop({ graceful: false });
