// An MCP server that lets nobody in without a sign-in, by the protocol's own SDK for TypeScript, and its authorization
// server, by the certified OpenID provider oidc-provider: mcp-protected-server.mjs FOLDER SECONDS PLACE, over HTTPS.
//
// FOLDER has cert.pem and key.pem. SECONDS is how long access tokens last. Says on standard output what it does:
// "listening on URL", "tokens by GRANT", "a grant was revoked", "noted TEXT".
import fs from "node:fs";
import https from "node:https";
import { generateKeyPairSync } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, seconds, place] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${place}/`));
const { default: Provider } = await import(pathToFileURL(require.resolve("oidc-provider")).href);
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { z } = require("zod");

const read = (name) => fs.readFileSync(`${folder}/${name}`, "utf8");
const signing = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });

let handle = () => {};
const web = https.createServer({ cert: read("cert.pem"), key: read("key.pem") }, (request, response) => handle(request, response));
await new Promise((done) => web.listen(0, "127.0.0.1", done));
const base = `https://localhost:${web.address().port}`;
const resource = `${base}/mcp`;
const metadata = "/.well-known/oauth-protected-resource/mcp";

const provider = new Provider(base, {
    jwks: { keys: [{ ...signing, use: "sig", alg: "RS256", kid: "first" }] },
    cookies: { keys: ["only for tests"] },
    scopes: ["openid", "offline_access", "notes"],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: {
        devInteractions: { enabled: true },
        registration: { enabled: true },
        revocation: { enabled: true, allowedPolicy: () => true },
        resourceIndicators: {
            enabled: true,
            getResourceServerInfo: (_, indicator) => {
                if (indicator !== resource) {
                    throw new Error("another resource");
                }
                return { scope: "notes", audience: indicator, accessTokenTTL: Number(seconds), accessTokenFormat: "opaque" };
            },
        },
    },
    pkce: { required: () => true },
    issueRefreshToken: () => true,
    rotateRefreshToken: true,
    ttl: { RefreshToken: 3600, Grant: 3600, Session: 3600, Interaction: 600 },
});
provider.on("grant.success", (ctx) => console.log(`tokens by ${ctx.oidc.params.grant_type}`));
provider.on("grant.error", (_, error) => console.log(`no tokens: ${error.error_description}`));
provider.on("registration_create.error", (_, error) => console.log(`not registered: ${error.error_description}`));
provider.on("grant.revoked", () => console.log("a grant was revoked"));
provider.on("server_error", (_, error) => console.error(error));

async function isSignedIn(request) {
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1];
    const found = token && (await provider.AccessToken.find(token));
    return found && found.aud === resource && found.scope?.split(" ").includes("notes");
}

async function served(request, response) {
    if (!(await isSignedIn(request))) {
        const challenge = `Bearer error="invalid_token", resource_metadata="${base}${metadata}"`;
        response.writeHead(401, { "www-authenticate": challenge }).end();
        return;
    }
    const server = new McpServer({ name: "notes", version: "1.0.0" });
    server.registerTool("add_note", { description: "Adds a note.", inputSchema: { text: z.string() } }, async ({ text }) => {
        console.log(`noted ${text}`);
        return { content: [{ type: "text", text: `Noted: ${text}` }] };
    });
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    await server.connect(transport);
    await transport.handleRequest(request, response);
}

const signIn = provider.callback();
handle = async (request, response) => {
    if (request.url === "/mcp") {
        await served(request, response);
    } else if (request.url === metadata) {
        const own = { resource, authorization_servers: [base], scopes_supported: ["notes"] };
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(own));
    } else {
        signIn(request, response);
    }
};
console.log(`listening on ${resource}`);
