import assert from "node:assert/strict";
import { test } from "node:test";
import { type ClusterStatus, NodeState, type NodeStatus, PartitionChangeState } from "@skein-feed/client";
import { cellsOf, changeOf, concerns, countsOf, describe, has, partitionOf, stateOfNode, step } from "../src/cluster.js";

/** A set of partitions as the API has it. */
function setOf(...partitions: number[]): string {
  const digits = Array<number>(64).fill(0);
  for (const p of partitions) digits[p >> 2]! |= 8 >> (p & 3);
  return digits.map((d) => d.toString(16)).join("");
}

function node(name: string, given: number[], serves: number[], away = false): NodeStatus {
  return { name, away, givenPartitions: setOf(...given), servesPartitions: setOf(...serves) } as NodeStatus;
}

function cluster(copies: number, ...nodes: NodeStatus[]): ClusterStatus {
  return { copies, nodes } as ClusterStatus;
}

test("sets of partitions", () => {
  assert.equal(setOf(0, 5, 255), `84${"0".repeat(61)}1`);
  const set = setOf(0, 5, 17, 254);
  assert.deepEqual(Array.from({ length: 256 }, (_, p) => p).filter((p) => has(set, p)), [0, 5, 17, 254]);
  assert.equal(has("", 3), false); // of a service that does not say it
});

test("the state of a partition is the worst that applies", () => {
  const cells = cellsOf(
    cluster(
      2,
      node("a", [0, 1, 2, 3, 5], [0, 1, 2, 4]),
      node("b", [0, 2, 3, 4], [0, 1, 4]),
      node("c", [1, 3, 5], [], true),
      node("d", [4], [1]),
    ),
  );
  assert.equal(cells.length, 256);
  assert.deepEqual(
    cells.slice(0, 6).map((c) => c.state),
    ["served", "moving", "short", "unserved", "moving", "unserved"],
  );
  assert.deepEqual(cells[1], {
    partition: 1, state: "moving", given: ["a", "c"], serving: ["a", "b", "d"], coming: [], leaving: ["b", "d"], away: ["c"],
  });
  assert.deepEqual([cells[2]!.coming, cells[3]!.coming, cells[3]!.away], [["b"], ["a", "b"], ["c"]]);
  assert.deepEqual(countsOf(cells), { served: 1, moving: 2, short: 1, unserved: 252 });
  assert.deepEqual(cells.filter((c) => concerns(c, "d")).map((c) => c.partition), [1, 4]);
});

test("a partition in words", () => {
  const [zero, one, two] = cellsOf(cluster(1, node("a", [0], [0, 1]), node("b", [1], []), node("c", [1], [], true)));
  assert.equal(describe(zero!), "Partition 0: served by all copies. Table: a. Served by: a");
  assert.equal(
    describe(one!),
    "Partition 1: moving between nodes. Table: b, c. Served by: a. b builds it. a serves it until the nodes of the table do. c is away",
  );
  assert.equal(describe(two!), "Partition 2: no node serves it. Table: no node. Served by: no node");
});

test("keys lead from partition to partition, and not out of the map", () => {
  for (const [from, key, to] of [
    [0, "ArrowLeft", 0], [16, "ArrowLeft", 15], [15, "ArrowRight", 16], [255, "ArrowRight", 255],
    [5, "ArrowUp", 5], [21, "ArrowUp", 5], [5, "ArrowDown", 21], [250, "ArrowDown", 250],
    [37, "Home", 32], [37, "End", 47], [37, "Enter", undefined],
  ] as const) {
    assert.equal(step(from, key), to, `${key} at ${from}`);
  }
});

test("the partition of an address", () => {
  assert.deepEqual(["0", "255", "256", "-1", "1e2", "", null].map(partitionOf), [0, 255, undefined, undefined, undefined, undefined, undefined]);
});

test("a node's states have the names that they have everywhere", () => {
  const of = (state: NodeState, partitionChange: PartitionChangeState, away = false) => {
    const n = { state, partitionChange, away } as NodeStatus;
    return [stateOfNode(n), changeOf(n)];
  };
  assert.deepEqual(of(NodeState.JOINING, PartitionChangeState.UNCHANGED), ["joining", undefined]);
  assert.deepEqual(of(NodeState.SERVING, PartitionChangeState.CATCHING_UP), ["serving", "catching_up"]);
  assert.deepEqual(of(NodeState.SERVING, PartitionChangeState.DROPPED), ["serving", undefined]);
  assert.deepEqual(of(NodeState.LEAVING, PartitionChangeState.COPYING, true), ["away", undefined]);
  assert.deepEqual(of(NodeState.UNSPECIFIED, PartitionChangeState.UNSPECIFIED), ["alive", undefined]); // of an older version
});
