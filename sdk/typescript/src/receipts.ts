/** Verifies receipts: what a desktop signed about how a run ended. Needs Ed25519 in WebCrypto: Node 18, and current browsers. */

import { crypto } from "./crypto.js";
import { VerificationError } from "./errors.js";
import type { Run } from "./records.js";

type Json = { [member: string]: unknown };

/** JSON in its canonical form (RFC 8785): numbers and texts are written as JavaScript does. */
function canonical(value: unknown): string {
  const sorted = (_: string, member: unknown): unknown =>
    member !== null && typeof member === "object" && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([one], [other]) => (one < other ? -1 : 1)))
      : member;
  return JSON.stringify(value, sorted);
}

const hex = (bytes: ArrayBuffer): string => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

async function sha256(value: unknown): Promise<string> {
  return hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(value))));
}

function fromBase64url(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
}

/** The fingerprint of a key, as `deskgate identity show` says it. */
export async function fingerprint(publicKey: Uint8Array): Promise<string> {
  const head = [0, 0, 0, 11, ...new TextEncoder().encode("ssh-ed25519"), 0, 0, 0, 32];
  const digest = await crypto.subtle.digest("SHA-256", new Uint8Array([...head, ...publicKey]));
  return `SHA256:${btoa(String.fromCharCode(...new Uint8Array(digest))).replace(/=+$/, "")}`;
}

/**
 * What the device says of a run that has ended, if the run's record is what it signed. `deviceFingerprint` comes from the device's owner, not from
 * the gateway. `input` is the object as you sent it; without it the record's own is compared.
 *
 * @throws {VerificationError} There is no receipt, it is of another device, or the record says something else.
 */
export async function verify(run: Run, deviceFingerprint: string, { input }: { input?: Json } = {}): Promise<Json> {
  if (typeof run.receipt !== "string") throw new VerificationError("the run has no receipt: its outcome is the gateway's word alone");
  let said: Json;
  let key: Uint8Array<ArrayBuffer>;
  let isGenuine: boolean;
  try {
    const [head, payload, signature, more] = run.receipt.split(".");
    if (head === undefined || payload === undefined || signature === undefined || more !== undefined) throw new Error("it has not three parts");
    const text = (part: string) => JSON.parse(new TextDecoder().decode(fromBase64url(part))) as Json;
    const header = text(head) as { typ?: string; alg?: string; jwk?: { kty?: string; crv?: string; x?: string } };
    const { kty, crv, x } = header.jwk ?? {};
    if (header.typ !== "deskgate-receipt+jwt" || header.alg !== "EdDSA" || kty !== "OKP" || crv !== "Ed25519" || x === undefined) {
      throw new Error("it is of another kind");
    }
    [said, key] = [text(payload), fromBase64url(x)];
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    const signed = new TextEncoder().encode(`${head}.${payload}`);
    isGenuine = await crypto.subtle.verify("Ed25519", imported, fromBase64url(signature), signed);
  } catch (error) {
    throw new VerificationError(`the receipt cannot be read: ${String(error)}`, { cause: error });
  }
  if (!isGenuine) throw new VerificationError("the signature of the receipt is not valid");
  if ((await fingerprint(key)) !== deviceFingerprint) throw new VerificationError("the receipt is of another device");
  const record = run as unknown as Json;
  const expected: Json = { v: 1, kind: "outcome", input_sha256: await sha256(input ?? record["input"]) };
  for (const name of ["run_id", "endpoint_id", "endpoint_version", "state"]) expected[name] = record[name];
  for (const name of ["result", "error"]) {
    expected[`${name}_sha256`] = record[name] === undefined ? undefined : await sha256(record[name]);
  }
  const differs = Object.keys(expected).filter((name) => (said[name] ?? undefined) !== expected[name]);
  if (differs.length > 0) throw new VerificationError(`the device did not sign this: ${differs.join(", ")}`);
  return said;
}
