package nodecmd

import (
	"context"
	"errors"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd is the command `skein node`.
type Cmd struct {
	List  nodeListCmd  `cmd:"" help:"List the nodes of the cluster, with their states and numbers of partitions."`
	Drain nodeDrainCmd `cmd:"" help:"Move the partitions of a node to other nodes, so that it can be stopped for good."`
}

type nodeListCmd struct {
	command.ClientFlags `embed:""`

	JSON bool `help:"Print the cluster as one JSON object, in the form of the API."`
}

// Run prints the nodes of the cluster. It fails if the service is not a node of a cluster.
func (c *nodeListCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
	if err != nil {
		return err
	}
	if res.GetCluster() == nil {
		return errors.New("the service is not a node of a cluster (serve --node)")
	}
	if c.JSON {
		return command.PrintJSON(std.Out, res.GetCluster())
	}
	return command.PrintCluster(std.Out, res.GetCluster())
}

type nodeDrainCmd struct {
	command.ClientFlags `embed:""`

	Name string `arg:"" help:"Name of the node, as in skein node list."`
	Undo bool   `help:"Let the node get partitions again."`
}

// Help is shown below the flags.
func (nodeDrainCmd) Help() string {
	return "Other nodes take over the partitions of the node. It serves each partition until then. The command does not wait: " +
		"`skein node list` shows how many partitions the node still serves. The node stays drained, also after a restart, until --undo."
}

// Run drains a node, or undoes that. It does not wait until the partitions have moved.
func (c *nodeDrainCmd) Run(ctx context.Context, std *command.Streams) error {
	_, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().DrainNode, &skeinv1.DrainNodeRequest{Name: c.Name, Undo: c.Undo})
	if err != nil {
		return err
	}
	if c.Undo {
		std.Sayf("%s gets partitions again", c.Name)
		return nil
	}
	std.Sayf("%s is drained: it gives up each partition once other nodes serve it (skein node list shows how many are left)", c.Name)
	return nil
}
