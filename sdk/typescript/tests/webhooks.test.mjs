// Callbacks: the example of the specification of Standard Webhooks.
import assert from "node:assert/strict";
import test from "node:test";
import { pathToFileURL } from "node:url";

const { verify } = await import(pathToFileURL(`${process.env.DIST}/webhooks.js`));
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const headers = {
  "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
  "Webhook-Timestamp": "1614265330",
  "Webhook-Signature": "v1,bm9uZQ== v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
};
const body = '{"test": 2432232314}';

test("a genuine callback is its event", async () => {
  assert.deepEqual(await verify(headers, body, secret, { now: 1614265330 }), { test: 2432232314 });
  assert.deepEqual(await verify(new Headers(headers), new TextEncoder().encode(body), secret, { now: 1614265630 }), { test: 2432232314 });
});

test("any other is refused", async () => {
  for (const [given, content, key, now] of [
    [headers, '{"test": 2432232315}', secret, 1614265330],
    [headers, body, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", 1614265330],
    [headers, body, "whsec_no base64", 1614265330],
    [headers, body, secret, 1614265631],
    [headers, body, secret, 1614265029],
    [{ ...headers, "Webhook-Timestamp": "now" }, body, secret, 1614265330],
    [{ ...headers, "Webhook-Signature": "v1,no base64 v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" }, body, secret, 1614265330],
    [headers, body, "", 1614265330],
    [headers, body, "whsec_", 1614265330],
    [{}, body, secret, 1614265330],
  ]) {
    await assert.rejects(verify(given, content, key, { now }), { name: "VerificationError" });
  }
});
