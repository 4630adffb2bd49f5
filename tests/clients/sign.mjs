// Signs an event as its sender's own library from npm does: sign.mjs SCHEME PLACE, with the secret in SECRET and the body on
// the standard input. Prints the headers as one JSON object.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [scheme, place] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${place}/`));
const secret = process.env.SECRET;
const body = readFileSync(0, "utf8");

const signers = {
    async standard() {
        const { Webhook } = require("standardwebhooks");
        const [id, now] = ["msg_npm", new Date()];
        return {
            "webhook-id": id,
            "webhook-timestamp": String(Math.floor(now / 1000)),
            "webhook-signature": new Webhook(secret).sign(id, now, body),
        };
    },
    async github() {
        const methods = `${place}/node_modules/@octokit/webhooks-methods/dist-node/index.js`;
        const { sign } = await import(pathToFileURL(methods));
        return { "x-hub-signature-256": await sign(secret, body), "x-github-delivery": "d-1", "x-github-event": "issues" };
    },
    async stripe() {
        const Stripe = require("stripe");
        const header = new Stripe("sk_test_none").webhooks.generateTestHeaderString({ payload: body, secret });
        return { "stripe-signature": header };
    },
};
process.stdout.write(JSON.stringify(await signers[scheme]()));
