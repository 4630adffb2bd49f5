/** What can go wrong. */

import type { Run } from "./records.js";

/** Anything that this package throws by itself. */
export class DeskgateError extends Error {
  /** The run that was waited for when it happened, if it was accepted by then. */
  runId?: string;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The gateway was asked as often as makes sense, and gave no answer. The request may have arrived: send it again under the same
 * `idempotencyKey`. */
export class NoAnswerError extends DeskgateError {
  constructor(
    message: string,
    /** The key of the request, if it was to create something. */
    readonly idempotencyKey?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A stream broke again and again without a new event. The run goes on; follow it again later, behind `last`. */
export class StreamBrokenError extends DeskgateError {
  constructor(readonly last: number) {
    super(`the stream broke again and again behind event ${last}`);
  }
}

/** A run has not ended in the time that was given. It goes on. */
export class WaitTimeoutError extends DeskgateError {
  constructor(readonly run: Run) {
    super(`${run.run_id} has not ended: it is ${run.state}`);
    this.runId = run.run_id;
  }
}

/** The members that every problem document has, and those that belong to its code. */
export interface Problem {
  code: string;
  detail: string;
  status: number;
  retryable: boolean;
  request_id?: string;
  errors?: { pointer: string; code: string; detail: string }[];
  [member: string]: unknown;
}

/** A refusal of the gateway: a problem document (RFC 9457). Branch on `code`. */
export class ProblemError extends DeskgateError {
  /** What kind of problem it is; `/problems/{code}` of a gateway explains it. */
  readonly code: string;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;

  constructor(
    /** The whole document. */
    readonly problem: Problem,
    /** The status of the answer. */
    readonly status: number,
    /** The key of the request, if it was to create something: what may succeed later is sent again under it. */
    readonly idempotencyKey?: string,
  ) {
    super(`${problem.code}: ${problem.detail}`);
    this.code = problem.code;
    this.retryable = problem.retryable === true;
  }
}

/** A run that ended without a result: failed, stopped or expired. */
export class RunError extends DeskgateError {
  /** Why: the code of its error, or its state. */
  readonly code: string;
  /** Whether anything outside the run may have changed. */
  readonly effects: "none" | "possible" | "known" | undefined;

  constructor(
    /** Its record. */
    readonly run: Run,
  ) {
    super(`${run.run_id} ${run.state}: ${run.error?.message ?? "it has no result"}`);
    this.code = run.error?.code ?? run.state;
    this.effects = run.error?.effects;
  }
}

/** What was to be verified is not genuine, or too old. */
export class VerificationError extends DeskgateError {}
