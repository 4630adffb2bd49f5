/** The client of Deskgate's API: work for an AI assistant that lives on somebody's own computer. */

export { Deskgate, type CallOptions, type DeskgateOptions, type Input, type Work } from "./client.js";
export {
  DeskgateError,
  NoAnswerError,
  type Problem,
  ProblemError,
  RunError,
  StreamBrokenError,
  VerificationError,
  WaitTimeoutError,
} from "./errors.js";
export type * from "./records.js";
export type { components } from "./types.js";
