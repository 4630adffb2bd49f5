// The client against a real gateway, whose address, key and services stand in the environment, with the built package in DIST:
//
//     DESKGATE_URL=… DESKGATE_KEY=… DESKGATE_SUBJECT=… SERVICES='{"answers": "ep_…", …}' DEVICE_FINGERPRINT=SHA256:… DIST=… node --test tests
import assert from "node:assert/strict";
import test from "node:test";
import { pathToFileURL } from "node:url";
import { lossyLine } from "./lossy.mjs";

const load = (name) => import(pathToFileURL(`${process.env.DIST}/${name}.js`));
const { Deskgate, DeskgateError, NoAnswerError, ProblemError, RunError, VerificationError, WaitTimeoutError } = await load("index");
const receipts = await load("receipts");
const services = JSON.parse(process.env.SERVICES);
const url = process.env.DESKGATE_URL;
const client = new Deskgate();
const atOnce = { pauseMs: () => 10 };

async function all(list) {
  const found = [];
  for await (const one of list) found.push(one);
  return found;
}
const numbers = async (list) => (await all(list)).flatMap(({ sequence }) => (sequence === undefined ? [] : [sequence]));
const upTo = (count, from = 1) => Array.from({ length: count - from + 1 }, (_, at) => at + from);

test("services and capabilities are read", async () => {
  assert.deepEqual(Object.fromEntries((await client.services.list()).map(({ name, id }) => [name, id])), services);
  assert.ok((await client.capabilities()).limits.body_bytes > 0);
});

test("work is asked, waited for and given with its result", async () => {
  const run = await client.runs.ask(services.answers, "order 4711", { metadata: { case: "7" } });
  assert.deepEqual([run.state, run.result.text, run.metadata], ["succeeded", "Answer to order 4711.", { case: "7" }]);
  assert.deepEqual((await client.runs.ask(services.counts, "count")).result.data, { count: 3 });
});

test("a key of one's own is one run, and other work under it is refused", async () => {
  const submit = (text) => client.runs.submit(services.answers, text, { idempotencyKey: "js-order-1" });
  const [first, again] = [await submit("once"), await submit("once")];
  assert.equal(first.run_id, again.run_id);
  await assert.rejects(submit("twice"), (error) => {
    assert.ok(error instanceof ProblemError && error instanceof DeskgateError);
    assert.deepEqual([error.code, error.status, error.retryable], ["idempotency_key_reused", 409, false]);
    return error.problem.existing_run_id === first.run_id && error.name === "ProblemError";
  });
});

test("every event comes once and in order, and can be resumed behind each", async () => {
  const run = await client.runs.submit(services.answers, "events \u2028 \u0085");
  const seen = (await all(client.runs.follow(run.run_id))).filter(({ sequence }) => sequence !== undefined);
  assert.deepEqual(seen.map(({ sequence }) => sequence), upTo(seen.length));
  assert.deepEqual([seen[0].type, seen.at(-1).type], ["run.accepted", "run.succeeded"]);
  for (let after = 0; after <= seen.length; after += 1) {
    assert.deepEqual(await numbers(client.runs.follow(run.run_id, { after })), upTo(seen.length, after + 1));
  }
});

test("a run that does not succeed is an error with its effects", async () => {
  const run = await client.runs.submit(services.slow, "wait");
  const began = Date.now();
  await assert.rejects(client.runs.ask(services.slow, "wait", { timeoutS: 2 }), (late) => {
    assert.ok(late instanceof WaitTimeoutError && Date.now() - began < 3_500);
    void client.runs.stop(late.runId);
    return true;
  });
  await assert.rejects(client.runs.wait(run.run_id, { timeoutS: 0.5 }), WaitTimeoutError);
  assert.equal((await client.runs.stop(run.run_id, { reason: "no longer needed" })).kind, "run.stop");
  assert.equal((await client.runs.wait(run.run_id, { timeoutS: 60 })).state, "cancelled");
  await assert.rejects(client.runs.ask(services.fails, "x"), (error) => {
    assert.ok(error instanceof RunError);
    return error.code === "max_turns_exceeded" && error.effects === "none" && error.run.state === "failed";
  });
});

test("conversations go on, wait and are reset", async () => {
  const talk = await client.conversations.open(services.answers, "js customer 7");
  const said = [];
  for (const text of ["one", "two"]) said.push(await client.conversations.say(talk, text, { onBusy: "enqueue" }));
  const ended = await Promise.all(said.map(({ run_id }) => client.runs.wait(run_id, { timeoutS: 60 })));
  assert.deepEqual(ended.map(({ result }) => result.text), ["Answer to one.", "Answer to two."]);
  const listed = (await all(client.conversations.messages(talk.conversation_id))).map(({ run_id }) => run_id);
  assert.deepEqual(listed, said.map(({ run_id }) => run_id).reverse());
  let operation = await client.conversations.reset(talk);
  while (operation.state !== "completed") operation = await client.operation(operation.operation_id);
  assert.equal((await client.conversations.read(talk.conversation_id)).generation, 2);
});

test("files go in and come out", async () => {
  const content = crypto.getRandomValues(new Uint8Array(60_000));
  const file = await client.files.upload(content, "letter.bin");
  assert.equal((await client.files.read(file.file_id)).size, content.length);
  const run = await client.runs.ask(services.files, "hand it out", { files: [file] });
  assert.equal(run.input.files[0].name, "letter.bin");
  const line = await lossyLine(url, 0.6, 200_000);
  const lossy = new Deskgate({ baseUrl: line.url, ...atOnce });
  for (const artifact of run.artifacts) {
    assert.equal(new TextDecoder().decode(await lossy.runs.download(run.run_id, artifact)), "A file.\n".repeat(40_000));
    await assert.rejects(client.runs.download(run.run_id, { ...artifact, sha256: "0" }), /are others than/);
  }
  line.close();
  const unused = await client.files.upload("x", "unused.txt", { mediaType: "text/plain" });
  await client.files.delete(unused.file_id);
  await assert.rejects(client.files.read(unused.file_id), { code: "not_found" });
});

test("lists are read page by page", async () => {
  const subject = client.forSubject("js-lists");
  const made = [];
  for (const number of upTo(5)) made.push((await subject.runs.submit(services.answers, `${number}`)).run_id);
  assert.deepEqual((await all(subject.runs.list({ limit: 2 }))).map(({ run_id }) => run_id), made.reverse());
  await subject.runs.wait(made[0]);
  await subject.runs.deleteContent(made[0]);
  assert.equal((await subject.runs.read(made[0])).result, undefined);
});

test("refusals say what is wrong and where, and an aborted call ends", async () => {
  await assert.rejects(client.runs.submit(services.answers, ""), ({ code, problem }) => {
    assert.deepEqual([code, problem.errors[0].pointer], ["invalid_input", "/input/text"]);
    return problem.request_id.length > 0;
  });
  await assert.rejects(new Deskgate({ key: "dgk_wrong" }).services.list(), { code: "credential_invalid", status: 401 });
  const run = await client.runs.submit(services.slow, "wait");
  const waiting = client.runs.wait(run.run_id, { signal: AbortSignal.timeout(200) });
  await assert.rejects(waiting, { name: "TimeoutError" });
  const following = all(client.runs.follow(run.run_id, { signal: AbortSignal.timeout(200) }));
  await assert.rejects(following, { name: "TimeoutError" });
  await client.runs.stop(run.run_id);
});

test("what cannot be sent is told at once, and no secret with it", async () => {
  for (const wrong of ["../../x", "run_1/content", "run_1?x=1", ""]) {
    await assert.rejects(async () => client.runs.read(wrong), /no identifier/);
  }
  for (const settings of [{ key: "dgk_canary\n" }, { baseUrl: "/deskgate" }, { subject: "größe" }]) {
    assert.throws(() => new Deskgate(settings), (error) => error instanceof DeskgateError && !error.message.includes("canary"));
  }
  assert.throws(() => client.forSubject(""), DeskgateError);
  const elsewhere = new Deskgate({ fetch: async () => new Response(null, { status: 301, headers: { location: "https://other.example/" } }) });
  await assert.rejects(elsewhere.conversations.open("ep_1", "x"), /elsewhere: https:\/\/other/);
});

test("a gateway that is not there is told after five tries", async () => {
  const pauses = [];
  const pauseMs = (tries) => (pauses.push(tries), 0);
  await assert.rejects(new Deskgate({ baseUrl: "http://127.0.0.1:9", pauseMs }).services.list(), NoAnswerError);
  assert.deepEqual(pauses, [0, 1, 2, 3]);
  const submission = new Deskgate({ baseUrl: "http://127.0.0.1:9", pauseMs }).runs.submit("ep_1", "x", { idempotencyKey: "kept" });
  await assert.rejects(submission, { idempotencyKey: "kept" });
});

test("work behind a line that cuts answers is done once", async () => {
  const line = await lossyLine(url, 0.4, 1_500);
  const lossy = new Deskgate({ baseUrl: line.url, subject: "js-cuts", ...atOnce });
  const answers = await Promise.all(upTo(40).map((number) => lossy.runs.ask(services.answers, `question ${number}`)));
  line.close();
  assert.deepEqual(answers.map(({ result }) => result.text), upTo(40).map((number) => `Answer to question ${number}.`));
  assert.equal((await all(client.forSubject("js-cuts").runs.list({ limit: 100 }))).length, 40);
  assert.ok(line.cuts > 20, `${line.cuts}`);
});

test("a stream over a line that cuts loses and repeats nothing", async () => {
  const line = await lossyLine(url, 0.6, 6_000);
  const lossy = new Deskgate({ baseUrl: line.url, ...atOnce });
  for (const number of upTo(10)) {
    const run = await lossy.runs.submit(services.answers, `stream ${number}`);
    const seen = await numbers(lossy.runs.follow(run.run_id));
    assert.ok(seen.length > 3);
    assert.deepEqual(seen, upTo(seen.length));
  }
  line.close();
  assert.ok(line.cuts > 0);
});

test("a receipt shows what the desktop said", async () => {
  const run = await client.runs.ask(services.answers, { text: "signed", amount: 0.1, "größe": [1, 2.5, null], 10: 1, 9: 2 });
  const own = process.env.DEVICE_FINGERPRINT;
  const said = await receipts.verify(run, own, { input: run.input });
  assert.deepEqual([said.state, said.effects], ["succeeded", "none"]);
  const forged = { ...run, result: { ...run.result, text: "Pay at once." } };
  const [moved, asked] = [{ ...run, conversation_id: "conv_1" }, { ...run, input: { text: "other" } }];
  for (const [record, fingerprint] of [[forged, own], [moved, own], [asked, own], [run, "SHA256:other"], [{ state: "failed" }, "x"]]) {
    await assert.rejects(receipts.verify(record, fingerprint), VerificationError);
  }
  await assert.rejects(receipts.verify(run, own, { input: { text: "other" } }), /input/);
  const file = await client.files.upload("x", "x.txt");
  const sent = { text: "with a file", files: [{ file_id: file.file_id }] };
  const given = await client.runs.ask(services.files, sent);
  await receipts.verify(given, own, { input: sent });
  await client.runs.deleteContent(given.run_id);
  await receipts.verify(await client.runs.read(given.run_id), own);
});
