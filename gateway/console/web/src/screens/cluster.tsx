import type { ClusterStatus, NodeStatus } from "@skein-feed/client";
import { useRef, useState } from "preact/hooks";
import { readStatus, skein } from "../api.js";
import {
  type Cell,
  type CellState,
  cellsOf,
  changeOf,
  concerns,
  countsOf,
  describe,
  movesOf,
  partitionOf,
  perRow,
  stateOfNode,
  states,
  step,
} from "../cluster.js";
import { count, seconds } from "../format.js";
import { useAsked } from "../hooks.js";
import { useLacks } from "../lacks.js";
import { AsOf, TableCell, Failed, Lacking, Panel, State, confirmed } from "../parts.js";
import { go, route, to } from "../route.js";

const everyMs = 1000;

/** The nodes of the cluster, and the map of its partitions. */
export function Cluster() {
  const { value, at, error, again } = useAsked(readStatus, everyMs, []);
  const [failed, setFailed] = useState<unknown>();
  const drain = async (name: string, undo: boolean) => {
    setFailed(undefined);
    try {
      await skein.admin.drainNode({ name, undo });
    } catch (err) {
      setFailed(err);
    }
    again();
  };
  return (
    <>
      <Failed error={error} />
      <Failed error={failed} />
      {value && <AsOf at={at}>{value.cluster ? <Nodes of={value.cluster} drain={drain} /> : <Alone />}</AsOf>}
    </>
  );
}

function Alone() {
  return (
    <Panel title="Cluster">
      <p class="dim">
        This process is no node of a cluster (<code>--node</code>): it holds all 256 partitions, so there is nothing to distribute. With several nodes,
        this screen shows them and which partitions each of them serves. docs/cluster.md says how to begin one.
      </p>
    </Panel>
  );
}

type Drain = (name: string, undo: boolean) => Promise<void>;

/** The table and the map. Pointing at a node or a partition shows it for that time; choosing one changes the address. */
function Nodes({ of: cluster, drain }: { of: ClusterStatus; drain: Drain }) {
  const [pointed, point] = useState<string>();
  const chosen = route.value.params.get("node") ?? undefined;
  const lacksRole = useLacks("admin");
  const known = (name: string | undefined) => cluster.nodes.find((n) => n.name === name)?.name;
  return (
    <>
      <Panel title="Nodes" side={<span class="dim">{cluster.copies} copies of each partition</span>}>
        {lacksRole && <Lacking role="admin" what="To drain a node" />}
        <div class="wide">
          <table class="nodes stack" aria-label="Nodes">
            <thead>
              <tr>
                <th>Node</th>
                <th>State</th>
                <th>Zone</th>
                <th>Address</th>
                <th class="number">Weight</th>
                <th class="number">Given</th>
                <th class="number">Serves</th>
                <th class="number">Messages behind</th>
                <th class="number">Last heard</th>
                <td />
              </tr>
            </thead>
            <tbody>
              {cluster.nodes.map((n) => (
                <Node key={n.name} of={n} chosen={n.name === chosen} point={point} drain={lacksRole ? undefined : drain} />
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      <Partitions of={cluster} node={known(pointed) ?? known(chosen)} />
    </>
  );
}

interface NodeProps {
  of: NodeStatus;
  chosen: boolean;
  point: (name: string | undefined) => void;
  /** Drains a node; undefined: the caller may not. */
  drain: Drain | undefined;
}

function Node({ of: n, chosen, point, drain }: NodeProps) {
  const show = () => point(n.name);
  const hide = () => point(undefined);
  const partition = route.value.params.get("partition") ?? undefined;
  return (
    <tr class={chosen ? "chosen" : ""} onMouseEnter={show} onMouseLeave={hide}>
      <th scope="row">
        <a
          class="id"
          href={to("cluster", { node: chosen ? undefined : n.name, partition })}
          aria-current={chosen ? "true" : undefined}
          onFocus={show}
          onBlur={hide}
        >
          {n.name}
        </a>
      </th>
      <TableCell label="State">
        <NodeState of={n} />
      </TableCell>
      <TableCell label="Zone">{n.zone || "–"}</TableCell>
      <TableCell label="Address" class="id">
        {n.addr || "–"}
      </TableCell>
      <TableCell label="Weight" class="number">
        {n.weight || "–"}
      </TableCell>
      <TableCell label="Given" class="number">
        {n.given}
      </TableCell>
      <TableCell label="Serves" class="number">
        {n.serves}
      </TableCell>
      <TableCell label="Messages behind" class="number">
        <span title={n.position && `position ${n.position}`}>{n.lagEnvelopes === undefined ? "–" : count(n.lagEnvelopes)}</span>
      </TableCell>
      <TableCell label="Last heard" class="number">
        {n.silentSeconds === undefined ? "–" : n.self ? "" : n.silentSeconds < 2 ? "just now" : `${seconds(n.silentSeconds)} ago`}
      </TableCell>
      <td class="number">
        <DrainButton of={n} drain={drain} />
      </td>
    </tr>
  );
}

function NodeState({ of: n }: { of: NodeStatus }) {
  const change = changeOf(n);
  return (
    <>
      <State tone={n.away ? "bad" : n.draining ? "busy" : "good"}>{stateOfNode(n)}</State>
      {n.draining && !n.away && <small>{n.serves > 0 ? "draining" : "drained"}</small>}
      {change && <small>{change}</small>}
      {n.self && <small>answers this</small>}
    </>
  );
}

function DrainButton({ of: { name, draining }, drain }: { of: NodeStatus; drain: Drain | undefined }) {
  const ask = () =>
    confirmed({
      title: draining ? `Give ${name} partitions again?` : `Drain ${name}?`,
      text: draining
        ? "It takes its share from all other nodes, and builds it."
        : "Other nodes take over its partitions, and it serves each of them until then. It stays drained, also after a restart, until that is undone.",
      verb: draining ? "Give partitions" : "Drain",
      act: () => void drain?.(name, draining),
    });
  return (
    <button type="button" class="quiet" disabled={drain === undefined} onClick={ask} aria-label={draining ? `Undo the drain of ${name}` : `Drain ${name}`}>
      {draining ? "Undo" : "Drain"}
    </button>
  );
}

/** The map, its legend, and what is known of one partition. */
function Partitions({ of: cluster, node }: { of: ClusterStatus; node: string | undefined }) {
  const [pointed, point] = useState<number>();
  const cells = cellsOf(cluster);
  const chosen = partitionOf(route.value.params.get("partition"));
  const shown = pointed ?? chosen;
  return (
    <Panel title="Partitions" side={node !== undefined && <span class="dim">those of {node} stand out</span>}>
      <div class="map-beside">
        <Grid of={cells} node={node} chosen={chosen} point={point} />
        <div>
          <Legend of={cells} />
          {shown === undefined ? (
            <p class="dim">Point at a partition for its nodes, or choose it. Choose a node for its partitions.</p>
          ) : (
            <Details of={cells[shown]!} />
          )}
        </div>
      </div>
    </Panel>
  );
}

interface GridProps {
  of: Cell[];
  node: string | undefined;
  chosen: number | undefined;
  point: (partition: number | undefined) => void;
}

/** One stop of the Tab key; within it, the arrow keys move. */
function Grid({ of: cells, node, chosen, point }: GridProps) {
  const [stop, setStop] = useState(chosen ?? 0);
  const grid = useRef<HTMLDivElement>(null);
  const key = (e: KeyboardEvent) => {
    const next = step(stop, e.key);
    if (next === undefined) return;
    e.preventDefault();
    grid.current?.querySelector<HTMLElement>(`[data-partition="${next}"]`)?.focus();
  };
  const focus = (partition: number) => {
    setStop(partition);
    point(partition);
  };
  const rows = Array.from({ length: cells.length / perRow }, (_, row) => cells.slice(row * perRow, (row + 1) * perRow));
  return (
    <div class="map" role="grid" aria-label="Partitions" ref={grid} onKeyDown={key}>
      {rows.map((row, i) => (
        <div key={i} role="row">
          {row.map((cell) => (
            <button
              key={cell.partition}
              type="button"
              role="gridcell"
              class={`cell ${cell.state} ${node === undefined ? "" : concerns(cell, node) ? "of" : "other"}`}
              data-partition={cell.partition}
              tabIndex={cell.partition === stop ? 0 : -1}
              aria-label={describe(cell)}
              aria-selected={cell.partition === chosen}
              onClick={() => choose(cell.partition, chosen)}
              onFocus={() => focus(cell.partition)}
              onBlur={() => point(undefined)}
              onMouseEnter={() => point(cell.partition)}
              onMouseLeave={() => point(undefined)}
            >
              {states[cell.state].sign}
            </button>
          ))}
        </div>
      ))}
    </div>
  );
}

/** Chooses a partition, or no longer the one that was chosen. */
function choose(partition: number, chosen: number | undefined): void {
  const node = route.value.params.get("node") ?? undefined;
  go("cluster", { node, partition: partition === chosen ? undefined : `${partition}` });
}

function Legend({ of: cells }: { of: Cell[] }) {
  const counts = countsOf(cells);
  return (
    <ul class="legend" aria-label="States of partitions">
      {(Object.keys(states) as CellState[]).map((state) => (
        <li key={state}>
          <span class={`cell ${state}`} aria-hidden="true">
            {states[state].sign}
          </span>
          <span class="number">{counts[state]}</span> <span>{states[state].text}</span>
        </li>
      ))}
    </ul>
  );
}

function Details({ of: cell }: { of: Cell }) {
  return (
    <>
      <h3>Partition {cell.partition}</h3>
      <dl class="facts">
        <dt>State</dt>
        <dd>{states[cell.state].text}</dd>
        <dt>Table</dt>
        <dd>
          <Names of={cell.given} />
        </dd>
        <dt>Served by</dt>
        <dd>
          <Names of={cell.serving} />
        </dd>
      </dl>
      {movesOf(cell).map((move) => (
        <p key={move}>{move}.</p>
      ))}
    </>
  );
}

function Names({ of: names }: { of: string[] }) {
  if (names.length === 0) return <span class="dim">no node</span>;
  return (
    <>
      {names.map((name, i) => (
        <span key={name}>
          {i > 0 && ", "}
          <span class="id">{name}</span>
        </span>
      ))}
    </>
  );
}
