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

// maintenanceFlags configure the work of the service beside answering calls.
type maintenanceFlags struct {
	flags.ArchiveFlags `embed:""`

	ArchiveEvery time.Duration `help:"How long an event waits to be archived, at most." default:"1m"`
	LogRetention time.Duration `help:"How long the stream keeps what is archived; negative: for ever." default:"168h"`

	Snapshots     string        `help:"Where snapshots of the stores go: directory, or s3://BUCKET/PREFIX." placeholder:"TARGET"`
	SnapshotEvery time.Duration `help:"How often one is taken." default:"1h"`
	SnapshotKeep  int           `help:"How many of these are kept. 0 keeps all." default:"24"`

	AuditShare  float64 `help:"The part of one core's time in which stores are audited, verified and repaired; 0 means none." default:"0.05"`
	AutoRebuild bool    `help:"Rebuild stores that another version or other settings have built, without being asked."`

	RebuildMemory memorySetting `help:"Memory of a rebuild: 16MiB to 4GiB, a share of --memory, or auto: 1/8." default:"auto"`
}

func (f *maintenanceFlags) maintenanceOptions(ctx context.Context, dir string, external bool) (o service.MaintenanceOptions, err error) {
	switch {
	case f.ArchiveEvery <= 0:
		return o, command.Usagef("--archive-every must be above 0, is %v", f.ArchiveEvery)
	case f.LogRetention == 0:
		return o, command.Usagef("--log-retention must not be 0: what is archived is trimmed once it is so old, never if it is negative")
	case f.SnapshotEvery <= 0:
		return o, command.Usagef("--snapshot-every must be above 0, is %v", f.SnapshotEvery)
	case f.SnapshotKeep < 0:
		return o, command.Usagef("--snapshot-keep is %d, must be at least 0", f.SnapshotKeep)
	case f.AuditShare < 0 || f.AuditShare > 1:
		return o, command.Usagef("--audit-share must be from 0 to 1, is %v", f.AuditShare)
	}
	o = service.MaintenanceOptions{
		ArchiveEvery: f.ArchiveEvery, Retention: f.LogRetention, AuditShare: f.AuditShare, AutoRebuild: f.AutoRebuild,
		SnapshotEvery: f.SnapshotEvery, SnapshotKeep: f.SnapshotKeep,
	}
	if o.Worker, err = newBuildWorker(); err != nil {
		return o, err
	}
	if o.Archive, err = f.Open(ctx, dir, external); err != nil {
		return o, err
	}
	if f.Snapshots != "" {
		if o.Snapshots, err = bucket.Open(ctx, f.Snapshots); err != nil {
			return o, fmt.Errorf("--snapshots: %w", err)
		}
	}
	return o, nil
}

// checkWritable returns an error if the process may not write where it is to archive the log or to put snapshots. Otherwise the first attempt
// would come much later, and fail again and again.
func checkWritable(o *service.MaintenanceOptions) error {
	if err := bucket.CheckWritable(o.Archive); err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	if err := bucket.CheckWritable(o.Snapshots); err != nil {
		return fmt.Errorf("--snapshots: %w", err)
	}
	return nil
}
