// An MCP server by the protocol's own SDK for TypeScript, over HTTPS: mcp-server.mjs FOLDER KEY PLACE.
//
// FOLDER has cert.pem, key.pem, and description and argument: what the server says of its tool add_note, and what that
// calls its argument; both are read anew for each session. What the tools did stands in FOLDER/notes.
import fs from "node:fs";
import https from "node:https";
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const [folder, key, place] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${place}/`));
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { z } = require("zod");

const read = (name) => fs.readFileSync(`${folder}/${name}`, "utf8");
const note = (text) => fs.appendFileSync(`${folder}/notes`, `${text}\n`);
const sessions = new Map();

function served() {
    const server = new McpServer({ name: "notes", version: "1.0.0" });
    const inputSchema = { text: z.string() };
    const argument = read("argument");
    const ofNote = { description: read("description"), inputSchema: { [argument]: z.string() } };
    server.registerTool("add_note", ofNote, async (given) => {
        note(given[argument]);
        return { content: [{ type: "text", text: `Noted: ${given[argument]}` }] };
    });
    // Does it, and is gone before it can say so.
    server.registerTool("note_and_vanish", { description: "Adds a note.", inputSchema }, async ({ text }) => {
        note(text);
        web.closeAllConnections();
        return { content: [] };
    });
    return server;
}

async function session(request) {
    const known = sessions.get(request.headers["mcp-session-id"]);
    if (known) {
        return known;
    }
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await served().connect(transport);
    return transport;
}

const web = https.createServer({ cert: read("cert.pem"), key: read("key.pem") }, async (request, response) => {
    if (request.headers.authorization !== `Bearer ${key}`) {
        response.writeHead(401).end();
        return;
    }
    const transport = await session(request);
    await transport.handleRequest(request, response);
});
web.listen(0, "127.0.0.1", () => console.log(`listening on https://localhost:${web.address().port}/mcp`));
