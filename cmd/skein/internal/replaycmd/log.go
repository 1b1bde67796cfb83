package replaycmd

import (
	"context"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// logCmd has the commands for the log itself.
type logCmd struct {
	AcceptHole acceptHoleCmd `cmd:"" help:"Accept that envelopes are lost for good, and have everything continue over them."`
}

type acceptHoleCmd struct {
	command.ClientFlags `embed:""`

	First uint64 `arg:"" help:"The first sequence that is missing, as status shows it."`
	Last  uint64 `arg:"" optional:"" help:"The last one; by default only the first."`
}

// Help is shown below the flags.
func (acceptHoleCmd) Help() string {
	return "The log records that the envelopes from FIRST to LAST are lost. Every process and every later fold passes over them, and " +
		"so do the archive and restored logs. This cannot be undone: a message that comes back later is not read. Stores that " +
		"folded the envelopes before keep what they know until they are rebuilt; verify and the auditor then take it for a " +
		"difference, and a repair removes it. Try first to bring the messages back: docs/runbook.md, SkeinLogHole."
}

// Run makes the service accept the hole.
func (c *acceptHoleCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().AcceptLogHole, &skeinv1.AcceptLogHoleRequest{
		FirstSequence: c.First, LastSequence: c.Last,
	})
	if err != nil {
		return err
	}
	last := max(c.First, c.Last)
	std.Sayf("accepted as lost: %s; every fold passes over them",
		command.HoleText(&skeinv1.LogHole{FirstSequence: c.First, LastSequence: last}))
	for _, h := range res.GetHoles() {
		std.Sayf("still missing: %s", command.HoleText(h))
	}
	return nil
}
