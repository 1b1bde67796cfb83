import { type GetStatusResponse, ProjectionState } from "@skein-feed/client";
import { bytes, plural, seconds } from "./format.js";
import type { Between, Figures } from "./metrics.js";

/** Something that is wrong, and what to do about it. */
export interface Problem {
  /** The part of docs/runbook.md that says more. */
  runbook: string;
  /** Whether answers or events suffer now; otherwise it will get worse, or should be known. */
  severe: boolean;
  what: string;
  todo: string;
}

/** Finds what is wrong in what the service says about itself. */
export function problems(status: GetStatusResponse, figures?: Figures, lately?: Between): Problem[] {
  return [...ofLog(status), ...ofCluster(status), ...ofProjections(status), ...ofMaintenance(status), ...(figures ? ofProcess(figures, lately) : [])];
}

function* ofLog({ log }: GetStatusResponse): Iterable<Problem> {
  if (log?.error) {
    yield {
      runbook: "SkeinLogUnreachable",
      severe: true,
      what: `The log does not answer: ${log.error}. Reads continue, publishing waits.`,
      todo: "Embedded: the process log has the disk error; make room, or restore the log. Cluster: most of its servers must be up.",
    };
  }
  for (const hole of log?.holes ?? []) {
    const lost = hole.lastSequence - hole.firstSequence + 1n;
    yield {
      runbook: "SkeinLogHole",
      severe: true,
      what: `The log has lost ${plural(lost, "message")} of events, from ${hole.firstSequence} on. The stores stop before them.`,
      todo: "Bring them back from another replica, another archive or a copy of the damaged file. Rebuild nothing, and delete no store.",
    };
  }
  const full = log && log.maxBytes > 0n ? Number(log.bytes) / Number(log.maxBytes) : 0;
  if (log && (full > 0.85 || (log.daysUntilFull ?? Infinity) < 3)) {
    yield {
      runbook: "SkeinLogNearlyFull",
      severe: full > 0.97,
      what: `The log has ${bytes(log.bytes)} of ${bytes(log.maxBytes)}. A full log refuses events.`,
      todo: "If it is archived, shorten --log-retention; otherwise see why archiving fails, or raise --log-max-bytes. Then restart.",
    };
  }
}

function* ofCluster({ cluster }: GetStatusResponse): Iterable<Problem> {
  if (cluster === undefined) return;
  const { copies, unservedPartitions: unserved } = cluster;
  const short = cluster.shortPartitions - unserved;
  if (unserved > 0) {
    yield {
      runbook: "SkeinPartitionsUnserved",
      severe: true,
      what: `No node serves ${plural(unserved, "partition")}: calls about their users and items fail.`,
      todo: "The screen Cluster shows which, and which nodes are away: start them again.",
    };
  }
  if (short > 0) {
    yield {
      runbook: "SkeinPartitionsShort",
      severe: false,
      what: `Fewer than ${plural(copies, "node")} serve ${plural(short, "partition")}: the next failure may take the last copy.`,
      todo: "The screen Cluster shows whether a node is away or drained, or still builds what it is given.",
    };
  }
}

function* ofProjections({ projections }: GetStatusResponse): Iterable<Problem> {
  for (const p of projections) {
    if (p.state === ProjectionState.FAILED) {
      yield {
        runbook: "SkeinProjectionFailed",
        severe: true,
        what: `${p.name} has stopped, and its reads are unavailable: ${p.error}`,
        todo: "Damaged files are rebuilt automatically; make room if disk is missing. A panic is a bug: report its line of the process log.",
      };
    } else if (p.state === ProjectionState.OUTDATED) {
      yield {
        runbook: "SkeinProjectionOutdated",
        severe: true,
        what: `${p.name} answers from an old state: ${p.error}`,
        todo: "Start with the old settings, or have it rebuilt: on the screen Operations, or with --auto-rebuild.",
      };
    } else if (p.lagSeconds > 60 && p.state !== ProjectionState.HELD) {
      yield {
        runbook: "SkeinProjectionLag",
        severe: false,
        what: `${p.name} is ${seconds(p.lagSeconds)} behind the log, ${plural(p.lagEnvelopes, "message")}.`,
        todo: "After a start or during an import: wait while the lag shrinks. Otherwise its disk is too slow, or the processor is taken.",
      };
    }
  }
}

function* ofMaintenance(status: GetStatusResponse): Iterable<Problem> {
  const { archive, snapshots, audit, rejectedEventCount } = status;
  if (archive?.error) {
    yield {
      runbook: "SkeinArchiveFailing",
      severe: true,
      what: `The log is not archived, so it is neither trimmed nor backed up: ${archive.error}`,
      todo: "The target is missing, not writable or full, or its credentials expired. Correct it; archiving resumes by itself.",
    };
  }
  if (snapshots?.error) {
    yield {
      runbook: "SkeinSnapshotsFailing",
      severe: false,
      what: `The last snapshot failed: ${snapshots.error}`,
      todo: "The next one is tried as usual. `skein snapshot check` reads what is there.",
    };
  }
  if (audit && audit.unexplained > 0n) {
    yield {
      runbook: "SkeinAuditUnexplained",
      severe: true,
      what: `The stores equal the log and still disagree, ${plural(audit.unexplained, "time")}. ${audit.lastFinding}`,
      todo: "The disk loses rows as fast as they are repaired, or skein has a bug: report the line of the process log.",
    };
  } else if (audit && audit.findings + audit.differences > 0n) {
    yield {
      runbook: "SkeinAuditFinding",
      severe: false,
      what: `The auditor repaired ${plural(audit.repairedRows, "row")} since the process started. ${audit.lastFinding}`,
      todo: "Once, after a crash or a disk fault: check the disk. Repeatedly: replace the disk, and verify each projection.",
    };
  }
  if (rejectedEventCount > 0n) {
    yield {
      runbook: "SkeinEventsRejected",
      severe: false,
      what: `${plural(rejectedEventCount, "malformed event")} of the log ${rejectedEventCount === 1n ? "was" : "were"} skipped.`,
      todo: "A program publishes directly to the stream. Find it by the events on the screen Events, and publish again what it meant.",
    };
  }
}

function* ofProcess(figures: Figures, lately?: Between): Iterable<Problem> {
  const free = figures.value("skein_disk_free_bytes") ?? Infinity;
  const reserve = figures.value("skein_disk_reserve_bytes") ?? 0;
  const paused = figures.value("skein_disk_paused") === 1;
  const refusing = figures.value("skein_disk_refusing") === 1;
  if (paused || refusing || free < 2 * reserve) {
    yield {
      runbook: paused ? "SkeinFoldsPaused" : refusing ? "SkeinDiskRefusing" : "SkeinDiskLow",
      severe: paused || refusing,
      what: `${bytes(free)} of disk are free. ${paused ? "The stores take no more events" : refusing ? "Publishing is refused" : `Below ${bytes(reserve)} publishing is refused`}.`,
      todo: "Make room: use a larger disk, move snapshots and archive elsewhere, or shorten --log-retention.",
    };
  }
  for (const { labels } of figures.samples("skein_access_file_stale").filter((s) => s.value === 1)) {
    yield {
      runbook: "SkeinAccessFileStale",
      severe: true,
      what: `The file of ${labels["file"]} cannot be read, so the previous one stays in force. A revoked token still works.`,
      todo: "The process log says why, at \"not loaded again\". Correct the file: it is read again within a second of the next call.",
    };
  }
  const expiry = figures.value("skein_certificate_expiry_timestamp_seconds");
  if (expiry !== undefined && expiry - figures.at / 1000 < 7 * 86400) {
    yield {
      runbook: "SkeinCertificateExpires",
      severe: expiry < figures.at / 1000,
      what: "The certificate of the service expires within a week, or has expired.",
      todo: "Replace the files of --tls-cert and --tls-key; no restart is needed.",
    };
  }
  if (lately && lately.grown("skein_rpc_internal_errors_total") > 0) {
    yield {
      runbook: "SkeinInternalErrors",
      severe: true,
      what: "Calls fail by a fault of the service.",
      todo: "The process log has a line \"call failed\" with the error, the method and the request id.",
    };
  }
}
