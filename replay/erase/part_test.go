package erase

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/rebuild"
)

// peer is a node beside a service, on its log.
type peer struct {
	Part

	s    *service
	dir  string
	stop func()
}

// join makes a service a node of a cluster with no other nodes yet.
func (s *service) join() {
	s.t.Helper()
	s.o.Part = &Part{Log: s.o.Log, Archive: s.o.Archive, Stores: s.o.Stores}
	if err := s.o.Part.Open(s.dir); err != nil {
		s.t.Fatal(err)
	}
	s.o.Nodes = &Nodes{List: func() []Node { return nil }}
}

// with has a service erase with other nodes.
func (s *service) with(peers map[string]*peer) {
	s.o.Nodes = &Nodes{
		List: func() (list []Node) {
			for name, p := range peers {
				list = append(list, Node{name, p.stop != nil})
			}
			return list
		},
		Flush: func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
			return answered(peers[name].Flush(ctx, epoch, seq))
		},
		Clean: func(ctx context.Context, name string, epoch uint32) (bool, string, error) {
			given := peers[name].Gives(epoch)
			done, err := peers[name].Clean(ctx, epoch)
			if given == nil && !done {
				s.t.Errorf("%s gives rows that may be erased", name)
			}
			return answered(done, err)
		},
	}
}

func answered(done bool, err error) (bool, string, error) {
	if err != nil {
		return done, err.Error(), nil //nolint:nilerr // a node answers with it
	}
	return done, "", nil
}

// start starts a node on a data directory, as a service does. It builds its stores anew when an erasure wants that.
func (s *service) start(dir string) *peer {
	s.t.Helper()
	stale, err := Stale(dir, "stores", s.o.Log)
	if err == nil && stale {
		err = Forget(dir, "stores")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	own, err := archive.Open(s.t.Context(), s.o.Buckets[0], s.o.Log.ID())
	if err != nil {
		s.t.Fatal(err)
	}
	p := &peer{Part: Part{Log: s.o.Log, Archive: own}, s: s, dir: dir}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, makes := range all.Constructors(smallSettings()) {
		l, err := live.Open(live.Options{Options: store.Options{Dir: filepath.Join(dir, "stores")}, New: makes})
		if err != nil {
			s.t.Fatal(err)
		}
		p.Stores = append(p.Stores, l)
	}
	if err := p.Open(dir); err != nil {
		s.t.Fatal(err)
	}
	for _, l := range p.Stores {
		wg.Go(func() {
			_ = l.Run(ctx, func(from events.Cursor) (store.Subscription, error) { return s.subscribe(from, events.AllKinds) })
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-p.Wanted():
			case <-ctx.Done():
			}
			release, err := p.Hold(ctx)
			if err != nil {
				return
			}
			_, err = p.Build(ctx, s.subscribe, rebuild.Options{})
			if release(); err != nil && ctx.Err() == nil {
				s.t.Error(err)
			}
		}
	})
	p.stop = func() {
		p.stop = nil
		cancel()
		for _, l := range p.Stores {
			if err := l.Close(); err != nil {
				s.t.Error(err)
			}
		}
		wg.Wait()
	}
	return p
}

// rows waits until all stores show a sequence, and returns their rows.
func (p *peer) rows(seq uint64) []conformance.Rows {
	p.s.t.Helper()
	of := service{t: p.s.t, o: Options{Stores: p.Stores}}
	return of.rows(seq)
}

// TestErasedIDIsInNoFileOfAnyNode: after an erasure no node has a file with the id, and the rows of all others are what they were.
func TestErasedIDIsInNoFileOfAnyNode(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := serve(t, t.TempDir())
	defer func() { s.stop() }()
	s.join()
	b := s.start(t.TempDir())
	defer func() { b.stop() }()
	s.with(map[string]*peer{"b": b})
	last := s.publish(memlog.NewWorld(1, 30).Envelopes(300), map[string]string{"user1": user})
	// Rows, because a compaction may replace files while they are read.
	if !slices.ContainsFunc(b.rows(last), func(rows conformance.Rows) bool { return rows.With(user) }) {
		t.Fatal("the node has no row of the user before")
	}
	for _, l := range b.Stores {
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Erase(t.Context(), s.o, user, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Nodes) != 1 || r.Nodes[0] != "node b: its stores were built anew" {
		t.Errorf("%+v", r)
	}
	for _, dir := range []string{s.dir, b.dir} {
		if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
			t.Errorf("the id is still in %v", found)
		}
	}
	want := s.rows(r.Head)
	for i, rows := range b.rows(r.Head) {
		timeless(rows).MustEqual(t, timeless(want[i]), "%s", b.Stores[i].Name())
	}
	if done, err := b.Clean(t.Context(), r.Epoch); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

// TestNothingIsScrubbedWithoutANode: while a node cannot take part nothing is deleted, or nothing is scrubbed.
func TestNothingIsScrubbedWithoutANode(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := serve(t, t.TempDir())
	defer func() { s.stop() }()
	s.join()
	b := s.start(t.TempDir())
	peers := map[string]*peer{"b": b}
	s.with(peers)
	last := s.publish(memlog.NewWorld(1, 20).Envelopes(50), map[string]string{"user1": user})
	s.rows(last)
	refused := func(what string) {
		t.Helper()
		_, err := Erase(t.Context(), s.o, user, nil)
		if !errors.Is(err, ErrNode) || s.o.Log.Epoch() != 1 || len(conformance.FilesWith(t, filepath.Join(s.dir, "bucket"), user)) == 0 {
			t.Errorf("%s: %v, in epoch %d", what, err, s.o.Log.Epoch())
		}
	}
	if err := s.o.Archiver.Now(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	nobody := s.o.Nodes.Flush
	s.o.Nodes.Flush = func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
		if seq > 0 {
			return false, "", errors.New("no answer")
		}
		return nobody(ctx, name, epoch, seq)
	}
	refused("it does not answer any more")
	s.o.Nodes.Flush = nobody
	b.Archive = nil
	refused("it has no archive")
	b.stop()
	head, err := s.o.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused("it is away")
	if now, err := s.o.Log.Head(t.Context()); err != nil || now.Last != head.Last {
		t.Errorf("something was published: %d after %d, %v", now.Last, head.Last, err)
	}
	peers["b"] = s.start(b.dir)
	defer func() { peers["b"].stop() }()
	if _, err := Erase(t.Context(), s.o, user, nil); err != nil {
		t.Error(err)
	}
}

// TestNodeAwayDuringErasureRebuildsItsStores: a node that was away during an erasure builds its stores anew before it serves. One that took part, and stopped
// before it had built them, continues with those that it has, and builds them then. One that was running, but was not asked, stops.
func TestNodeAwayDuringErasureRebuildsItsStores(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := serve(t, t.TempDir())
	defer func() { s.stop() }()
	s.join()
	w := memlog.NewWorld(1, 20)
	last := s.publish(w.Envelopes(100), map[string]string{"user1": user})
	away, running, there := s.start(t.TempDir()), s.start(t.TempDir()), s.start(t.TempDir())
	for _, p := range []*peer{away, running, there} {
		p.rows(last)
		for _, l := range p.Stores {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	away.stop()
	ctx, cancel := context.WithCancel(t.Context())
	s.with(map[string]*peer{"there": there})
	s.o.Nodes.Clean = func(context.Context, string, uint32) (bool, string, error) { // this process stops, and so does the node
		cancel()
		return false, "", ctx.Err()
	}
	if _, err := Erase(ctx, s.o, user, nil); !errors.Is(err, context.Canceled) || s.o.Log.Epoch() != 2 {
		t.Fatalf("%v in epoch %d", err, s.o.Log.Epoch())
	}
	there.stop()
	if _, err := running.Look(); !errors.Is(err, ErrMissed) {
		t.Errorf("a node that was not asked: %v", err)
	}
	running.stop()
	for _, p := range []*peer{away, running, there} {
		stale, err := Stale(p.dir, "stores", s.o.Log)
		if err != nil || stale != (p != there) {
			t.Errorf("%v, %v", stale, err)
		}
	}
	peers := map[string]*peer{"away": s.start(away.dir), "running": s.start(running.dir), "there": s.start(there.dir)}
	s.with(peers)
	if _, err := s.o.Nodes.awaitRebuilt(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	last = s.publish(w.Envelopes(20), map[string]string{"user1": "other1"})
	want := s.rows(last)
	for name, p := range peers {
		for i, rows := range p.rows(last) {
			timeless(rows).MustEqual(t, timeless(want[i]), "%s of %s", p.Stores[i].Name(), name)
		}
		p.stop()
		if found := conformance.FilesWith(t, p.dir, user); len(found) > 0 {
			t.Errorf("%s still has the id in %v", name, found)
		}
		if stale, err := Stale(p.dir, "stores", s.o.Log); stale || err != nil {
			t.Errorf("%s is stale again: %v", name, err)
		}
	}
	// Again, with all of them.
	for name, p := range peers {
		peers[name] = s.start(p.dir)
		defer func() { peers[name].stop() }()
	}
	if r, err := Erase(t.Context(), s.o, user, nil); err != nil || r.Epoch != 3 || len(r.Nodes) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}
