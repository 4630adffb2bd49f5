// Follows an ended run with the EventSource from npm and never closes it: until_over.mjs URL KEY SUBJECT PLACE. Prints the statuses
// of its connections, and the number of stored events, when it has ended by itself.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, key, subject, place] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${place}/`));
const { EventSource } = require("eventsource");

const connections = [];
let events = 0;
const source = new EventSource(url, {
    fetch: async (address, options) => {
        const headers = { ...options.headers, Authorization: `Bearer ${key}`, "X-Gateway-Subject": subject };
        const answer = await fetch(address, { ...options, headers });
        connections.push(answer.status);
        return answer;
    },
});
const types = `run.accepted run.started run.cancelling tool.started tool.completed message.completed usage.updated
    run.succeeded run.failed run.cancelled run.expired`.split(/\s+/);
types.forEach((type) => source.addEventListener(type, () => events++));
source.addEventListener("error", () => {
    if (source.readyState === source.CLOSED) {
        process.stdout.write(JSON.stringify({ connections, events }));
    }
});
