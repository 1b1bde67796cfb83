package replaycmd

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd has the commands for projections and their log.
type Cmd struct {
	Status     statusCmd     `cmd:"" help:"Show how far each projection is, and what it was built from."`
	Rebuild    rebuildCmd    `cmd:"" help:"Build a projection again from the log, beside the one that answers, and swap."`
	Prepare    prepareCmd    `cmd:"" help:"Build the stores of this version beside a running service of the version before, for an upgrade without downtime."`
	Verify     verifyCmd     `cmd:"" help:"Compare projections with a fresh fold of the log."`
	Repair     repairCmd     `cmd:"" help:"Replace the rows of a projection that differ from a fresh fold of the log."`
	Rollback   rollbackCmd   `cmd:"" help:"Answer from the generation before the last rebuild again."`
	Erase      eraseCmd      `cmd:"" help:"Take a user out of stores, archive, log and scheduled snapshots, for good. Rebuilds every projection."`
	Operations operationsCmd `cmd:"" help:"List rebuilds and other operations, the latest first."`
	Watch      watchCmd      `cmd:"" help:"Show an operation until it ends."`
	Cancel     cancelCmd     `cmd:"" help:"Ask an operation to end."`
	Log        logCmd        `cmd:"" help:"Accept that the log has lost envelopes."`
	Archive    archiveCmd    `cmd:"" help:"Look after the archive of the log, and restore a log that is lost or damaged."`
}

type statusCmd struct {
	command.ClientFlags `embed:""`

	Projection string `arg:"" optional:"" help:"Only this one."`
	JSON       bool   `help:"Print one JSON object for each projection."`
}

// Run calls GetStatus. It returns an error if a projection has failed, for the sake of scripts.
func (c *statusCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
	if err != nil {
		return err
	}
	var shown []*skeinv1.ProjectionStatus
	stuck := false
	for _, p := range res.GetProjections() {
		if c.Projection != "" && c.Projection != p.GetName() {
			continue
		}
		shown = append(shown, p)
		stuck = stuck || command.Stuck(p)
	}
	if len(shown) == 0 {
		return fmt.Errorf("the service has no projection %q", c.Projection)
	}
	for _, p := range shown {
		if c.JSON {
			if err := command.PrintJSON(std.Out, p); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(std.Out, "%s version %d, generation %d: %s\n",
			p.GetName(), p.GetVersion(), p.GetGeneration(), command.StateText(p.GetState()))
		fmt.Fprintf(std.Out, "  position     %s\n", p.GetPosition())
		fmt.Fprintf(std.Out, "  behind       %s, %s\n",
			command.Plural(p.GetLagEnvelopes(), "envelope", "envelopes"), command.SecondsText(p.GetLagSeconds()))
		fmt.Fprintf(std.Out, "  fingerprint  %s\n", p.GetFingerprint())
		fmt.Fprintf(std.Out, "  disk         %s\n", events.FormatSize(p.GetDiskBytes()))
		if p.GetError() != "" {
			fmt.Fprintf(std.Out, "  error        %s\n", p.GetError())
		}
	}
	if stuck {
		return command.ErrSilent
	}
	return nil
}
