package eventlog

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// Health is what [Log.Health] reports, for metrics.
type Health struct {
	Head

	// Consumers is the number of consumers of the stream. Each process has one, and one more for
	// each reader that is far behind the others.
	Consumers int
}

// Health asks the server for the extent of the stream. It fails if the log cannot be written and
// read, as far as that can be determined without publishing: the connection must be up, the stream
// must be the one that was opened and have a leader, and the embedded server must not have met a
// disk error.
func (l *Log) Health(ctx context.Context) (Health, error) {
	if l.server != nil {
		if err := l.server.Healthy(); err != nil {
			return Health{}, err
		}
	}
	if !l.conn.state().up {
		return Health{}, fmt.Errorf("%w: not connected to the server", events.ErrLogUnavailable)
	}
	info, err := l.fetchStreamInfo(ctx)
	if err != nil {
		return Health{}, err
	}
	if info.Cluster != nil && info.Config.Replicas > 1 && info.Cluster.Leader == "" {
		return Health{}, fmt.Errorf("%w: the stream has no leader: too few servers of the cluster are up", events.ErrLogUnavailable)
	}
	return Health{headFromInfo(info), info.State.Consumers}, nil
}

// ErrorCounters count failures between this process and the log from which the process has
// recovered by itself.
type ErrorCounters struct {
	// Reconnects is the number of times that the connection was made again. Interruptions is the
	// number of times that reading was interrupted, for any reason.
	Reconnects, Interruptions uint64
}

// ErrorCounters returns the counters. It makes no request.
func (l *Log) ErrorCounters() ErrorCounters {
	return ErrorCounters{l.conn.nc.Stats().Reconnects, l.interruptions.Load()}
}
