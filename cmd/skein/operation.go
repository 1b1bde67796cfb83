package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events/wait"
)

// waitFlags say whether a command that starts an operation stays until it ends, and how it prints.
type waitFlags struct {
	NoWait bool `help:"Print the operation that was started, and do not wait for its end."`
	JSON   bool `help:"Print the operation as the API gives it, one JSON object."`
}

// reconnectFor is how long a service may be away, as for a restart, before watching it is given up.
const reconnectFor = 2 * time.Minute

// follow shows an operation until it ends, then prints what became of it. It fails unless the operation succeeded. Breaking
// it off does not touch the operation.
func (w *waitFlags) follow(ctx context.Context, f *command.ClientFlags, std *command.Streams, op *skeinv1.Operation) error {
	if w.NoWait {
		if w.JSON {
			return command.PrintJSON(std.Out, op)
		}
		std.Sayf("%s: started", operationName(op))
		_, err := fmt.Fprintln(std.Out, op.GetOperationId())
		return err
	}
	if !operationEnded(op) {
		std.Sayf("%s", operationName(op))
		p := command.NewProgress(std.Err, operationKindText(op)+" "+op.GetProjection())
		last, err := followToEnd(ctx, f.Client(), p, op)
		p.End()
		if err != nil {
			std.Sayf("The operation goes on: skein replay watch %s shows it, skein replay cancel %[1]s ends it.", op.GetOperationId())
			return err
		}
		op = last
	}
	return w.ended(std, op)
}

// ended prints an operation that has ended.
func (w *waitFlags) ended(std *command.Streams, op *skeinv1.Operation) error {
	if w.JSON {
		if err := command.PrintJSON(std.Out, op); err != nil {
			return err
		}
	} else if report := strings.TrimRight(op.GetReport(), "\n"); report != "" {
		if _, err := fmt.Fprintln(std.Out, report); err != nil {
			return err
		}
	}
	if op.GetState() == skeinv1.OperationState_OPERATION_STATE_SUCCEEDED {
		return nil
	}
	text := operationStateText(op)
	if op.GetError() != "" {
		text += ": " + op.GetError()
	}
	std.Sayf("%s: %s", operationName(op), text)
	return command.ErrSilent
}

// followToEnd watches an operation, also over a restart of the service.
func followToEnd(ctx context.Context, c *command.Client, p *command.Progress, op *skeinv1.Operation) (*skeinv1.Operation, error) {
	contact := time.Now()
	for told := false; ; {
		stream, err := c.Admin().WatchOperation(ctx, connect.NewRequest(&skeinv1.WatchOperationRequest{
			OperationId: op.GetOperationId(),
		}))
		for err == nil && stream.Receive() {
			contact, told = time.Now(), false
			if op = stream.Msg().GetOperation(); operationEnded(op) {
				return op, stream.Close()
			}
			p.Draw(int64(op.GetDone()), int64(op.GetTotal()), operationProgress(op))
		}
		if err == nil {
			err = errors.Join(stream.Err(), stream.Close())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && (connect.CodeOf(err) != connect.CodeUnavailable || time.Since(contact) > reconnectFor) {
			return nil, err
		}
		if err != nil && !told {
			told = true
			p.Say("trying again: %v", err)
		}
		if wait.For(ctx, time.Second) != nil {
			return nil, ctx.Err()
		}
	}
}

func operationEnded(op *skeinv1.Operation) bool {
	st := op.GetState()
	return st != skeinv1.OperationState_OPERATION_STATE_PENDING && st != skeinv1.OperationState_OPERATION_STATE_RUNNING
}

func operationKindText(op *skeinv1.Operation) string {
	return strings.ToLower(strings.TrimPrefix(op.GetKind().String(), "OPERATION_KIND_"))
}

func operationStateText(op *skeinv1.Operation) string {
	return strings.ToLower(strings.TrimPrefix(op.GetState().String(), "OPERATION_STATE_"))
}

// operationName is an operation for people.
func operationName(op *skeinv1.Operation) string {
	name := operationKindText(op)
	if op.GetProjection() != "" {
		name += " of " + op.GetProjection()
	}
	return name + " (operation " + op.GetOperationId() + ")"
}

// operationProgress is the state of an operation, how far it is, and the time left that the service expects.
func operationProgress(op *skeinv1.Operation) string {
	text := operationStateText(op)
	if done := operationDone(op); done != "" {
		text += fmt.Sprintf(", %s, %.0f %s/s", done, op.GetRate(), op.GetUnit())
	}
	if op.RemainingSeconds != nil {
		left := time.Duration(op.GetRemainingSeconds() * float64(time.Second)).Round(time.Second)
		text += ", about " + left.String() + " left"
	}
	return text
}

// operationDone is how far an operation is, in units of its work.
func operationDone(op *skeinv1.Operation) string {
	switch {
	case op.GetUnit() == "":
		return ""
	case op.GetTotal() == 0:
		return fmt.Sprintf("%d %s", op.GetDone(), op.GetUnit())
	}
	return fmt.Sprintf("%d of %d %s", op.GetDone(), op.GetTotal(), op.GetUnit())
}
