// The conformance suite of MCP asks a gateway: mcp_conformance.mjs CLIENTS ORIGIN KEY. Prints the checks of each scenario as JSON. The
// suite sends no key, so a proxy adds it.
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [clients, origin, key] = process.argv.slice(2);
const target = new URL(origin);
const proxy = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${key}`, "x-gateway-subject": "suite" };
  const asked = http.request({ host: target.hostname, port: target.port, path: request.url, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  asked.on("error", () => response.destroy());
  request.pipe(asked);
});
await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));

// Node 20 has no fs.globSync, which only other commands of the suite call.
const dist = join(clients, "node_modules/@modelcontextprotocol/conformance/dist");
const suite = join(dist, "with_any_node.js");
writeFileSync(suite, readFileSync(join(dist, "index.js"), "utf8").replace("globSync as", "statSync as"));

const seen = {};
for (const [version, scenarios] of Object.entries({
  "2025-11-25": ["server-initialize", "ping", "tools-list", "dns-rebinding-protection", "server-sse-multiple-streams"],
  "2026-07-28": ["server-stateless", "tools-list", "dns-rebinding-protection", "caching", "http-header-validation", "server-sse-multiple-streams"],
})) {
  for (const scenario of scenarios) {
    const results = mkdtempSync(join(tmpdir(), "conformance-"));
    const url = `http://localhost:${proxy.address().port}/mcp`;
    const options = [suite, "server", "--url", url, "--scenario", scenario, "--spec-version", version, "--output-dir", results];
    await new Promise((ended) => execFile(process.execPath, options, { cwd: results, timeout: 60_000 }, ended));
    const file = readdirSync(results, { recursive: true }).find((name) => name.endsWith("checks.json"));
    const checks = JSON.parse(readFileSync(join(results, file), "utf8"));
    const of = (status) => checks.filter((check) => check.status === status).map((check) => check.id);
    seen[`${version} ${scenario}`] = { passed: of("SUCCESS").length, failed: [...new Set(of("FAILURE"))].sort() };
  }
}
proxy.close();
console.log(JSON.stringify(seen));
