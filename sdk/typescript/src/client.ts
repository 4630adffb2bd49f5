/** The client. */

import { sha256, webCrypto } from "./crypto.js";
import { DeskgateError, RunError, StreamBrokenError, WaitTimeoutError } from "./errors.js";
import type {
  Artifact,
  Capabilities,
  ControlOperation,
  Conversation,
  Delivery,
  File,
  OnBusy,
  PassingEvent,
  Run,
  RunEvent,
  Service,
} from "./records.js";
import { MAX_TRIES, STEADY_MS, TIMEOUT_MS, events, pauseMs, send, sleep } from "./shared.js";

const FINAL_EVENTS = new Set(["run.succeeded", "run.failed", "run.cancelled", "run.expired"]);
/** How long one reading of a run waits for its end, in seconds. */
const WAIT_S = 30;

/** What a client needs. */
export interface DeskgateOptions {
  /** The gateway's address. Default: the variable `DESKGATE_URL`. */
  baseUrl?: string;
  /** The application key. Default: the variable `DESKGATE_KEY`. It does not belong into a page: there give `token`. */
  key?: string;
  /** Instead of a key: what your own server sends with requests that it passes on, as for pages in browsers. */
  token?: string;
  /** Your own name of the user for whom you call. Default: the variable `DESKGATE_SUBJECT`. A key that is bound to one needs none. */
  subject?: string | undefined;
  /** Another `fetch`. */
  fetch?: typeof fetch;
  /** Milliseconds between two tries; for tests. */
  pauseMs?: (tries: number, answer: Response | undefined) => number;
}

/** What a call may be given. */
export interface CallOptions {
  /** Ends the call. What it asked for may have been done. */
  signal?: AbortSignal;
}

/** A piece of work. */
export interface Work extends CallOptions {
  /** Data that fits the service's schema of inputs. */
  data?: { [member: string]: unknown };
  /** Files that were uploaded. */
  files?: (string | Pick<File, "file_id">)[];
  /** A schema for the result, where the service takes one. */
  output?: { name: string; schema: object };
  /** Labels of your own. */
  metadata?: { [name: string]: string };
  /** Seconds that it may wait for a start. */
  queueTtlS?: number;
  /** Awake seconds that it may execute. */
  maxDurationS?: number;
  /** Seconds to wait for the end, up to 60. */
  waitS?: number;
  /** Your own name for this piece of work. Keep it with the work, and a later process finds the same run. Default: one for this call. */
  idempotencyKey?: string;
}

/** The text of a piece of work, or the whole object. */
export type Input = string | ({ text: string } & { [member: string]: unknown });

function variable(name: string): string | undefined {
  const environment = (globalThis as { process?: { env?: { [name: string]: string | undefined } } }).process?.env;
  return environment?.[name] || undefined;
}

/** The key that was given, or a new one. */
async function keyFor(given: string | undefined): Promise<string> {
  return given ?? `js-${[...(await webCrypto()).getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** An identifier as a part of a path. Others could lead to another call. */
function segment(identifier: string): string {
  if (typeof identifier !== "string" || !/^[A-Za-z0-9_-]{1,128}$/.test(identifier)) throw new DeskgateError("that is no identifier of this API");
  return identifier;
}

/** A value that can stand in a header. It is not repeated: it may be a secret. */
function inHeader(value: string, what: string): string {
  if (!/^[!-~]+$/.test(value)) throw new DeskgateError(`${what} has characters that it cannot have, such as a space or the end of a line`);
  return value;
}

/** Bytes a second that an upload reaches at least. */
const SLOWEST_UPLOAD_BYTES_PER_S = 20_000;

type Query = { [name: string]: string | number | string[] | undefined };

interface Asked extends CallOptions {
  body?: unknown;
  content?: Uint8Array | undefined;
  query?: Query;
  headers?: { [name: string]: string };
  /** Under a key the request creates something. */
  key?: string | undefined;
}

/**
 * The client of one gateway, for one application key. Each request is sent up to five times where that helps, work always under one
 * `Idempotency-Key`: so it is done once, whatever happens to the connection.
 */
export class Deskgate {
  readonly services = new Services(this);
  readonly runs = new Runs(this);
  readonly conversations = new Conversations(this);
  readonly files = new Files(this);
  readonly deliveries = new Deliveries(this);
  readonly #options: DeskgateOptions;
  readonly #baseUrl: string;
  readonly #credential: string;

  constructor(options: DeskgateOptions = {}) {
    const baseUrl = options.baseUrl ?? variable("DESKGATE_URL");
    const credential = options.token ?? options.key ?? variable("DESKGATE_KEY");
    if (!baseUrl) throw new DeskgateError("the gateway's address is missing: give baseUrl, or set DESKGATE_URL");
    if (!credential) throw new DeskgateError("the application key is missing: give key, or set DESKGATE_KEY");
    if (!/^https?:\/\/[^/]/.test(baseUrl)) throw new DeskgateError("the gateway's address begins with https://, or with http:// on this computer");
    const subject = "subject" in options ? options.subject : variable("DESKGATE_SUBJECT");
    this.#options = { ...options, subject: subject === undefined ? undefined : inHeader(subject, "the subject") };
    [this.#baseUrl, this.#credential] = [baseUrl.replace(/\/+$/, ""), inHeader(credential, "the application key")];
  }

  /** A client for another subject. */
  forSubject(subject: string): Deskgate {
    if (!subject) throw new DeskgateError("the subject is empty");
    return new Deskgate({ ...this.#options, subject });
  }

  /** What the gateway and the key can do, and the limits. */
  capabilities(options: CallOptions = {}): Promise<Capabilities> {
    return this.call("GET", "/capabilities", options);
  }

  /** A stop or a reset as it is now. */
  operation(operationId: string, options: CallOptions = {}): Promise<ControlOperation> {
    return this.call("GET", `/control-operations/${segment(operationId)}`, options);
  }

  /** @internal */
  get pause(): typeof pauseMs {
    return this.#options.pauseMs ?? pauseMs;
  }

  /** @internal Sends a request once. */
  fetch(method: string, path: string, signal: AbortSignal, { body, content, query, headers, key }: Asked = {}): Promise<Response> {
    const url = new URL(`${this.#baseUrl}/api/v1${path}`);
    for (const [name, value] of Object.entries(query ?? {})) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) url.searchParams.append(name, String(one));
      }
    }
    const named = new Headers({ Authorization: `Bearer ${this.#credential}`, ...headers });
    if (this.#options.subject) named.set("X-Gateway-Subject", this.#options.subject);
    if (key !== undefined) named.set("Idempotency-Key", key);
    if (body !== undefined) named.set("Content-Type", "application/json");
    const sent = (content as BodyInit | undefined) ?? (body === undefined ? undefined : JSON.stringify(body));
    return (this.#options.fetch ?? fetch)(url, { method, headers: named, signal, redirect: "manual", ...(sent === undefined ? {} : { body: sent }) });
  }

  /** @internal The JSON of an answer. */
  call<T>(method: string, path: string, asked: Asked = {}): Promise<T> {
    const read = async (answer: Response) => {
      const text = await answer.text();
      return (text === "" ? undefined : JSON.parse(text)) as T;
    };
    const timeoutMs = TIMEOUT_MS + ((asked.content?.length ?? 0) / SLOWEST_UPLOAD_BYTES_PER_S) * 1000;
    const options = { signal: asked.signal, pause: this.pause, timeoutMs, key: asked.key };
    return send((signal) => this.fetch(method, path, signal, asked), read, options);
  }

  /** @internal The records of a list, page by page, newest first. */
  async *pages<T>(path: string, query: Query, options: CallOptions = {}): AsyncGenerator<T, void, void> {
    let cursor: string | undefined;
    do {
      const page: { data: T[]; next_cursor?: string } = await this.call("GET", path, { ...options, query: { ...query, cursor } });
      yield* page.data;
      cursor = page.next_cursor;
    } while (cursor);
  }
}

/** The body of a submission. */
function bodyOf(input: Input, work: Work): { [member: string]: unknown } {
  const given: { [member: string]: unknown } = typeof input === "string" ? { text: input } : { ...input };
  if (work.data !== undefined) given["data"] = work.data;
  if (work.files?.length) given["files"] = work.files.map((file) => ({ file_id: typeof file === "string" ? file : file.file_id }));
  const { output, metadata, queueTtlS, maxDurationS } = work;
  return { input: given, output, metadata, queue_ttl_s: queueTtlS, max_duration_s: maxDurationS };
}

const waiting = (work: Work): Query => ({ wait: work.waitS || undefined });
const signalOf = ({ signal }: CallOptions): CallOptions => (signal ? { signal } : {});

/** The published services. */
class Services {
  constructor(private readonly client: Deskgate) {}

  /** The services that the key may use. */
  async list(options: CallOptions = {}): Promise<Service[]> {
    return (await this.client.call<{ endpoints: Service[] }>("GET", "/agent-endpoints", options)).endpoints;
  }
}

/** Runs: work, and what became of it. */
class Runs {
  constructor(private readonly client: Deskgate) {}

  /** Submits work, once. The run is stored durably when this returns, and may not have begun. */
  async submit(serviceId: string, input: Input, work: Work = {}): Promise<Run> {
    const asked = { ...signalOf(work), body: bodyOf(input, work), query: waiting(work), key: await keyFor(work.idempotencyKey) };
    return this.client.call("POST", `/agent-endpoints/${segment(serviceId)}/runs`, asked);
  }

  /**
   * Submits work, waits for its end, and returns the run if it succeeded.
   *
   * Errors that come after it was accepted have its `runId`.
   *
   * @throws {RunError} It did not succeed.
   * @throws {WaitTimeoutError} It has not ended in `timeoutS` seconds; it goes on.
   */
  async ask(serviceId: string, input: Input, work: Omit<Work, "waitS"> & { timeoutS?: number } = {}): Promise<Run> {
    const endsAt = Date.now() + (work.timeoutS ?? Infinity) * 1000;
    const leftS = () => Math.max(0, (endsAt - Date.now()) / 1000);
    const run = await this.submit(serviceId, input, { ...work, waitS: Math.min(WAIT_S, Math.floor(leftS())) });
    if (run.phase === "final") return succeeded(run);
    try {
      return succeeded(await this.wait(run.run_id, { ...signalOf(work), ...(work.timeoutS === undefined ? {} : { timeoutS: leftS() }) }));
    } catch (error) {
      if (error instanceof DeskgateError) error.runId = run.run_id;
      throw error;
    }
  }

  /** A run as it is now. `waitS`: seconds to wait for a change, up to 60. */
  read(runId: string, { waitS, ...options }: CallOptions & { waitS?: number } = {}): Promise<Run> {
    return this.client.call("GET", `/runs/${segment(runId)}`, { ...options, query: { wait: waitS || undefined } });
  }

  /**
   * A run once it has ended, however it ended.
   *
   * @throws {WaitTimeoutError} It has not ended in `timeoutS` seconds; it goes on.
   */
  async wait(runId: string, { timeoutS, ...options }: CallOptions & { timeoutS?: number } = {}): Promise<Run> {
    const endsAt = timeoutS === undefined ? Infinity : Date.now() + timeoutS * 1000;
    for (;;) {
      const leftS = (endsAt - Date.now()) / 1000;
      const run = await this.read(runId, { ...signalOf(options), waitS: Math.max(0, Math.min(WAIT_S, Math.floor(leftS))) });
      if (run.phase === "final") return run;
      if (Date.now() >= endsAt) throw new WaitTimeoutError(run);
      if (leftS < 1) await sleep(Math.max(10, leftS * 1000), options.signal);
    }
  }

  /**
   * What happens in a run, until it has ended: every stored event once and in order, behind the event `after`, although the connection breaks.
   * Between them come events that are not stored and have no `sequence`, as the pieces of a message (`message.delta`).
   *
   * @throws {StreamBrokenError} The connection broke five times soon after each other without a new event.
   */
  async *follow(
    runId: string,
    { after = 0, signal }: CallOptions & { after?: number } = {},
  ): AsyncGenerator<RunEvent | PassingEvent, void, void> {
    let [last, breaks] = [after, 0];
    while (breaks < MAX_TRIES) {
      const began = Date.now();
      const stream = new AbortController();
      const aborted = () => stream.abort(signal?.reason);
      signal?.addEventListener("abort", aborted, { once: true });
      try {
        const opened = await this.#open(runId, last, signal, stream.signal);
        if (opened === undefined) return;
        for await (const event of events(opened)) {
          const told = event as unknown as RunEvent | PassingEvent;
          if (told.sequence !== undefined) [last, breaks] = [told.sequence, 0];
          yield told;
          if (FINAL_EVENTS.has(told.type)) return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof SyntaxError || error instanceof DeskgateError) throw error;
      } finally {
        signal?.removeEventListener("abort", aborted);
        stream.abort();
      }
      breaks = Date.now() - began > STEADY_MS ? 0 : breaks + 1;
      await sleep(this.client.pause(0, undefined), signal);
    }
    throw new StreamBrokenError(last);
  }

  /** The body of a stream, until `whole` ends it; `undefined` if there is nothing behind its last event. */
  async #open(
    runId: string,
    after: number,
    signal: AbortSignal | undefined,
    whole: AbortSignal,
  ): Promise<ReadableStream<Uint8Array> | undefined> {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": String(after) };
    // The time for a head is limited, and not that of the body.
    const read = (answer: Response) => Promise.resolve(answer.status === 204 ? undefined : (answer.body ?? undefined));
    const attempt = async (giveUp: AbortSignal) => {
      const one = new AbortController();
      const end = () => one.abort(giveUp.reason);
      giveUp.addEventListener("abort", end, { once: true });
      whole.addEventListener("abort", () => one.abort(whole.reason), { once: true });
      return this.client.fetch("GET", `/runs/${segment(runId)}/events`, one.signal, { headers });
    };
    return send(attempt, read, { signal, pause: this.client.pause });
  }

  /** Asks for a run to be stopped. The device confirms it: wait for the run to see what became of it. */
  async stop(
    runId: string,
    { reason, idempotencyKey, ...options }: CallOptions & { reason?: string; idempotencyKey?: string } = {},
  ): Promise<ControlOperation> {
    const asked = { ...options, body: { reason }, key: await keyFor(idempotencyKey) };
    return this.client.call<ControlOperation>("POST", `/runs/${segment(runId)}/stop`, asked);
  }

  /** The runs of this subject, newest first, without inputs and results. The filters are those of the API: `endpoint_id`, `state`, `phase`… */
  list(filters: Query = {}, options: CallOptions = {}): AsyncGenerator<Run, void, void> {
    return this.client.pages("/runs", filters, options);
  }

  /** Deletes the input and the result of a run that has ended, for good. */
  deleteContent(runId: string, options: CallOptions = {}): Promise<void> {
    return this.client.call("DELETE", `/runs/${segment(runId)}/content`, options);
  }

  /** A file that a run handed out, whole and checked. */
  async download(runId: string, artifact: Pick<Artifact, "artifact_id" | "sha256">, options: CallOptions = {}): Promise<Uint8Array> {
    const path = `/runs/${segment(runId)}/artifacts/${segment(artifact.artifact_id)}`;
    const read = async (answer: Response) => new Uint8Array(await answer.arrayBuffer());
    const settings = { signal: options.signal, pause: this.client.pause, timeoutMs: 600_000 };
    const bytes = await send((signal) => this.client.fetch("GET", path, signal), read, settings);
    if ((await sha256(bytes)) !== artifact.sha256) throw new DeskgateError(`the bytes of ${artifact.artifact_id} are others than its record says`);
    return bytes;
  }
}

/** Conversations: messages that see what was said before. */
class Conversations {
  constructor(private readonly client: Deskgate) {}

  /** The conversation of this name with a service, made if there is none. */
  async open(serviceId: string, conversationKey: string, options: CallOptions & { idempotencyKey?: string } = {}): Promise<Conversation> {
    const body = { endpoint_id: serviceId, conversation_key: conversationKey };
    return this.client.call("POST", "/conversations", { ...signalOf(options), body, key: await keyFor(options.idempotencyKey) });
  }

  /** A conversation as it is now. */
  read(conversationId: string, options: CallOptions = {}): Promise<Conversation> {
    return this.client.call("GET", `/conversations/${segment(conversationId)}`, options);
  }

  /** Sends a message, once; it becomes a run. `onBusy`: what becomes of it while the conversation works on another one. */
  async say(
    conversation: Pick<Conversation, "conversation_id" | "generation">,
    input: Input,
    { onBusy = "reject", ...work }: Work & { onBusy?: OnBusy } = {},
  ): Promise<Run> {
    const body = { ...bodyOf(input, work), expected_generation: conversation.generation, on_busy: onBusy };
    const asked = { ...signalOf(work), body, query: waiting(work), key: await keyFor(work.idempotencyKey) };
    return this.client.call("POST", `/conversations/${segment(conversation.conversation_id)}/messages`, asked);
  }

  /** The conversations of this subject, newest first. */
  list(filters: { endpoint_id?: string; conversation_key?: string } = {}, options: CallOptions = {}) {
    return this.client.pages<Conversation>("/conversations", filters, options);
  }

  /** What was said, and what came of it: the runs of a conversation, newest first. */
  messages(conversationId: string, filters: { generation?: number } = {}, options: CallOptions = {}) {
    return this.client.pages<Run>(`/conversations/${segment(conversationId)}/messages`, filters, options);
  }

  /** Begins a conversation anew: what was said before is forgotten. */
  async reset(
    conversation: Pick<Conversation, "conversation_id" | "generation">,
    options: CallOptions & { idempotencyKey?: string } = {},
  ): Promise<ControlOperation> {
    const asked = { ...signalOf(options), body: { expected_generation: conversation.generation }, key: await keyFor(options.idempotencyKey) };
    return this.client.call("POST", `/conversations/${segment(conversation.conversation_id)}/reset`, asked);
  }
}

/** Files that runs are given. */
class Files {
  constructor(private readonly client: Deskgate) {}

  /** Uploads a file, of 64 MiB at most. The digest of the bytes goes with it, so that other bytes are never stored. */
  async upload(
    content: Uint8Array | Blob | string,
    name: string,
    { mediaType = "application/octet-stream", idempotencyKey, ...options }: CallOptions & { mediaType?: string; idempotencyKey?: string } = {},
  ): Promise<File> {
    // A copy, which nobody changes while it is sent.
    const bytes = new Uint8Array(await new Blob([content as BlobPart]).arrayBuffer());
    const digest = btoa(String.fromCharCode(...new Uint8Array(await (await webCrypto()).subtle.digest("SHA-256", bytes))));
    const headers = { "Content-Type": mediaType, "Content-Digest": `sha-256=:${digest}:` };
    return this.client.call("POST", "/files", { ...options, content: bytes, query: { name }, headers, key: await keyFor(idempotencyKey) });
  }

  /** What is known of a file. */
  read(fileId: string, options: CallOptions = {}): Promise<File> {
    return this.client.call("GET", `/files/${segment(fileId)}`, options);
  }

  /** Deletes a file that no run has. */
  delete(fileId: string, options: CallOptions = {}): Promise<void> {
    return this.client.call("DELETE", `/files/${segment(fileId)}`, options);
  }

  /** The files of this subject, newest first. */
  list(options: CallOptions = {}): AsyncGenerator<File, void, void> {
    return this.client.pages("/files", {}, options);
  }
}

/** Callbacks on their way. */
class Deliveries {
  constructor(private readonly client: Deskgate) {}

  /** The deliveries of this subject, newest first. */
  list(filters: { run_id?: string; state?: string } = {}, options: CallOptions = {}): AsyncGenerator<Delivery, void, void> {
    return this.client.pages("/deliveries", filters, options);
  }
}

/** The run, if it succeeded. */
function succeeded(run: Run): Run {
  if (run.state !== "succeeded") throw new RunError(run);
  return run;
}
