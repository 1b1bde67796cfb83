import { type Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { Reason } from "./gen/skein/v1/errors_pb.js";

/** The reasons of errors, such as "NOT_CAUGHT_UP": the names of the enum Reason. */
export type ReasonName = keyof typeof Reason;

/** A field at fault. */
export interface Violation {
  /** The path from the request: "events[1].user_followed.target_user_id". */
  readonly field: string;
  /** What is wrong with it, for people. */
  readonly description: string;
  readonly reason: ReasonName;
}

/** What the service says about a failed call, whatever the reason. */
interface Refusal {
  readonly code: Code;
  /** For people. It names the limit that was passed, or what to do. */
  readonly message: string;
  readonly violations: readonly Violation[];
  /** After how many milliseconds the same call may succeed; undefined: the service does not promise that. */
  readonly retryDelayMs: number | undefined;
}

/** What else errors carry for programs, by reason. */
interface Metadata {
  OPERATION_CONFLICT: { readonly operation_id: string };
  POSITION_TRIMMED: { readonly earliest: string };
  ROLE_MISSING: { readonly role: string };
  OTHER_USER: { readonly user_id: string };
}

/** Why the service refused a call. `reason` selects the type of `metadata`. */
export type Failure = {
  [R in ReasonName]: Refusal & {
    /** UNSPECIFIED stands for a reason that this version of the client does not know. */
    readonly reason: R;
    readonly metadata: R extends keyof Metadata ? Metadata[R] : Readonly<Record<string, string>>;
  };
}[ReasonName];

/**
 * Returns why the service refused a call; undefined for any other error, such as a broken connection. Every method throws
 * a ConnectError.
 */
export function failure(err: unknown): Failure | undefined {
  if (!(err instanceof ConnectError)) return undefined;
  const info = err.findDetails(ErrorInfoSchema).find((d) => d.domain === "skein");
  if (info === undefined) return undefined;
  const violations = err.findDetails(BadRequestSchema).flatMap((d) => d.fieldViolations);
  return {
    code: err.code,
    reason: reasonName(info.reason),
    message: err.rawMessage,
    metadata: info.metadata,
    violations: violations.map((v) => ({ field: v.field, description: v.description, reason: reasonName(v.reason) })),
    retryDelayMs: retryInfo(err),
  } as Failure; // the service sends the metadata that belongs to the reason
}

function reasonName(name: string): ReasonName {
  return name in Reason && Number.isNaN(Number(name)) ? (name as ReasonName) : "UNSPECIFIED";
}

function retryInfo(err: ConnectError): number | undefined {
  const delay = err.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay && Number(delay.seconds) * 1000 + delay.nanos / 1e6;
}
