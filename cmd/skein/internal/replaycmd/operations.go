package replaycmd

import (
	"context"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type rebuildCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	Projection string   `arg:"" help:"Which is built again."`
	Partition  []uint32 `help:"Only this one of the 256 partitions; more than once for several." placeholder:"N" sep:"none"`
	Share      float64  `help:"Part of one core's time that the work may take, up to 1; 0 means as the service is set."`
}

// Run starts a rebuild and waits for its end.
func (c *rebuildCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().StartRebuild, &skeinv1.StartRebuildRequest{
		Projection: c.Projection, Partitions: c.Partition, Share: c.Share,
	})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type verifyCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	Projection string   `arg:"" optional:"" help:"Which is compared; without it each in turn."`
	Partition  []uint32 `help:"Only this one of the 256 partitions; more than once for several." placeholder:"N" sep:"none"`
	Share      float64  `help:"Part of one core's time that the work may take, up to 1; 0 means as the service is set."`
}

// Run starts a comparison and waits for its end. It returns an error if there are differences.
func (c *verifyCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().Verify, &skeinv1.VerifyRequest{
		Projection: c.Projection, Partitions: c.Partition, Share: c.Share,
	})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type repairCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	Projection string   `arg:"" help:"Which is repaired."`
	Partition  []uint32 `help:"Only this one of the 256 partitions; without: those that differed last." placeholder:"N" sep:"none"`
	Share      float64  `help:"Part of one core's time that the work may take, up to 1; 0 means as the service is set."`
}

// Run starts a repair and waits for its end.
func (c *repairCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().Repair, &skeinv1.RepairRequest{
		Projection: c.Projection, Partitions: c.Partition, Share: c.Share,
	})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type rollbackCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	Projection string `arg:"" help:"Which goes back to the generation before."`
}

// Run starts a rollback and waits for its end.
func (c *rollbackCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().Rollback, &skeinv1.RollbackRequest{Projection: c.Projection})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type watchCmd struct {
	command.ClientFlags `embed:""`

	Operation string `arg:"" help:"Which is watched, as the command that started it said."`
	JSON      bool   `help:"Print the operation at its end as the API gives it, one JSON object."`
}

// Run waits for the end of an operation.
func (c *watchCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetOperation, &skeinv1.GetOperationRequest{OperationId: c.Operation})
	if err != nil {
		return err
	}
	w := command.WaitFlags{JSON: c.JSON}
	return w.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type cancelCmd struct {
	command.ClientFlags `embed:""`

	Operation string `arg:"" help:"Which shall end."`
	JSON      bool   `help:"Print the operation as the API gives it, one JSON object."`
}

// Run cancels an operation, and does not wait for its end.
func (c *cancelCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().CancelOperation,
		&skeinv1.CancelOperationRequest{OperationId: c.Operation})
	if err != nil {
		return err
	}
	op := res.GetOperation()
	if c.JSON {
		return command.PrintJSON(std.Out, op)
	}
	if command.OperationEnded(op) {
		std.Sayf("%s: %s", command.OperationName(op), command.OperationStateText(op))
		return nil
	}
	std.Sayf("%s: asked to end", command.OperationName(op))
	return nil
}

type operationsCmd struct {
	command.ClientFlags `embed:""`

	Kind  string `help:"Only this kind: ${enum}." enum:",rebuild,verify,repair,rollback,snapshot,erase" default:""`
	Limit int32  `help:"At most so many, the latest first." default:"20"`
	JSON  bool   `help:"Print one JSON object for each operation."`
}

// Run lists operations, the latest first.
func (c *operationsCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Limit <= 0 {
		return command.Usagef("--limit is above 0")
	}
	t := command.NewTable(std.Out, "OPERATION", "KIND", "PROJECTION", "STATE", "BEGAN", "ENDED", "DONE", "ERROR")
	req := &skeinv1.ListOperationsRequest{PageSize: c.Limit}
	if c.Kind != "" {
		req.Kind = skeinv1.OperationKind(skeinv1.OperationKind_value["OPERATION_KIND_"+strings.ToUpper(c.Kind)])
	}
	for left := int(c.Limit); left > 0; {
		res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().ListOperations, req)
		if err != nil {
			return err
		}
		for _, op := range res.GetOperations()[:min(left, len(res.GetOperations()))] {
			if c.JSON {
				if err := command.PrintJSON(std.Out, op); err != nil {
					return err
				}
				continue
			}
			failure, _, _ := strings.Cut(op.GetError(), "\n")
			t.Row(op.GetOperationId(), command.OperationKindText(op), op.GetProjection(), command.OperationStateText(op),
				command.TimeText(op.GetCreateTime()), command.TimeText(op.GetEndTime()), command.OperationDone(op), failure)
		}
		left -= len(res.GetOperations())
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if c.JSON {
		return nil
	}
	return t.Flush()
}
