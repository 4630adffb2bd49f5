/** The records of the API, by their names. Their members are documented in `types.ts`, which is generated from the API's own document. */

import type { components } from "./types.js";

type Schemas = components["schemas"];

export type Artifact = Schemas["Artifact"];
export type Capabilities = Schemas["Capabilities"];
export type ControlOperation = Schemas["ControlOperation"];
export type Conversation = Schemas["Conversation"];
export type Delivery = Schemas["Delivery"];
export type File = Schemas["File"];
export type OnBusy = Schemas["OnBusy"];
export type Run = Schemas["Run"];
export type RunEvent = Schemas["RunEvent"];
export type Service = Schemas["Service"];

/** An event that is not stored: it shows the present state, and has no number. */
export interface PassingEvent {
  run_id: string;
  /** Such as `message.delta`, a piece of a message, or `run.snapshot`, the run as it is. */
  type: string;
  data: { [member: string]: unknown };
  sequence?: undefined;
}
