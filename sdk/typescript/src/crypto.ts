/** WebCrypto: of the platform, or of Node 18, which has it in a module only. */

let found: Promise<Crypto> | undefined;

export function webCrypto(): Promise<Crypto> {
  const own: Crypto | undefined = globalThis.crypto;
  // Not for bundlers: no browser gets here.
  const module = "node:crypto";
  const ofNode = async () => ((await import(/* webpackIgnore: true */ /* @vite-ignore */ module)) as { webcrypto: Crypto }).webcrypto;
  return (found ??= own ? Promise.resolve(own) : ofNode());
}

/** The digest of bytes, in hexadecimal. */
export async function sha256(bytes: BufferSource): Promise<string> {
  return hex(await (await webCrypto()).subtle.digest("SHA-256", bytes));
}

const hex = (bytes: ArrayBuffer): string => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** The bytes of a text in base64, also in the form for addresses. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
}
