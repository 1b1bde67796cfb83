package replaycmd

import (
	"context"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// logCmd is the command `skein replay log`.
type logCmd struct {
	AcceptHole acceptHoleCmd `cmd:"" help:"Accept that envelopes of the log are lost for good, so that the projections continue after them."`
}

type acceptHoleCmd struct {
	command.ClientFlags `embed:""`

	First uint64 `arg:"" help:"First missing sequence, as skein status shows it."`
	Last  uint64 `arg:"" optional:"" help:"Last missing sequence; by default FIRST."`
}

// Help is shown below the flags.
func (acceptHoleCmd) Help() string {
	return "The log records that the envelopes from FIRST to LAST are lost. From then on, the archive, restored logs and every fold skip these " +
		"envelopes. This cannot be undone: a message that reappears later is not read. A store that folded the envelopes before they were lost " +
		"keeps their effect until it is rebuilt. Verify and the auditor report this as a difference, and a repair removes it. First try to get " +
		"the messages back: docs/runbook.md, SkeinLogHole."
}

// Run makes the service accept the hole.
func (c *acceptHoleCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().AcceptLogHole, &skeinv1.AcceptLogHoleRequest{
		FirstSequence: c.First, LastSequence: c.Last,
	})
	if err != nil {
		return err
	}

	accepted := &skeinv1.LogHole{FirstSequence: c.First, LastSequence: max(c.First, c.Last)} // Last is 0 if it was not given
	std.Sayf("accepted as lost: %s; every fold skips them", command.HoleText(accepted))
	for _, h := range res.GetHoles() {
		std.Sayf("still missing: %s", command.HoleText(h))
	}
	return nil
}
