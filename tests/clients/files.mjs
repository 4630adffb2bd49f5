// Files up and down with fetch and node:http: files.mjs URL KEY SUBJECT FILE up | files.mjs URL KEY SUBJECT FILE down RUN ARTIFACT. Prints
// what came of it as JSON.
import { createHash } from "node:crypto";
import { createReadStream, openAsBlob, statSync } from "node:fs";
import http from "node:http";
import { Readable } from "node:stream";

const [url, key, subject, path, act, runId, artifactId] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}`, "X-Gateway-Subject": subject };
const told = async (answer) => {
    const body = await answer.json();
    return [answer.status, body.sha256 ?? body.code];
};
const post = (name, body, more = {}) =>
    fetch(`${url}/files?name=${encodeURIComponent(name)}`, { method: "POST", headers, body, ...more });

// A pipe into a request of the old module, with its length.
const piped = (agent) => new Promise((resolve, reject) => {
    const length = { "Content-Length": statSync(path).size, "Content-Type": "application/octet-stream" };
    const request = http.request(`${url}/files?name=d.bin`, { method: "POST", agent, headers: { ...headers, ...length } }, async (answer) => {
        const body = [];
        for await (const piece of answer) body.push(piece);
        resolve([answer.statusCode, JSON.parse(Buffer.concat(body)).sha256]);
    });
    request.on("error", reject);
    createReadStream(path).pipe(request);
});

async function up() {
    const seen = {};
    const first = await post("a.bin", await openAsBlob(path));
    const file = await first.json();
    [seen.file, seen.file_id] = [[first.status, file.sha256], file.file_id];
    // Of unknown length, so the body is chunked.
    seen.chunked = await told(await post("Größe.bin", Readable.toWeb(createReadStream(path)), { duplex: "half" }));
    seen["a slash"] = await told(await post("a/b", "x"));
    seen["too large"] = await told(await post("large.bin", new Uint8Array(65 << 20)));
    const form = new FormData();
    form.set("file", "a form");
    seen["a form"] = await told(await post("a.bin", form));
    seen.again = await told(await fetch(`${url}/files/${seen.file_id}`, { headers }));
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    seen.piped = [await piped(agent), await piped(agent)];
    agent.destroy();
    return seen;
}

async function down() {
    const at = `${url}/runs/${runId}/artifacts/${artifactId}`;
    const hash = createHash("sha256");
    let [size, stop] = [0, new AbortController()];
    const begun = await fetch(at, { headers, signal: stop.signal });
    for await (const piece of begun.body) {
        hash.update(piece);
        size += piece.length;
        if (size > 3_000_000) break;
    }
    stop.abort();
    const rest = await fetch(at, { headers: { ...headers, Range: `bytes=${size}-`, "If-Range": begun.headers.get("etag") } });
    hash.update(Buffer.from(await rest.arrayBuffer()));
    const known = await fetch(at, { headers: { ...headers, "If-None-Match": begun.headers.get("etag") } });
    return { status: rest.status, sha256: hash.digest("hex"), known: known.status };
}

process.stdout.write(`${JSON.stringify(act === "up" ? await up() : await down())}\n`);
