package projections

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
)

// counting counts the follows of each user in a row. It says beforehand which row that is, unless it is silent.
type counting struct{ silent bool }

var _ Prefetcher = counting{}

func (counting) Name() string         { return "counting" }
func (counting) Version() uint32      { return 1 }
func (counting) Kinds() []events.Kind { return []events.Kind{events.UserFollowed} }

func (counting) Route(_ *events.Event, to *Partitions) { to.AddAll() }

func countingKey(user string) []byte { return append(AppendPrefix(nil, 7, LastRuntimeTag+1), user...) }

func (c counting) Prefetch(ev *events.Event, add func(key []byte)) {
	if !c.silent {
		add(countingKey(ev.User))
	}
}

func (counting) Apply(ev events.Event, b *Batch) error {
	key := countingKey(ev.User)
	row, ok, err := b.Get(key)
	if err != nil {
		return err
	}
	n := uint64(1)
	if ok {
		n += binary.BigEndian.Uint64(row)
	}
	b.Set(key, binary.BigEndian.AppendUint64(nil, n))
	return nil
}

// countedFollows are envelopes of a hundred follows, in each a follow of every hundredth of some users, in an order of its own.
func countedFollows(users, envelopes int) (envs []*events.Envelope) {
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	for i := range envelopes {
		c.Seq++
		env := &events.Envelope{Kinds: events.Kinds(events.UserFollowed), Bytes: 1000}
		for slot := range 100 {
			c.LastTime++
			env.Events = append(env.Events, events.Event{
				Kind: events.UserFollowed, User: strconv.Itoa((i + slot*7919) * 31 % users), Peer: "x", Time: c.LastTime, Seq: c.Seq, Slot: uint16(slot),
			})
		}
		env.Cursor = c
		envs = append(envs, env)
	}
	return envs
}

// TestPrefetch folds follows of more users than are kept in memory: every row that tables are searched for is looked up
// beforehand, in order, and the rows are those of a fold that looks them up one by one. A fold that finds all in memory looks
// nothing up beforehand.
func TestPrefetch(t *testing.T) {
	const users, envelopes = 5000, 400
	envs := countedFollows(users, envelopes)
	for _, test := range []struct {
		name   string
		p      counting
		keep   int
		looked bool
	}{
		{"more than memory", counting{}, 1 << 10, true},
		{"all in memory", counting{}, 64 << 20, false},
		{"unknown", counting{silent: true}, 1 << 10, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(Options{
				FS: vfs.NewMem(), Dir: "data", Projection: test.p,
				Bounds: Bounds{BatchBytes: 16 << 10, KeepBytes: test.keep, FilterBytes: 1 << 16, PrefetchEvents: 2000},
			})
			if err != nil {
				t.Fatal(err)
			}
			looked := 0
			for chunk := range slices.Chunk(envs, 100) {
				if err := s.Fold(chunk); err != nil {
					t.Fatal(err)
				}
				p := s.fold.prefetch
				looked += len(p.keys)
				if p.left != 0 {
					t.Errorf("%d envelopes are left", p.left)
				}
				if !slices.IsSortedFunc(p.keys, func(a, b wantedKey) int {
					return slices.Compare(p.data[a.at:a.at+a.n], p.data[b.at:b.at+b.n])
				}) {
					t.Error("rows were not looked up in order")
				}
			}
			if (looked > 0) != test.looked {
				t.Errorf("%d rows were looked up beforehand", looked)
			}
			v, err := s.View()
			if err != nil {
				t.Fatal(err)
			}
			total := uint64(0)
			for user := range users {
				if row, ok, err := v.Get(countingKey(strconv.Itoa(user))); err != nil {
					t.Fatal(err)
				} else if ok {
					total += binary.BigEndian.Uint64(row)
				}
			}
			if total != envelopes*100 {
				t.Errorf("%d follows are counted", total)
			}
			if err := errors.Join(v.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPrefetchSpares: what was looked up beforehand, the fold finds in memory.
func TestPrefetchSpares(t *testing.T) {
	envs := countedFollows(5000, 200)
	s, err := Open(Options{
		FS: vfs.NewMem(), Dir: "data", Projection: counting{},
		Bounds: Bounds{BatchBytes: 1 << 20, KeepBytes: 1 << 10, FilterBytes: 1 << 16, PrefetchEvents: 10_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Fold(envs[:100]); err != nil {
		t.Fatal(err)
	}
	f := &s.fold
	f.batch.rows.reset()
	f.prefetch.searched = 0
	f.batch.rows.searches = 1 << 20
	if err := f.prefetch.ahead(envs[100:], f); err != nil {
		t.Fatal(err)
	}
	f.prefetch.left = 0
	before, looked := f.batch.rows.searches, len(f.prefetch.keys)
	f.prefetch = nil
	if err := s.Fold(envs[100:]); err != nil {
		t.Fatal(err)
	}
	if searched := f.batch.rows.searches - before; looked < 4000 || searched > uint64(looked)/10 {
		t.Errorf("%d rows were looked up beforehand, and tables searched %d times later", looked, searched)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
