// OpenAI's own SDK and the AI SDK call published services: openai_sdk.mjs CLIENTS ORIGIN KEY SERVICE TYPED-SERVICE SLOW-SERVICE.
// Prints what came of it as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [clients, origin, key, service, typed, slow] = process.argv.slice(2);
const require = createRequire(`${clients}/node_modules/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { default: OpenAI } = await load("openai");
const { generateText, streamText, generateObject, Output } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const headers = { "X-Gateway-Subject": "customer-1" };
const client = new OpenAI({ baseURL: `${origin}/openai/v1`, apiKey: key, defaultHeaders: headers });
const seen = {};
const failure = async (call) => {
  try {
    return ["no error", await call()];
  } catch (error) {
    return [error.status ?? error.statusCode, error.code ?? null, error.param ?? null, error.message];
  }
};

seen.models = [];
for await (const model of client.models.list()) seen.models.push(model.id);
const answer = await client.responses.create({ model: service, input: "orders" });
seen.answer = [answer.status, answer.output_text, answer.output.length];

const events = [];
for await (const event of await client.responses.create({ model: service, input: "streamed", stream: true })) events.push(event);
seen.stream = [events[0].type, events.at(-1).type, events.at(-1).response.output.at(-1).content[0].text];
const helper = client.responses.stream({ model: service, input: "helped" });
for await (const _ of helper);
seen.helper = (await helper.finalResponse()).output_text;
const rest = [];
const half = events[Math.floor(events.length / 2)].sequence_number;
const id = events.at(-1).response.id;
for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: half })) rest.push(event);
seen.resumed = rest.every((event) => event.sequence_number > half) && rest.at(-1).type === "response.completed";

const waiting = await client.responses.create({ model: slow, input: "x", background: true });
seen.background = waiting.status;
let now = await client.responses.cancel(waiting.id);
while (["queued", "in_progress"].includes(now.status)) now = await client.responses.retrieve(waiting.id);
seen.cancelled = [now.status, now.error.code];

const chat = await client.chat.completions.create({ model: service, messages: [{ role: "user", content: "chat" }] });
seen.chat = chat.choices[0].message.content;
const runner = client.chat.completions.stream({ model: service, messages: [{ role: "user", content: "chat" }] });
seen["chat stream"] = await runner.finalContent();
seen["no model"] = await failure(() => client.responses.create({ model: "nobody", input: "x" }));
seen["wrong input"] = await failure(() => client.responses.create({ model: service, input: [] }));

const provider = createOpenAI({ baseURL: `${origin}/openai/v1`, apiKey: key, headers });
for (const [name, model] of [["responses", provider(service)], ["chat", provider.chat(service)],
  ["compatible", createOpenAICompatible({ name: "deskgate", baseURL: `${origin}/openai/v1`, apiKey: key, headers })(service)]]) {
  const { text, finishReason } = await generateText({ model, prompt: "generated", temperature: 0 });
  const streamed = streamText({ model, prompt: "generated", onError() {} });
  let whole = "";
  for await (const piece of streamed.textStream) whole += piece;
  seen[`ai ${name}`] = [text, finishReason, whole, await streamed.finishReason];
}
const turns = [{ role: "user", content: "a" }, { role: "assistant", content: "b" }, { role: "user", content: "c" }];
seen["ai turns"] = (await generateText({ model: provider(service), messages: turns })).text;
const first = await generateText({ model: provider(service), prompt: "first" });
const referred = [{ role: "user", content: "first" }, ...first.response.messages, { role: "user", content: "second" }];
seen["ai refers"] = (await generateText({ model: provider(service), messages: referred })).text;
const schema = z.object({ ids: z.array(z.string()), count: z.number() });
seen["ai object"] = (await generateObject({ model: provider(typed), schema, prompt: "How many?" })).object.count;
seen["ai output"] = (await generateText({ model: provider(typed), output: Output.object({ schema }), prompt: "How many?" })).output?.count;
seen["ai no model"] = (await failure(() => generateText({ model: provider("nobody"), prompt: "x" })))[3];
console.log(JSON.stringify(seen));
