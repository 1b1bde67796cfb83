package eventlog

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// Health has the log's extent and use, for metrics.
type Health struct {
	Head

	// Consumers of the stream: each process has one, and one more for each reader that is far behind the others.
	Consumers int
}

// Health asks the log for its extent. It fails if the log cannot be written and read, as far as this can be determined without
// publishing: the connection is up, the stream is there and is the one that was opened, it has a leader, and the embedded server has met no
// disk error.
func (l *Log) Health(ctx context.Context) (Health, error) {
	if l.server != nil {
		if err := l.server.Healthy(); err != nil {
			return Health{}, err
		}
	}
	if !l.link.state().up {
		return Health{}, fmt.Errorf("%w: not connected to the server", events.ErrLogUnavailable)
	}
	info, err := l.streamInfo(ctx)
	if err != nil {
		return Health{}, err
	}
	if info.Cluster != nil && info.Config.Replicas > 1 && info.Cluster.Leader == "" {
		return Health{}, fmt.Errorf("%w: the stream has no leader: too few servers of the cluster are up", events.ErrLogUnavailable)
	}
	return Health{headOf(info), info.State.Consumers}, nil
}

// ErrorCounters count the failures between this process and the log from which it recovered by itself.
type ErrorCounters struct {
	// Reconnects of the connection, Interruptions of reading by any of its causes.
	Reconnects, Interruptions uint64
}

// ErrorCounters returns the counters. It makes no request.
func (l *Log) ErrorCounters() ErrorCounters {
	return ErrorCounters{l.link.nc.Stats().Reconnects, l.interruptions.Load()}
}
