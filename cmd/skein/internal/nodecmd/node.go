package nodecmd

import (
	"context"
	"errors"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd has the commands for the nodes of a cluster.
type Cmd struct {
	List  nodeListCmd  `cmd:"" help:"List the nodes, their states, and how many partitions each of them serves."`
	Drain nodeDrainCmd `cmd:"" help:"Take the partitions away from a node, as before it is stopped for good."`
}

type nodeListCmd struct {
	command.ClientFlags `embed:""`

	JSON bool `help:"Print the cluster as the API gives it, one JSON object."`
}

// Run calls GetStatus, and prints the nodes. It fails outside of a cluster.
func (c *nodeListCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
	switch {
	case err != nil:
		return err
	case res.GetCluster() == nil:
		return errors.New("the service is no node of a cluster (serve --node)")
	case c.JSON:
		return command.PrintJSON(std.Out, res.GetCluster())
	}
	return command.PrintCluster(std.Out, res.GetCluster())
}

type nodeDrainCmd struct {
	command.ClientFlags `embed:""`

	Name string `arg:"" help:"Which node, as the list names it."`
	Undo bool   `help:"Give it partitions again."`
}

// Help is shown below the flags.
func (nodeDrainCmd) Help() string {
	return "Other nodes take over the partitions, and it serves each of them until then. The command does not wait for that: " +
		"`skein node list` shows how many the node still serves. It stays drained, also after a restart, until --undo."
}

// Run drains a node, and waits for nothing.
func (c *nodeDrainCmd) Run(ctx context.Context, std *command.Streams) error {
	_, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().DrainNode, &skeinv1.DrainNodeRequest{Name: c.Name, Undo: c.Undo})
	switch {
	case err != nil:
		return err
	case c.Undo:
		std.Sayf("%s gets partitions again", c.Name)
	default:
		std.Sayf("%s gets no partitions any more, and gives up those that it has once others serve them: skein node list", c.Name)
	}
	return nil
}
