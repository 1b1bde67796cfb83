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

// advance lets the clock of the bubble advance.
func advance(d time.Duration) { <-time.After(d) }

// TestAllProcessesKnowTheSameTable starts nodes one after the other. The controller writes one
// table for all of them, and every process knows it.
func TestAllProcessesKnowTheSameTable(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		if w.Table().Revision != 0 || len(w.Members()) != 0 {
			t.Errorf("empty bucket: got members %v and table %d, want none and table 0", w.memberNames(), w.Table().Revision)
		}
		var nodes []*process
		for _, name := range []string{"b", "a", "c"} {
			nodes = append(nodes, start(t, ns, newNode(name, "zone-"+name)))
			advance(DefaultRenewEvery)
		}

		w.waitUntilMembers(t, "a", "b", "c")
		w.waitUntilPlaced(t, "a", "b", "c")
		advance(time.Minute)
		want := Place(w.Members(), DefaultCopies)
		want.Revision = 1
		for _, p := range append(nodes, w, openProcess(t, ns, nil)) {
			if got := p.Table(); got.Revision != 1 || !equalNodes(&got, &want) || !slices.Equal(p.memberNames(), []string{"a", "b", "c"}) {
				t.Errorf("process: got members %v and table %d of %v, want a, b and c and table 1 as Place makes it",
					p.memberNames(), got.Revision, p.nodesWithPartitions())
			}
		}

		if m := w.member(t, "a"); m.Addr != "a:7411" || m.Zone != "zone-a" || m.Weight != 1 || time.Since(m.LastSeen) > DefaultRenewEvery {
			t.Errorf("member a: got %+v, want its address, zone, weight 1 and a recent renewal", m)
		}
	})
}

// equalNodes reports whether two tables assign the same nodes to all partitions.
func equalNodes(a, b *Table) bool {
	return slices.EqualFunc(a.Nodes[:], b.Nodes[:], slices.Equal)
}

// TestAnnouncementSpreadsPartitionsAtOnce checks that other processes learn of the partitions that
// a node serves at once, and of a new position with the next renewal, without a change.
func TestAnnouncementSpreadsPartitionsAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w, a := start(t, ns, nil), start(t, ns, newNode("a", ""))
		w.waitUntilMembers(t, "a")
		w.waitUntilPlaced(t, "a")
		advance(DefaultRenewEvery / 4)
		var serves events.Partitions
		serves.Add(7)
		announced := time.Now()
		a.Announce(Announcement{Serves: serves, Position: "one"})
		w.waitUntil(t, "a serves it", func() bool { return w.member(t, "a").Serves == serves })
		if took := time.Since(announced); took >= DefaultRenewEvery/4 || w.member(t, "a").Position != "one" {
			t.Errorf("partitions of a: got them after %v with position %q, want them before the next renewal with position one",
				took, w.member(t, "a").Position)
		}
		changed := w.Changed()
		a.Announce(Announcement{Serves: serves, Position: "two"})
		advance(2 * DefaultRenewEvery)
		if w.member(t, "a").Position != "two" {
			t.Errorf("position after a renewal: got %q, want two", w.member(t, "a").Position)
		}
		select {
		case <-changed:
			t.Error("new position: got a change, want none")
		default:
		}
	})
}

// TestSilentNodeIsReplaced stops a node. After ExpireAfter the node is no member, and after
// ReplaceAfter it has no partitions. If it returns, it gets the same partitions again.
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
			t.Errorf("time until the silent node expired: got %v, want about %v", after, DefaultExpireAfter)
		}
		if silent := w.SilentNodes(); len(silent) != 1 || silent[0].Name != "c" || silent[0].Addr != "c:7411" || time.Since(silent[0].LastSeen) < DefaultExpireAfter {
			t.Errorf("silent nodes: got %+v, want c", silent)
		}
		if w.Table().Revision != before.Revision {
			t.Errorf("table after the expiry: got %d, want still %d", w.Table().Revision, before.Revision)
		}
		w.waitUntilPlaced(t, "a", "b")
		if after := time.Since(stopped); after < DefaultReplaceAfter || after > DefaultReplaceAfter+5*DefaultRenewEvery {
			t.Errorf("time until the silent node was replaced: got %v, want about %v", after, DefaultReplaceAfter)
		}
		if silent := w.SilentNodes(); len(silent) != 0 {
			t.Errorf("silent nodes after the replacement: got %+v, want none", silent)
		}
		if got := openProcess(t, ns, nil).memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("members for a new process: got %v, want a and b", got)
		}
		start(t, ns, newNode("c", ""))
		w.waitUntilPlaced(t, "a", "b", "c")
		if after := w.Table(); !equalNodes(&before, &after) || after.Revision != before.Revision+2 {
			t.Errorf("table after the return: got %d, want %d with the nodes of the first one", after.Revision, before.Revision+2)
		}
		for _, p := range []*process{a, b} {
			if got := p.memberNames(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("members after the return: got %v, want a, b and c", got)
			}
		}
	})
}

// TestDrainingNodeHasNoPartitions drains a node. The node stays a member without partitions, also
// after a restart, until the drain is undone.
func TestDrainingNodeHasNoPartitions(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("a", ""))
		b := start(t, ns, newNode("b", ""))
		w.waitUntilPlaced(t, "a", "b")
		first := w.Table()
		command := openProcess(t, ns, nil)
		if err := command.SetDraining(t.Context(), "c", true); !errors.Is(err, ErrUnknownNode) {
			t.Errorf("drain of an unknown node: got error %v, want %v", err, ErrUnknownNode)
		}
		if err := command.SetDraining(t.Context(), "*", false); err == nil {
			t.Error("drain of a malformed name: got no error, want one")
		}
		if err := command.SetDraining(t.Context(), "b", true); err != nil {
			t.Fatal(err)
		}
		w.waitUntilPlaced(t, "a")
		if !w.member(t, "b").Draining || w.member(t, "a").Draining {
			t.Errorf("members: got %+v, want only b draining", w.Members())
		}
		b.stop()
		start(t, ns, newNode("b", ""))
		advance(time.Minute)
		if got := w.nodesWithPartitions(); !slices.Equal(got, []string{"a"}) || !w.member(t, "b").Draining {
			t.Errorf("nodes with partitions after a restart: got %v, want a", got)
		}

		// If all nodes drain, the table stays as it is.
		if err := command.SetDraining(t.Context(), "a", true); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(t, "a drains", func() bool { return w.member(t, "a").Draining })
		advance(time.Minute)
		if got := w.nodesWithPartitions(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("nodes with partitions when all drain: got %v, want a", got)
		}
		for _, name := range []string{"a", "b"} {
			if err := command.SetDraining(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
		}

		w.waitUntilPlaced(t, "a", "b")
		if last := w.Table(); !equalNodes(&first, &last) {
			t.Errorf("table after the drains: got nodes %v, want those of the first table", w.nodesWithPartitions())
		}
	})
}

// TestNewerProcessTakesTheName runs two processes with the same name. The older one ends with
// ErrNameTakenOver, and the newer one keeps the node.
func TestNewerProcessTakesTheName(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("b", ""))
		older := start(t, ns, newNode("a", ""))
		w.waitUntilPlaced(t, "a", "b")
		other := newNode("a", "")
		other.Addr = "elsewhere:1"
		newer := start(t, ns, other)
		if err := older.waitUntilEnded(t); !errors.Is(err, ErrNameTakenOver) || !strings.Contains(err.Error(), other.Addr) {
			t.Errorf("older process: got error %v, want %v with %q", err, ErrNameTakenOver, other.Addr)
		}

		advance(2 * DefaultReplaceAfter)
		if got := w.member(t, "a").Addr; got != other.Addr || w.Table().Revision != 1 {
			t.Errorf("node a: got address %s and table %d, want %s and table 1", got, w.Table().Revision, other.Addr)
		}
		newer.stop()
		if err := newer.waitUntilEnded(t); err != nil {
			t.Errorf("newer process: got error %v, want none", err)
		}
	})
}

// TestStaleSnapshotCannotWriteOrDelete takes a snapshot of a key, after which another process
// writes the key. Writing and deleting with the snapshot fail, even if this process has read the
// new value by then.
func TestStaleSnapshotCannotWriteOrDelete(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		a := start(t, ns, newNode("a", ""))
		a.waitUntilPlaced(t, "a")
		put := func(addr string) {
			value, err := encodeValue(memberValue{V: formatVersion, Instance: "another", Member: Member{Name: "b", Addr: addr, Weight: 1}})
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
		snapshot := a.snapshotKey(nodePrefix + "b")
		a.Cluster.mu.Unlock()
		put("b:2")
		for what, err := range map[string]error{"written": a.writeKey(t.Context(), snapshot, []byte("{}")), "deleted": a.deleteKey(t.Context(), snapshot)} {
			if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
				t.Errorf("key %s with an outdated snapshot: got error %v, want %v", what, err, jetstream.ErrKeyRevisionMismatch)
			}
		}
	})
}

// TestRestartedNodeReturnsWithoutChange restarts a node again and again. The node is back within a
// renewal, and neither the members nor the table change meanwhile.
func TestRestartedNodeReturnsWithoutChange(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w := start(t, ns, nil)
		start(t, ns, newNode("b", ""))
		a := start(t, ns, newNode("a", ""))
		w.waitUntilPlaced(t, "a", "b")
		for range 3 {
			a.stop()
			if err := a.waitUntilEnded(t); err != nil {
				t.Errorf("end of the node: got error %v, want none", err)
			}
			changed := w.Changed()
			advance(DefaultExpireAfter / 2)
			began := time.Now()
			serves := w.member(t, "a").Serves
			a = openProcess(t, ns, newNode("a", ""))
			a.Announce(Announcement{Serves: serves})
			if a.IsAnnounced() {
				t.Error("partitions that the node served before its restart: got announced, want not yet")
			}
			serves.Add(uint8(began.Second()))
			serves.Add(uint8(began.Minute()) + 64)
			a.Announce(Announcement{Serves: serves})
			if a.IsAnnounced() {
				t.Error("partitions before they are written: got announced, want not yet")
			}
			select {
			case <-changed:
				t.Error("restarted node: got a change of the members or the table, want none")
			default:
			}

			a.run(t)
			w.waitUntil(t, "a serves it", func() bool { return w.member(t, "a").Serves == serves })
			if took := time.Since(began); took > DefaultRenewEvery {
				t.Errorf("time until the node was back: got %v, want at most %v", took, DefaultRenewEvery)
			}
			a.waitUntil(t, "a has read its own partitions", a.IsAnnounced)
		}

		if got := w.Table().Revision; got != 1 {
			t.Errorf("table after the restarts: got %d, want 1", got)
		}
	})
}

// TestAnotherNodeTakesTheLease stops the controller. Another node takes the lease after
// ExpireAfter.
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
			t.Errorf("time until the lease of the stopped controller was taken: got %v, want about %v", after, DefaultExpireAfter)
		}
		second := w.findController(all...)
		if second == nil {
			t.Fatal("controller: got none, want another node")
		}
		names := slices.DeleteFunc([]string{"a", "b", "c"}, func(name string) bool { return name == first.self.Name })
		w.waitUntilPlaced(t, names...)
	})
}

// TestFormerControllerWritesNothing cuts off the controller until another node has the lease. The
// former controller does not renew the lease and does not write the table, although it has not seen
// that yet.
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

		// The table changes while the old controller is cut off.
		start(t, ns, newNode("c", ""))
		w.waitUntil(t, "c has partitions", func() bool { return slices.Contains(w.nodesWithPartitions(), "c") })
		newTable := w.Table()
		old.setCut(false)
		for old.nc.Status().String() != "CONNECTED" {
			advance(time.Second)
		}
		old.Cluster.mu.Lock()
		old.bucketState.tableStored = false // so that a new table seems to be due
		old.Cluster.mu.Unlock()
		if leads, err := old.renewLease(t.Context()); leads || err != nil {
			t.Errorf("lease of the old controller: got %v and error %v, want false", leads, err)
		}
		if err := old.writeTable(t.Context()); err != nil {
			t.Error(err)
		}
		advance(DefaultRenewEvery)
		if got := w.Table(); got.Revision != newTable.Revision || !equalNodes(&got, &newTable) {
			t.Errorf("table: got %d, want still %d", got.Revision, newTable.Revision)
		}
	})
}

// TestUnreachableBucketChangesNothing cuts off one process, and then all of them. They keep the
// members and the table that they knew, log each outage once, and learn afterwards what has changed
// meanwhile.
func TestUnreachableBucketChangesNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		w, quiet := start(t, ns, nil), start(t, ns, nil)
		a, b := start(t, ns, newNode("a", "")), start(t, ns, newNode("b", ""))
		w.waitUntilPlaced(t, "a", "b")
		changed := w.Changed()
		w.setCut(true)
		advance(5 * time.Minute)
		if got := w.memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("members for the process that is cut off: got %v, want a and b", got)
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
			t.Errorf("after the outage: got a change to members %v and table %d, want none", w.memberNames(), w.Table().Revision)
		default:
		}

		if got := w.member(t, "a").LastSeen; time.Since(got) > 2*DefaultRenewEvery {
			t.Errorf("last renewal of a: got %v ago, want at most %v", time.Since(got), 2*DefaultRenewEvery)
		}

		// A process that was cut off learns afterwards what has changed meanwhile.
		w.setCut(true)
		b.stop()
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
			lines := p.log.String()
			begins, ends := strings.Count(lines, "the bucket cannot be"), strings.Count(lines, "in reach again")
			if begins != outages || ends != outages {
				t.Errorf("logged outages: got %d that began and %d that ended, want %d:\n%s", begins, ends, outages, lines)
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
			t.Errorf("Open while the server is out of reach for a moment: got error %v, want none", err)
		}
		w.setCut(true)
		if _, err := Open(t.Context(), Options{JS: w.js, LogID: testLog}); err == nil {
			t.Error("Open without a server: got no error, want one")
		}
	})
}

// TestLostAnswersAreFoundByTheWatch writes the keys of a node again, as if its own writes had
// succeeded without an answer. The node learns of them from the watch and keeps renewing.
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
		if m := w.member(t, "a"); time.Since(m.LastSeen) > DefaultRenewEvery {
			t.Errorf("last renewal of a: got %v ago, want at most %v", time.Since(m.LastSeen), DefaultRenewEvery)
		}
	})
}

// TestDeletedBucketIsRestored deletes the bucket. The nodes create it again with the same members
// and the same table, which gets the next revision.
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
			t.Errorf("after the bucket was restored: got members %v and table %d of %v, want a and b and the nodes of the first table",
				w.memberNames(), after.Revision, w.nodesWithPartitions())
		}
		if got := openProcess(t, ns, nil); !slices.Equal(got.memberNames(), []string{"a", "b"}) || got.Table().Revision != before.Revision+1 {
			t.Errorf("restored bucket for a new process: got members %v and table %d, want a and b and table %d",
				got.memberNames(), got.Table().Revision, before.Revision+1)
		}

		// A deleted table is written again, too.
		if err := w.kv.Delete(t.Context(), tableKey); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(t, "a table again", func() bool { return w.Table().Revision == before.Revision+2 })
	})
}

// TestUnreadableKeysAreIgnored writes values that this version cannot read. Nodes still start, a
// controller still writes tables, and the keys are logged once and listed.
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
				// The nodes must have read the table, too: a bucket keeps one value of a key, and a
				// controller that has not read its first table begins to count revisions again.
				for _, p := range []*process{w, a, b} {
					p.waitUntilPlaced(t, "a", "b")
				}
				put(nodePrefix + "x")
				put(nodePrefix + "a") // the node is running and writes its key again
				before := w.Table().Revision
				put(tableKey) // the controller writes the table again
				w.waitUntil(t, "another table", func() bool { return w.Table().Revision > before })
				advance(time.Minute)
				if diff := cmp.Diff([]string{drainPrefix + "x", nodePrefix + "x"}, w.UnreadableKeys()); diff != "" {
					t.Errorf("unreadable keys (-want +got):\n%s", diff)
				}
				for _, p := range []*process{w, a, b} {
					if !slices.Equal(p.memberNames(), []string{"a", "b"}) || !slices.Equal(p.nodesWithPartitions(), []string{"a", "b"}) {
						t.Errorf("process: got members %v and table of %v, want a and b in both", p.memberNames(), p.nodesWithPartitions())
					}
					p.stop()
					if err := p.waitUntilEnded(t); err != nil {
						t.Error(err)
					}
				}

				if got := strings.Count(w.log.String(), "key=node.x "); got != 1 {
					t.Errorf("log lines about node.x: got %d, want 1:\n%s", got, w.log)
				}
			})
		})
	}
}

// TestOpenRejectsInvalidOptions opens clusters with options that cannot work.
func TestOpenRejectsInvalidOptions(t *testing.T) {
	for _, o := range []Options{
		{},
		{LogID: "a.b"},
		{LogID: "x", Copies: -1},
		{LogID: "x", BucketReplicas: -1},
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
			t.Errorf("Open with %+v: got no error, want one", o)
		}
	}
}

// TestClusterWorksWithBucketOnDisk runs nodes with short periods by the clock of the machine, in
// the bucket on disk that they create.
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
		t.Errorf("bucket: got %+v, want one value per key, on disk, without expiry", got)
	}
	w.waitUntilPlaced(t, "a", "b", "c")
	all[3].stop()
	w.waitUntilPlaced(t, "a", "b")
}
