package replaycmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd is the command `skein replay`.
type Cmd struct {
	Status     statusCmd     `cmd:"" help:"Show the state and position of each projection."`
	Rebuild    rebuildCmd    `cmd:"" help:"Build a new generation of a projection from the log while the present one serves, and then replace the present one."`
	Prepare    prepareCmd    `cmd:"" help:"Build stores for this version while the service runs another version, for an upgrade without downtime."`
	Verify     verifyCmd     `cmd:"" help:"Recompute the rows of projections from the log, and compare them with the stores. Fails if a row differs."`
	Repair     repairCmd     `cmd:"" help:"Recompute the rows of a projection from the log, and replace, add and delete rows of the store so that they are equal."`
	Rollback   rollbackCmd   `cmd:"" help:"Make the previous generation of a projection serve again: the one that served before the last rebuild or rollback."`
	Erase      eraseCmd      `cmd:"" help:"Erase users from the stores, the log, the archive and scheduled snapshots. Makes new files for every store."`
	Operations operationsCmd `cmd:"" help:"List operations, the long-running tasks of the service, the latest first."`
	Watch      watchCmd      `cmd:"" help:"Show the progress of an operation until it ends. Ctrl-C ends this command and not the operation."`
	Cancel     cancelCmd     `cmd:"" help:"Cancel an operation."`
	Log        logCmd        `cmd:"" help:"Accept that envelopes of the log are lost."`
	Archive    archiveCmd    `cmd:"" help:"Inspect and check the archive of the log, and restore a lost or damaged log from it."`
}

type statusCmd struct {
	command.ClientFlags `embed:""`

	Projection string `arg:"" optional:"" help:"Projection to show; by default all projections."`
	JSON       bool   `help:"Print one JSON object for each projection."`
}

// Run prints the state of the projections. It returns an error, for scripts, if one of them does
// not fold, see [command.IsStuck].
func (c *statusCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
	if err != nil {
		return err
	}
	selected := slices.DeleteFunc(res.GetProjections(), func(p *skeinv1.ProjectionStatus) bool {
		return c.Projection != "" && c.Projection != p.GetName()
	})
	if len(selected) == 0 {
		return fmt.Errorf("the service has no projection %q", c.Projection)
	}

	for _, p := range selected {
		if c.JSON {
			if err := command.PrintJSON(std.Out, p); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(std.Out, "%s version %d, generation %d: %s\n",
			p.GetName(), p.GetVersion(), p.GetGeneration(), command.ProjectionStateText(p.GetState()))
		fmt.Fprintf(std.Out, "  position     %s\n", p.GetPosition())
		fmt.Fprintf(std.Out, "  behind       %s, %s\n",
			command.Plural(p.GetLagEnvelopes(), "envelope", "envelopes"), command.SecondsText(p.GetLagSeconds()))
		fmt.Fprintf(std.Out, "  fingerprint  %s\n", p.GetFingerprint())
		fmt.Fprintf(std.Out, "  disk         %s\n", events.FormatSize(p.GetDiskBytes()))
		if p.GetError() != "" {
			fmt.Fprintf(std.Out, "  error        %s\n", p.GetError())
		}
	}
	if slices.ContainsFunc(selected, command.IsStuck) {
		return command.ErrSilent
	}
	return nil
}
