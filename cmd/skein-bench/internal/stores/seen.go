package stores

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// playsPerEnvelope is how many plays are in an envelope, and envelopesPerPlayFold how many
	// envelopes are folded at once. Together they are 8 MiB of the log, which is what a store reads
	// at once while it is far behind.
	playsPerEnvelope     = 500
	envelopesPerPlayFold = 480
	// windowMonths is the default window in months.
	windowMonths = 4
	day          = events.Micros(24 * 3600 * 1_000_000)
)

// seenSize says how much of the seen projection is measured.
type seenSize struct {
	// users and plays are the numbers of users and plays of one measurement of the fold.
	users, plays int
	// restingPlays is the density at which the bytes of a play are measured.
	restingPlays playDensity
	// readers is the number of readers who are asked about. Each played monthPlays items in each
	// month of the window, and is asked about the number of candidates.
	readers, monthPlays, candidates int
}

// playDensity is a number of users, and how many items each of them plays in each month.
type playDensity struct{ users, playsPerMonth int }

// newSeenSize returns the size of a run, or the smaller one of a smoke test.
func newSeenSize(b *measure.Bench) seenSize {
	n := b.Opts.Readers
	size := seenSize{
		users: n, plays: b.Opts.Plays, restingPlays: playDensity{n / 10, 200},
		readers: 50, monthPlays: 3300, candidates: 10_000,
	}
	if b.Opts.Quick {
		size.readers = 4
	}
	return size
}

// MeasureSeen measures what users have seen: plays that are folded, the bytes that they take, and
// filters.
func MeasureSeen(ctx context.Context, b *measure.Bench) error {
	size := newSeenSize(b)
	for _, part := range []func(context.Context, *measure.Bench, seenSize) error{
		measureSeenFold, measureSeenBytes, measureSeenFilter,
	} {
		if err := part(ctx, b, size); err != nil {
			return err
		}
	}
	return nil
}

// monthStart returns the first moment of a month. Month 0 is January 2026.
func monthStart(month int) events.Micros {
	return events.Micros(time.Date(2026, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// play is one play. Items are decimal numbers of 13 digits, as users are.
type play struct {
	playedAt events.Micros
	item     uint64
	user     uint32
}

// event returns the event of the play.
func (p play) event() *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{
		UserId: workload.UserID(p.user), ItemId: strconv.FormatUint(p.item, 10),
	}}}
}

// playRun is a number of plays, evenly spread over a time. Each is the play of a random item by a
// random user.
type playRun struct {
	from, to         events.Micros
	count, userCount int
	seed             uint64
}

// randomItemCount is the number of items of which random plays are.
const randomItemCount = 10_000_000

// plays returns the plays in the order of time.
func (p playRun) plays() iter.Seq[play] {
	return func(yield func(play) bool) {
		r := rand.New(rand.NewPCG(11, p.seed))
		for i := range p.count {
			at := p.from + events.Micros(float64(p.to-p.from)*float64(i)/float64(p.count))
			if !yield(play{at, workload.FirstID + uint64(r.IntN(randomItemCount)), uint32(r.IntN(p.userCount))}) {
				return
			}
		}
	}
}

// playedItem returns the n-th item that a reader plays. It is another one for each n. The product
// with an odd number scatters the items without repetition, and the items that readers play have
// even distances from the first id.
func playedItem(reader uint32, n int) uint64 {
	const numbers = 1<<40 - 1
	return workload.FirstID + 2*((uint64(reader)<<24|uint64(n))*0x9e3779b97f4a7c15&numbers)
}

// unplayedItem returns an item that no reader plays.
func unplayedItem(reader uint32, n int) uint64 { return playedItem(reader, n) + 1 }

// playsOfClasses returns plays of readers of several densities. The readers are numbered one class
// after the other, and play equally often in each month of the window. In each month the plays end
// on the 20th day, so that the last month is open and the others can be sealed.
func playsOfClasses(classes ...playDensity) iter.Seq[play] {
	total := 0
	for _, c := range classes {
		total += c.users * c.playsPerMonth
	}
	return func(yield func(play) bool) {
		for month := range windowMonths {
			i := 0
			first := 0
			for _, c := range classes {
				for n := range c.users * c.playsPerMonth {
					at := monthStart(month) + 20*day/events.Micros(total+1)*events.Micros(i+1)
					reader := uint32(first + n%c.users)
					if !yield(play{at, playedItem(reader, month*c.playsPerMonth+n/c.users), reader}) {
						return
					}
					i++
				}
				first += c.users
			}
		}
	}
}

// seenStore is a store of what users have seen.
type seenStore struct {
	playStore
	settings seen.Settings
}

// skeinBloomFilters is the name of the series of skein.
const skeinBloomFilters = measure.Skein + ", Bloom filters"

// openSeenStore opens an empty store of what users have seen.
func openSeenStore(b *measure.Bench) (*seenStore, error) {
	settings := seen.DefaultSettings()
	f, err := workload.OpenStore(b.Dir, monthStart(0), func() projections.Projection { return seen.New(settings) })
	return &seenStore{playStore{f}, settings}, err
}

// playStore is a store that plays are folded into.
type playStore struct{ *workload.BenchStore }

// decodePlays makes envelopes of plays and decodes them. The time of each envelope is that of its
// last play.
func (f playStore) decodePlays(plays []play) ([]*events.Envelope, error) {
	var envs []*events.Envelope
	for chunk := range slices.Chunk(plays, playsPerEnvelope) {
		evs := make([]*skeinv1.Event, len(chunk))
		for i, p := range chunk {
			evs[i] = p.event()
		}
		data, err := events.EncodeEnvelope(evs)
		if err != nil {
			return nil, err
		}
		env, err := f.DecodeNext(chunk[len(chunk)-1].playedAt, data)
		if err != nil {
			return nil, err
		}
		envs = append(envs, env)
	}
	return envs, nil
}

// foldDecoded folds envelopes, several at a time.
func (f playStore) foldDecoded(ctx context.Context, envs []*events.Envelope) error {
	for chunk := range slices.Chunk(envs, envelopesPerPlayFold) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.Store.Fold(chunk); err != nil {
			return err
		}
	}
	return nil
}

// foldPlays decodes and folds plays, several envelopes at a time, and flushes the store to disk.
func (f playStore) foldPlays(ctx context.Context, plays iter.Seq[play]) error {
	chunk := make([]play, 0, playsPerEnvelope*envelopesPerPlayFold)
	fold := func() error {
		envs, err := f.decodePlays(chunk)
		if err != nil {
			return err
		}
		chunk = chunk[:0]
		return f.foldDecoded(ctx, envs)
	}

	for p := range plays {
		chunk = append(chunk, p)
		if len(chunk) == cap(chunk) {
			if err := fold(); err != nil {
				return err
			}
		}
	}
	if err := fold(); err != nil {
		return err
	}
	return f.Store.Flush()
}

// appendUnseen appends the indexes of the items that a reader has not seen, as the service does for
// each call.
func (s *seenStore) appendUnseen(reader uint32, items []uint64, out []uint32) ([]uint32, error) {
	v, err := s.Store.View()
	if err != nil {
		return out, err
	}
	out, months, err := seen.Query(v, s.settings).FilterNumeric(seen.Question{User: workload.UserID(reader)}, items, out)
	if err == nil && months != windowMonths {
		err = fmt.Errorf("skein looked at %d months, not %d", months, windowMonths)
	}
	return out, errors.Join(err, v.Close())
}

// PlayEvents returns n plays, each of a random item by a random user.
func PlayEvents(n, users int, seed uint64) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for p := range (playRun{count: n, userCount: users, seed: seed}).plays() {
			if !yield(p.event()) {
				return
			}
		}
	}
}
