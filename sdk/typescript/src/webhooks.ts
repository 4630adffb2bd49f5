/** Verifies callbacks of Deskgate (Standard Webhooks). */

import { fromBase64, webCrypto } from "./crypto.js";
import { VerificationError } from "./errors.js";

/** How old a callback may be, in seconds. */
export const TOLERANCE_SECONDS = 300;

/**
 * The event of a callback, if it is genuine. `body` is what came, before anything parses it; `secret` begins with `whsec_`. Remember the header
 * `webhook-id`, as a callback may come twice.
 *
 * @throws {VerificationError} It was not signed with the secret, or is too old.
 */
export async function verify(
  headers: Headers | { [name: string]: string | string[] | undefined },
  body: string | Uint8Array,
  secret: string,
  { toleranceSeconds = TOLERANCE_SECONDS, now = Date.now() / 1000 }: { toleranceSeconds?: number; now?: number } = {},
): Promise<{ [member: string]: unknown }> {
  const given = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const named = new Map(given.map(([name, value]) => [name.toLowerCase(), String(value)]));
  const [id, timestamp, signatures] = ["id", "timestamp", "signature"].map((name) => named.get(`webhook-${name}`));
  if (id === undefined || timestamp === undefined || signatures === undefined || !/^\d+$/.test(timestamp)) {
    throw new VerificationError("the callback cannot be verified: its headers are missing or wrong");
  }
  if (Math.abs(now - Number(timestamp)) > toleranceSeconds) throw new VerificationError("the callback is too old, or from the future");
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(head.length + content.length);
  signed.set(head);
  signed.set(content, head.length);
  const crypto = await webCrypto();
  let key: CryptoKey;
  try {
    const bytes = fromBase64(secret.replace(/^whsec_/, ""));
    if (bytes.length === 0) throw new Error("it is empty");
    key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  } catch {
    throw new VerificationError("the secret is none: it begins with whsec_");
  }
  for (const one of signatures.split(" ").filter((one) => one.startsWith("v1,"))) {
    const signature = (() => {
      try {
        return fromBase64(one.slice(3));
      } catch {
        return undefined;
      }
    })();
    // Compared in constant time.
    if (signature && (await crypto.subtle.verify("HMAC", key, signature, signed))) {
      return JSON.parse(new TextDecoder().decode(content)) as { [member: string]: unknown };
    }
  }
  throw new VerificationError("the callback was not signed with this secret");
}
