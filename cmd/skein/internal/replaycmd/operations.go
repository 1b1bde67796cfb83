package replaycmd

import (
	"context"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// operationFlags are the flags of all commands that start an operation.
type operationFlags struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`
}

// startsOperation is a response of the API that names the operation which the call has started.
type startsOperation[Res any] interface {
	*Res
	GetOperation() *skeinv1.Operation
}

// startAndFollow calls a method of the API that starts an operation, and waits for its end unless --no-wait is given. It fails if the operation fails.
func startAndFollow[Req, Res any, PRes startsOperation[Res]](
	ctx context.Context, f *operationFlags, std *command.Streams, method command.Method[Req, Res], req *Req,
) error {
	res, err := command.Call(ctx, &f.ClientFlags, method, req)
	if err != nil {
		return err
	}
	return f.Follow(ctx, &f.ClientFlags, std, PRes(res).GetOperation())
}

type rebuildCmd struct {
	operationFlags `embed:""`

	Projection string   `arg:"" help:"Projection to rebuild."`
	Partition  []uint32 `help:"Repair only this one of the 256 partitions instead; can be given several times." placeholder:"N" sep:"none"`
	Share      float64  `help:"Share of one CPU core that the operation may use, between 0 and 1. 0 uses the default of the service."`
}

// Run rebuilds a projection.
func (c *rebuildCmd) Run(ctx context.Context, std *command.Streams) error {
	return startAndFollow(ctx, &c.operationFlags, std, c.Client().Admin().StartRebuild, &skeinv1.StartRebuildRequest{
		Projection: c.Projection, Partitions: c.Partition, Share: c.Share,
	})
}

type verifyCmd struct {
	operationFlags `embed:""`

	Projection string   `arg:"" optional:"" help:"Projection to compare with the log; by default all, one after the other."`
	Partition  []uint32 `help:"Compare only this one of the 256 partitions; can be given several times." placeholder:"N" sep:"none"`
	Share      float64  `help:"Share of one CPU core that the operation may use, between 0 and 1. 0 uses the default of the service."`
}

// Run compares projections with the log. It returns an error if there are differences.
func (c *verifyCmd) Run(ctx context.Context, std *command.Streams) error {
	return startAndFollow(ctx, &c.operationFlags, std, c.Client().Admin().Verify, &skeinv1.VerifyRequest{
		Projection: c.Projection, Partitions: c.Partition, Share: c.Share,
	})
}

type repairCmd struct {
	operationFlags `embed:""`

	Projection string   `arg:"" help:"Projection to repair."`
	Partition  []uint32 `help:"Repair only this one of the 256 partitions; can be given several times." placeholder:"N" sep:"none"`
	Share      float64  `help:"Share of one CPU core that the operation may use, between 0 and 1. 0 uses the default of the service."`
}

// Run repairs the rows of a projection that differ from the log.
func (c *repairCmd) Run(ctx context.Context, std *command.Streams) error {
	return startAndFollow(ctx, &c.operationFlags, std, c.Client().Admin().Repair, &skeinv1.RepairRequest{
		Projection: c.Projection, Partitions: c.Partition, Share: c.Share,
	})
}

type rollbackCmd struct {
	operationFlags `embed:""`

	Projection string `arg:"" help:"Projection that goes back to its previous generation."`
}

// Run rolls a projection back.
func (c *rollbackCmd) Run(ctx context.Context, std *command.Streams) error {
	return startAndFollow(ctx, &c.operationFlags, std, c.Client().Admin().Rollback, &skeinv1.RollbackRequest{Projection: c.Projection})
}

type watchCmd struct {
	command.ClientFlags `embed:""`

	Operation string `arg:"" help:"Id of the operation, as printed by the command that started it."`
	JSON      bool   `help:"When the operation has ended, print it as one JSON object, in the form of the API."`
}

// Run shows an operation until it ends. It fails if the operation fails.
func (c *watchCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetOperation, &skeinv1.GetOperationRequest{OperationId: c.Operation})
	if err != nil {
		return err
	}
	wait := command.WaitFlags{JSON: c.JSON}
	return wait.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type cancelCmd struct {
	command.ClientFlags `embed:""`

	Operation string `arg:"" help:"Id of the operation to cancel."`
	JSON      bool   `help:"Print the operation as one JSON object, in the form of the API."`
}

// Run asks an operation to end, and does not wait until it has ended.
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
	Limit int32  `help:"Largest number of operations to list." default:"20"`
	JSON  bool   `help:"Print one JSON object for each operation."`
}

// Run lists operations, the latest first.
func (c *operationsCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Limit <= 0 {
		return command.Usagef("--limit must be above 0, is %d", c.Limit)
	}
	req := &skeinv1.ListOperationsRequest{PageSize: c.Limit}
	if c.Kind != "" {
		kind, err := parseOperationKind(c.Kind)
		if err != nil {
			return err
		}
		req.Kind = kind
	}

	t := command.NewTable(std.Out, "OPERATION", "KIND", "PROJECTION", "STATE", "BEGAN", "ENDED", "DONE", "ERROR")
	remaining := int(c.Limit)
	for remaining > 0 {
		res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().ListOperations, req)
		if err != nil {
			return err
		}
		page := res.GetOperations()
		page = page[:min(remaining, len(page))]
		remaining -= len(page)
		for _, op := range page {
			if c.JSON {
				if err := command.PrintJSON(std.Out, op); err != nil {
					return err
				}
				continue
			}
			firstLine, _, _ := strings.Cut(op.GetError(), "\n")
			t.Row(op.GetOperationId(), command.OperationKindText(op), op.GetProjection(), command.OperationStateText(op),
				command.TimeText(op.GetCreateTime()), command.TimeText(op.GetEndTime()), command.OperationDone(op), firstLine)
		}

		req.PageToken = res.GetNextPageToken()
		if req.GetPageToken() == "" {
			break
		}
	}
	if c.JSON {
		return nil
	}
	return t.Flush()
}

// operationKindPrefix begins the names of all kinds of operations in the API.
const operationKindPrefix = "OPERATION_KIND_"

// parseOperationKind returns the kind of operation that has this name on the command line.
func parseOperationKind(name string) (skeinv1.OperationKind, error) {
	if kind := skeinv1.OperationKind_value[operationKindPrefix+strings.ToUpper(name)]; kind != 0 {
		return skeinv1.OperationKind(kind), nil
	}
	return 0, command.Usagef("--kind: there is no kind of operation %q, only %s", name, strings.Join(operationKinds(), ", "))
}

// operationKinds returns the names of all kinds of operations on the command line, in the order of the API.
func operationKinds() (names []string) {
	// The first value of the enum stands for no kind.
	for kind := int32(1); skeinv1.OperationKind_name[kind] != ""; kind++ {
		names = append(names, strings.ToLower(strings.TrimPrefix(skeinv1.OperationKind_name[kind], operationKindPrefix)))
	}
	return names
}
