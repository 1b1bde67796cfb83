package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// report adds the state of the maintenance, and that of the cluster, to a status.
func (a *Service) addStatus(_ context.Context, res *skeinv1.GetStatusResponse) {
	res.Archive, res.Snapshots, res.Audit = a.archiveStatus(), a.snapshotStatus(), a.auditStatus()
	if a.node != nil {
		res.Cluster = a.node.Status()
	}
	for _, i := range a.Operations.InFlight() {
		res.Operations = append(res.Operations, protoOperation(i))
	}
	last := a.lastVerified()
	for _, p := range res.GetProjections() {
		p.LastVerifyTime = protoTime(last[p.GetName()])
	}
}

// problems returns what an operator must repair in the maintenance. The texts have no details, because /healthz needs no token: GetStatus and
// the log of the process have them.
func (a *Service) problems() (problems []string) {
	if a.archiver != nil && a.archiver.Status().Err != nil {
		problems = append(problems, "the log cannot be archived")
	}
	if a.snapshots != nil && a.snapshots.Stats().Error != nil {
		problems = append(problems, "the last snapshot failed")
	}
	if a.node != nil && len(a.node.UnreadableKeys()) > 0 {
		problems = append(problems, "the bucket of the cluster has values that cannot be read")
	}
	return problems
}

func protoTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// lastVerified returns when an operation or the auditor has last found each projection equal to the log.
func (a *Service) lastVerified() map[string]time.Time {
	a.verifiedMu.Lock()
	last := maps.Clone(a.verified)
	a.verifiedMu.Unlock()
	if last == nil {
		last = map[string]time.Time{}
	}
	if a.Auditor != nil {
		for name, at := range a.Auditor.Status().Verified {
			if at.After(last[name]) {
				last[name] = at
			}
		}
	}
	return last
}

func (a *Service) archiveStatus() *skeinv1.ArchiveStatus {
	if a.archive == nil {
		return nil
	}
	info, st := a.archive.Info(), a.archiver.Status()
	s := &skeinv1.ArchiveStatus{
		Location: info.Location, Archiving: st.Running, LastSequence: info.End.Seq, Envelopes: info.Envelopes,
		WaitingEnvelopes: uint64(max(0, st.Waiting)),
	}
	if info.End.Seq > 0 {
		s.LastTime = timestamppb.New(info.End.LastTime.Time())
	}
	for _, class := range info.Classes {
		s.Segments += uint32(max(0, class.Segments))
		s.Bytes += class.Bytes
		s.Events += class.Events
	}
	if st.Err != nil {
		s.Error = st.Err.Error()
	}
	s.DaysUntilFull = a.archiveDaysLeft()
	return s
}

// archiveDaysLeft estimates in how many days the archive fills the disk of its directory, from its growth in the last week of log time.
// nil means there is no estimate.
func (a *Service) archiveDaysLeft() *float64 {
	const week = events.Micros(7 * 24 * time.Hour / time.Microsecond)
	bytes, span := a.archive.Growth(week)
	if bytes == 0 || span < events.Micros(time.Hour/time.Microsecond) {
		return nil
	}
	dir, ok := bucket.Directory(a.options.Archive)
	if !ok {
		return nil
	}
	disk, err := vfs.Default.GetDiskUsage(dir)
	if err != nil {
		return nil
	}
	days := float64(disk.AvailBytes) / float64(bytes) * float64(span) / float64(24*time.Hour/time.Microsecond)
	return &days
}

func (a *Service) snapshotStatus() *skeinv1.SnapshotStatus {
	if a.snapshots == nil {
		return nil
	}
	st := a.snapshots.Stats()
	s := &skeinv1.SnapshotStatus{
		Location: a.snapshotBucket.String(), Taken: uint32(st.Taken), Failed: uint32(st.Failed), LastTime: protoTime(st.Last),
		LastSeconds: st.Took.Seconds(), LastBytes: uint64(max(0, st.Bytes)),
	}
	if st.Error != nil {
		s.Error = st.Error.Error()
	}
	return s
}

func (a *Service) auditStatus() *skeinv1.AuditStatus {
	if a.Auditor == nil {
		return nil
	}
	st := a.Auditor.Status()
	last := st.LastFinding
	if st.Waiting > 0 {
		last = fmt.Sprintf("%s (%d findings wait for disk: %s)", last, st.Waiting,
			strings.Join(slices.Sorted(maps.Values(st.NoDisk)), "; "))
	}
	return &skeinv1.AuditStatus{
		Checks: st.Checks, Queued: uint64(max(0, st.Queued)), Dropped: st.Dropped, Findings: sumCounts(st.Findings),
		Unexplained: st.Unexplained, Differences: sumCounts(st.Differences), RepairedRows: sumCounts(st.Repaired),
		Partition: uint32(max(0, st.Partition)), Rounds: uint32(st.Rounds), LastRoundTime: protoTime(st.LastRound),
		LastRoundSeconds: st.LastTook.Seconds(), LastFinding: last,
	}
}

func sumCounts(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
