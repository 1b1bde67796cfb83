import { type Operation, OperationKind, OperationKindSchema, OperationState, OperationStateSchema } from "@skein-feed/client";
import { useEffect, useState } from "preact/hooks";
import { skein } from "../api.js";
import { bytes, count, date, rate, seconds, words } from "../format.js";
import { useAsked, usePaged } from "../hooks.js";
import { AsOf, Bar, Choice, Failed, Form, Panel, State, type Tone, When, confirmed } from "../parts.js";

interface Choosable {
  title: string;
  /** What it does, and what it costs. */
  text: string;
  start: (projection: string, share: number) => Promise<{ operation?: Operation | undefined }>;
  /** Whether it can be about all projections. */
  all?: boolean;
}

/** The operations that can be started here. To erase a user is left to the command line. */
const choosable: Record<string, Choosable> = {
  rebuild: {
    title: "Rebuild",
    text: "The store of the projection is built again from the log. The present store answers until the new one has caught up and takes its place, and stays on disk until the next rebuild.",
    start: (projection, share) => skein.admin.startRebuild({ projection, share }),
  },
  verify: {
    title: "Verify",
    text: "The rows of the projection are compared with what the log says. Nothing is changed.",
    all: true,
    start: (projection, share) => skein.admin.verify({ projection, share }),
  },
  repair: {
    title: "Repair",
    text: "The rows of the projection are compared with what the log says, and those that differ are corrected, while the store answers. Damaged files need a rebuild.",
    start: (projection, share) => skein.admin.repair({ projection, share }),
  },
  rollback: {
    title: "Roll back",
    text: "The store before the present one becomes the present one again, after it has caught up with the log.",
    start: (projection) => skein.admin.rollback({ projection }),
  },
  snapshot: {
    title: "Snapshot",
    text: "A copy is written from which another process can start.",
    all: true,
    start: (projection) => skein.admin.takeSnapshot({ projections: projection ? [projection] : [] }),
  },
};

/** Operations: started, watched and cancelled. */
export function Operations() {
  const [failed, setFailed] = useState<unknown>();
  const [everyMs, setEveryMs] = useState(1000);
  const running = useAsked((signal) => skein.admin.listOperations({ pageSize: 20 }, { signal }), everyMs, []);
  const some = running.value?.operations.some(isLive) ?? false;
  useEffect(() => setEveryMs(some ? 250 : 1000), [some]);
  const run = async (act: () => Promise<unknown>) => {
    setFailed(undefined);
    try {
      await act();
    } catch (err) {
      setFailed(err);
    }
    running.again();
  };
  return (
    <>
      <Start run={run} />
      <Failed error={failed} />
      <Panel title="Operations" side={<span class="dim">the latest first</span>}>
        <Failed error={running.error} />
        {running.value?.operations.length === 0 && (
          <p class="dim">
            No operation was started. One appears here as soon as it is, with its progress, and stays with its report. To try it, verify a projection:
            that changes nothing.
          </p>
        )}
        {running.value && (
          <AsOf at={running.at}>
            <ul class="operations">
              {running.value.operations.map((o) => (
                <Line key={o.operationId} of={o} run={run} />
              ))}
            </ul>
          </AsOf>
        )}
        {running.value?.nextPageToken && <Older after={running.value.nextPageToken} run={run} />}
      </Panel>
    </>
  );
}

type Run = (act: () => Promise<unknown>) => Promise<void>;

function Start({ run }: { run: Run }) {
  const [kind, setKind] = useState("rebuild");
  const [projection, setProjection] = useState("");
  const [share, setShare] = useState("0");
  const status = useAsked((signal) => skein.admin.getStatus({ pageSize: 1 }, { signal }), 0, []);
  const names = status.value?.projections.map((p) => p.name) ?? [];
  const chosen = choosable[kind]!;
  const of = projection || (chosen.all ? "" : (names[0] ?? ""));
  const begin = () =>
    confirmed({
      title: `${chosen.title}: ${of || "all projections"}?`,
      text: chosen.text,
      verb: chosen.title,
      act: () => run(() => chosen.start(of, Number(share))),
    });
  return (
    <Panel title="Start">
      <Failed error={status.error} />
      <Form label="Start an operation" submit={begin}>
        <Choice label="What" value={kind} set={setKind} of={Object.entries(choosable).map(([name, c]) => [name, c.title])} />
        <Choice
          label="Projection"
          value={of}
          set={setProjection}
          of={[...(chosen.all ? [["", "all"] as [string, string]] : []), ...names.map((n): [string, string] => [n, n])]}
        />
        <Choice
          label="Share of a core"
          value={share}
          set={setShare}
          of={[["0", "no limit"], ["0.1", "10 %"], ["0.25", "25 %"], ["0.5", "50 %"]]}
        />
        <button>{chosen.title}</button>
      </Form>
      <p class="dim">{chosen.text}</p>
    </Panel>
  );
}

/** The pages after the first, which do not move. */
function Older({ after, run }: { after: string; run: Run }) {
  const [open, setOpen] = useState("");
  const list = usePaged<Operation>(
    async (token, signal) => {
      if (open === "") return { entries: [], next: "" };
      const page = await skein.admin.listOperations({ pageSize: 50, pageToken: token || open }, { signal });
      return { entries: page.operations, next: page.nextPageToken };
    },
    [open],
  );
  return (
    <>
      <ul class="operations">
        {list.entries?.map((o) => (
          <Line key={o.operationId} of={o} run={run} />
        ))}
      </ul>
      {(open === "" || list.more) && (
        <button type="button" class="quiet" onClick={list.more ?? (() => setOpen(after))}>
          Older
        </button>
      )}
    </>
  );
}

const tones: Record<OperationState, Tone> = {
  [OperationState.UNSPECIFIED]: "dim",
  [OperationState.PENDING]: "busy",
  [OperationState.RUNNING]: "busy",
  [OperationState.SUCCEEDED]: "good",
  [OperationState.FAILED]: "bad",
  [OperationState.CANCELLED]: "dim",
};

function Line({ of: o, run }: { of: Operation; run: Run }) {
  const title = `${words(OperationKindSchema, o.kind)} ${o.projection || (o.kind === OperationKind.ERASE ? "" : "all")}`;
  const live = isLive(o);
  const cancel = () =>
    confirmed({
      title: `Cancel ${title}?`,
      text: "A rebuild or rollback then leaves the store as it was. A repair keeps the rows that it has corrected. An erasure must be run again.",
      verb: "Cancel it",
      act: () => run(() => skein.admin.cancelOperation({ operationId: o.operationId })),
    });
  return (
    <li>
      <div class="line">
        <strong>{title}</strong>
        <State tone={tones[o.state]}>
          <span aria-live="polite">{words(OperationStateSchema, o.state)}</span>
        </State>
        <span class="dim">
          <When at={date(o.createTime)} />
          {spent(o)}
        </span>
        <code class="dim">{o.operationId}</code>
        {live && (
          <button type="button" class="quiet" onClick={cancel}>
            Cancel
          </button>
        )}
      </div>
      {live && <Bar label={`Progress of ${title}`} part={o.total > 0n ? Number(o.done) / Number(o.total) : undefined} />}
      {live && <p class="dim">{progress(o)}</p>}
      {o.error && <p class="failed">{o.error}</p>}
      {o.report && (
        <details>
          <summary>Report</summary>
          <pre>{o.report}</pre>
        </details>
      )}
    </li>
  );
}

function isLive(o: Operation): boolean {
  return o.state === OperationState.PENDING || o.state === OperationState.RUNNING;
}

function spent(o: Operation): string {
  const [from, end] = [date(o.createTime), date(o.endTime)];
  return from && end ? `, took ${seconds((end.getTime() - from.getTime()) / 1000)}` : "";
}

function progress(o: Operation): string {
  const amount = o.unit === "bytes" ? bytes : count;
  const of = o.total > 0n ? `${amount(o.done)} of ${amount(o.total)}` : amount(o.done);
  const lately = o.rate === 0 ? "" : `, ${o.unit === "bytes" ? bytes(o.rate) : rate(o.rate)}/s`;
  const left = o.remainingSeconds === undefined ? "" : `, ${seconds(o.remainingSeconds)} left`;
  const phase = o.phase ? `${o.phase}: ` : "";
  return `${phase}${of}${o.unit === "bytes" ? "" : ` ${o.unit === "envelopes" ? "messages of the log" : o.unit}`}${lately}${left}`;
}
