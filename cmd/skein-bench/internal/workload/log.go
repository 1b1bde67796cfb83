package workload

import (
	"context"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/store"
)

// CacheBytes is the block cache of the stores that are measured in process: that of `skein serve --memory 2GiB`. The
// published figures were measured with it.
const CacheBytes = 512 << 20

// HubSubscription is a subscription that knows how far the log goes.
type HubSubscription struct {
	*eventlog.Subscription
	Hub *eventlog.Hub
}

// Head returns the last sequence that the log is known to have.
func (r HubSubscription) Head() uint64 { return r.Hub.Head() }

// SubscribeToLog returns a source that reads the log through the hub.
func SubscribeToLog(log *eventlog.Log, hub *eventlog.Hub) store.SubscribeFunc {
	return func(from events.Cursor) (store.Subscription, error) {
		if from.Seq == 0 {
			from = log.Start()
		}
		s, err := hub.Subscribe(from)
		return HubSubscription{s, hub}, err
	}
}

// CloseLog closes a log, even if the context has ended.
func CloseLog(ctx context.Context, log *eventlog.Log) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), programs.StopTimeout)
	defer cancel()
	return log.Close(ctx)
}
