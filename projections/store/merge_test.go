package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// joinMerger concatenates values, so that its results show the order in which they were merged.
var joinMerger = &projections.Merger{
	Name: "join",
	Merge: func(dst, _ []byte, values [][]byte) ([]byte, error) {
		return append(dst, bytes.Join(values, nil)...), nil
	},
}

// mergingProjection is a projection whose fold is the function do. Its merger has the name that a
// test chooses, and does what joinMerger does, but fails for the value "bad".
type mergingProjection struct {
	merger string
	do     func(ev events.Event, b *projections.Batch)
}

func (*mergingProjection) Name() string         { return "merging" }
func (*mergingProjection) Version() uint32      { return 1 }
func (*mergingProjection) Kinds() []events.Kind { return []events.Kind{events.Played} }

func (*mergingProjection) Route(_ *events.Event, to *events.Partitions) { to.AddAll() }

func (p *mergingProjection) Merger() projections.Merger {
	return projections.Merger{Name: p.merger, Merge: func(dst, key []byte, values [][]byte) ([]byte, error) {
		if bytes.Contains(bytes.Join(values, nil), []byte("bad")) {
			return dst, errors.New("a bad value")
		}
		return joinMerger.Merge(dst, key, values)
	}}
}

func (p *mergingProjection) Apply(ev events.Event, b *projections.Batch) error {
	p.do(ev, b)
	return nil
}

func mergeKey(user string) []byte {
	return events.AppendID(projections.AppendPrefix(nil, events.ShardOf(user), 0xf0), user)
}

// mergeItem merges the item of an event into the row of its user.
func mergeItem(ev events.Event, b *projections.Batch) {
	b.Merge(mergeKey(ev.User), []byte(ev.Item+" "))
}

// foldPlays folds a play of ann per item, each in an envelope of its own, from the sequence first
// on.
func foldPlays(t *testing.T, s *Store, first uint64, items ...string) error {
	t.Helper()
	for i, item := range items {
		seq := first + uint64(i)
		err := s.Fold([]*events.Envelope{{
			Events: []events.Event{{Kind: events.Played, Seq: seq, Time: events.Micros(seq), User: "ann", Item: item}},
			Kinds:  events.Kinds(events.Played), Cursor: events.Cursor{Seq: seq, LastTime: events.Micros(seq)},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

func openMerging(t *testing.T, fs FS, p projections.Projection) *Store {
	t.Helper()
	s, err := Open(Options{FS: fs, Dir: "data", Projection: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestMergedValuesSurviveRestart checks that merged values are found in memtables, in tables, and
// after a restart.
func TestMergedValuesSurviveRestart(t *testing.T) {
	fs := vfs.NewMem()

	// Merge values into a memtable, into a table that is flushed, and into a memtable again.
	s := openMerging(t, fs, &mergingProjection{"one", mergeItem})
	if err := foldPlays(t, s, 1, "a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := foldPlays(t, s, 3, "c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// After a restart, merge one more value. The row has all of them.
	s = openMerging(t, fs, &mergingProjection{"one", mergeItem})
	if err := foldPlays(t, s, 4, "d"); err != nil {
		t.Fatal(err)
	}
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	if value, ok, err := v.Get(mergeKey("ann")); err != nil || !ok || string(value) != "a b c d " {
		t.Errorf("got value %q, %v, error %v, want %q", value, ok, err, "a b c d ")
	}
	if err := errors.Join(v.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}

	// A store cannot be opened with a merger of another name.
	if s, err := Open(Options{FS: fs, Dir: "data", Projection: &mergingProjection{"two", mergeItem}}); err == nil {
		_ = s.Close()
		t.Error("a store was opened with another merger, want an error")
	}
}

// TestRowThatCannotBeMergedFailsRead checks that reading a row whose values cannot be merged fails.
// The row must not be left out.
func TestRowThatCannotBeMergedFailsRead(t *testing.T) {
	s := openMerging(t, vfs.NewMem(), &mergingProjection{"one", mergeItem})
	if err := foldPlays(t, s, 1, "bad"); err != nil {
		t.Fatal(err)
	}
	if err := foldPlays(t, s, 2, "good"); err != nil {
		t.Fatal(err)
	}
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := v.Get(mergeKey("ann")); ok || !errors.Is(err, projections.ErrCorrupt) {
		t.Errorf("got a row: %v, error %v, want no row and %v", ok, err, projections.ErrCorrupt)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMisuseOfMergeAndRangesFailsFold checks that a fold fails if it merges or deletes ranges in a
// way that is not allowed.
func TestMisuseOfMergeAndRangesFailsFold(t *testing.T) {
	key := mergeKey("ann")
	const (
		wrongKey   = "a key without shard and tag, or with a tag that only the store may use"
		wrongRange = "a range that is empty, or that is not within one shard and tag"
		openIter   = "a row was written while an iterator was open"
	)
	for name, test := range map[string]struct {
		do func(ev events.Event, b *projections.Batch)
		// wantError is a part of the error. If it is empty, the fold must not fail.
		wantError string
	}{
		"runtime key": {func(_ events.Event, b *projections.Batch) {
			b.Merge([]byte{0, 0, 1, 2}, nil)
		}, wrongKey},
		"runtime range": {func(_ events.Event, b *projections.Batch) {
			b.DeleteRange([]byte{0, 0, 1}, []byte{0, 0, 2})
		}, wrongKey},
		"two tags": {func(_ events.Event, b *projections.Batch) {
			b.DeleteRange([]byte{0, 0, 0xf0}, []byte{0, 0, 0xf2})
		}, wrongRange},
		"backwards": {func(_ events.Event, b *projections.Batch) {
			b.DeleteRange(append(key, 1), key)
		}, wrongRange},
		"whole tag": {func(_ events.Event, b *projections.Batch) {
			b.DeleteRange([]byte{0, 0, 0xf0}, []byte{0, 0, 0xf1})
		}, ""},
		"while iterating": {func(_ events.Event, b *projections.Batch) {
			it := b.Iter(nil, nil)
			b.Merge(key, nil)
			_ = it.Close()
		}, openIter},
	} {
		t.Run(name, func(t *testing.T) {
			s := openMerging(t, vfs.NewMem(), &mergingProjection{"one", test.do})
			err := foldPlays(t, s, 1, "a")
			if test.wantError == "" && err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)) {
				t.Errorf("got error %v, want one that contains %q", err, test.wantError)
			}
		})
	}

	// Without a merger nothing can be merged.
	type unmerging struct{ projections.Projection }
	s := openMerging(t, vfs.NewMem(), unmerging{&mergingProjection{"one", mergeItem}})
	const wantError = "a fold called Merge, but its projection has no merger"
	if err := foldPlays(t, s, 1, "a"); err == nil || !strings.Contains(err.Error(), wantError) {
		t.Errorf("merge without a merger: got error %v, want one that contains %q", err, wantError)
	}
}

// TestMergesAndDeletesApplyInOrder checks that merges, sets, deletes and range deletes have the
// same result in one batch, in several batches, and one after the other.
func TestMergesAndDeletesApplyInOrder(t *testing.T) {
	prefix := projections.AppendPrefix(nil, events.ShardOf("ann"), 0xf0)
	do := func(ev events.Event, b *projections.Batch) {
		switch key := mergeKey("ann"); ev.Item {
		case "delete":
			b.Delete(key)
		case "range":
			b.DeleteRange(prefix, projections.PrefixEnd(prefix))
		case "set":
			b.Set(key, []byte("set "))
		case "read":
			_, _, _ = b.Get(key)
		default:
			b.Merge(key, []byte(ev.Item+" "))
		}
	}

	for _, test := range []struct{ items, want string }{
		{"a b c", "a b c "},
		{"a read b", "a b "},
		{"a set b", "set b "},
		{"a delete b c", "b c "},
		{"a delete", ""},
		{"a b range", ""},
		{"a b range c", "c "},
		{"set range c read d", "c d "},
		{"range a range b delete range c", "c "},
		{"read a read range read b", "b "},
		{"set delete a range set a", "set a "},
	} {
		for _, bounds := range []Bounds{{}, {BatchBytes: 1}, {BatchBytes: 1, KeepBytes: 1}, {BatchBytes: 1, FlushBytes: 4 << 10}} {
			for _, together := range []bool{true, false} {
				fs := vfs.NewMem()
				s, err := Open(Options{FS: fs, Dir: "data", Projection: &mergingProjection{"one", do}, Bounds: bounds})
				if err != nil {
					t.Fatal(err)
				}
				var envs []*events.Envelope
				for i, item := range strings.Fields(test.items) {
					seq := uint64(i + 1)
					envs = append(envs, &events.Envelope{
						Events: []events.Event{{Kind: events.Played, Seq: seq, Time: events.Micros(seq), User: "ann", Item: item}},
						Kinds:  events.Kinds(events.Played), Cursor: events.Cursor{Seq: seq, LastTime: events.Micros(seq)},
					})
				}

				// Fold all envelopes in one call, or each in a call of its own, with its own flush.
				if together {
					err = s.Fold(envs)
				}
				for i := range envs {
					if !together && err == nil {
						err = errors.Join(s.Fold(envs[i:i+1]), s.Flush())
					}
				}
				if err != nil {
					t.Fatal(err)
				}

				v, err := s.View()
				if err != nil {
					t.Fatal(err)
				}
				value, ok, err := v.Get(mergeKey("ann"))
				if err != nil || ok != (test.want != "") || string(value) != test.want {
					t.Errorf("%s, %+v, in one call %v: got %q, a row: %v, error %v, want %q",
						test.items, bounds, together, value, ok, err, test.want)
				}
				if err := errors.Join(v.Close(), s.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestDeletedRangeIsHiddenFromLaterViews checks that a view from before a range delete still has
// the rows, and that later views and a store that is opened again do not.
func TestDeletedRangeIsHiddenFromLaterViews(t *testing.T) {
	fs := vfs.NewMem()
	prefix := projections.AppendPrefix(nil, events.ShardOf("ann"), 0xf0)
	do := func(ev events.Event, b *projections.Batch) {
		if ev.Item == "range" {
			b.DeleteRange(prefix, projections.PrefixEnd(prefix))
			return
		}
		mergeItem(ev, b)
	}

	s := openMerging(t, fs, &mergingProjection{"one", do})
	if err := errors.Join(foldPlays(t, s, 1, "a", "b"), s.Flush(), foldPlays(t, s, 3, "c")); err != nil {
		t.Fatal(err)
	}

	// A range delete follows an earlier view.
	before, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(foldPlays(t, s, 4, "range"), s.Flush()); err != nil {
		t.Fatal(err)
	}

	// checkHasRow checks whether a new view of the store has the row.
	checkHasRow := func(s *Store, want bool) {
		t.Helper()
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		if value, ok, err := v.Get(mergeKey("ann")); err != nil || ok != want {
			t.Errorf("got value %q, error %v, a row: %v, want a row: %v", value, err, ok, want)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}

	if value, ok, err := before.Get(mergeKey("ann")); err != nil || !ok || string(value) != "a b c " {
		t.Errorf("earlier view: got value %q, %v, error %v, want %q", value, ok, err, "a b c ")
	}
	checkHasRow(s, false)
	if err := errors.Join(before.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	checkHasRow(openMerging(t, fs, &mergingProjection{"one", do}), false)
}

// TestEngineMergerIsThatOfProjection checks that the merger of the engine has the name of the
// projection's merger after a prefix, and that there is none without it.
func TestEngineMergerIsThatOfProjection(t *testing.T) {
	if m := EngineMerger(&mergingProjection{"one", mergeItem}); m == nil || m.Name != "skein.one" {
		t.Errorf("got merger %+v, want skein.one", m)
	}
	type unmerging struct{ projections.Projection }
	if m := EngineMerger(unmerging{&mergingProjection{"one", mergeItem}}); m != nil {
		t.Errorf("got merger %s for a projection without one, want nil", m.Name)
	}
}
