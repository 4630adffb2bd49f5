// Follows a run with the EventSource from npm: follow.mjs URL KEY SUBJECT. Prints one JSON object a line.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, key, subject, place] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${place}/`));
const { EventSource } = require("eventsource");

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const source = new EventSource(url, {
    fetch: (address, options) =>
        fetch(address, {
            ...options,
            headers: { ...options.headers, Authorization: `Bearer ${key}`, "X-Gateway-Subject": subject },
        }),
});
const types = `run.snapshot run.waiting_for_device message.delta stream.closing run.accepted run.started
    run.awaiting_reconciliation run.reconciled run.restarted run.cancelling tool.started tool.completed
    message.completed usage.updated run.succeeded run.failed run.cancelled run.expired`.split(/\s+/);
for (const type of types) {
    source.addEventListener(type, (event) => {
        say({ event: type, id: event.lastEventId, sequence: JSON.parse(event.data).sequence ?? null });
        if (["run.succeeded", "run.failed", "run.cancelled", "run.expired"].includes(type)) {
            source.close();
        }
    });
}
source.addEventListener("error", (error) => say({ error: String(error.message) }));
