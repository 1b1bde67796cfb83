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

// shareFlag is the flag --share, which limits an operation to a share of the time of one CPU core.
// Without the flag, CPUShare is 0. The service does not limit an operation whose share is 0 or 1.
type shareFlag struct {
	CPUShare float64 `name:"share" help:"Share of one CPU core, above 0, that the operation may use; 1, the default, does not limit it." placeholder:"NUMBER"`
}

// startOperation calls method, which starts an operation on the service. With --no-wait,
// startOperation then prints the id of the operation, or with --json the whole operation, and
// returns. Otherwise it shows the progress until the operation ends, prints the report of the
// operation, or with --json the whole operation, and returns an error unless the operation has
// succeeded.
//
// If ctx ends during the wait, for example by Ctrl-C, or if the service cannot be reached for
// longer than [command.ReconnectFor], startOperation returns an error, but does not cancel the
// operation.
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

// operationResponse is the constraint for the responses of the calls that start operations. These
// responses have a method GetOperation, but the generated code defines the method on the pointer
// *Res and not on Res. A constraint on Res could not require the method. So startOperation has a
// type parameter PRes for the pointer type, which this constraint ties to Res.
type operationResponse[Res any] interface {
	*Res
	GetOperation() *skeinv1.Operation
}

type rebuildCmd struct {
	startFlags `embed:""`
	shareFlag  `embed:""`

	Projection string `arg:"" help:"Projection to rebuild."`
}

// Run starts the rebuild of a projection: the service builds a new generation from the log, and
// then lets the new generation serve instead of the old one. Unless --no-wait is given, Run waits
// for the end of the rebuild.
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
// log, and compares them with the rows of the stores. Unless --partition is given, the operation
// also checks the files of the stores. The operation changes no row. The operation fails if a row
// differs or a file is damaged. Unless --no-wait is given, Run waits for the end of the operation.
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
// store: the operation replaces rows that differ, adds missing rows, and deletes rows that should
// not exist. Unless --partition is given, the operation also checks the files of the store. If a
// file is damaged, the operation still corrects the rows, but then fails, because only a rebuild
// replaces files. Unless --no-wait is given, Run waits for the end of the operation.
func (c *repairCmd) Run(ctx context.Context, std *command.Streams) error {
	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().Repair, &skeinv1.RepairRequest{
		Projection: c.Projection, Partitions: c.Partitions, Share: c.CPUShare,
	})
}

type rollbackCmd struct {
	startFlags `embed:""`

	Projection string `arg:"" help:"Projection whose previous generation is to serve again."`
}

// Run starts an operation that makes the previous generation of a projection serve again. The
// previous generation usually is the one that served before the last rebuild or rollback. But a
// damaged generation does not become the previous one, and a start of the service after a change of
// version or settings can also have replaced the generation that served. The service refuses the
// call if there is no previous generation. Unless --no-wait is given, Run waits for the end of the
// operation.
func (c *rollbackCmd) Run(ctx context.Context, std *command.Streams) error {
	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().Rollback, &skeinv1.RollbackRequest{Projection: c.Projection})
}

type watchCmd struct {
	command.ClientFlags `embed:""`

	OperationID string `arg:"" name:"operation" help:"Id of the operation. The command that started the operation printed it."`
	JSON        bool   `help:"When the operation has ended, print it on one line, in the JSON form of the API."`
}

// Run shows the progress of an operation until the operation ends, and then prints its report, or
// with --json the whole operation. If the operation has ended before, Run only prints. Run returns
// an error unless the operation has succeeded. If ctx ends earlier, for example by Ctrl-C, Run
// returns an error and does not cancel the operation.
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

// Run asks the service to cancel an operation, and does not wait for the end of the operation. The
// service answers with the operation as it is after the request. If that operation has ended, Run
// prints its state, which is not always canceled: the operation may have ended before the request.
// Otherwise Run prints that the cancellation was requested. With --json, Run prints the operation
// instead of these texts.
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

// Run lists the operations of the process that answers, the latest first, up to --limit of them.
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

// listOperations returns up to --limit operations of the kind that --kind names, or of all kinds
// without --kind. It reads them page by page, because the service puts at most 1000 operations on a
// page.
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

		// The service sends a token only with a page that is not empty. The loop nevertheless ends
		// at an empty page with a token, because a faulty service that always sends such pages
		// would keep the loop running forever.
		if token == "" || len(page) == 0 {
			break
		}
	}
	return operations[:min(limit, len(operations))], nil
}

// operationKindPrefix is the beginning of the names of all values of [skeinv1.OperationKind]. The
// names on the command line do not have this prefix.
const operationKindPrefix = "OPERATION_KIND_"

// parseOperationKind returns the kind that --kind names. For the empty name, it returns
// OPERATION_KIND_UNSPECIFIED, which means all kinds in a request. For a name that is not one of
// [operationKinds], such as a name in upper case, it returns a [command.UsageError].
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
// [skeinv1.OperationKind] except OPERATION_KIND_UNSPECIFIED, in lower case and without
// operationKindPrefix. The names are in the order of the numbers that the values have in the API.
func operationKinds() (names []string) {
	for _, number := range slices.Sorted(maps.Keys(skeinv1.OperationKind_name)) {
		if number != int32(skeinv1.OperationKind_OPERATION_KIND_UNSPECIFIED) {
			names = append(names, strings.ToLower(strings.TrimPrefix(skeinv1.OperationKind_name[number], operationKindPrefix)))
		}
	}
	return names
}
