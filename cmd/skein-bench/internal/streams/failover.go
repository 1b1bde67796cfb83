package streams

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/events/wait"
)

// failover measures how long a killed leader of the stream interrupts writing and reading. The cluster has a leader as well, which
// creates consumers: it is another server, or the killed one.
func (l *bench) failover(ctx context.Context, n int) error {
	for _, both := range []bool{false, true} {
		if l.Opts.Quick && !both {
			continue
		}
		id, title := "log-killed", "leader of the stream killed"
		if both {
			id, title = "log-killed-both", "leader of the stream and of the cluster killed"
		}
		run := func(ctx context.Context, w way) ([]figure, error) { return l.kill(ctx, w, n, both) }
		if err := l.inTurn(ctx, id, title, ways[:], run); err != nil {
			return err
		}
	}
	return nil
}

// kill kills the leader of a stream and starts it again when the others have continued without it.
func (l *bench) kill(ctx context.Context, w way, n int, both bool) (_ []figure, err error) {
	s, err := newStream(ctx, l.servers, w.republished)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.remove(ctx)) }()
	leader, err := l.place(ctx, s, both)
	if err != nil {
		return nil, err
	}
	rs, err := s.read(ctx, w, n, nil)
	if err != nil {
		return nil, err
	}
	defer rs.close()
	body := newBodies(1)[0]
	seq, err := s.insist(ctx, leader+1, body)
	if err != nil {
		return nil, err
	}
	if err := rs.await(ctx, seq); err != nil {
		return nil, err
	}
	consumers := rs.consumers()
	begin := time.Now()
	if err := l.servers.Kill(leader); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.servers.Restart(ctx, leader)) }()
	if seq, err = s.insist(ctx, leader+1, body); err != nil {
		return nil, err
	}
	written := time.Since(begin).Seconds()
	if err := rs.await(ctx, seq); err != nil {
		return nil, err
	}
	read := time.Since(begin).Seconds()
	return []figure{
		{"until a publish is acknowledged", "s", measure.Measurement{Value: written}},
		{"until all readers have it", "s", measure.Measurement{Value: read}},
		{"new consumers", "", measure.Measurement{Value: float64(rs.consumers() - consumers)}},
	}, nil
}

// place makes the leader of the cluster lead the stream as well, or makes another server lead the stream. It returns the leader of
// the stream.
func (l *bench) place(ctx context.Context, s *stream, both bool) (int, error) {
	for {
		meta, err := l.servers.MetaLeader(ctx, 0)
		if err != nil {
			return 0, err
		}
		info, err := s.info(ctx)
		if err != nil {
			return 0, err
		}
		c, current := info.Cluster, true
		for _, r := range c.Replicas {
			current = current && r.Current && !r.Offline
		}
		switch {
		case meta == "" || c.Leader == "" || !current || len(c.Replicas) != programs.NATSServers-1:
		case (meta == c.Leader) == both:
			return l.servers.Number(c.Leader)
		default:
			preferred := meta
			if !both {
				preferred = c.Replicas[0].Name
			}
			request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": preferred}})
			if err != nil {
				return 0, err
			}
			// If it fails, the next look shows it.
			_, _ = s.conns[0].Request("$JS.API.STREAM.LEADER.STEPDOWN."+streamName, request, askTimeout)
		}
		if err := wait.For(ctx, programs.PollInterval); err != nil {
			return 0, err
		}
	}
}
