import { type MessageInitShape, clone, create } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { type Event, EventSchema } from "./gen/skein/v1/event_pb.js";
import { type EventService, type PublishRequest, PublishRequestSchema, type PublishResponse } from "./gen/skein/v1/event_service_pb.js";
import { addToJSON } from "./json.js";
import { Tries } from "./retry.js";
import { type WithDates, convertDates } from "./times.js";

/** What may be published: an Event, or what one is made of. Its times may be Dates. */
export type EventInit = WithDates<MessageInitShape<typeof EventSchema>>;

type Kinds = Exclude<NonNullable<EventInit["kind"]>, { case: undefined }>;

/** The kinds of events: "userFollowed" and so on. */
export type EventKind = NonNullable<Kinds["case"]>;

/** Makes an event with an id of its own: event("userFollowed", { userId: "ann", targetUserId: "bob" }). */
export function event<K extends EventKind>(kind: K, value: Extract<Kinds, { case: K }>["value"]): Event {
  const init = { eventId: newEventId(), kind: { case: kind, value } as Kinds };
  return addToJSON(EventSchema, create(EventSchema, convertDates(EventSchema, init)));
}

/** Returns 128 random bits as text. (crypto.randomUUID is missing on pages that came over plain HTTP.) */
function newEventId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

export interface PublishOptions {
  /** Take the good events when others are refused. */
  allowPartial?: boolean;
  /** What to wait for: PublishWait.LOGGED by default. The answer names repeats after PublishWait.VISIBLE alone. */
  wait?: PublishRequest["wait"];
  signal?: AbortSignal;
  /** For how long to try, in milliseconds: 30 000 by default, at most ten minutes. 0 means once. */
  retryForMs?: number;
}

// The service knows an event id for 15 minutes. A retry must not come later.
const longestRetryMs = 10 * 60_000;
const tryMs = 10_000;

/** Publishes, and tries again with the same event ids while the service may not have the events. */
export async function publish(client: Client<typeof EventService>, events: EventInit[], options: PublishOptions = {}): Promise<PublishResponse> {
  const { retryForMs = 30_000, signal, ...request } = options;
  const checked = convertDates(PublishRequestSchema, { ...request, events });
  const message = create(PublishRequestSchema, { ...checked, events: checked.events!.map(identified) });
  const tries = new Tries(Math.min(retryForMs, longestRetryMs));
  for (;;) {
    try {
      return await client.publish(message, { timeoutMs: tryMs, ...(signal && { signal }) });
    } catch (err) {
      await tries.again(err, signal);
    }
  }
}

/** Returns the event with an id. The event of the caller stays as it is. */
function identified(init: MessageInitShape<typeof EventSchema>): Event {
  const copy = clone(EventSchema, create(EventSchema, init));
  copy.eventId ||= newEventId();
  return copy;
}
