package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maintenanceCollector collects the metrics of maintenance. docs/metrics.md lists them.
type maintenanceCollector struct {
	service *Service

	archived, archiveBytes, archiveFiles, archiveLag, archiveWaiting, archiveFailing *prometheus.Desc
	checks, queued, findings, unexplained, differences, repaired, rounds, roundOf    *prometheus.Desc
	waiting, noDisk                                                                  *prometheus.Desc
	snapshots, snapshotFailures, snapshotAge, verifiedAge                            *prometheus.Desc
	opDone, opTotal, opRemaining                                                     *prometheus.Desc
}

func newMaintenanceCollector(a *Service) *maintenanceCollector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &maintenanceCollector{
		service:          a,
		archived:         describe("skein_archive_position", "Sequence up to which the log is archived."),
		archiveBytes:     describe("skein_archive_bytes", "Size of the archive of the log, by class of events.", "class"),
		archiveFiles:     describe("skein_archive_segments", "Files of the archive of the log, by class of events.", "class"),
		archiveLag:       describe("skein_archive_lag_seconds", "Age of the end of the archive while the log has more."),
		archiveWaiting:   describe("skein_archive_waiting_envelopes", "Envelopes that are read and not sealed yet."),
		archiveFailing:   describe("skein_archive_failing", "1 while archiving does not continue."),
		checks:           describe("skein_audit_checks_total", "Users, boards and items that the auditor has checked."),
		queued:           describe("skein_audit_queued", "Entities that were written lately and wait to be checked."),
		findings:         describe("skein_audit_findings_total", "Disagreements between stores, by the store that may be wrong.", "projection"),
		unexplained:      describe("skein_audit_unexplained_total", "Disagreements that no repair changed: a fold is wrong."),
		differences:      describe("skein_audit_differences_total", "Rows that differed from the log.", "projection"),
		repaired:         describe("skein_audit_repaired_rows_total", "Rows that the auditor has repaired.", "projection"),
		rounds:           describe("skein_audit_rounds_total", "Rounds of all partitions that the auditor has finished."),
		roundOf:          describe("skein_audit_round_seconds", "How long the last round took."),
		waiting:          describe("skein_audit_waiting_findings", "Findings for whose repair there is no disk."),
		noDisk:           describe("skein_audit_no_disk", "1 while the projection is not verified for lack of disk.", "projection"),
		snapshots:        describe("skein_snapshots_total", "Snapshots that were taken."),
		snapshotFailures: describe("skein_snapshot_failures_total", "Snapshots that failed."),
		snapshotAge:      describe("skein_snapshot_age_seconds", "Age of the last snapshot that this process took."),
		verifiedAge:      describe("skein_projection_verified_age_seconds", "Since the projection was found equal to the log.", "projection"),
		opDone:           describe("skein_operation_done", "Units done in the present phase.", "kind", "projection", "phase", "unit"),
		opTotal:          describe("skein_operation_total", "Units of the present phase in all.", "kind", "projection", "phase", "unit"),
		opRemaining:      describe("skein_operation_remaining_seconds", "Estimated time to the end.", "kind", "projection"),
	}
}

// Describe is part of prometheus.Collector.
func (c *maintenanceCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.archived, c.archiveBytes, c.archiveFiles, c.archiveLag, c.archiveWaiting, c.archiveFailing, c.checks, c.queued,
		c.findings, c.unexplained, c.differences, c.repaired, c.rounds, c.roundOf, c.waiting, c.noDisk, c.snapshots, c.snapshotFailures,
		c.snapshotAge, c.verifiedAge, c.opDone, c.opTotal, c.opRemaining,
	} {
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
		gauge(c.roundOf, st.LastTook.Seconds())
		gauge(c.waiting, float64(st.Waiting))
		for _, s := range c.service.Stores {
			noDisk := 0.0
			if st.NoDisk[s.Name()] != "" {
				noDisk = 1
			}
			gauge(c.noDisk, noDisk, s.Name())
			count(c.findings, st.Findings[s.Name()], s.Name())
			count(c.differences, st.Differences[s.Name()], s.Name())
			count(c.repaired, st.Repaired[s.Name()], s.Name())
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
	for _, i := range c.service.Operations.InFlight() { // never two of a kind and a projection
		if i.Phase != "" {
			gauge(c.opDone, float64(i.Done), string(i.Kind), i.Projection, string(i.Phase), i.Unit)
		}
		if i.Total > 0 {
			gauge(c.opTotal, float64(i.Total), string(i.Kind), i.Projection, string(i.Phase), i.Unit)
		}
		if i.Remaining >= 0 {
			gauge(c.opRemaining, i.Remaining.Seconds(), string(i.Kind), i.Projection)
		}
	}
}

func (c *maintenanceCollector) collectArchive(gauge func(*prometheus.Desc, float64, ...string), now time.Time) {
	info, st := c.service.archive.Info(), c.service.archiver.Status()
	gauge(c.archived, float64(info.End.Seq))
	lag := 0.0
	if info.End.Seq > 0 && c.service.hub.Head() > info.End.Seq {
		lag = max(0, now.Sub(info.End.LastTime.Time()).Seconds())
	}
	gauge(c.archiveLag, lag)
	gauge(c.archiveWaiting, float64(st.Waiting))
	failing := 0.0
	if st.Err != nil {
		failing = 1
	}
	gauge(c.archiveFailing, failing)
	for _, class := range info.Classes {
		gauge(c.archiveBytes, float64(class.Bytes), class.Class.String())
		gauge(c.archiveFiles, float64(class.Segments), class.Class.String())
	}
}
