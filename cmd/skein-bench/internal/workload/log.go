package workload

import (
	"context"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/store"
)

// CacheBytes is the size of the block cache of stores that are measured in process. It is the size
// that `skein serve --memory 2GiB` uses, and the published figures were measured with it.
const CacheBytes = 512 << 20

// HubSubscription is a subscription that also knows where the log ends. The hub reads the log once
// for all subscriptions.
type HubSubscription struct {
	*eventlog.Subscription
	Hub *eventlog.Hub
}

// Head returns the sequence of the last envelope that the hub knows of.
func (s HubSubscription) Head() uint64 { return s.Hub.Head() }

// SubscribeToLog returns the function with which stores subscribe to the log. An empty store reads
// the log from its start.
func SubscribeToLog(log *eventlog.Log, hub *eventlog.Hub) store.SubscribeFunc {
	return func(from events.Cursor) (store.Subscription, error) {
		if from.Seq == 0 {
			from = log.Start()
		}
		subscription, err := hub.Subscribe(from)
		return HubSubscription{subscription, hub}, err
	}
}

// CloseLog closes a log. It also does so if the context has ended, because the files of the log
// must not stay open.
func CloseLog(ctx context.Context, log *eventlog.Log) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), programs.StopTimeout)
	defer cancel()
	return log.Close(ctx)
}
