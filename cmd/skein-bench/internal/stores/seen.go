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
	// playsTogether is how many plays are in an envelope, playEnvelopes how many envelopes are folded at once: 8 MiB of log,
	// which is what a store reads at once that has more before it than it can fold.
	playsTogether, playEnvelopes = 500, 480
	// seenWindow is the default window in months.
	seenWindow = 4
	day        = events.Micros(24 * 3600 * 1_000_000)
)

// seenSize is how much is measured of what users have seen.
type seenSize struct {
	// users and plays are those of one measurement of the fold.
	users, plays int
	// bytes is the density at which the bytes of a play are measured.
	bytes seenDensity
	// readers are asked for with candidates; each has monthPlays in each month of the window.
	readers, monthPlays, candidates int
}

// seenDensity is so many users with so many plays in each month.
type seenDensity struct{ users, plays int }

func newSeenSize(b *measure.Bench) seenSize {
	n := b.Opts.Readers
	size := seenSize{
		users: n, plays: b.Opts.Plays, bytes: seenDensity{n / 10, 200},
		readers: 50, monthPlays: 3300, candidates: 10_000,
	}
	if b.Opts.Quick {
		size.readers = 4
	}
	return size
}

// Seen measures what users have seen: plays that are folded, the bytes that they take, and filters.
func Seen(ctx context.Context, b *measure.Bench) error {
	size := newSeenSize(b)
	for _, part := range []func(context.Context, *measure.Bench, seenSize) error{
		seenFold, seenBytes, seenFilter,
	} {
		if err := part(ctx, b, size); err != nil {
			return err
		}
	}
	return nil
}

// monthAt returns the first moment of a month, from 0.
func monthAt(month int) events.Micros {
	return events.Micros(time.Date(2026, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// play is one play. Items are decimal numbers of 13 digits, as users are.
type play struct {
	at   events.Micros
	item uint64
	user uint32
}

func (p play) event() *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{
		UserId: workload.UserID(p.user), ItemId: strconv.FormatUint(p.item, 10),
	}}}
}

// playRun is n plays, evenly spread over a time, each of a random item by a random user.
type playRun struct {
	from, to events.Micros
	n, users int
	seed     uint64
}

// playedItems is among how many items random plays are.
const playedItems = 10_000_000

func (p playRun) all() iter.Seq[play] {
	return func(yield func(play) bool) {
		r := rand.New(rand.NewPCG(11, p.seed))
		for i := range p.n {
			at := p.from + events.Micros(float64(p.to-p.from)*float64(i)/float64(p.n))
			if !yield(play{at, workload.FirstID + uint64(r.IntN(playedItems)), uint32(r.IntN(p.users))}) {
				return
			}
		}
	}
}

// playedItem is the n-th item that a reader plays, different for all n; unplayedItem is one that no reader plays.
func playedItem(reader uint32, n int) uint64 {
	const numbers = 1<<40 - 1
	return workload.FirstID + 2*((uint64(reader)<<24|uint64(n))*0x9e3779b97f4a7c15&numbers)
}

func unplayedItem(reader uint32, n int) uint64 { return playedItem(reader, n) + 1 }

// classPlays are plays of readers of several densities, numbered one class after the other, who play equally often in every
// month of the window, of which the last is open and the others can be sealed: it ends on its 20th day.
func classPlays(classes ...seenDensity) iter.Seq[play] {
	total := 0
	for _, c := range classes {
		total += c.users * c.plays
	}
	return func(yield func(play) bool) {
		for month := range seenWindow {
			i, first := 0, 0
			for _, c := range classes {
				for n := range c.users * c.plays {
					at := monthAt(month) + 20*day/events.Micros(total+1)*events.Micros(i+1)
					reader := uint32(first + n%c.users)
					if !yield(play{at, playedItem(reader, month*c.plays+n/c.users), reader}) {
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

// bloomFilters names the series of skein.
const bloomFilters = measure.Skein + ", Bloom filters"

func openSeen(b *measure.Bench) (*seenStore, error) {
	settings := seen.DefaultSettings()
	f, err := workload.OpenProjection(b.Dir, monthAt(0), func() projections.Projection { return seen.New(settings) })
	return &seenStore{playStore{f}, settings}, err
}

// playStore is a store that plays are folded into.
type playStore struct{ *workload.Folder }

// decodePlays makes envelopes of plays, each with the time of its last one.
func (f playStore) decodePlays(plays []play) ([]*events.Envelope, error) {
	var envs []*events.Envelope
	for together := range slices.Chunk(plays, playsTogether) {
		evs := make([]*skeinv1.Event, len(together))
		for i, p := range together {
			evs[i] = p.event()
		}
		data, err := events.EncodeEnvelope(evs)
		if err != nil {
			return nil, err
		}
		env, err := f.Decode(together[len(together)-1].at, data)
		if err != nil {
			return nil, err
		}
		envs = append(envs, env)
	}
	return envs, nil
}

// foldDecoded folds envelopes, some at a time.
func (f playStore) foldDecoded(ctx context.Context, envs []*events.Envelope) error {
	for together := range slices.Chunk(envs, playEnvelopes) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.Store.Fold(together); err != nil {
			return err
		}
	}
	return nil
}

// foldPlays decodes and folds plays, some at a time, and brings them to disk.
func (f playStore) foldPlays(ctx context.Context, plays iter.Seq[play]) error {
	chunk := make([]play, 0, playsTogether*playEnvelopes)
	fold := func() error {
		envs, err := f.decodePlays(chunk)
		if err != nil {
			return err
		}
		chunk = chunk[:0]
		return f.foldDecoded(ctx, envs)
	}
	for p := range plays {
		if chunk = append(chunk, p); len(chunk) == cap(chunk) {
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

// unseen appends the indexes of the items that a reader has not seen, as the service does for each call.
func (s *seenStore) unseen(reader uint32, items []uint64, out []uint32) ([]uint32, error) {
	v, err := s.Store.View()
	if err != nil {
		return out, err
	}
	out, months, err := seen.Query(v, s.settings).FilterNumeric(seen.Question{User: workload.UserID(reader)}, items, out)
	if err == nil && months != seenWindow {
		err = fmt.Errorf("%d months were looked at, not %d", months, seenWindow)
	}
	return out, errors.Join(err, v.Close())
}

// PlayEvents are n plays, each of a random item by a random user.
func PlayEvents(n, users int, seed uint64) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for p := range (playRun{n: n, users: users, seed: seed}).all() {
			if !yield(p.event()) {
				return
			}
		}
	}
}
