package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maintenanceCollector collects the metrics of the archive, the auditor, the snapshots and the
// operations. docs/metrics.md lists them.
type maintenanceCollector struct {
	service *Service

	archived, archiveBytes, archiveFiles, archiveLag, archiveWaiting, archiveFailing *prometheus.Desc

	checks, queued, findings, unexplained, differences, repaired *prometheus.Desc
	rounds, roundSeconds, waitingFindings, noDisk                *prometheus.Desc

	snapshots, snapshotFailures, snapshotAge, verifiedAge *prometheus.Desc
	operationDone, operationTotal, operationRemaining     *prometheus.Desc

	// descs are all of the above.
	descs []*prometheus.Desc
}

func newMaintenanceCollector(s *Service) *maintenanceCollector {
	c := &maintenanceCollector{service: s}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, labels, nil)
		c.descs = append(c.descs, d)
		return d
	}

	c.archived = describe("skein_archive_position", "Sequence up to which the log is archived.")
	c.archiveBytes = describe("skein_archive_bytes", "Size of the archive of the log.", "class")
	c.archiveFiles = describe("skein_archive_segments", "Files of the archive of the log.", "class")
	c.archiveLag = describe("skein_archive_lag_seconds", "Age of the last archived envelope; 0 while the whole log is archived.")
	c.archiveWaiting = describe("skein_archive_waiting_envelopes", "Envelopes that the archiver has read and not yet written to the archive.")
	c.archiveFailing = describe("skein_archive_failing", "1 while the archiver fails and tries again.")

	c.checks = describe("skein_audit_checks_total", "Users, boards and items that the auditor has checked.")
	c.queued = describe("skein_audit_queued", "Users, boards and items that changed recently and that the auditor has yet to check.")
	c.findings = describe("skein_audit_findings_total", "Disagreements between stores, by the store that may be wrong.", "projection")
	c.unexplained = describe("skein_audit_unexplained_total", "Disagreements that a repair did not change, so a fold must be wrong.")
	c.differences = describe("skein_audit_differences_total", "Rows that the auditor found to differ from the log.", "projection")
	c.repaired = describe("skein_audit_repaired_rows_total", "Rows that the auditor has repaired.", "projection")
	c.rounds = describe("skein_audit_rounds_total", "Times that the auditor has checked all partitions.")
	c.roundSeconds = describe("skein_audit_round_seconds", "Duration of the last round over all partitions.")
	c.waitingFindings = describe("skein_audit_waiting_findings", "Findings that wait for free disk to be verified and repaired.")
	c.noDisk = describe("skein_audit_no_disk", "1 while the auditor cannot verify the projection because the disk is too full.", "projection")

	c.snapshots = describe("skein_snapshots_total", "Snapshots that this process has taken.")
	c.snapshotFailures = describe("skein_snapshot_failures_total", "Snapshots of this process that failed.")
	c.snapshotAge = describe("skein_snapshot_age_seconds", "Age of the last snapshot that this process took.")
	c.verifiedAge = describe("skein_projection_verified_age_seconds", "Time since the projection was last found equal to the log.", "projection")

	c.operationDone = describe("skein_operation_done", "Units that the current phase has done.", "kind", "projection", "phase", "unit")
	c.operationTotal = describe("skein_operation_total", "Units that the current phase has in total.", "kind", "projection", "phase", "unit")
	c.operationRemaining = describe("skein_operation_remaining_seconds", "Estimated time until the operation ends.", "kind", "projection")
	return c
}

// Describe is part of prometheus.Collector.
func (c *maintenanceCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *maintenanceCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	now := time.Now()

	if c.service.archive != nil {
		c.collectArchive(gauge, now)
	}

	if c.service.Auditor != nil {
		st := c.service.Auditor.Status()
		count(c.checks, st.Checks)
		gauge(c.queued, float64(st.Queued))
		count(c.unexplained, st.Unexplained)
		count(c.rounds, st.Rounds)
		gauge(c.roundSeconds, st.LastTook.Seconds())
		gauge(c.waitingFindings, float64(st.Waiting))
		for _, projection := range c.service.Stores {
			name := projection.Name()
			gauge(c.noDisk, boolGauge(st.NoDisk[name] != ""), name)
			count(c.findings, st.Findings[name], name)
			count(c.differences, st.Differences[name], name)
			count(c.repaired, st.Repaired[name], name)
		}
	}

	if c.service.snapshots != nil {
		st := c.service.snapshots.Stats()
		count(c.snapshots, st.Taken)
		count(c.snapshotFailures, st.Failed)
		if !st.Last.IsZero() {
			gauge(c.snapshotAge, now.Sub(st.Last).Seconds())
		}
	}
	for name, at := range c.service.lastVerified() {
		gauge(c.verifiedAge, now.Sub(at).Seconds(), name)
	}

	// Two operations of the same kind and projection are never under way together, so these labels
	// are unique.
	for _, i := range c.service.Operations.InFlight() {
		kind := string(i.Kind)
		phase := string(i.Phase)
		if phase != "" {
			gauge(c.operationDone, float64(i.Done), kind, i.Projection, phase, i.Unit)
		}
		if i.Total > 0 {
			gauge(c.operationTotal, float64(i.Total), kind, i.Projection, phase, i.Unit)
		}
		if i.Remaining >= 0 { // a negative value means unknown
			gauge(c.operationRemaining, i.Remaining.Seconds(), kind, i.Projection)
		}
	}
}

func (c *maintenanceCollector) collectArchive(gauge func(*prometheus.Desc, float64, ...string), now time.Time) {
	info := c.service.archive.Info()
	st := c.service.archiver.Status()
	gauge(c.archived, float64(info.End.Seq))
	lag := 0.0
	if info.End.Seq > 0 && c.service.hub.Head() > info.End.Seq {
		lag = max(0, now.Sub(info.End.LastTime.Time()).Seconds())
	}
	gauge(c.archiveLag, lag)
	gauge(c.archiveWaiting, float64(st.Waiting))
	gauge(c.archiveFailing, boolGauge(st.Err != nil))
	for _, class := range info.Classes {
		gauge(c.archiveBytes, float64(class.Bytes), class.Class.String())
		gauge(c.archiveFiles, float64(class.Segments), class.Class.String())
	}
}
