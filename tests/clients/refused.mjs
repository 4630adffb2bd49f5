// Good requests of a keep-alive agent behind refused ones with large bodies: refused.mjs URL KEY SUBJECT COUNT. Prints what
// came of them as one JSON object.
import http from "node:http";

const [url, key, subject, count] = process.argv.slice(2);
// One connection, so that every good request follows a refused one on it.
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const seen = { refused: {}, good: {}, sockets: 0 };
const sockets = new Set();

function ask(kind, method, path, headers, body) {
    return new Promise((resolve) => {
        const note = (what) => resolve((seen[kind][what] = (seen[kind][what] ?? 0) + 1));
        const request = http.request(url + path, { method, agent, headers }, (answer) => {
            answer.on("error", (error) => note(error.code));
            answer.resume();
            answer.on("end", () => note(answer.statusCode));
        });
        request.on("socket", (socket) => sockets.add(socket));
        request.on("error", (error) => note(error.code));
        request.end(body);
    });
}

const body = "x".repeat(200_000);
const credentials = { Authorization: `Bearer ${key}`, "X-Gateway-Subject": subject };
for (let turn = 0; turn < Number(count); turn++) {
    const json = { "Content-Type": "application/json" };
    const headers = [json, { ...json, ...credentials }, { ...credentials, "Content-Type": "text/plain", "Idempotency-Key": "x" }];
    await ask("refused", "POST", "/agent-endpoints/ep_x/runs", headers[turn % 3], body);
    await ask("good", "GET", "/capabilities", credentials);
}
seen.sockets = sockets.size;
agent.destroy();
process.stdout.write(`${JSON.stringify(seen)}\n`);
