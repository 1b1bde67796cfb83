package admission

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Heavy bounds the calls that keep a processor busy for long, as a page by heat does, which reads the whole feed of its reader.
// Only so many run at once that a processor is left for other calls; some more wait for a short while, and the rest is refused.
type Heavy struct {
	*Budget
	// running is a semaphore, held by each call that runs.
	running chan struct{}
	// Patience is how long a call waits until it begins.
	Patience time.Duration
}

const heavyPatience = time.Second

func newHeavy(most int64, running int) *Heavy {
	return &Heavy{
		Budget: newBudget("expensive calls", most, 0), running: make(chan struct{}, running), Patience: heavyPatience,
	}
}

// Enter waits until a call may run, or refuses it. The caller calls leave when it has ended.
func (h *Heavy) Enter(ctx context.Context) (leave func(), err error) {
	if f := h.Take("", 1); f != nil {
		return nil, f
	}
	leave = func() { <-h.running; h.Give("", 1) }
	select {
	case h.running <- struct{}{}:
		return leave, nil
	default:
	}
	wait := time.NewTimer(h.Patience)
	defer wait.Stop()
	select {
	case h.running <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-wait.C:
		err = &apierror.Failure{
			Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED, Retry: apierror.RetrySoon,
			Text: "the service is asked for more expensive reads than it runs at once; nothing was done",
		}
	}
	h.Give("", 1)
	return nil, err
}
