package replaycmd

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// startFlags are the flags of a command that starts an operation, which is a long-running task of
// the service.
type startFlags struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`
}

// shareFlag is the flag that limits an operation to a share of the time of one CPU core.
type shareFlag struct {
	CPUShare float64 `name:"share" help:"Share of one CPU core, above 0, that the operation may use; 1, the default, does not limit it." placeholder:"NUMBER"`
}

// startOperation calls method, which starts an operation. With --no-wait, startOperation then
// prints the id of the operation and returns. Otherwise it shows the progress until the operation
// ends, and returns an error if the operation has failed or was canceled. If ctx ends meanwhile, as
// by Ctrl-C, startOperation returns, and the operation continues on the service.
func startOperation[Req, Res any, PRes operationResponse[Res]](
	ctx context.Context, f *startFlags, std *command.Streams, method command.Method[Req, Res], req *Req,
) error {
	res, err := command.Call(ctx, &f.ClientFlags, method, req)
	if err != nil {
		return err
	}
	op := PRes(res).GetOperation()
	return f.Follow(ctx, &f.ClientFlags, std, op)
}

// operationResponse is the constraint of responses that have a GetOperation method: those of the
// calls that start operations. Responses are generated types whose methods have pointer receivers,
// so the constraint is one of the pointer *Res, which [command.Call] returns.
type operationResponse[Res any] interface {
	*Res
	GetOperation() *skeinv1.Operation
}

type rebuildCmd struct {
	startFlags `embed:""`
	shareFlag  `embed:""`

	Projection string `arg:"" help:"Projection to rebuild."`
}

// Run starts the rebuild of a projection and, unless --no-wait is given, waits for its end.
func (c *rebuildCmd) Run(ctx context.Context, std *command.Streams) error {
	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().StartRebuild, &skeinv1.StartRebuildRequest{
		Projection: c.Projection, Share: c.CPUShare,
	})
}

type verifyCmd struct {
	startFlags `embed:""`
	shareFlag  `embed:""`

	Projection string   `arg:"" optional:"" help:"Projection to compare with the log; by default all projections, one after the other."`
	Partitions []uint32 `name:"partition" help:"Compare only this partition, from 0 to 255. Repeat the flag for several partitions." placeholder:"N" sep:"none"`
}

// Run starts an operation that recomputes the rows of one projection or of all projections from the
// log, and compares them with the rows of the stores. The operation fails if it finds a difference.
// Unless --no-wait is given, Run waits for its end.
func (c *verifyCmd) Run(ctx context.Context, std *command.Streams) error {
	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().Verify, &skeinv1.VerifyRequest{
		Projection: c.Projection, Partitions: c.Partitions, Share: c.CPUShare,
	})
}

type repairCmd struct {
	startFlags `embed:""`
	shareFlag  `embed:""`

	Projection string   `arg:"" help:"Projection to repair."`
	Partitions []uint32 `name:"partition" help:"Repair only this partition, from 0 to 255. Repeat the flag for several partitions." placeholder:"N" sep:"none"`
}

// Run starts an operation that recomputes the rows of a projection from the log and corrects the
// store: it replaces rows that differ, adds missing rows, and deletes rows that should not exist.
// Unless --no-wait is given, Run waits for the end of the operation.
func (c *repairCmd) Run(ctx context.Context, std *command.Streams) error {
	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().Repair, &skeinv1.RepairRequest{
		Projection: c.Projection, Partitions: c.Partitions, Share: c.CPUShare,
	})
}

type rollbackCmd struct {
	startFlags `embed:""`

	Projection string `arg:"" help:"Projection whose previous generation is to serve again."`
}

// Run starts an operation that makes the previous generation of a projection serve again: the one
// that served before the last rebuild or rollback. Unless --no-wait is given, Run waits for the end
// of the operation.
func (c *rollbackCmd) Run(ctx context.Context, std *command.Streams) error {
	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().Rollback, &skeinv1.RollbackRequest{Projection: c.Projection})
}

type watchCmd struct {
	command.ClientFlags `embed:""`

	OperationID string `arg:"" name:"operation" help:"Id of the operation. The command that started the operation printed it."`
	JSON        bool   `help:"When the operation has ended, print it on one line, in the JSON form of the API."`
}

// Run shows the progress of an operation until the operation ends. It returns an error if the
// operation has failed or was canceled. If ctx ends earlier, as by Ctrl-C, the operation continues.
func (c *watchCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetOperation, &skeinv1.GetOperationRequest{OperationId: c.OperationID})
	if err != nil {
		return err
	}
	// Follow waits for the end of the operation, because NoWait is not set.
	wait := command.WaitFlags{JSON: c.JSON}
	return wait.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type cancelCmd struct {
	command.ClientFlags `embed:""`

	OperationID string `arg:"" name:"operation" help:"Id of the operation to cancel."`
	JSON        bool   `help:"Print the operation on one line, in the JSON form of the API."`
}

// Run asks the service to cancel an operation, and does not wait for the end of the operation. If
// the operation of the answer has ended, Run prints its state. Otherwise it prints that the
// cancellation was requested. With --json, Run prints the operation instead.
func (c *cancelCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().CancelOperation,
		&skeinv1.CancelOperationRequest{OperationId: c.OperationID})
	if err != nil {
		return err
	}

	op := res.GetOperation()
	if c.JSON {
		return command.PrintJSON(std.Out, op)
	}
	if command.OperationHasEnded(op) {
		std.Sayf("%s: %s", command.OperationName(op), command.OperationStateText(op))
		return nil
	}
	std.Sayf("%s: cancellation requested", command.OperationName(op))
	return nil
}

type operationsCmd struct {
	command.ClientFlags `embed:""`

	Kind  string `help:"List only operations of this kind: rebuild, verify, repair, rollback, snapshot or erase."`
	Limit int32  `help:"List at most this many operations." default:"20"`
	JSON  bool   `help:"Print each operation on one line, in the JSON form of the API."`
}

// Run lists operations in the order of the API, the latest first.
func (c *operationsCmd) Run(ctx context.Context, std *command.Streams) error {
	operations, err := c.listOperations(ctx)
	if err != nil {
		return err
	}

	if c.JSON {
		for _, op := range operations {
			if err := command.PrintJSON(std.Out, op); err != nil {
				return err
			}
		}
		return nil
	}

	t := command.NewTable(std.Out, "OPERATION", "KIND", "PROJECTION", "STATE", "CREATED", "ENDED", "PROGRESS", "ERROR")
	for _, op := range operations {
		firstLine, _, _ := strings.Cut(op.GetError(), "\n")
		t.Row(op.GetOperationId(), command.OperationKindText(op), op.GetProjection(), command.OperationStateText(op),
			command.TimeText(op.GetCreateTime()), command.TimeText(op.GetEndTime()), command.OperationPhaseText(op), firstLine)
	}
	return t.Flush()
}

// listOperations returns up to --limit operations of the kind that --kind names. It reads page by
// page, because the service limits the size of a page.
func (c *operationsCmd) listOperations(ctx context.Context) (operations []*skeinv1.Operation, err error) {
	if c.Limit <= 0 {
		return nil, command.Usagef("--limit must be above 0, but it is %d", c.Limit)
	}
	kind, err := parseOperationKind(c.Kind)
	if err != nil {
		return nil, err
	}

	admin := c.Client().Admin()
	limit := int(c.Limit)
	token := ""
	for len(operations) < limit {
		res, err := command.Call(ctx, &c.ClientFlags, admin.ListOperations, &skeinv1.ListOperationsRequest{
			Kind: kind, PageSize: int32(limit - len(operations)), PageToken: token,
		})
		if err != nil {
			return nil, err
		}
		page := res.GetOperations()
		operations = append(operations, page...)
		token = res.GetNextPageToken()

		// The API promises that a page with a token is not empty. Without this check, a service
		// that breaks the promise would keep this loop running forever.
		if token == "" || len(page) == 0 {
			break
		}
	}
	return operations[:min(limit, len(operations))], nil
}

// operationKindPrefix is the prefix that the names of all values of [skeinv1.OperationKind] have.
// The command line leaves it out.
const operationKindPrefix = "OPERATION_KIND_"

// parseOperationKind returns the kind that --kind names. The empty name means all kinds, which is
// OPERATION_KIND_UNSPECIFIED in the API.
func parseOperationKind(name string) (skeinv1.OperationKind, error) {
	if name == "" {
		return skeinv1.OperationKind_OPERATION_KIND_UNSPECIFIED, nil
	}
	if slices.Contains(operationKinds(), name) {
		return skeinv1.OperationKind(skeinv1.OperationKind_value[operationKindPrefix+strings.ToUpper(name)]), nil
	}
	return 0, command.Usagef("--kind: there is no kind of operation %q, only %s", name, strings.Join(operationKinds(), ", "))
}

// operationKinds returns the names that --kind accepts: those of all values of
// [skeinv1.OperationKind] except OPERATION_KIND_UNSPECIFIED, in lower case and without the prefix,
// by ascending number.
func operationKinds() (names []string) {
	for _, number := range slices.Sorted(maps.Keys(skeinv1.OperationKind_name)) {
		if number != int32(skeinv1.OperationKind_OPERATION_KIND_UNSPECIFIED) {
			names = append(names, strings.ToLower(strings.TrimPrefix(skeinv1.OperationKind_name[number], operationKindPrefix)))
		}
	}
	return names
}
