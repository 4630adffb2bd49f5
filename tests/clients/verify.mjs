// Verifies a callback as a business would, with Standard Webhooks' library from npm: verify.mjs PLACE, with the secret in SECRET and
// {"headers": …, "body": "…"} on the standard input. Prints the event's type; an event that is not genuine is an error.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { Webhook } = createRequire(pathToFileURL(`${process.argv[2]}/`))("standardwebhooks");
const { headers, body } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(new Webhook(process.env.SECRET).verify(body, headers).type);
