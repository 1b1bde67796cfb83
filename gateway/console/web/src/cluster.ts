import { type ClusterStatus, NodeState, type NodeStatus, PartitionChangeState } from "@skein-feed/client";

/** How many partitions a cluster has, and how many stand in a row of the map. */
export const partitions = 256;
export const perRow = 16;

/**
 * The state of a partition, the worst that applies: no node serves it; fewer nodes than wanted do; enough do, and some node builds it or is
 * to drop it; all is as the table says.
 */
export type CellState = "unserved" | "short" | "moving" | "served";

/** The states as people read them, and the sign of each, so that no state is told by its color alone. */
export const states: Record<CellState, { text: string; sign: string }> = {
  served: { text: "served by all copies", sign: "" },
  moving: { text: "moving between nodes", sign: "→" },
  short: { text: "fewer copies than wanted", sign: "!" },
  unserved: { text: "no node serves it", sign: "×" },
};

/** A partition of the map. The lists are names of nodes, in the order of the status. */
export interface Cell {
  partition: number;
  state: CellState;
  /** The nodes that the table names, and those that serve the partition. */
  given: string[];
  serving: string[];
  /** The nodes that build it, and those that drop it once the nodes of the table serve it. */
  coming: string[];
  leaving: string[];
  /** The nodes that the table names and that are away. */
  away: string[];
}

/** Reports whether a set of partitions, 64 hexadecimal digits, has one. The first bit of the first digit is partition 0. */
export function has(set: string, partition: number): boolean {
  const digit = parseInt(set[partition >> 2] ?? "0", 16);
  return ((digit >> (3 - (partition & 3))) & 1) === 1;
}

/** The partitions of a cluster, in order. */
export function cellsOf({ nodes, copies }: ClusterStatus): Cell[] {
  return Array.from({ length: partitions }, (_, partition) => {
    const names = (holds: (n: NodeStatus) => boolean) => nodes.filter(holds).map((n) => n.name);
    const given = (n: NodeStatus) => has(n.givenPartitions, partition);
    const serves = (n: NodeStatus) => has(n.servesPartitions, partition);
    const cell = {
      partition,
      given: names(given),
      serving: names(serves),
      coming: names((n) => given(n) && !serves(n) && !n.away),
      leaving: names((n) => serves(n) && !given(n)),
      away: names((n) => given(n) && n.away),
    };
    return { ...cell, state: stateOf(cell, copies) };
  });
}

function stateOf({ serving, coming, leaving }: Omit<Cell, "state">, copies: number): CellState {
  if (serving.length === 0) return "unserved";
  if (serving.length < copies) return "short";
  return coming.length + leaving.length > 0 ? "moving" : "served";
}

/** How many cells are in each state. */
export function countsOf(cells: Cell[]): Record<CellState, number> {
  const counts = { served: 0, moving: 0, short: 0, unserved: 0 };
  for (const { state } of cells) counts[state]++;
  return counts;
}

/** Reports whether a node serves a partition, or should. */
export function concerns({ given, serving }: Cell, node: string): boolean {
  return given.includes(node) || serving.includes(node);
}

/** A cell in words, as screen readers say it. */
export function describe(cell: Cell): string {
  const { partition, state, given, serving } = cell;
  return [`Partition ${partition}: ${states[state].text}`, `Table: ${list(given)}`, `Served by: ${list(serving)}`, ...movesOf(cell)].join(". ");
}

/** What moves a partition, or keeps it from being served. */
export function movesOf({ coming, leaving, away }: Cell): string[] {
  return [
    ...coming.map((n) => `${n} builds it`),
    ...leaving.map((n) => `${n} serves it until the nodes of the table do`),
    ...away.map((n) => `${n} is away`),
  ];
}

/** The state of a node, by the name that it has everywhere. A node of an older version does not say it. */
export function stateOfNode({ away, state }: NodeStatus): string {
  return away ? "away" : state === NodeState.UNSPECIFIED ? "alive" : NodeState[state].toLowerCase();
}

/** How far a node is with a change of its partitions, by the name that it has everywhere; undefined: none is under way. */
export function changeOf({ away, partitionChange }: NodeStatus): string | undefined {
  switch (partitionChange) {
    case PartitionChangeState.COPYING:
    case PartitionChangeState.CATCHING_UP:
    case PartitionChangeState.CUT_OVER:
      return away ? undefined : PartitionChangeState[partitionChange].toLowerCase();
  }
  return undefined;
}

export function list(names: string[]): string {
  return names.length === 0 ? "no node" : names.join(", ");
}

/** The partition to which a key leads from another in the map; undefined: the key leads nowhere. */
export function step(from: number, key: string): number | undefined {
  const column = from % perRow;
  switch (key) {
    case "ArrowLeft":
      return Math.max(from - 1, 0);
    case "ArrowRight":
      return Math.min(from + 1, partitions - 1);
    case "ArrowUp":
      return from < perRow ? from : from - perRow;
    case "ArrowDown":
      return from + perRow < partitions ? from + perRow : from;
    case "Home":
      return from - column;
    case "End":
      return from - column + perRow - 1;
  }
  return undefined;
}

/** The partition that a text names, as an address has it. */
export function partitionOf(text: string | null): number | undefined {
  return text !== null && /^\d{1,3}$/.test(text) && Number(text) < partitions ? Number(text) : undefined;
}
