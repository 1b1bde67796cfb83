import {
  type GetStatusResponse,
  type Operation,
  OperationKind,
  type ProjectionStatus,
  ProjectionState,
  ProjectionStateSchema,
} from "@skein-feed/client";
import type { ComponentChildren } from "preact";
import { bytes, count, plural, rate, seconds, words } from "../format.js";
import type { Between } from "../metrics.js";
import type { Tone } from "../parts.js";

interface PictureProps {
  status: GetStatusResponse;
  lately: Between | undefined;
  /** Events a second that were published, the latest last. */
  history: number[];
}

const width = 1080;
const log = { x: 300, y: 20, w: 230, h: 150 };
const archive = { x: 300, y: 228, w: 230, h: 122 };
const store = { x: 690, y: 12, w: 380, h: 76, gap: 12 };

/** Publish → log → projections, and the archive below the log. The table below has the same figures. */
export function Picture({ status, lately, history }: PictureProps) {
  const stores = status.projections;
  const height = Math.max(360, store.y + stores.length * (store.h + store.gap));
  const published = lately?.rate("skein_publish_events_total");
  const broken = Boolean(status.log?.error);
  return (
    <svg class="picture" viewBox={`0 0 ${width} ${height}`} role="img" aria-labelledby="picture">
      <title id="picture">{describe(status, published)}</title>
      <Flow from={[200, 95]} to={[log.x, 95]} perSecond={published ?? 0} tone={broken ? "bad" : "good"} />
      <Flow from={[415, log.y + log.h]} to={[415, archive.y]} perSecond={moving(status, lately)} tone={status.archive?.error ? "bad" : "good"} />
      {stores.map((p, i) => (
        <Flow
          key={p.name}
          from={[log.x + log.w, 95]}
          to={[store.x, rowOf(i) + store.h / 2]}
          perSecond={lately?.rate("skein_fold_envelopes_total", { projection: p.name }) ?? 0}
          tone={toneOf(p.state)}
        />
      ))}
      <Publish status={status} lately={lately} history={history} />
      <Log status={status} />
      <Archive status={status} />
      {stores.map((p, i) => (
        <Store key={p.name} of={p} y={rowOf(i)} build={buildOf(status, p.name)} lately={lately} />
      ))}
    </svg>
  );
}

function rowOf(i: number): number {
  return store.y + i * (store.h + store.gap);
}

/** Envelopes a second that reach the archive, or wait for it. */
function moving({ archive: a }: GetStatusResponse, lately: Between | undefined): number {
  return a?.archiving && a.waitingEnvelopes > 0n ? (lately?.rate("skein_log_append_duration_seconds_count", { result: "ok" }) ?? 0) : 0;
}

function describe({ log: l, projections }: GetStatusResponse, published: number | undefined): string {
  const states = projections.map((p) => `${p.name} is ${words(ProjectionStateSchema, p.state)}, ${plural(p.lagEnvelopes, "message")} behind`);
  return `The log takes ${rate(published)} events a second and has ${plural(l?.lastSequence ?? 0n, "message")}. ${states.join("; ")}.`;
}

/** A line along which dots move, the faster the more there is. */
function Flow(props: { from: [number, number]; to: [number, number]; perSecond: number; tone: string }) {
  const [x, y] = props.from;
  const [toX, toY] = props.to;
  const bend = toX === x ? `L${toX} ${toY}` : `C${x + (toX - x) / 2} ${y} ${x + (toX - x) / 2} ${toY} ${toX} ${toY}`;
  const path = `M${x} ${y} ${bend}`;
  const speed = props.perSecond <= 0 ? "" : props.perSecond < 10 ? "slow" : props.perSecond < 1000 ? "quick" : "fast";
  return (
    <g class={`flow ${props.tone} ${speed}`}>
      <path d={path} />
      {speed && <path class="dots" d={path} />}
    </g>
  );
}

function Box(props: { x: number; y: number; w: number; h: number; title: string; side?: string; tone?: string; children: ComponentChildren }) {
  const { x, y, w, h } = props;
  return (
    <g class={`box ${props.tone ?? ""}`} transform={`translate(${x} ${y})`}>
      <rect width={w} height={h} rx="8" />
      <text class="title" x="16" y="27">
        {props.title}
      </text>
      <text class="note" x={w - 16} y="27" text-anchor="end">
        {props.side}
      </text>
      {props.children}
    </g>
  );
}

function Publish({ status, lately, history }: PictureProps) {
  const appends = "skein_log_append_duration_seconds";
  const most = Math.max(1, ...history);
  const points = history.map((v, i) => `${16 + (158 * (i + 60 - history.length)) / 59},${131 - (38 * v) / most}`);
  return (
    <Box x={10} y={log.y} w={190} h={log.h} title="Publish" side={status.log?.error ? "waits" : ""}>
      <text class="figure" x="16" y="58">
        {rate(lately?.rate("skein_publish_events_total"))}
        <tspan class="note"> events/s</tspan>
      </text>
      <text class="note" x="16" y="78">
        on disk in {seconds(lately?.quantile(0.99, appends))} (p99)
      </text>
      <polyline class="graph" points={points.join(" ")} />
      <line class="axis" x1="16" x2="174" y1="133" y2="133" />
    </Box>
  );
}

function Meter({ x, y, w, part, tone }: { x: number; y: number; w: number; part: number; tone?: string }) {
  return (
    <g class={`meter ${tone ?? ""}`}>
      <rect x={x} y={y} width={w} height="5" rx="2.5" />
      <rect class="part" x={x} y={y} width={Math.max(part > 0 ? 3 : 0, w * Math.min(1, part))} height="5" rx="2.5" />
    </g>
  );
}

function Log({ status }: { status: GetStatusResponse }) {
  const l = status.log;
  if (l === undefined) return null;
  const part = l.maxBytes > 0n ? Number(l.bytes) / Number(l.maxBytes) : 0;
  const first = l.firstSequence > 0n ? count(l.firstSequence) : "–";
  return (
    <Box {...log} title="Log" side={l.epoch > 1 ? `restored or moved, epoch ${l.epoch}` : ""} tone={l.error || l.holes.length > 0 ? "bad" : ""}>
      <text class="figure" x="16" y="58">
        {count(l.lastSequence)}
        <tspan class="note"> {l.lastSequence === 1n ? "message" : "messages"} of events</tspan>
      </text>
      <text class="note" x="16" y="80">
        {l.error ? "does not answer" : l.holes.length > 0 ? plural(l.holes.length, "gap") : l.firstSequence > 1n ? `before ${first} in the archive alone` : "up to 1000 events each"}
      </text>
      <Meter x={16} y={98} w={log.w - 32} part={part} tone={part > 0.85 ? "bad" : ""} />
      <text class="note" x="16" y="124">
        {bytes(l.bytes)} {l.maxBytes > 0n ? `of ${bytes(l.maxBytes)}` : ", no limit"}
        {l.daysUntilFull !== undefined ? `, full in ${l.daysUntilFull.toFixed(0)} days` : ""}
      </text>
    </Box>
  );
}

function Archive({ status: { archive: a, log: l } }: { status: GetStatusResponse }) {
  if (a === undefined) {
    return (
      <Box {...archive} title="Archive" tone="off">
        <text class="note" x="16" y="58">
          This process has none (--archive).
        </text>
      </Box>
    );
  }
  const last = Number(l?.lastSequence ?? 0n);
  const waiting = a.waitingEnvelopes === 0n ? "nothing waits" : `${count(a.waitingEnvelopes)} to come`;
  const side = a.error ? "stands still" : a.archiving ? "" : "of another process";
  return (
    <Box {...archive} title="Archive" side={side} tone={a.error ? "bad" : ""}>
      <text class="figure small" x="16" y="54">
        {count(a.lastSequence)}
        <tspan class="note"> of {plural(last, "message")} archived</tspan>
      </text>
      <Meter x={16} y={68} w={archive.w - 32} part={last > 0 ? Number(a.lastSequence) / last : 0} tone={a.error ? "bad" : ""} />
      <text class="note" x="16" y="96">
        {bytes(a.bytes)} in {plural(a.segments, "file")}, {waiting}
      </text>
    </Box>
  );
}

function Store(props: { of: ProjectionStatus; y: number; build: Operation | undefined; lately: Between | undefined }) {
  const { of: p, build, lately } = props;
  const tone = toneOf(p.state);
  const labels = { projection: p.name };
  const visible = lately?.quantile(0.99, "skein_publish_visible_seconds", labels);
  const behind = p.lagEnvelopes === 0n ? "up to date" : `${plural(p.lagEnvelopes, "message")} behind, ${seconds(p.lagSeconds)}`;
  const ready = p.state === ProjectionState.READY;
  return (
    <Box x={store.x} y={props.y} w={store.w} h={store.h} title={p.name} side={`build ${p.generation} · ${bytes(p.diskBytes)}`} tone={tone}>
      <circle class={`dot ${tone}`} cx={16 + 5} cy="50" r="4.5" />
      <text x="34" y="54">
        {ready ? behind : `${words(ProjectionStateSchema, p.state)}, ${behind}`}
      </text>
      <text class="note" x={store.w - 16} y="54" text-anchor="end">
        {rate(lately?.rate("skein_fold_events_total", labels))} events/s{ready && visible !== undefined && p.lagEnvelopes < 100n ? ` · visible in ${seconds(visible)}` : ""}
      </text>
      {build && (
        <>
          <Meter x={16} y={64} w={190} part={build.total > 0n ? Number(build.done) / Number(build.total) : 0} tone="busy" />
          <text class="note" x={store.w - 16} y="70" text-anchor="end">
            builds the next store{build.remainingSeconds === undefined ? "" : `, ${seconds(build.remainingSeconds)} left`}
          </text>
        </>
      )}
    </Box>
  );
}

export function toneOf(state: ProjectionState): Tone {
  switch (state) {
    case ProjectionState.READY:
      return "good";
    case ProjectionState.STARTING:
    case ProjectionState.CATCHING_UP:
    case ProjectionState.REBUILDING:
      return "busy";
    default:
      return "bad";
  }
}

/** The rebuild or rollback that makes the next generation of a projection, if one is under way. */
function buildOf(status: GetStatusResponse, projection: string) {
  return status.operations.find(
    (o) => o.projection === projection && (o.kind === OperationKind.REBUILD || o.kind === OperationKind.ROLLBACK),
  );
}
