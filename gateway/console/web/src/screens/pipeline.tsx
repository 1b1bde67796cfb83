import { type GetStatusResponse, type ProjectionStatus, ProjectionStateSchema } from "@skein-feed/client";
import { metricsText, skein } from "../api.js";
import { bytes, count, date, rate, seconds, words } from "../format.js";
import { useAsked } from "../hooks.js";
import { Between, Figures } from "../metrics.js";
import { Failed, Panel, State, Strip, When } from "../parts.js";
import { type Problem, problems } from "../problems.js";
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
  const [status, text] = await Promise.all([skein.admin.getStatus({ pageSize: 1 }, { signal }), metricsText(signal)]);
  const figures = new Figures(text, Date.now());
  readings.push(figures);
  readings.splice(0, readings.length - kept);
  // Over some seconds, so that a rate is one of several envelopes; over no break in which the page was hidden.
  const from = readings.slice(-6).find((f) => figures.at - f.at < 10_000);
  return { status, figures, ...(from && from !== figures && { lately: new Between(from, figures) }) };
}

/** The log and what is made of it, as it moves. */
export function Pipeline() {
  const { value, error } = useAsked(look, everyMs, []);
  return (
    <>
      <Failed error={error} />
      {value && (
        <>
          <Problems of={problems(value.status, value.figures, value.lately)} />
          <Panel title="From the log to the stores" side={<span class="dim">position {value.status.position}</span>}>
            <div class="wide">
              <Picture status={value.status} lately={value.lately} history={history()} />
            </div>
            <Process {...value} />
          </Panel>
          <Stores {...value} />
        </>
      )}
    </>
  );
}

/** Events a second that were published, over the latest readings. */
function history(): number[] {
  return readings.slice(1).map((to, i) => new Between(readings[i]!, to).rate("skein_publish_events_total"));
}

function Problems({ of }: { of: Problem[] }) {
  return (
    <section aria-live="polite" aria-label="Problems" class="problems">
      {of.length === 0 && (
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
        ["Under way", figures?.value("skein_rpc_in_flight") ?? "–", `${figures?.value("skein_watch_streams") ?? 0} watch`],
        ["Feed pages", `${rate(lately?.rate("skein_feed_pages_total"))}/s`, pagesMerged(status)],
        ["Processor", `${(lately?.rate("process_cpu_seconds_total") ?? 0).toFixed(2)} cores`],
        ["Memory", bytes(figures?.value("process_resident_memory_bytes") ?? 0)],
        ["Disk free", bytes(figures?.value("skein_disk_free_bytes") ?? 0)],
        ["Auditor", audit ? `${count(audit.checks)} checks` : "off", audit && `round ${audit.rounds + 1}, partition ${audit.partition} of 256`],
        ["Snapshots", snapshots ? <When at={date(snapshots.lastTime)} /> : "off", snapshots && `${snapshots.taken} taken`],
      ]}
    />
  );
}

function pagesMerged({ feeds }: GetStatusResponse): string {
  const all = (feeds?.inboxPages ?? 0n) + (feeds?.mergedPages ?? 0n);
  return all === 0n ? "" : `${Math.round((100 * Number(feeds!.mergedPages)) / Number(all))} % merged`;
}

function Stores({ status, figures, lately }: Seen) {
  return (
    <Panel title="Projections" side={<a href="#/operations">Rebuild, verify, roll back</a>}>
      <div class="wide">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>State</th>
              <th class="number">Behind</th>
              <th class="number">Events/s</th>
              <th class="number">Visible p50</th>
              <th class="number">p99</th>
              <th class="number">Disk</th>
              <th class="number">Tables</th>
              <th class="number">Version</th>
              <th class="number">Generation</th>
              <th class="number">Format</th>
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
  return (
    <tr>
      <th scope="row">{p.name}</th>
      <td>
        <State tone={toneOf(p.state)}>{words(ProjectionStateSchema, p.state)}</State>
      </td>
      <td class="number">
        {count(p.lagEnvelopes)} <small>{p.lagSeconds > 0 ? seconds(p.lagSeconds) : ""}</small>
      </td>
      <td class="number">{rate(lately?.rate("skein_fold_events_total", labels))}</td>
      <td class="number">{visible(0.5)}</td>
      <td class="number">{visible(0.99)}</td>
      <td class="number">{bytes(p.diskBytes)}</td>
      <td class="number">{figures?.value("skein_pebble_read_amplification", labels) ?? "–"}</td>
      <td class="number">{p.version}</td>
      <td class="number">{p.generation}</td>
      <td class="number">{p.storeFormat < p.newestStoreFormat ? `${p.storeFormat} of ${p.newestStoreFormat}` : p.storeFormat}</td>
      <td>
        <When at={date(p.lastVerifyTime)} />
      </td>
    </tr>
  );
}
