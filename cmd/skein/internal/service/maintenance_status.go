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

// addStatus adds the state of the maintenance, of the operations under way and of the cluster to an
// answer of GetStatus.
func (s *Service) addStatus(_ context.Context, res *skeinv1.GetStatusResponse) {
	res.Archive = s.archiveStatus()
	res.Snapshots = s.snapshotStatus()
	res.Audit = s.auditStatus()
	if s.node != nil {
		res.Cluster = s.node.Status()
	}
	for _, i := range s.Operations.InFlight() {
		res.Operations = append(res.Operations, protoOperation(i))
	}
	lastVerified := s.lastVerified()
	for _, p := range res.GetProjections() {
		p.LastVerifyTime = protoTime(lastVerified[p.GetName()])
	}
}

// problems returns what is wrong with the maintenance and needs an operator. The texts go to
// /healthz, which everybody may read, so they have no details; the answer of GetStatus and the log
// of the process have them.
func (s *Service) problems() (problems []string) {
	if s.archiver != nil && s.archiver.Status().Err != nil {
		problems = append(problems, "the log cannot be archived")
	}
	if s.snapshots != nil && s.snapshots.Stats().Error != nil {
		problems = append(problems, "the last snapshot failed")
	}
	if s.node != nil && len(s.node.UnreadableKeys()) > 0 {
		problems = append(problems, "the bucket of the cluster has values that cannot be read")
	}
	return problems
}

// protoTime returns a time as the API has it: nil for the zero time.
func protoTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// lastVerified returns, by projection, when an operation or the auditor last found the projection
// equal to the log.
func (s *Service) lastVerified() map[string]time.Time {
	s.verifiedMu.Lock()
	last := maps.Clone(s.verified)
	s.verifiedMu.Unlock()
	if last == nil {
		last = map[string]time.Time{}
	}

	if s.Auditor != nil {
		for name, at := range s.Auditor.Status().Verified {
			if at.After(last[name]) {
				last[name] = at
			}
		}
	}
	return last
}

// archiveStatus returns the state of the archive; nil if there is no archive.
func (s *Service) archiveStatus() *skeinv1.ArchiveStatus {
	if s.archive == nil {
		return nil
	}
	info := s.archive.Info()
	st := s.archiver.Status()
	status := &skeinv1.ArchiveStatus{
		Location:         info.Location,
		Archiving:        st.Running,
		LastSequence:     info.End.Seq,
		Envelopes:        info.Envelopes,
		WaitingEnvelopes: uint64(max(0, st.Waiting)),
		DaysUntilFull:    s.archiveDaysLeft(),
	}
	if info.End.Seq > 0 {
		status.LastTime = timestamppb.New(info.End.LastTime.Time())
	}
	for _, class := range info.Classes {
		status.Segments += uint32(max(0, class.Segments))
		status.Bytes += class.Bytes
		status.Events += class.Events
	}
	if st.Err != nil {
		status.Error = st.Err.Error()
	}
	return status
}

// archiveDaysLeft estimates in how many days the archive will have filled the disk of its
// directory, from its growth in the last week of log time. It returns nil if no estimate is
// possible: the archive is not in a directory, or what it has covers less than an hour.
func (s *Service) archiveDaysLeft() *float64 {
	const (
		hour = events.Micros(time.Hour / time.Microsecond)
		day  = 24 * hour
		week = 7 * day
	)
	bytes, span := s.archive.Growth(week)
	if bytes == 0 || span < hour {
		return nil
	}
	dir, ok := bucket.Directory(s.options.Archive)
	if !ok {
		return nil
	}
	disk, err := vfs.Default.GetDiskUsage(dir)
	if err != nil {
		return nil
	}
	days := float64(disk.AvailBytes) / float64(bytes) * float64(span) / float64(day)
	return &days
}

// snapshotStatus returns the state of the snapshots; nil if none are taken.
func (s *Service) snapshotStatus() *skeinv1.SnapshotStatus {
	if s.snapshots == nil {
		return nil
	}
	st := s.snapshots.Stats()
	status := &skeinv1.SnapshotStatus{
		Location:    s.snapshotBucket.String(),
		Taken:       uint32(st.Taken),
		Failed:      uint32(st.Failed),
		LastTime:    protoTime(st.Last),
		LastSeconds: st.Took.Seconds(),
		LastBytes:   uint64(max(0, st.Bytes)),
	}
	if st.Error != nil {
		status.Error = st.Error.Error()
	}
	return status
}

// auditStatus returns the state of the auditor; nil if there is none.
func (s *Service) auditStatus() *skeinv1.AuditStatus {
	if s.Auditor == nil {
		return nil
	}
	st := s.Auditor.Status()
	lastFinding := st.LastFinding
	if st.Waiting > 0 {
		reasons := slices.Sorted(maps.Values(st.NoDisk))
		lastFinding = fmt.Sprintf("%s (%d findings wait for disk: %s)", lastFinding, st.Waiting, strings.Join(reasons, "; "))
	}
	return &skeinv1.AuditStatus{
		Checks:           st.Checks,
		Queued:           uint64(max(0, st.Queued)),
		Dropped:          st.Dropped,
		Findings:         sumCounts(st.Findings),
		Unexplained:      st.Unexplained,
		Differences:      sumCounts(st.Differences),
		RepairedRows:     sumCounts(st.Repaired),
		Partition:        uint32(max(0, st.Partition)),
		Rounds:           uint32(st.Rounds),
		LastRoundTime:    protoTime(st.LastRound),
		LastRoundSeconds: st.LastTook.Seconds(),
		LastFinding:      lastFinding,
	}
}

// sumCounts adds up counts by projection.
func sumCounts(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
