package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/wait"
)

// WaitFlags say whether a command that starts an operation, a long-running task of the service,
// waits for the end of the operation, and how it prints the operation.
type WaitFlags struct {
	NoWait bool `help:"Print the id of the operation, and do not wait for its end. Without this flag, Ctrl-C ends the wait, and the operation continues."`
	JSON   bool `help:"Print the operation on one line, in the JSON form of the API."`
}

// ReconnectFor is how long a service may be unreachable, as in a restart, before a command that
// watches it fails.
const ReconnectFor = 2 * time.Minute

// reconnectInterval is the pause between two attempts to reach the service again.
const reconnectInterval = time.Second

// Follow shows the progress of an operation until it ends, and prints its outcome. It returns an
// error unless the operation has succeeded. If ctx ends, the operation continues.
func (w *WaitFlags) Follow(ctx context.Context, f *ClientFlags, std *Streams, op *skeinv1.Operation) error {
	if w.NoWait {
		if w.JSON {
			return PrintJSON(std.Out, op)
		}
		std.Sayf("%s: started", OperationName(op))
		_, err := fmt.Fprintln(std.Out, op.GetOperationId())
		return err
	}

	if !OperationHasEnded(op) {
		std.Sayf("%s", OperationName(op))
		p := NewProgress(std.Err, OperationKindText(op)+" "+op.GetProjection())
		last, err := followToEnd(ctx, f.Client(), p, op)
		p.End()
		if err != nil {
			std.Sayf("The operation continues: skein replay watch %s shows it, skein replay cancel %[1]s ends it.", op.GetOperationId())
			return err
		}
		op = last
	}
	return w.printOutcome(std, op)
}

// printOutcome prints an operation that has ended, and returns an error unless it has succeeded.
func (w *WaitFlags) printOutcome(std *Streams, op *skeinv1.Operation) error {
	if w.JSON {
		if err := PrintJSON(std.Out, op); err != nil {
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
	text := OperationStateText(op)
	if op.GetError() != "" {
		text += ": " + op.GetError()
	}
	std.Sayf("%s: %s", OperationName(op), text)
	return ErrSilent
}

// followToEnd watches an operation until it ends, also through a restart of the service, which
// continues its operations.
func followToEnd(ctx context.Context, c *Client, p *Progress, op *skeinv1.Operation) (*skeinv1.Operation, error) {
	lastContact := time.Now()
	hasSaidRetrying := false // an outage is reported once
	for {
		stream, err := c.Admin().WatchOperation(ctx, connect.NewRequest(&skeinv1.WatchOperationRequest{
			OperationId: op.GetOperationId(),
		}))
		for err == nil && stream.Receive() {
			lastContact = time.Now()
			hasSaidRetrying = false
			op = stream.Msg().GetOperation()
			if OperationHasEnded(op) {
				return op, stream.Close()
			}
			p.Show(int64(op.GetDone()), int64(op.GetTotal()), OperationProgressText(op))
		}

		// The stream has ended before the operation.
		if err == nil {
			err = errors.Join(stream.Err(), stream.Close())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		// A service that stops ends the stream without an error, or cannot be reached while it
		// restarts. Any other error would come again.
		mayBeRestarting := err == nil || connect.CodeOf(err) == connect.CodeUnavailable
		if !mayBeRestarting || err != nil && time.Since(lastContact) > ReconnectFor {
			return nil, err
		}
		if err != nil && !hasSaidRetrying {
			hasSaidRetrying = true
			p.Say("retrying: %v", err)
		}
		if wait.For(ctx, reconnectInterval) != nil {
			return nil, ctx.Err()
		}
	}
}

// OperationHasEnded reports whether an operation has ended.
func OperationHasEnded(op *skeinv1.Operation) bool {
	state := op.GetState()
	return state != skeinv1.OperationState_OPERATION_STATE_PENDING && state != skeinv1.OperationState_OPERATION_STATE_RUNNING
}

// OperationKindText returns the kind of an operation for people.
func OperationKindText(op *skeinv1.Operation) string {
	return strings.ToLower(strings.TrimPrefix(op.GetKind().String(), "OPERATION_KIND_"))
}

// OperationStateText returns the state of an operation for people.
func OperationStateText(op *skeinv1.Operation) string {
	return strings.ToLower(strings.TrimPrefix(op.GetState().String(), "OPERATION_STATE_"))
}

// OperationName returns the kind and projection of an operation for people.
func OperationName(op *skeinv1.Operation) string {
	name := OperationKindText(op)
	if op.GetProjection() != "" {
		name += " of " + op.GetProjection()
	}
	return name + " (operation " + op.GetOperationId() + ")"
}

// OperationProgressText returns the state of an operation, its progress, and the service's estimate
// of the time left, for people.
func OperationProgressText(op *skeinv1.Operation) string {
	text := OperationStateText(op)
	if phase := OperationPhaseText(op); phase != "" {
		text += fmt.Sprintf(", %s, %.0f %s/s", phase, op.GetRate(), op.GetUnit())
	}
	if op.RemainingSeconds != nil {
		left := time.Duration(op.GetRemainingSeconds() * float64(time.Second)).Round(time.Second)
		text += ", about " + left.String() + " left"
	}
	return text
}

// OperationPhaseText returns the current phase of an operation and how much of the phase is done,
// for people, as in "folding 5 of 9 events".
func OperationPhaseText(op *skeinv1.Operation) string {
	if op.GetUnit() == "" {
		return ""
	}
	// The total of a phase may be unknown.
	done := fmt.Sprintf("%d %s", op.GetDone(), op.GetUnit())
	if op.GetTotal() > 0 {
		done = fmt.Sprintf("%d of %d %s", op.GetDone(), op.GetTotal(), op.GetUnit())
	}
	return strings.TrimSpace(op.GetPhase() + " " + done)
}
