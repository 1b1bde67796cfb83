package placement

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// rest lets time go by in a bubble.
func rest(d time.Duration) { <-time.After(d) }

// TestNodesAndTable: nodes that start one after the other get one table, and all processes know the same.
func TestNodesAndTable(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		if w.Table().Revision != 0 || len(w.Members()) != 0 {
			t.Errorf("an empty bucket has %v, table %d", w.names(), w.Table().Revision)
		}
		var nodes []*process
		for _, name := range []string{"b", "a", "c"} {
			nodes = append(nodes, start(t, ns, nodeOf(name, "zone-"+name)))
			rest(DefaultRenewEvery)
		}
		w.untilMembers(t, "a", "b", "c")
		w.untilPlaced(t, "a", "b", "c")
		rest(time.Minute)
		want := Place(w.Members(), DefaultPartitionReplicas)
		want.Revision = 1
		for _, p := range append(nodes, w, openProcess(t, ns, nil)) {
			if got := p.Table(); got.Revision != 1 || !sameNodes(&got, &want) || !slices.Equal(p.names(), []string{"a", "b", "c"}) {
				t.Errorf("the table %d of %v is another, or its members %v are", got.Revision, p.placed(), p.names())
			}
		}
		if m := w.member(t, "a"); m.Addr != "a:7411" || m.Zone != "zone-a" || m.Weight != 1 || time.Since(m.Seen) > DefaultRenewEvery {
			t.Errorf("a is %+v", m)
		}
	})
}

func sameNodes(a, b *Table) bool {
	return slices.EqualFunc(a.Nodes[:], b.Nodes[:], slices.Equal)
}

// TestSay: the partitions of a node are known at once, its position with the next renewal.
func TestSay(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w, a := start(t, ns, nil), start(t, ns, nodeOf("a", ""))
		w.untilMembers(t, "a")
		w.untilPlaced(t, "a")
		rest(DefaultRenewEvery / 4)
		var serves events.Partitions
		serves.Add(7)
		said := time.Now()
		a.Publish(serves, "one")
		w.until(t, "a serves it", func() bool { return w.member(t, "a").Serves == serves })
		if took := time.Since(said); took >= DefaultRenewEvery/4 || w.member(t, "a").Position != "one" {
			t.Errorf("it was known after %v, with the position %q", took, w.member(t, "a").Position)
		}
		changed := w.Changed()
		a.Publish(serves, "two")
		rest(2 * DefaultRenewEvery)
		if w.member(t, "a").Position != "two" {
			t.Errorf("the position is %q", w.member(t, "a").Position)
		}
		select {
		case <-changed:
			t.Error("a position is a change")
		default:
		}
	})
}

// TestSilentNodeIsReplaced: a node that stops is no member after a time, keeps its partitions for longer, and then loses them. If it
// returns it gets the same ones.
func TestSilentNodeIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		a, b, c := start(t, ns, nodeOf("a", "")), start(t, ns, nodeOf("b", "")), start(t, ns, nodeOf("c", ""))
		w.untilPlaced(t, "a", "b", "c")
		before := w.Table()
		stopped := time.Now()
		c.stop()
		w.untilMembers(t, "a", "b")
		if after := time.Since(stopped); after < DefaultExpireAfter-DefaultRenewEvery || after > DefaultExpireAfter+DefaultRenewEvery {
			t.Errorf("it expired after %v", after)
		}
		if silent := w.Silent(); len(silent) != 1 || silent[0].Name != "c" || silent[0].Addr != "c:7411" || time.Since(silent[0].Seen) < DefaultExpireAfter {
			t.Errorf("silent are %+v", silent)
		}
		if w.Table().Revision != before.Revision {
			t.Error("it lost its partitions at once")
		}
		w.untilPlaced(t, "a", "b")
		if after := time.Since(stopped); after < DefaultReplaceAfter || after > DefaultReplaceAfter+5*DefaultRenewEvery {
			t.Errorf("it was replaced after %v", after)
		}
		if silent := w.Silent(); len(silent) != 0 {
			t.Errorf("silent are still %+v", silent)
		}
		if got := openProcess(t, ns, nil).names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("a process that opens then knows %v", got)
		}
		start(t, ns, nodeOf("c", ""))
		w.untilPlaced(t, "a", "b", "c")
		if after := w.Table(); !sameNodes(&before, &after) || after.Revision != before.Revision+2 {
			t.Errorf("table %d is not the first one again", after.Revision)
		}
		for _, p := range []*process{a, b} {
			if got := p.names(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("%v", got)
			}
		}
	})
}

// TestDrain: a node that drains is a member without partitions, also after a restart, until it is to have some again.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, nodeOf("a", ""))
		b := start(t, ns, nodeOf("b", ""))
		w.untilPlaced(t, "a", "b")
		first := w.Table()
		command := openProcess(t, ns, nil)
		if err := command.Drain(t.Context(), "c", true); !errors.Is(err, ErrUnknownNode) {
			t.Errorf("an unknown node: %v", err)
		}
		if err := command.Drain(t.Context(), "*", false); err == nil {
			t.Error("a malformed name")
		}
		if err := command.Drain(t.Context(), "b", true); err != nil {
			t.Fatal(err)
		}
		w.untilPlaced(t, "a")
		if !w.member(t, "b").Draining || w.member(t, "a").Draining {
			t.Errorf("%+v", w.Members())
		}
		b.stop()
		start(t, ns, nodeOf("b", ""))
		rest(time.Minute)
		if got := w.placed(); !slices.Equal(got, []string{"a"}) || !w.member(t, "b").Draining {
			t.Errorf("after a restart %v have partitions", got)
		}
		// If all drain, the table is left as it is.
		if err := command.Drain(t.Context(), "a", true); err != nil {
			t.Fatal(err)
		}
		w.until(t, "a drains", func() bool { return w.member(t, "a").Draining })
		rest(time.Minute)
		if got := w.placed(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("when all drain, %v have partitions", got)
		}
		for _, name := range []string{"a", "b"} {
			if err := command.Drain(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
		}
		w.untilPlaced(t, "a", "b")
		if last := w.Table(); !sameNodes(&first, &last) {
			t.Error("the table is not the first one again")
		}
	})
}

// TestNameTaken: of two processes with one name the newer one stays.
func TestNameTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, nodeOf("b", ""))
		older := start(t, ns, nodeOf("a", ""))
		w.untilPlaced(t, "a", "b")
		other := nodeOf("a", "")
		other.Addr = "elsewhere:1"
		newer := start(t, ns, other)
		if err := older.end(t); !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), other.Addr) {
			t.Errorf("the older one: %v", err)
		}
		// It does not take its key away.
		if err := older.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		rest(2 * DefaultReplaceAfter)
		if got := w.member(t, "a").Addr; got != other.Addr || w.Table().Revision != 1 {
			t.Errorf("a is at %s, the table is %d", got, w.Table().Revision)
		}
		newer.stop()
		if err := newer.end(t); err != nil {
			t.Errorf("the newer one: %v", err)
		}
	})
}

// TestNewsBetween: what another process writes after this one has decided to write or delete a key makes that fail, even if this one has read
// it by then.
func TestNewsBetween(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		a := start(t, ns, nodeOf("a", ""))
		a.untilPlaced(t, "a")
		put := func(addr string) {
			value, err := encode(memberValue{V: version, Instance: "another", Member: Member{Name: "b", Addr: addr, Weight: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.kv.Put(t.Context(), nodePrefix+"b", value); err != nil {
				t.Fatal(err)
			}
			a.until(t, "b is there", func() bool { return slices.Contains(a.names(), "b") && a.member(t, "b").Addr == addr })
		}
		put("b:1")
		a.Cluster.mu.Lock()
		at := a.snapshotKey(nodePrefix + "b")
		a.Cluster.mu.Unlock()
		put("b:2")
		for what, err := range map[string]error{"written": a.writeKey(t.Context(), at, []byte("{}")), "deleted": a.deleteKey(t.Context(), at)} {
			if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
				t.Errorf("it is %s: %v", what, err)
			}
		}
	})
}

// TestRestart: a node that is restarted is back at once, and neither members nor table change meanwhile.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, nodeOf("b", ""))
		a := start(t, ns, nodeOf("a", ""))
		w.untilPlaced(t, "a", "b")
		for range 3 {
			a.stop()
			if err := a.end(t); err != nil {
				t.Errorf("it ended with %v", err)
			}
			changed := w.Changed()
			rest(DefaultExpireAfter / 2)
			began := time.Now()
			serves := w.member(t, "a").Serves
			a = openProcess(t, ns, nodeOf("a", ""))
			if a.Publish(serves, ""); a.IsPublished() {
				t.Error("it takes what it served before it was started for what it has said")
			}
			serves.Add(uint8(began.Second()))
			serves.Add(uint8(began.Minute()) + 64)
			if a.Publish(serves, ""); a.IsPublished() {
				t.Error("what it serves is known before it is written")
			}
			select {
			case <-changed:
				t.Error("it expired")
			default:
			}
			a.run(t)
			w.until(t, "a serves it", func() bool { return w.member(t, "a").Serves == serves })
			if took := time.Since(began); took > DefaultRenewEvery {
				t.Errorf("it was back after %v", took)
			}
			a.until(t, "it reads that itself", a.IsPublished)
		}
		if got := w.Table().Revision; got != 1 {
			t.Errorf("the table is %d", got)
		}
	})
}

// TestControllerTakeover: another node has the lease after the controller has stopped, within the time to expire; at once if it left.
func TestControllerTakeover(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		all := []*process{start(t, ns, nodeOf("a", "")), start(t, ns, nodeOf("b", "")), start(t, ns, nodeOf("c", ""))}
		w.untilPlaced(t, "a", "b", "c")
		first := w.controller(all...)
		first.stop()
		stopped := time.Now()
		for w.controller(all...) == first {
			rest(DefaultRenewEvery)
		}
		if after := time.Since(stopped); after < DefaultExpireAfter-DefaultRenewEvery || after > DefaultExpireAfter+2*DefaultRenewEvery {
			t.Errorf("the lease was taken after %v", after)
		}
		second := w.controller(all...)
		if second == nil {
			t.Fatal("there is no controller")
		}
		second.stop()
		if err := second.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		for w.controller(all...) == nil || w.controller(all...) == second {
			rest(DefaultRenewEvery)
		}
		if after := time.Since(left); after > 2*DefaultRenewEvery {
			t.Errorf("the lease that was given back was taken after %v", after)
		}
		w.untilPlaced(t, w.controller(all...).self.Name)
	})
}

// TestTwoControllers: one that believes in a lease that another has taken writes nothing.
func TestTwoControllers(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		a, b := start(t, ns, nodeOf("a", "")), start(t, ns, nodeOf("b", ""))
		w.untilPlaced(t, "a", "b")
		old := w.controller(a, b)
		old.cut(true)
		for w.controller(a, b) == old {
			rest(DefaultRenewEvery)
		}
		old.stop()
		// The table changes, and the old controller has not seen it.
		start(t, ns, nodeOf("c", ""))
		w.until(t, "c has partitions", func() bool { return slices.Contains(w.placed(), "c") })
		now := w.Table()
		old.cut(false)
		for old.nc.Status().String() != "CONNECTED" {
			rest(time.Second)
		}
		old.Cluster.mu.Lock()
		old.state.tableStored = false // it wants another one
		old.Cluster.mu.Unlock()
		if leads, err := old.renewLease(t.Context()); leads || err != nil {
			t.Errorf("the old controller: %v, %v", leads, err)
		}
		if err := old.writeTable(t.Context()); err != nil {
			t.Error(err)
		}
		rest(DefaultRenewEvery)
		if got := w.Table(); got.Revision != now.Revision || !sameNodes(&got, &now) {
			t.Errorf("the table %d is replaced by %d", now.Revision, got.Revision)
		}
	})
}

// TestBucketOutOfReach: a process that cannot reach the bucket keeps what it knew, and so do all if none can.
func TestBucketOutOfReach(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w, quiet := start(t, ns, nil), start(t, ns, nil)
		a, b := start(t, ns, nodeOf("a", "")), start(t, ns, nodeOf("b", ""))
		w.untilPlaced(t, "a", "b")
		changed := w.Changed()
		w.cut(true)
		rest(5 * time.Minute)
		if got := w.names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the members are %v", got)
		}
		for _, p := range []*process{a, b, quiet} {
			p.cut(true)
		}
		rest(5 * time.Minute)
		for _, p := range []*process{w, a, b, quiet} {
			p.cut(false)
		}
		rest(5 * time.Minute)
		select {
		case <-changed:
			t.Errorf("something has changed: %v, table %d", w.names(), w.Table().Revision)
		default:
		}
		if got := w.member(t, "a").Seen; time.Since(got) > 2*DefaultRenewEvery {
			t.Errorf("a was seen %v ago", time.Since(got))
		}
		// What changes while a process is cut off, it knows afterwards.
		w.cut(true)
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		quiet.untilMembers(t, "a")
		rest(time.Minute)
		w.cut(false)
		w.untilMembers(t, "a")
		w.untilPlaced(t, "a")
		rest(DefaultRenewEvery)
		for _, p := range []*process{w, a, quiet} {
			p.stop()
		}
		for p, outages := range map[*process]int{w: 2, a: 1, quiet: 1} {
			said := p.log.String()
			if n, ends := strings.Count(said, "the bucket cannot be"), strings.Count(said, "in reach again"); n != outages || ends != outages {
				t.Errorf("%d outages were logged as %d that began and %d that ended:\n%s", outages, n, ends, said)
			}
		}
		w.cut(true)
		opened := make(chan error, 1)
		go func() {
			_, err := Open(t.Context(), Options{JS: w.js, LogID: testLog})
			opened <- err
		}()
		rest(openTimeout / 2)
		w.cut(false)
		if err := <-opened; err != nil {
			t.Error("it did not wait for the server:", err)
		}
		w.cut(true)
		if _, err := Open(t.Context(), Options{JS: w.js, LogID: testLog}); err == nil {
			t.Error("opened without a server")
		}
	})
}

// TestLeave: a node that leaves is no member at once, and has no partitions soon after.
func TestLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, nodeOf("a", ""))
		b := start(t, ns, nodeOf("b", ""))
		w.untilPlaced(t, "a", "b")
		if err := openProcess(t, ns, nodeOf("a", "")).Leave(t.Context()); err != nil { // it never ran: the key is another's
			t.Error(err)
		}
		rest(DefaultRenewEvery / 2)
		began := time.Now()
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.untilMembers(t, "a")
		if took := time.Since(began); took >= DefaultRenewEvery {
			t.Errorf("it was a member for %v", took)
		}
		w.untilPlaced(t, "a")
		if took := time.Since(began); took > 5*DefaultRenewEvery {
			t.Errorf("it had partitions for %v", took)
		}
		rest(time.Minute) // its Run continues, and does not bring it back
		if got := w.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the members are %v", got)
		}
		b.stop()
		if err := b.Leave(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// TestLostAnswers: a node whose writes succeed without an answer finds them by the watch, and leaves nothing behind.
func TestLostAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w, a := start(t, ns, nil), start(t, ns, nodeOf("a", ""))
		w.untilPlaced(t, "a")
		for _, key := range []string{nodePrefix + "a", leaseKey, tableKey} {
			entry, err := a.kv.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.kv.Put(t.Context(), key, entry.Value()); err != nil {
				t.Fatal(err)
			}
		}
		rest(DefaultReplaceAfter)
		if m := w.member(t, "a"); time.Since(m.Seen) > DefaultRenewEvery {
			t.Errorf("a was seen %v ago", time.Since(m.Seen))
		}
		a.stop()
		entry, err := a.kv.Get(t.Context(), nodePrefix+"a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.kv.Put(t.Context(), nodePrefix+"a", entry.Value()); err != nil {
			t.Fatal(err)
		}
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.untilMembers(t)
	})
}

// TestBucketLost: a bucket that was deleted is made again, and has the same in it, under a later revision.
func TestBucketLost(t *testing.T) {
	inBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		for _, p := range []*process{start(t, ns, nodeOf("a", "")), start(t, ns, nodeOf("b", "")), w} {
			p.untilPlaced(t, "a", "b")
		}
		before := w.Table()
		if err := w.js.DeleteKeyValue(t.Context(), w.bucketName()); err != nil {
			t.Fatal(err)
		}
		w.until(t, "another table", func() bool { return w.Table().Revision > before.Revision })
		rest(2 * DefaultRenewEvery) // each node has written its key
		if after := w.Table(); !sameNodes(&before, &after) || !slices.Equal(w.names(), []string{"a", "b"}) {
			t.Errorf("the members are %v, and table %d has %v", w.names(), after.Revision, w.placed())
		}
		if got := openProcess(t, ns, nil); !slices.Equal(got.names(), []string{"a", "b"}) || got.Table().Revision != before.Revision+1 {
			t.Errorf("the bucket has %v, table %d", got.names(), got.Table().Revision)
		}
		// So is a table that was deleted.
		if err := w.kv.Delete(t.Context(), tableKey); err != nil {
			t.Fatal(err)
		}
		w.until(t, "a table again", func() bool { return w.Table().Revision == before.Revision+2 })
	})
}

// TestUnreadableKeysAreIgnored: values that no node of this version has written keep no node from starting, and the cluster from no
// controller. They are logged once, and shown.
func TestUnreadableKeysAreIgnored(t *testing.T) {
	for _, value := range []string{"?", `{"v":2}`} {
		t.Run(value, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ns *server.Server) {
				w := start(t, ns, nil)
				put := func(key string) {
					t.Helper()
					w.Cluster.mu.Lock()
					kv := w.kv // the watch may replace it
					w.Cluster.mu.Unlock()
					if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
						t.Fatal(err)
					}
				}
				for _, key := range []string{nodePrefix + "x", drainPrefix + "x", leaseKey, tableKey, nodePrefix + "a"} {
					put(key)
				}
				a, b := start(t, ns, nodeOf("a", "")), start(t, ns, nodeOf("b", ""))
				w.untilPlaced(t, "a", "b")
				put(nodePrefix + "x")
				put(nodePrefix + "a") // the key of a node that runs, which writes it again
				before := w.Table().Revision
				put(tableKey) // likewise the controller
				w.until(t, "another table", func() bool { return w.Table().Revision > before })
				rest(time.Minute)
				if diff := cmp.Diff([]string{drainPrefix + "x", nodePrefix + "x"}, w.UnreadableKeys()); diff != "" {
					t.Errorf("unreadable keys (-want +got):\n%s", diff)
				}
				for _, p := range []*process{w, a, b} {
					if !slices.Equal(p.names(), []string{"a", "b"}) || !slices.Equal(p.placed(), []string{"a", "b"}) {
						t.Errorf("members %v, table %v", p.names(), p.placed())
					}
					p.stop()
					if err := p.end(t); err != nil {
						t.Error(err)
					}
				}
				if got := strings.Count(w.log.String(), "key=node.x "); got != 1 {
					t.Errorf("the key was logged %d times, want once:\n%s", got, w.log)
				}
			})
		})
	}
}

// TestOptions: what no cluster can be made of is refused.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{},
		{LogID: "a.b"},
		{LogID: "x", PartitionReplicas: -1},
		{LogID: "x", RenewEvery: -1},
		{LogID: "x", RenewEvery: 10 * time.Second},
		{LogID: "x", ReplaceAfter: time.Second},
		{LogID: "x", Self: &Member{Addr: "a:1"}},
		{LogID: "x", Self: &Member{Name: strings.Repeat("a", 65), Addr: "a:1"}},
		{LogID: "x", Self: &Member{Name: "a/b", Addr: "a:1"}},
		{LogID: "x", Self: &Member{Name: "a", Addr: "a"}},
		{LogID: "x", Self: &Member{Name: "a", Addr: "a:1", Weight: -1}},
	} {
		if _, err := Open(t.Context(), o); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestOnDisk has nodes with short periods and the bucket that they make, by the clock of the machine.
func TestOnDisk(t *testing.T) {
	ns := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all []*process
	for _, self := range []*Member{nil, nodeOf("a", ""), nodeOf("b", ""), nodeOf("c", "")} {
		p := &process{line: connect(t, ns), ended: make(chan error, 1)}
		var err error
		p.Cluster, err = Open(ctx, Options{
			JS: p.js, LogID: testLog, Self: self, RenewEvery: 20 * time.Millisecond, ExpireAfter: 500 * time.Millisecond, ReplaceAfter: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		p.run(t)
		all = append(all, p)
	}
	w := all[0]
	info, err := w.js.Stream(ctx, "KV_skein-cluster-"+testLog)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.CachedInfo().Config; got.Storage != jetstream.FileStorage || got.MaxMsgsPerSubject != 1 || got.MaxAge != 0 {
		t.Errorf("the bucket is %+v", got)
	}
	w.untilPlaced(t, "a", "b", "c")
	all[3].stop()
	w.untilPlaced(t, "a", "b")
	if err := all[2].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	w.untilPlaced(t, "a")
}
