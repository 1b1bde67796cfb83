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
func advance(d time.Duration) { <-time.After(d) }

// TestAllProcessesKnowTheSameTable: nodes that start one after the other get one table, and all processes know the same.
func TestAllProcessesKnowTheSameTable(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		if w.Table().Revision != 0 || len(w.Members()) != 0 {
			t.Errorf("an empty bucket has %v, table %d", w.memberNames(), w.Table().Revision)
		}
		var nodes []*process
		for _, name := range []string{"b", "a", "c"} {
			nodes = append(nodes, start(t, ns, newNode(name, "zone-"+name)))
			advance(DefaultRenewEvery)
		}
		w.waitUntilMembers(t, "a", "b", "c")
		w.waitUntilPlaced(t, "a", "b", "c")
		advance(time.Minute)
		want := Place(w.Members(), DefaultPartitionReplicas)
		want.Revision = 1
		for _, p := range append(nodes, w, openProcess(t, ns, nil)) {
			if got := p.Table(); got.Revision != 1 || !equalNodes(&got, &want) || !slices.Equal(p.memberNames(), []string{"a", "b", "c"}) {
				t.Errorf("the table %d of %v is another, or its members %v are", got.Revision, p.nodesWithPartitions(), p.memberNames())
			}
		}
		if m := w.member(t, "a"); m.Addr != "a:7411" || m.Zone != "zone-a" || m.Weight != 1 || time.Since(m.Seen) > DefaultRenewEvery {
			t.Errorf("a is %+v", m)
		}
	})
}

func equalNodes(a, b *Table) bool {
	return slices.EqualFunc(a.Nodes[:], b.Nodes[:], slices.Equal)
}

// TestPublishSpreadsPartitionsAtOnce: the partitions of a node are known at once, its position with the next renewal.
func TestPublishSpreadsPartitionsAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w, a := start(t, ns, nil), start(t, ns, newNode("a", ""))
		w.waitUntilMembers(t, "a")
		w.waitUntilPlaced(t, "a")
		advance(DefaultRenewEvery / 4)
		var serves events.Partitions
		serves.Add(7)
		said := time.Now()
		a.Publish(serves, "one")
		w.waitUntil(t, "a serves it", func() bool { return w.member(t, "a").Serves == serves })
		if took := time.Since(said); took >= DefaultRenewEvery/4 || w.member(t, "a").Position != "one" {
			t.Errorf("it was known after %v, with the position %q", took, w.member(t, "a").Position)
		}
		changed := w.Changed()
		a.Publish(serves, "two")
		advance(2 * DefaultRenewEvery)
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
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		a, b, c := start(t, ns, newNode("a", "")), start(t, ns, newNode("b", "")), start(t, ns, newNode("c", ""))
		w.waitUntilPlaced(t, "a", "b", "c")
		before := w.Table()
		stopped := time.Now()
		c.stop()
		w.waitUntilMembers(t, "a", "b")
		if after := time.Since(stopped); after < DefaultExpireAfter-DefaultRenewEvery || after > DefaultExpireAfter+DefaultRenewEvery {
			t.Errorf("it expired after %v", after)
		}
		if silent := w.Silent(); len(silent) != 1 || silent[0].Name != "c" || silent[0].Addr != "c:7411" || time.Since(silent[0].Seen) < DefaultExpireAfter {
			t.Errorf("silent are %+v", silent)
		}
		if w.Table().Revision != before.Revision {
			t.Error("it lost its partitions at once")
		}
		w.waitUntilPlaced(t, "a", "b")
		if after := time.Since(stopped); after < DefaultReplaceAfter || after > DefaultReplaceAfter+5*DefaultRenewEvery {
			t.Errorf("it was replaced after %v", after)
		}
		if silent := w.Silent(); len(silent) != 0 {
			t.Errorf("silent are still %+v", silent)
		}
		if got := openProcess(t, ns, nil).memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("a process that opens then knows %v", got)
		}
		start(t, ns, newNode("c", ""))
		w.waitUntilPlaced(t, "a", "b", "c")
		if after := w.Table(); !equalNodes(&before, &after) || after.Revision != before.Revision+2 {
			t.Errorf("table %d is not the first one again", after.Revision)
		}
		for _, p := range []*process{a, b} {
			if got := p.memberNames(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("%v", got)
			}
		}
	})
}

// TestDrainingNodeHasNoPartitions: a node that drains is a member without partitions, also after a restart, until it is to have some again.
func TestDrainingNodeHasNoPartitions(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("a", ""))
		b := start(t, ns, newNode("b", ""))
		w.waitUntilPlaced(t, "a", "b")
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
		w.waitUntilPlaced(t, "a")
		if !w.member(t, "b").Draining || w.member(t, "a").Draining {
			t.Errorf("%+v", w.Members())
		}
		b.stop()
		start(t, ns, newNode("b", ""))
		advance(time.Minute)
		if got := w.nodesWithPartitions(); !slices.Equal(got, []string{"a"}) || !w.member(t, "b").Draining {
			t.Errorf("after a restart %v have partitions", got)
		}
		// If all drain, the table is left as it is.
		if err := command.Drain(t.Context(), "a", true); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(t, "a drains", func() bool { return w.member(t, "a").Draining })
		advance(time.Minute)
		if got := w.nodesWithPartitions(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("when all drain, %v have partitions", got)
		}
		for _, name := range []string{"a", "b"} {
			if err := command.Drain(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
		}
		w.waitUntilPlaced(t, "a", "b")
		if last := w.Table(); !equalNodes(&first, &last) {
			t.Error("the table is not the first one again")
		}
	})
}

// TestNewerProcessTakesTheName: of two processes with one name the newer one stays.
func TestNewerProcessTakesTheName(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("b", ""))
		older := start(t, ns, newNode("a", ""))
		w.waitUntilPlaced(t, "a", "b")
		other := newNode("a", "")
		other.Addr = "elsewhere:1"
		newer := start(t, ns, other)
		if err := older.waitUntilEnded(t); !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), other.Addr) {
			t.Errorf("the older one: %v", err)
		}
		// It does not take its key away.
		if err := older.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		advance(2 * DefaultReplaceAfter)
		if got := w.member(t, "a").Addr; got != other.Addr || w.Table().Revision != 1 {
			t.Errorf("a is at %s, the table is %d", got, w.Table().Revision)
		}
		newer.stop()
		if err := newer.waitUntilEnded(t); err != nil {
			t.Errorf("the newer one: %v", err)
		}
	})
}

// TestStaleSnapshotCannotWriteOrDelete: what another process writes after this one has decided to write or delete a key makes that fail, even if this one has read
// it by then.
func TestStaleSnapshotCannotWriteOrDelete(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		a := start(t, ns, newNode("a", ""))
		a.waitUntilPlaced(t, "a")
		put := func(addr string) {
			value, err := encode(memberValue{V: version, Instance: "another", Member: Member{Name: "b", Addr: addr, Weight: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.kv.Put(t.Context(), nodePrefix+"b", value); err != nil {
				t.Fatal(err)
			}
			a.waitUntil(t, "b is there", func() bool { return slices.Contains(a.memberNames(), "b") && a.member(t, "b").Addr == addr })
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

// TestRestartedNodeReturnsWithoutChange: a node that is restarted is back at once, and neither members nor table change meanwhile.
func TestRestartedNodeReturnsWithoutChange(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("b", ""))
		a := start(t, ns, newNode("a", ""))
		w.waitUntilPlaced(t, "a", "b")
		for range 3 {
			a.stop()
			if err := a.waitUntilEnded(t); err != nil {
				t.Errorf("it ended with %v", err)
			}
			changed := w.Changed()
			advance(DefaultExpireAfter / 2)
			began := time.Now()
			serves := w.member(t, "a").Serves
			a = openProcess(t, ns, newNode("a", ""))
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
			w.waitUntil(t, "a serves it", func() bool { return w.member(t, "a").Serves == serves })
			if took := time.Since(began); took > DefaultRenewEvery {
				t.Errorf("it was back after %v", took)
			}
			a.waitUntil(t, "it reads that itself", a.IsPublished)
		}
		if got := w.Table().Revision; got != 1 {
			t.Errorf("the table is %d", got)
		}
	})
}

// TestAnotherNodeTakesTheLease: another node has the lease after the controller has stopped, within the time to expire; at once if it left.
func TestAnotherNodeTakesTheLease(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		all := []*process{start(t, ns, newNode("a", "")), start(t, ns, newNode("b", "")), start(t, ns, newNode("c", ""))}
		w.waitUntilPlaced(t, "a", "b", "c")
		first := w.findController(all...)
		first.stop()
		stopped := time.Now()
		for w.findController(all...) == first {
			advance(DefaultRenewEvery)
		}
		if after := time.Since(stopped); after < DefaultExpireAfter-DefaultRenewEvery || after > DefaultExpireAfter+2*DefaultRenewEvery {
			t.Errorf("the lease was taken after %v", after)
		}
		second := w.findController(all...)
		if second == nil {
			t.Fatal("there is no controller")
		}
		second.stop()
		if err := second.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		for w.findController(all...) == nil || w.findController(all...) == second {
			advance(DefaultRenewEvery)
		}
		if after := time.Since(left); after > 2*DefaultRenewEvery {
			t.Errorf("the lease that was given back was taken after %v", after)
		}
		w.waitUntilPlaced(t, w.findController(all...).self.Name)
	})
}

// TestFormerControllerWritesNothing: one that believes in a lease that another has taken writes nothing.
func TestFormerControllerWritesNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		a, b := start(t, ns, newNode("a", "")), start(t, ns, newNode("b", ""))
		w.waitUntilPlaced(t, "a", "b")
		old := w.findController(a, b)
		old.setCut(true)
		for w.findController(a, b) == old {
			advance(DefaultRenewEvery)
		}
		old.stop()
		// The table changes, and the old controller has not seen it.
		start(t, ns, newNode("c", ""))
		w.waitUntil(t, "c has partitions", func() bool { return slices.Contains(w.nodesWithPartitions(), "c") })
		now := w.Table()
		old.setCut(false)
		for old.nc.Status().String() != "CONNECTED" {
			advance(time.Second)
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
		advance(DefaultRenewEvery)
		if got := w.Table(); got.Revision != now.Revision || !equalNodes(&got, &now) {
			t.Errorf("the table %d is replaced by %d", now.Revision, got.Revision)
		}
	})
}

// TestUnreachableBucketChangesNothing: a process that cannot reach the bucket keeps what it knew, and so do all if none can.
func TestUnreachableBucketChangesNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w, quiet := start(t, ns, nil), start(t, ns, nil)
		a, b := start(t, ns, newNode("a", "")), start(t, ns, newNode("b", ""))
		w.waitUntilPlaced(t, "a", "b")
		changed := w.Changed()
		w.setCut(true)
		advance(5 * time.Minute)
		if got := w.memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the members are %v", got)
		}
		for _, p := range []*process{a, b, quiet} {
			p.setCut(true)
		}
		advance(5 * time.Minute)
		for _, p := range []*process{w, a, b, quiet} {
			p.setCut(false)
		}
		advance(5 * time.Minute)
		select {
		case <-changed:
			t.Errorf("something has changed: %v, table %d", w.memberNames(), w.Table().Revision)
		default:
		}
		if got := w.member(t, "a").Seen; time.Since(got) > 2*DefaultRenewEvery {
			t.Errorf("a was seen %v ago", time.Since(got))
		}
		// What changes while a process is cut off, it knows afterwards.
		w.setCut(true)
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		quiet.waitUntilMembers(t, "a")
		advance(time.Minute)
		w.setCut(false)
		w.waitUntilMembers(t, "a")
		w.waitUntilPlaced(t, "a")
		advance(DefaultRenewEvery)
		for _, p := range []*process{w, a, quiet} {
			p.stop()
		}
		for p, outages := range map[*process]int{w: 2, a: 1, quiet: 1} {
			said := p.log.String()
			if n, ends := strings.Count(said, "the bucket cannot be"), strings.Count(said, "in reach again"); n != outages || ends != outages {
				t.Errorf("%d outages were logged as %d that began and %d that ended:\n%s", outages, n, ends, said)
			}
		}
		w.setCut(true)
		opened := make(chan error, 1)
		go func() {
			_, err := Open(t.Context(), Options{JS: w.js, LogID: testLog})
			opened <- err
		}()
		advance(openTimeout / 2)
		w.setCut(false)
		if err := <-opened; err != nil {
			t.Error("it did not wait for the server:", err)
		}
		w.setCut(true)
		if _, err := Open(t.Context(), Options{JS: w.js, LogID: testLog}); err == nil {
			t.Error("opened without a server")
		}
	})
}

// TestLeavingNodeIsRemovedAtOnce: a node that leaves is no member at once, and has no partitions soon after.
func TestLeavingNodeIsRemovedAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("a", ""))
		b := start(t, ns, newNode("b", ""))
		w.waitUntilPlaced(t, "a", "b")
		if err := openProcess(t, ns, newNode("a", "")).Leave(t.Context()); err != nil { // it never ran: the key is another's
			t.Error(err)
		}
		advance(DefaultRenewEvery / 2)
		began := time.Now()
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.waitUntilMembers(t, "a")
		if took := time.Since(began); took >= DefaultRenewEvery {
			t.Errorf("it was a member for %v", took)
		}
		w.waitUntilPlaced(t, "a")
		if took := time.Since(began); took > 5*DefaultRenewEvery {
			t.Errorf("it had partitions for %v", took)
		}
		advance(time.Minute) // its Run continues, and does not bring it back
		if got := w.memberNames(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the members are %v", got)
		}
		b.stop()
		if err := b.Leave(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// TestLostAnswersAreFoundByTheWatch: a node whose writes succeed without an answer finds them by the watch, and leaves nothing behind.
func TestLostAnswersAreFoundByTheWatch(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w, a := start(t, ns, nil), start(t, ns, newNode("a", ""))
		w.waitUntilPlaced(t, "a")
		for _, key := range []string{nodePrefix + "a", leaseKey, tableKey} {
			entry, err := a.kv.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.kv.Put(t.Context(), key, entry.Value()); err != nil {
				t.Fatal(err)
			}
		}
		advance(DefaultReplaceAfter)
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
		w.waitUntilMembers(t)
	})
}

// TestDeletedBucketIsRestored: a bucket that was deleted is made again, and has the same in it, under a later revision.
func TestDeletedBucketIsRestored(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		for _, p := range []*process{start(t, ns, newNode("a", "")), start(t, ns, newNode("b", "")), w} {
			p.waitUntilPlaced(t, "a", "b")
		}
		before := w.Table()
		if err := w.js.DeleteKeyValue(t.Context(), w.bucketName()); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(t, "another table", func() bool { return w.Table().Revision > before.Revision })
		advance(2 * DefaultRenewEvery) // each node has written its key
		if after := w.Table(); !equalNodes(&before, &after) || !slices.Equal(w.memberNames(), []string{"a", "b"}) {
			t.Errorf("the members are %v, and table %d has %v", w.memberNames(), after.Revision, w.nodesWithPartitions())
		}
		if got := openProcess(t, ns, nil); !slices.Equal(got.memberNames(), []string{"a", "b"}) || got.Table().Revision != before.Revision+1 {
			t.Errorf("the bucket has %v, table %d", got.memberNames(), got.Table().Revision)
		}
		// So is a table that was deleted.
		if err := w.kv.Delete(t.Context(), tableKey); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(t, "a table again", func() bool { return w.Table().Revision == before.Revision+2 })
	})
}

// TestUnreadableKeysAreIgnored: values that no node of this version has written keep no node from starting, and the cluster from no
// controller. They are logged once, and shown.
func TestUnreadableKeysAreIgnored(t *testing.T) {
	for _, value := range []string{"?", `{"v":2}`} {
		t.Run(value, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, ns *server.Server) {
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
				a, b := start(t, ns, newNode("a", "")), start(t, ns, newNode("b", ""))
				w.waitUntilPlaced(t, "a", "b")
				put(nodePrefix + "x")
				put(nodePrefix + "a") // the key of a node that runs, which writes it again
				before := w.Table().Revision
				put(tableKey) // likewise the controller
				w.waitUntil(t, "another table", func() bool { return w.Table().Revision > before })
				advance(time.Minute)
				if diff := cmp.Diff([]string{drainPrefix + "x", nodePrefix + "x"}, w.UnreadableKeys()); diff != "" {
					t.Errorf("unreadable keys (-want +got):\n%s", diff)
				}
				for _, p := range []*process{w, a, b} {
					if !slices.Equal(p.memberNames(), []string{"a", "b"}) || !slices.Equal(p.nodesWithPartitions(), []string{"a", "b"}) {
						t.Errorf("members %v, table %v", p.memberNames(), p.nodesWithPartitions())
					}
					p.stop()
					if err := p.waitUntilEnded(t); err != nil {
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

// TestOpenRejectsInvalidOptions: what no cluster can be made of is refused.
func TestOpenRejectsInvalidOptions(t *testing.T) {
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

// TestClusterWorksWithBucketOnDisk has nodes with short periods and the bucket that they make, by the clock of the machine.
func TestClusterWorksWithBucketOnDisk(t *testing.T) {
	ns := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all []*process
	for _, self := range []*Member{nil, newNode("a", ""), newNode("b", ""), newNode("c", "")} {
		p := &process{cuttableConn: connect(t, ns), ended: make(chan error, 1)}
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
	w.waitUntilPlaced(t, "a", "b", "c")
	all[3].stop()
	w.waitUntilPlaced(t, "a", "b")
	if err := all[2].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	w.waitUntilPlaced(t, "a")
}
