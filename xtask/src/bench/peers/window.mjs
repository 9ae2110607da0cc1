// The time that is counted: the driver does its work all the while, and tells in two lines what the benchmark reads:
// `ready` when it has warmed up, and then how many tasks were done in how many seconds.

import { setTimeout as sleep } from 'node:timers/promises';

/** The tasks that `run.done` told of. */
let finished = 0;

/** The settings that the benchmark gave. */
export const settings = JSON.parse(process.argv[2]);

/** The data of a task. */
export const data = JSON.parse(settings.payload);

/**
 * Does `work`, which ends soon after `run.over` has become true, and counts the finished tasks: those it tells of by
 * `run.done(count)`, or those that `count` tells of.
 */
export async function measure(work, count = () => finished) {
  const { warmup, seconds } = settings;
  const run = { over: false, done: (count = 1) => { finished += count; } };
  const stuck = setTimeout(() => {
    console.error('the driver is stuck');
    process.exit(1);
  }, (warmup + seconds + 60) * 1000);
  stuck.unref();
  const worked = work(run);
  await sleep(warmup * 1000);
  const before = await count();
  const began = performance.now();
  console.log('ready');
  await sleep(seconds * 1000);
  const tasks = await count() - before;
  console.log(JSON.stringify({ tasks, seconds: (performance.now() - began) / 1000 }));
  run.over = true;
  await worked;
}

/** Runs so many loops side by side until the time is over. */
export async function loops(count, run, step) {
  await Promise.all(Array.from({ length: count }, async () => {
    while (!run.over) await step();
  }));
}

/** The tasks that were added and are not finished: enough that the worker never waits, and few enough for memory. */
export class Backlog {
  #room;
  #waiting = [];

  constructor(room = 1000) {
    this.#room = room;
  }

  /** Waits until there is room for so many more. */
  async grow(count = 1) {
    while (this.#room < count) await new Promise((resolve) => this.#waiting.push(resolve));
    this.#room -= count;
  }

  shrink(count = 1) {
    this.#room += count;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
