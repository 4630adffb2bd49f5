// The MCP SDKs for JavaScript call published services: mcp_client.mjs CLIENTS ORIGIN KEY. Prints what came of it as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [clients, origin, key] = process.argv.slice(2);
const from = createRequire(`${clients}/`);
const load = (name) => import(pathToFileURL(from.resolve(name)));
const newer = await load("@modelcontextprotocol/client");
const older = { ...(await load("@modelcontextprotocol/sdk/client/index.js")), ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")) };
const requestInit = { headers: { Authorization: `Bearer ${key}`, "X-Gateway-Subject": "customer-1" } };
const seen = {};

async function tried(name, { Client, StreamableHTTPClientTransport }, options, call) {
  const client = new Client({ name: "test", version: "1" }, options);
  await client.connect(new StreamableHTTPClientTransport(new URL(`${origin}/mcp`), { requestInit }));
  const tools = (await client.listTools()).tools.map((tool) => tool.name).sort();
  const progress = [];
  const answer = await call(client, { name: "ask_shop", arguments: { text: "orders" } }, { onprogress: (told) => progress.push(told.message) });
  const typed = await call(client, { name: "ask_typed", arguments: { text: "count" } });
  const going = await call(client, { name: "ask_slow", arguments: { text: "wait", wait_seconds: 1 } });
  const { run_id } = going.structuredContent;
  const giveUp = new AbortController();
  const seenStarted = [];
  const named = { text: "wait", request_id: `js-${name}` };
  const given = call(client, { name: "ask_slow", arguments: named }, {
    signal: giveUp.signal,
    onprogress: (told) => {
      seenStarted.push(told.message);
      if (told.message.includes("works on it")) giveUp.abort("no longer needed");
    },
  }).then(() => "answered", (error) => error.constructor.name.length > 0);
  const aborted = await given;
  const again = await call(client, { name: "ask_slow", arguments: { ...named, wait_seconds: 2 } });
  for (const run of [run_id, again.structuredContent.run_id]) await call(client, { name: "deskgate_stop", arguments: { run_id: run } });
  const failed = await call(client, { name: "ask_nobody", arguments: { text: "x" } }).catch((error) => [error.code, error.message]);
  seen[name] = {
    tools,
    answer: [answer.isError, answer.structuredContent.text],
    told: progress.length > 0 && progress.every((message) => message.length > 0),
    data: typed.structuredContent.data,
    going: [going.isError, going.structuredContent.phase !== "final"],
    aborted: [aborted, again.structuredContent.state],
    failed: failed[0],
  };
  await client.close();
}

const direct = (client, params, options) => client.callTool(params, options);
await tried("default", newer, {}, direct);
await tried("auto", newer, { versionNegotiation: { mode: "auto" } }, direct);
await tried("sdk", older, {}, (client, params, options) => client.callTool(params, undefined, options));
console.log(JSON.stringify(seen));
