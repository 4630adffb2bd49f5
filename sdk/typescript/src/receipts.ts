/** Verifies receipts: what a desktop signed about how a run ended. Needs Ed25519 in WebCrypto: Node 18, and current browsers. */

import { fromBase64, sha256, webCrypto } from "./crypto.js";
import { VerificationError } from "./errors.js";
import type { Run } from "./records.js";

type Json = { [member: string]: unknown };

/** JSON in its canonical form (RFC 8785): numbers and texts are written as JavaScript does. Objects are not rebuilt, as names that are numbers
 * would come first. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") {
    if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)) {
      throw new VerificationError("the record cannot be verified: it has a number that JavaScript cannot hold exactly");
    }
    return JSON.stringify(value);
  }
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  members.sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(",")}}`;
}

const digestOf = (value: unknown): Promise<string> => sha256(new TextEncoder().encode(canonical(value)));

/** The fingerprint of a key, as `deskgate identity show` says it. */
export async function fingerprint(publicKey: Uint8Array): Promise<string> {
  const head = [0, 0, 0, 11, ...new TextEncoder().encode("ssh-ed25519"), 0, 0, 0, 32];
  const digest = await (await webCrypto()).subtle.digest("SHA-256", new Uint8Array([...head, ...publicKey]));
  return `SHA256:${btoa(String.fromCharCode(...new Uint8Array(digest))).replace(/=+$/, "")}`;
}

/**
 * What the device says of a run that has ended, if the run's record is what it signed. `deviceFingerprint` comes from the device's owner, not from
 * the gateway. `input` is the object as you sent it; without it the record's own alone is compared. Whether it was your application and subject
 * that asked, this does not say; `deskgate verify-receipt` does.
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
    const text = (part: string) => JSON.parse(new TextDecoder().decode(fromBase64(part))) as Json;
    const header = text(head) as { typ?: string; alg?: string; jwk?: { kty?: string; crv?: string; x?: string } };
    const { kty, crv, x } = header.jwk ?? {};
    if (header.typ !== "deskgate-receipt+jwt" || header.alg !== "EdDSA" || kty !== "OKP" || crv !== "Ed25519" || x === undefined) {
      throw new Error("it is of another kind");
    }
    [said, key] = [text(payload), fromBase64(x)];
    const crypto = await webCrypto();
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    const signed = new TextEncoder().encode(`${head}.${payload}`);
    isGenuine = await crypto.subtle.verify("Ed25519", imported, fromBase64(signature), signed);
  } catch (error) {
    throw new VerificationError(`the receipt cannot be read: ${String(error)}`, { cause: error });
  }
  if (!isGenuine) throw new VerificationError("the signature of the receipt is not valid");
  if ((await fingerprint(key)) !== deviceFingerprint) throw new VerificationError("the receipt is of another device");
  const record = run as unknown as Json;
  const expected: Json = { v: 1, kind: "outcome" };
  for (const name of ["run_id", "endpoint_id", "endpoint_version", "conversation_id", "generation", "state"]) expected[name] = record[name];
  expected["error_sha256"] = record["error"] === undefined ? undefined : await digestOf(record["error"]);
  // What was deleted is not there to be compared.
  if (record["result"] !== undefined || record["content_deleted_at"] === undefined) {
    expected["result_sha256"] = record["result"] === undefined ? undefined : await digestOf(record["result"]);
  }
  const differs = Object.keys(expected).filter((name) => (said[name] ?? undefined) !== expected[name]);
  for (const known of [record["input"], input && asStored(input, run)]) {
    if (known !== undefined && (await digestOf(known)) !== said["input_sha256"] && !differs.includes("input")) differs.push("input");
  }
  if (differs.length > 0) throw new VerificationError(`the device did not sign this: ${differs.join(", ")}`);
  return said;
}

/** An input as it is kept: its files have a name, a size and a digest, which the gateway adds. */
function asStored(input: Json, run: Run): Json {
  const ids = (files: unknown): string => JSON.stringify((Array.isArray(files) ? files : []).map((file: { file_id?: unknown }) => file.file_id));
  const kept = run.input?.files as unknown[] | undefined;
  return kept?.length && ids(input["files"]) === ids(kept) ? { ...input, files: kept } : input;
}
