/** When to try again, and how events are read. */

import { DeskgateError, NoAnswerError, type Problem, ProblemError } from "./errors.js";

/** How often one request is sent. */
export const MAX_TRIES = 5;
/** Longer than any answer is held back, and than any stream is silent. */
export const TIMEOUT_MS = 70_000;
/** How long a stream lasts that does not count as broken at once. */
export const STEADY_MS = 30_000;

/** The statuses after which the same request may be sent again. */
const AGAIN = new Set([408, 429, 500, 502, 503, 504]);

/** Milliseconds before the next try: as the answer says, or twice as long each time; and up to a second at random, so that programs that failed
 * together do not come back together. */
export function pauseMs(tries: number, answer: Response | undefined): number {
  const after = answer?.headers.get("retry-after") ?? "";
  const seconds = /^\d+$/.test(after) ? Number(after) : 2 ** tries;
  return (seconds + Math.random()) * 1000;
}

export const sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const aborted = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });

function problemOf(answer: Response, text: string, key: string | undefined): ProblemError {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    document = undefined;
  }
  if (typeof document === "object" && document !== null && "code" in document) return new ProblemError(document as Problem, answer.status, key);
  const to = answer.headers.get("location");
  const detail =
    answer.type === "opaqueredirect" || (answer.status >= 300 && answer.status < 400)
      ? `the gateway is elsewhere${to ? `: ${to}` : ""}; give that address`
      : `the answer has the status ${answer.status} and is not the gateway's own`;
  return new ProblemError({ code: "no_problem_document", status: answer.status, detail, retryable: AGAIN.has(answer.status) }, answer.status, key);
}

/** How a request is sent. */
export interface Sending {
  signal?: AbortSignal | undefined;
  /** For one try, with its answer. */
  timeoutMs?: number;
  pause?: typeof pauseMs;
  /** The key of a request that creates something. */
  key?: string | undefined;
}

/** Sends a request up to five times where that helps, and gives the answer that counts to `read`, whose failure to read it counts as none. */
export async function send<T>(
  attempt: (signal: AbortSignal) => Promise<Response>,
  read: (answer: Response) => Promise<T>,
  { signal, timeoutMs = TIMEOUT_MS, pause = pauseMs, key }: Sending = {},
): Promise<T> {
  let failed: unknown;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    signal?.throwIfAborted();
    const giveUp = new AbortController();
    const timer = setTimeout(() => giveUp.abort(new Error("no answer in time")), timeoutMs);
    const aborted = () => giveUp.abort(signal?.reason);
    signal?.addEventListener("abort", aborted, { once: true });
    let answer: Response | undefined;
    let text = "";
    try {
      answer = await attempt(giveUp.signal);
      if (answer.ok) return await read(answer);
      text = await answer.text();
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof DeskgateError) throw error;
      [failed, answer] = [error, undefined];
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
    }
    if (answer && (!AGAIN.has(answer.status) || tries + 1 === MAX_TRIES)) throw problemOf(answer, text, key);
    if (tries + 1 < MAX_TRIES) await sleep(pause(tries, answer), signal);
  }
  throw new NoAnswerError(`no answer after ${MAX_TRIES} tries: ${String(failed)}`, key, { cause: failed });
}

/** The events of a stream (HTML standard, section 9.2.6). Ends, or throws, when the stream does. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<{ type: string; [member: string]: unknown }> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let [text, type, data]: [string, string, string[]] = ["", "", []];
  try {
    for (;;) {
      // A stream that is silent for so long is broken: comments come more often.
      const timer = setTimeout(() => void reader.cancel().catch(() => undefined), TIMEOUT_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      const lines = (text + decoder.decode(value, { stream: true })).split(/\r\n|\n|\r(?!$)/);
      text = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          const whole = data.join("\n");
          const event = whole === "" ? undefined : { type, ...(JSON.parse(whole) as object) };
          [type, data] = ["", []];
          if (event) yield event;
          continue;
        }
        const at = line.indexOf(":");
        const name = at < 0 ? line : line.slice(0, at);
        const content = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
        if (name === "data") data.push(content);
        else if (name === "event") type = content;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
