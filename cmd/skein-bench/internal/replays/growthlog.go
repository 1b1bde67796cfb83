package replays

import (
	"context"
	"errors"
	"iter"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/archiver"
)

const (
	// degree is how many users each user follows.
	degree = 10
	// probes is how many probe followers and how many probe followees there are. Operations are
	// measured with these users, who are the same in logs of all sizes. Each probe follower follows
	// half of the probe followees.
	probes = 100
	// growthTime is the log time over which the follows are spread.
	growthTime = 30 * 24 * time.Hour
	// growthEpoch is the epoch of a new log. A log gets a new epoch when it is restored.
	growthEpoch = 1
)

// growthLog is a log of n follows: those of the probes, and those of n/10 users, whose followees
// are drawn by a power law. The follows are made while they are read, so a large log takes no
// memory.
type growthLog struct{ n, users int }

// newGrowthLog returns a log of n follows. It has enough users for each to follow degree others.
func newGrowthLog(n int) growthLog { return growthLog{n, max(2*degree, n/degree)} }

// probeFollower returns the number of the i-th user who follows other probes.
func (l growthLog) probeFollower(i int) uint32 { return uint32(l.users + i) }

// probeFollowee returns the number of the i-th user whom other probes follow.
func (l growthLog) probeFollowee(i int) uint32 { return uint32(l.users + probes + i) }

// probeFollows returns the follows between probes.
func (l growthLog) probeFollows() (edges []workload.Edge) {
	for i := range probes {
		for j := range probes / 2 {
			edges = append(edges, workload.Edge{Follower: l.probeFollower(i), Followee: l.probeFollowee((i + j) % probes)})
		}
	}
	return edges
}

// follows returns all follows in order: first one of each user, then a second one of each user, and
// so on. The follows of probes are spread evenly among them. No two follows are equal.
func (l growthLog) follows() iter.Seq[workload.Edge] {
	return func(yield func(workload.Edge) bool) {
		probeFollows := l.probeFollows()
		probeInterval := l.n / len(probeFollows)
		probesDone := 0

		// Steps of this size visit each user once per round, in an order that looks random.
		step := workload.Coprime(mathrand.New(mathrand.NewPCG(61, 0)), l.users)
		follower := 0
		round := 0
		for i := range l.n {
			if probeInterval > 0 && i%probeInterval == probeInterval-1 && probesDone < len(probeFollows) {
				if !yield(probeFollows[probesDone]) {
					return
				}
				probesDone++
				continue
			}

			if !yield(workload.Edge{Follower: uint32(follower), Followee: l.followee(uint32(follower), round)}) {
				return
			}
			follower = (follower + step) % l.users
			if follower == 0 {
				round++
			}
		}
	}
}

// followee returns the user whom a follower follows in a round. It is a different user in each
// round.
func (l growthLog) followee(follower uint32, round int) uint32 {
	// The draws of earlier rounds are repeated, so that nothing need be kept for each user.
	r := mathrand.New(mathrand.NewPCG(67, uint64(follower)))
	chosen := make([]uint32, 0, degree)
	for {
		candidate := uint32(workload.PowerLaw(r, l.users, workload.FolloweeSkew))
		if candidate == follower || slices.Contains(chosen, candidate) {
			continue
		}
		if len(chosen) == round {
			return candidate
		}
		chosen = append(chosen, candidate)
	}
}

// archive writes the log into the archive of a data directory. It then makes an empty stream that
// continues the log after the archive, as after a restore.
func (l growthLog) archive(ctx context.Context, data string) error {
	target, w, err := newArchive(ctx, data)
	if err != nil {
		return err
	}
	if err := l.fillArchive(ctx, w); err != nil {
		return err
	}
	_, err = archiver.Restore(ctx, archiver.RestoreOptions{
		Bucket: target, Stream: eventlog.Config{Dir: filepath.Join(data, "log")},
	})
	return err
}

// fillArchive writes the follows into an archive. Their envelopes have times at equal distances,
// and the last one has the present time.
func (l growthLog) fillArchive(ctx context.Context, w *archiveWriter) error {
	decoder := events.NewDecoder(w.start)
	seq := uint64(0)
	step := growthTime / time.Duration(l.n/eventsPerEnvelope+1)
	stamp := time.Now().Add(-growthTime)
	var evs []*skeinv1.Event // of the next envelope

	addEnvelope := func() error {
		data, err := events.EncodeEnvelope(evs)
		if err != nil {
			return err
		}
		seq++
		stamp = stamp.Add(step)
		evs = evs[:0]

		// Decoding gives the events their times and sequences, as in a log that was written by a
		// service.
		env, err := decoder.Decode(seq, events.Micros(stamp.UnixMicro()), data)
		if err != nil {
			return err
		}

		return w.add(ctx, env)
	}

	for e := range l.follows() {
		evs = append(evs, &skeinv1.Event{Kind: workload.Followed(e, workload.UserID)})
		if len(evs) < eventsPerEnvelope {
			continue
		}
		if err := errors.Join(addEnvelope(), ctx.Err()); err != nil {
			return err
		}
	}
	if len(evs) > 0 {
		if err := addEnvelope(); err != nil {
			return err
		}
	}
	return w.finish(ctx, seq)
}
