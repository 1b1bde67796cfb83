import { type GetStatusResponse, type ProjectionStatus, ProjectionStateSchema } from "@skein-feed/client";
import { metricsText, readStatus } from "../api.js";
import { bytes, count, date, plural, rate, seconds, words } from "../format.js";
import { useAsked } from "../hooks.js";
import { Between, Figures } from "../metrics.js";
import { isFresh } from "../freshness.js";
import { AsOf, TableCell, Failed, Panel, State, Strip, When } from "../parts.js";
import { type Problem, problems } from "../problems.js";
import { to } from "../route.js";
import { Picture, toneOf } from "./picture.js";

const everyMs = 1000;
const kept = 61;

/** The latest readings of /metrics, the oldest first. They outlive the screen, so that its graph does too. */
const readings: Figures[] = [];

interface Seen {
  status: GetStatusResponse;
  /** Absent while /metrics is not answered, or was answered once. */
  figures?: Figures;
  lately?: Between;
}

async function look(signal: AbortSignal): Promise<Seen> {
  const [status, text] = await Promise.all([readStatus(signal), metricsText(signal)]);
  const figures = new Figures(text, Date.now());
  readings.push(figures);
  readings.splice(0, readings.length - kept);
  // Over some seconds, so that a rate is one of several envelopes; over no break in which the page was hidden.
  const from = readings.slice(-6).find((f) => figures.at - f.at < 10_000);
  return { status, figures, ...(from && from !== figures && { lately: new Between(from, figures) }) };
}

/** The log and what is made of it, as it moves. */
export function Pipeline() {
  const { value, at, error } = useAsked(look, everyMs, []);
  return (
    <>
      <Failed error={error} />
      {value && (
        <AsOf at={at}>
          <Problems of={problems(value.status, value.figures, value.lately)} isFresh={isFresh(at)} />
          {value.status.log?.lastSequence === 0n && <EmptyLog />}
          <Panel title="From the log to the stores" side={<span class="dim">position {value.status.position}</span>}>
            <Picture status={value.status} lately={value.lately} history={history()} />
            <PictureInWords {...value} />
            <Process {...value} />
          </Panel>
          <Stores {...value} />
        </AsOf>
      )}
    </>
  );
}

/** Events a second that were published, over the latest readings. */
function history(): number[] {
  return readings.slice(1).map((to, i) => new Between(readings[i]!, to).rate("skein_publish_events_total"));
}

function EmptyLog() {
  return (
    <Panel title="The log is empty">
      <p>
        The figures below move with the first event. <a href={to("try", { method: "EventService/Publish" })}>Publish one</a>, call{" "}
        <code>EventService/Publish</code> from your application, or start <code>skein demo</code> for a service with users, boards and pins.
      </p>
    </Panel>
  );
}

/** The log and its archive where a screen is too narrow for the picture. The stores are in the table. */
function PictureInWords({ status: { log, archive }, lately }: Seen) {
  return (
    <div class="narrow">
      <Strip
        of={[
          ["Published", `${rate(lately?.rate("skein_publish_events_total"))} events/s`, log?.error ? "the log does not answer" : ""],
          ["Log", plural(log?.lastSequence ?? 0n, "message"), `${bytes(log?.bytes ?? 0n)} of events`],
          ["Archive", archive ? plural(archive.lastSequence, "message") : "none", archive && (archive.error ? "stands still" : bytes(archive.bytes))],
        ]}
      />
    </div>
  );
}

function Problems({ of, isFresh }: { of: Problem[]; isFresh: boolean }) {
  return (
    <section aria-live="polite" aria-label="Problems" class="problems">
      {of.length === 0 && isFresh && (
        <p>
          <State tone="good">Nothing is wrong.</State>
        </p>
      )}
      {of.map((p) => (
        <article key={p.runbook + p.what} class={p.severe ? "problem severe" : "problem"}>
          <h3>{p.what}</h3>
          <p>
            {p.todo} <small>docs/runbook.md, {p.runbook}</small>
          </p>
        </article>
      ))}
    </section>
  );
}

/** What the process does beside the stores. */
function Process({ status, figures, lately }: Seen) {
  const calls = "skein_rpc_duration_seconds";
  const { audit, snapshots } = status;
  const p99 = lately?.quantile(0.99, calls);
  return (
    <Strip
      of={[
        ["Calls", `${rate(lately?.rate(`${calls}_count`))}/s`, p99 === undefined ? "" : `p99 ${seconds(p99)}`],
        ["Calls in progress", figures?.value("skein_rpc_in_flight") ?? "–", `and ${plural(figures?.value("skein_watch_streams") ?? 0, "open stream")}`],
        ["Feed pages", `${rate(lately?.rate("skein_feed_pages_total"))}/s`, feedPagesFromMemory(status)],
        ["Processor", `${(lately?.rate("process_cpu_seconds_total") ?? 0).toFixed(2)} cores`],
        ["Memory", bytes(figures?.value("process_resident_memory_bytes") ?? 0)],
        ["Disk free", bytes(figures?.value("skein_disk_free_bytes") ?? 0)],
        ["Auditor", audit ? `${count(audit.checks)} checks` : "off", audit && `${Math.round((100 * audit.partition) / 256)} % of all rows, round ${audit.rounds + 1}`],
        ["Snapshots", snapshots ? <When at={date(snapshots.lastTime)} /> : "off", snapshots && `${snapshots.taken} taken`],
      ]}
    />
  );
}

/** The pages for which the pins in memory were enough. For the others, the pins of popular owners were read from the store. */
function feedPagesFromMemory({ feeds }: GetStatusResponse): string {
  const all = (feeds?.inboxPages ?? 0n) + (feeds?.mergedPages ?? 0n);
  return all === 0n ? "none yet" : `${Math.round((100 * Number(feeds!.inboxPages)) / Number(all))} % from memory alone`;
}

/** The columns of figures, and what each of them means. */
const columns = [
  ["Behind", "How many messages of the log the store does not contain yet"],
  ["Events/s", "How many events a second the store takes from the log"],
  ["Visible p50", "Half of all published events were visible in answers after this time"],
  ["Visible p99", "99 of 100 published events were visible in answers after this time"],
  ["Disk", "The size of the store"],
  ["Files per read", "In how many sorted files of the store a read may have to look"],
  ["Version", "The version of the rules by which the store is made; a new one needs a rebuild"],
  ["Build", "How many times the store was built, this time included: its generation"],
  ["Format", "The format of the files"],
] as const;

function Stores({ status, figures, lately }: Seen) {
  return (
    <Panel title="Projections" side={<a href="#/operations">Rebuild, verify, roll back</a>}>
      <div class="wide">
        <table class="stack" aria-label="Projections">
          <thead>
            <tr>
              <th>Name</th>
              <th>State</th>
              {columns.map(([label, meaning]) => (
                <th key={label} class="number" title={meaning}>
                  {label}
                </th>
              ))}
              <th>Verified</th>
            </tr>
          </thead>
          <tbody>
            {status.projections.map((p) => (
              <Store key={p.name} of={p} figures={figures} lately={lately} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Store({ of: p, figures, lately }: { of: ProjectionStatus; figures: Figures | undefined; lately: Between | undefined }) {
  const labels = { projection: p.name };
  const visible = (q: number) => seconds(lately?.quantile(q, "skein_publish_visible_seconds", labels));
  // In the order of the columns.
  const figuresOf = [
    <>
      {count(p.lagEnvelopes)} <small>{p.lagSeconds > 0 ? seconds(p.lagSeconds) : ""}</small>
    </>,
    rate(lately?.rate("skein_fold_events_total", labels)),
    visible(0.5),
    visible(0.99),
    bytes(p.diskBytes),
    figures?.value("skein_pebble_read_amplification", labels) ?? "–",
    p.version,
    p.generation,
    p.storeFormat < p.newestStoreFormat ? `${p.storeFormat}, newest ${p.newestStoreFormat}` : p.storeFormat,
  ];
  return (
    <tr>
      <th scope="row">{p.name}</th>
      <TableCell label="State">
        <State tone={toneOf(p.state)}>{words(ProjectionStateSchema, p.state)}</State>
      </TableCell>
      {columns.map(([label], i) => (
        <TableCell key={label} label={label} class="number">
          {figuresOf[i]}
        </TableCell>
      ))}
      <TableCell label="Verified">{p.lastVerifyTime ? <When at={date(p.lastVerifyTime)} /> : <span class="dim">never</span>}</TableCell>
    </tr>
  );
}
