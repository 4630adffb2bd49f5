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
/** A stored event of a run. */
export type RunEvent = Omit<Schemas["RunEvent"], "data"> & { data: { [member: string]: unknown } };
export type Service = Schemas["Service"];

/** An event that is not stored: it shows the present state, and has no number. */
export interface PassingEvent {
  run_id: string;
  /** `message.delta` is a piece of a message, `run.snapshot` the run as it is; others say how it stands. */
  type: "message.delta" | "run.snapshot" | "run.waiting_for_device" | "stream.closing";
  data: { [member: string]: unknown };
  sequence?: undefined;
}
