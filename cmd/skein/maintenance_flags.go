package main

import (
	"context"
	"fmt"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events/bucket"
)

// maintenanceFlags configure what the service does besides answering calls: it archives the log,
// takes snapshots, audits and rebuilds stores.
type maintenanceFlags struct {
	flags.ArchiveFlags `embed:""`

	ArchiveEvery time.Duration `help:"Archive each event within this time." default:"1m"`
	LogRetention time.Duration `help:"Delete archived events from the stream after this time; if negative, never." default:"168h"`

	Snapshots     string        `help:"Where to put snapshots of the stores: a directory, or s3://BUCKET/PREFIX." placeholder:"TARGET"`
	SnapshotEvery time.Duration `help:"Take a snapshot this often." default:"1h"`
	SnapshotKeep  int           `help:"Keep this many of these snapshots; 0 keeps all." default:"24"`

	AuditShare  float64 `help:"Share of one CPU core for auditing, verifying and repairing stores, between 0 and 1; 0 does none of that." default:"0.05"`
	AutoRebuild bool    `help:"At the start, rebuild stores that another version or other settings built."`

	RebuildMemory memorySetting `help:"Memory for a rebuild: 16MiB to 4GiB, a share of --memory, or auto, which is an eighth." default:"auto"`
}

// maintenanceOptions checks the flags and opens the archive and the target of the snapshots. dir is
// the data directory; external reports whether the log is on NATS servers.
func (f *maintenanceFlags) maintenanceOptions(ctx context.Context, dir string, external bool) (o service.MaintenanceOptions, err error) {
	switch {
	case f.ArchiveEvery <= 0:
		return o, command.Usagef("--archive-every must be above 0, is %v", f.ArchiveEvery)
	case f.LogRetention == 0:
		return o, command.Usagef("--log-retention must not be 0: give the time after which archived events are deleted from the stream, or a " +
			"negative time to keep them")
	case f.SnapshotEvery <= 0:
		return o, command.Usagef("--snapshot-every must be above 0, is %v", f.SnapshotEvery)
	case f.SnapshotKeep < 0:
		return o, command.Usagef("--snapshot-keep must be at least 0, is %d", f.SnapshotKeep)
	case f.AuditShare < 0 || f.AuditShare > 1:
		return o, command.Usagef("--audit-share must be from 0 to 1, is %v", f.AuditShare)
	}

	o = service.MaintenanceOptions{
		ArchiveEvery: f.ArchiveEvery, Retention: f.LogRetention, AuditShare: f.AuditShare, AutoRebuild: f.AutoRebuild,
		SnapshotEvery: f.SnapshotEvery, SnapshotKeep: f.SnapshotKeep,
	}
	o.Worker, err = newBuildWorker()
	if err != nil {
		return o, err
	}
	o.Archive, err = f.Open(ctx, dir, external)
	if err != nil {
		return o, err
	}
	if f.Snapshots != "" {
		o.Snapshots, err = bucket.Open(ctx, f.Snapshots)
		if err != nil {
			return o, fmt.Errorf("--snapshots: %w", err)
		}
	}
	return o, nil
}

// checkWritable returns an error if the process may not write to the archive or to the target of
// the snapshots. Without this check the first attempt to write would come much later, and fail
// again and again.
func checkWritable(o *service.MaintenanceOptions) error {
	if err := bucket.CheckWritable(o.Archive); err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	if err := bucket.CheckWritable(o.Snapshots); err != nil {
		return fmt.Errorf("--snapshots: %w", err)
	}
	return nil
}
