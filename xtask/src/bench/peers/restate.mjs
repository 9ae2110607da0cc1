// A service for Restate that does nothing: the server hands it each call and keeps what it answers.

import { createServer } from 'node:http2';
import * as restate from '@restatedev/restate-sdk';
import { settings } from './window.mjs';

const job = restate.service({ name: 'job', handlers: { run: async () => 'done' } });
// Two lines for each call would be much of its work, and nobody reads them.
const logger = () => {};
const server = createServer(restate.createEndpointHandler({ services: [job], logger }));
server.listen(settings.port, '127.0.0.1', () => console.log('ready'));
