import { fromBinary, toJson } from "@bufbuild/protobuf";
import { EventBatchSchema, EventSchema, Reason, type RejectedEvent, type WatchResponse } from "@skein-feed/client";
import { useEffect, useState } from "preact/hooks";
import { skein } from "../api.js";
import { count, date, plural, time } from "../format.js";
import { silentSince } from "../freshness.js";
import { usePaged } from "../hooks.js";
import { TableCell, Check, Failed, Field, Form, Panel, ReadOn, State, User } from "../parts.js";
import { go, route, to } from "../route.js";

const kinds = EventSchema.oneofs[0]!.fields.map((f) => f.name);
const maxEvents = 200;

interface Filter {
  kinds: string[];
  users: string[];
  earliest: boolean;
}

function asked(): Filter {
  const p = route.value.params;
  const list = (name: string) => (p.get(name) ?? "").split(/[\s,]+/).filter(Boolean);
  return { kinds: list("kinds"), users: list("users"), earliest: p.has("earliest") };
}

/** The log as it grows, and what it has that no projection took. */
export function Events() {
  const filter = asked();
  const key = JSON.stringify(filter);
  return (
    <>
      <Ask key={key} of={filter} />
      <Live key={`live ${key}`} of={filter} />
      <Rejected />
    </>
  );
}

function Ask({ of }: { of: Filter }) {
  const [users, setUsers] = useState(of.users.join(" "));
  const [some, setSome] = useState(of.kinds);
  const [earliest, setEarliest] = useState(of.earliest);
  const submit = () => go("events", { kinds: some.join(","), users: users.trim().split(/[\s,]+/).join(","), earliest });
  const toggle = (kind: string) => (on: boolean) => setSome(on ? [...some, kind] : some.filter((k) => k !== kind));
  return (
    <Panel title="Events of the log">
      <Form label="Filter" submit={submit}>
        <Field label="Users who act, or are the target" value={users} set={setUsers} placeholder="all" />
        <Check label="From the earliest event" value={earliest} set={setEarliest} />
        <button>Watch</button>
        <details class="kinds">
          <summary>{some.length === 0 ? "All kinds" : plural(some.length, "kind")}</summary>
          <fieldset class="checks">
            <legend class="hidden">Kinds</legend>
            {kinds.map((k) => (
              <Check key={k} label={k} value={some.includes(k)} set={toggle(k)} />
            ))}
          </fieldset>
        </details>
      </Form>
    </Panel>
  );
}

/** An event of the log with its number among those that a screen has received. */
export interface NumberedEvent extends WatchResponse {
  number: number;
}

function Live({ of }: { of: Filter }) {
  const [shown, setShown] = useState<NumberedEvent[]>([]);
  const [total, setTotal] = useState(0);
  const [connected, setConnected] = useState(false);
  const [paused, setPaused] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    if (paused) return undefined;
    const end = new AbortController();
    setConnected(false);
    void watchEvents(of, end.signal, () => setConnected(true), (batch, n) => {
      setShown((before) => [...batch, ...before].slice(0, maxEvents));
      setTotal(n);
    }).catch((err: unknown) => !end.signal.aborted && setError(err));
    return () => end.abort();
  }, [paused]);
  const waits = !connected || silentSince.value !== undefined;
  const state = error ? "ended" : paused ? "paused" : waits ? "waits for the service" : "watching";
  return (
    <Panel
      title="Live"
      side={
        <>
          <State tone={error ? "bad" : paused || waits ? "busy" : "good"}>
            <span role="status">{state}</span>
          </State>
          <span class="dim">{plural(total, "event")}</span>
          <button type="button" class="quiet" onClick={() => setPaused(!paused)}>
            {paused ? "Continue from now" : "Pause"}
          </button>
        </>
      }
    >
      <Failed error={error} />
      {shown.length === 0 && (
        <p class="dim">
          Events appear here as they are published, the newest first. To see what the log has already, watch from the earliest event; to add one,{" "}
          <a href={to("try", { method: "EventService/Publish" })}>publish an event</a>, which is a permanent fact.
        </p>
      )}
      <EventTable label="Live events" of={shown} />
    </Panel>
  );
}

/** A table of events, the first one on top. It is empty without events. */
export function EventTable({ label, of }: { label: string; of: NumberedEvent[] }) {
  return (
    <div class="wide live">
      <table class="stack" aria-label={label}>
        {of.length > 0 && (
          <thead>
            <tr>
              <th>Time, UTC</th>
              <th>Kind</th>
              <th>User</th>
              <th>Target</th>
              <th>Other fields</th>
              <th>Source</th>
            </tr>
          </thead>
        )}
        <tbody>
          {of.map((e) => (
            <Line key={e.number} of={e} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/**
 * Watches the events of the log that pass a filter, until the signal aborts it. It calls begun when the stream stands. It calls show at once
 * for an event after a pause, and otherwise at most four times a second: with the events that came since the last call, the newest first, and
 * the number of all events so far.
 */
export async function watchEvents(
  of: Filter,
  signal: AbortSignal,
  begun: () => void,
  show: (batch: NumberedEvent[], total: number) => void,
): Promise<void> {
  let batch: NumberedEvent[] = [];
  let total = 0;
  let isPaused = false;
  const showBatch = () => {
    if (batch.length > 0) show(batch, total);
    isPaused = batch.length > 0;
    batch = [];
  };
  const timer = setInterval(showBatch, 250);
  signal.addEventListener("abort", () => clearInterval(timer));
  const request = { kinds: of.kinds, userIds: of.users, after: of.earliest ? "EARLIEST" : "" };
  for await (const e of skein.watch(request, { signal, retryForMs: Infinity })) {
    begun(); // the first message comes before any event
    if (e.event === undefined) continue;
    batch = [{ ...e, number: ++total }, ...batch].slice(0, maxEvents);
    if (!isPaused) showBatch();
  }
}

function Line({ of: e }: { of: NumberedEvent }) {
  const kind = e.event!.kind;
  const fields = toJson(EventSchema, e.event!) as Record<string, Record<string, unknown>>;
  const { userId, targetUserId, ...rest } = fields[kind.case ?? ""] ?? {};
  const owned = (rest["pin"] ?? rest["board"]) as { ownerId?: string } | undefined;
  const actor = typeof userId === "string" ? userId : owned?.ownerId;
  return (
    <tr>
      <TableCell label="Time, UTC" class="dim time">
        {time(date(e.eventTime))}
      </TableCell>
      <TableCell label="Kind">{kind.case && EventSchema.oneofs[0]!.fields.find((f) => f.localName === kind.case)?.name}</TableCell>
      <TableCell label="User">{actor && <User id={actor} />}</TableCell>
      <TableCell label="Target">{typeof targetUserId === "string" && <User id={targetUserId} />}</TableCell>
      <TableCell label="Other fields" class="id json">
        {Object.keys(rest).length > 0 && JSON.stringify(rest)}
      </TableCell>
      <TableCell label="Source" class="dim">
        {e.event!.source && `import of ${e.event!.source}, number ${count(e.event!.offset)}`}
      </TableCell>
    </tr>
  );
}

/** The events that were refused on reading. */
function Rejected() {
  const { entries, total, error, more, again } = usePaged<RejectedEvent>(async (pageToken, signal) => {
    const s = await skein.admin.getStatus({ pageSize: 20, pageToken }, { signal });
    return { entries: s.rejectedEvents, next: s.nextPageToken, total: Number(s.rejectedEventCount) };
  }, []);
  return (
    <Panel
      title="Rejected events"
      side={
        <>
          <span class="dim">{total !== undefined && `${count(total)} since the log began`}</span>
          <button type="button" class="quiet" onClick={again}>
            Refresh
          </button>
        </>
      }
    >
      <Failed error={error} />
      {entries?.length === 0 && (
        <p class="dim">
          No event of the log was malformed. <code>Publish</code> refuses malformed events; one appears here if a program writes to the stream itself, or
          uses an event id again for something else.
        </p>
      )}
      {entries && entries.length > 0 && (
        <table class="stack" aria-label="Rejected events">
          <thead>
            <tr>
              <th>Message of the log</th>
              <th>Event in it</th>
              <th>Reason</th>
              <th>Why</th>
              <th>What it says</th>
            </tr>
          </thead>
          <tbody>
            {entries.map((r) => (
              <tr key={`${r.position} ${r.slot}`}>
                <TableCell label="Message of the log" class="number">
                  {count(r.sequence)}
                </TableCell>
                <TableCell label="Event in it" class="number">
                  {r.slot < 0 ? "all" : r.slot}
                </TableCell>
                <TableCell label="Reason">
                  <code>{Reason[r.reason]}</code>
                </TableCell>
                <TableCell label="Why">{r.message}</TableCell>
                <TableCell label="What it says">
                  <details>
                    <summary>{plural(r.data.length, "byte")}</summary>
                    <pre>{decoded(r)}</pre>
                  </details>
                </TableCell>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={more} />
    </Panel>
  );
}

/** The event or message as JSON; as hexadecimal where it cannot be decoded, as only its first 256 bytes are kept. */
function decoded(r: RejectedEvent): string {
  try {
    const json = r.slot < 0 ? toJson(EventBatchSchema, fromBinary(EventBatchSchema, r.data)) : toJson(EventSchema, fromBinary(EventSchema, r.data));
    return JSON.stringify(json, null, 2);
  } catch {
    return [...r.data].map((b) => b.toString(16).padStart(2, "0")).join(" ");
  }
}
