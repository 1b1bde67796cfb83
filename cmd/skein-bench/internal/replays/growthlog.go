package replays

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/archiver"
)

const (
	// degree is how many users everybody follows in a log of any size.
	degree = 10
	// probes are users who are in a log of any size, and are asked about: as many who follow as who are followed, each of them
	// half of the others.
	probes = 100
	// growthTime is over how much log time the follows are spread.
	growthTime = 30 * 24 * time.Hour
	// growthEpoch is that of a new log.
	growthEpoch = 1
)

// growthLog are n follows, of n/10 users by the power law of followees and of the probes. It is made as it is read, so that its
// size takes no memory.
type growthLog struct{ n, users int }

func newGrowthLog(n int) growthLog { return growthLog{n, max(2*degree, n/degree)} }

// prober and probed are the probes.
func (l growthLog) probeFollower(i int) uint32 { return uint32(l.users + i) }
func (l growthLog) probeFollowee(i int) uint32 { return uint32(l.users + probes + i) }

// probing are the follows between probes.
func (l growthLog) probeFollows() (edges []workload.Edge) {
	for i := range probes {
		for j := range probes / 2 {
			edges = append(edges, workload.Edge{Follower: l.probeFollower(i), Followee: l.probeFollowee((i + j) % probes)})
		}
	}
	return edges
}

// all are the follows in their order: those of the probes spread evenly over the others, everybody's first follow, then
// everybody's second one, and so on. No two are equal.
func (l growthLog) follows() iter.Seq[workload.Edge] {
	return func(yield func(workload.Edge) bool) {
		probing := l.probeFollows()
		step := workload.Coprime(mathrand.New(mathrand.NewPCG(61, 0)), l.users)
		every := l.n / len(probing)
		follower, round, made := 0, 0, 0
		for i := range l.n {
			if every > 0 && i%every == every-1 && made < len(probing) {
				if !yield(probing[made]) {
					return
				}
				made++
				continue
			}
			if !yield(workload.Edge{Follower: uint32(follower), Followee: l.followee(uint32(follower), round)}) {
				return
			}
			if follower = (follower + step) % l.users; follower == 0 {
				round++
			}
		}
	}
}

// followee returns the user whom a user follows in a round, a different one in each.
func (l growthLog) followee(follower uint32, round int) uint32 {
	r := mathrand.New(mathrand.NewPCG(67, uint64(follower)))
	chosen := make([]uint32, 0, degree)
	for {
		other := uint32(workload.PowerLaw(r, l.users, workload.FolloweeSkew))
		if other == follower || slices.Contains(chosen, other) {
			continue
		}
		if len(chosen) == round {
			return other
		}
		chosen = append(chosen, other)
	}
}

// archive writes the log into the archive of a data directory, without a stream, and makes the stream that continues behind it.
func (l growthLog) archive(ctx context.Context, data string) error {
	target, err := bucket.NewDir(filepath.Join(data, "archive"))
	if err != nil {
		return err
	}
	var id events.LogID
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	a, err := archive.Open(ctx, target, id)
	if err != nil {
		return err
	}
	if err := l.fill(ctx, a, events.Cursor{Log: id, Epoch: growthEpoch}); err != nil {
		return err
	}
	_, err = archiver.Restore(ctx, archiver.RestoreOptions{
		Bucket: target, Stream: eventlog.Config{Dir: filepath.Join(data, "log")},
	})
	return err
}

// fill archives the follows, in envelopes at equal distances up to now.
func (l growthLog) fill(ctx context.Context, a *archive.Archive, start events.Cursor) error {
	var (
		decoder = events.NewDecoder(start)
		seq     uint64
		w       = a.Writer()
		step    = growthTime / time.Duration(l.n/eventsPerEnvelope+1)
		stamp   = time.Now().Add(-growthTime)
		call    []*skeinv1.Event
	)
	seal := func() error {
		_, err := w.Seal(ctx)
		w = a.Writer()
		return err
	}
	add := func() error {
		data, err := events.EncodeEnvelope(call)
		if err != nil {
			return err
		}
		seq, stamp, call = seq+1, stamp.Add(step), call[:0]
		env, err := decoder.Decode(seq, events.Micros(stamp.UnixMicro()), data)
		if err != nil {
			return err
		}
		err = w.Add(env)
		if errors.Is(err, archive.ErrFull) {
			if err = seal(); err == nil {
				err = w.Add(env)
			}
		}
		return err
	}
	for e := range l.follows() {
		if call = append(call, &skeinv1.Event{Kind: workload.Followed(e, workload.UserID)}); len(call) < eventsPerEnvelope {
			continue
		}
		if err := errors.Join(add(), ctx.Err()); err != nil {
			return err
		}
	}
	if len(call) > 0 {
		if err := add(); err != nil {
			return err
		}
	}
	if err := seal(); err != nil {
		return err
	}
	if got := a.End().Seq; got != seq {
		return fmt.Errorf("%d of %d envelopes are archived", got, seq)
	}
	return nil
}
