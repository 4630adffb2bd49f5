/** WebCrypto: of the platform, or of Node 18, which has it in a module only. */

const module = "node:crypto";

export const crypto: Crypto =
  globalThis.crypto ?? ((await import(/* webpackIgnore: true */ /* @vite-ignore */ module)) as { webcrypto: Crypto }).webcrypto;
