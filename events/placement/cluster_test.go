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
		observer := startProcess(t, ns, nil)
		if got := observer.Table().Revision; got != 0 {
			t.Errorf("table of an empty bucket: got revision %d, want 0", got)
		}
		if got := observer.memberNames(); len(got) != 0 {
			t.Errorf("members in an empty bucket: got %v, want none", got)
		}

		var nodes []*process
		for _, name := range []string{"b", "a", "c"} {
			nodes = append(nodes, startProcess(t, ns, newNode(name, "zone-"+name)))
			advance(DefaultRenewEvery)
		}

		observer.waitUntilMembers(t, "a", "b", "c")
		observer.waitUntilPlaced(t, "a", "b", "c")
		advance(time.Minute)

		// Every process has the table that Place makes, also one that opens the bucket only now.
		want := Place(observer.Members(), DefaultCopies)
		want.Revision = 1
		for _, p := range append(nodes, observer, openProcess(t, ns, nil)) {
			if got := p.memberNames(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("members for a process: got %v, want a, b and c", got)
			}
			if diff := cmp.Diff(want, p.Table()); diff != "" {
				t.Errorf("table for a process (-want +got):\n%s", diff)
			}
		}

		member := observer.member(t, "a")
		if age := time.Since(member.LastSeen); age > DefaultRenewEvery {
			t.Errorf("last renewal of a: got %v ago, want at most %v", age, DefaultRenewEvery)
		}
		if member.Addr != "a:7411" || member.Zone != "zone-a" || member.Weight != 1 {
			t.Errorf("member a: got %+v, want address a:7411, zone zone-a and weight 1", member)
		}
	})
}

// equalNodes reports whether two tables assign the same nodes to all partitions.
func equalNodes(a, b *Table) bool {
	return slices.EqualFunc(a.Nodes[:], b.Nodes[:], slices.Equal)
}

// TestAnnouncementSpreadsPartitionsAtOnce checks that other processes learn at once of the partitions
// that a node serves. They learn of a new position with the next renewal, without a change.
func TestAnnouncementSpreadsPartitionsAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		a := startProcess(t, ns, newNode("a", ""))
		observer.waitUntilMembers(t, "a")
		observer.waitUntilPlaced(t, "a")

		advance(DefaultRenewEvery / 4)
		var serves events.Partitions
		serves.Add(7)
		announced := time.Now()
		a.Announce(Announcement{Serves: serves, Position: "one"})
		observer.waitUntil(t, "a serves it", func() bool { return observer.member(t, "a").Serves == serves })
		if took := time.Since(announced); took >= DefaultRenewEvery/4 {
			t.Errorf("time until the partitions of a were known: got %v, want less than %v", took, DefaultRenewEvery/4)
		}
		if got := observer.member(t, "a").Position; got != "one" {
			t.Errorf("position of a: got %q, want one", got)
		}

		changed := observer.Changed()
		a.Announce(Announcement{Serves: serves, Position: "two"})
		advance(2 * DefaultRenewEvery)
		if got := observer.member(t, "a").Position; got != "two" {
			t.Errorf("position after a renewal: got %q, want two", got)
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
		observer := startProcess(t, ns, nil)
		a := startProcess(t, ns, newNode("a", ""))
		b := startProcess(t, ns, newNode("b", ""))
		c := startProcess(t, ns, newNode("c", ""))
		observer.waitUntilPlaced(t, "a", "b", "c")
		before := observer.Table()

		// After ExpireAfter the stopped node is silent, and the table is the same.
		stopped := time.Now()
		c.stop()
		observer.waitUntilMembers(t, "a", "b")
		if after := time.Since(stopped); after < DefaultExpireAfter-DefaultRenewEvery || after > DefaultExpireAfter+DefaultRenewEvery {
			t.Errorf("time until the silent node expired: got %v, want about %v", after, DefaultExpireAfter)
		}
		silent := observer.SilentNodes()
		if len(silent) != 1 || silent[0].Name != "c" || silent[0].Addr != "c:7411" {
			t.Fatalf("silent nodes: got %+v, want c with its address", silent)
		}
		if age := time.Since(silent[0].LastSeen); age < DefaultExpireAfter {
			t.Errorf("last renewal of c: got %v ago, want at least %v", age, DefaultExpireAfter)
		}
		if observer.Table().Revision != before.Revision {
			t.Errorf("table after the expiry: got %d, want still %d", observer.Table().Revision, before.Revision)
		}

		// After ReplaceAfter the node has no partitions, and is forgotten.
		observer.waitUntilPlaced(t, "a", "b")
		if after := time.Since(stopped); after < DefaultReplaceAfter || after > DefaultReplaceAfter+5*DefaultRenewEvery {
			t.Errorf("time until the silent node was replaced: got %v, want about %v", after, DefaultReplaceAfter)
		}
		if silent := observer.SilentNodes(); len(silent) != 0 {
			t.Errorf("silent nodes after the replacement: got %+v, want none", silent)
		}
		if got := openProcess(t, ns, nil).memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("members for a new process: got %v, want a and b", got)
		}

		// The node returns and gets the same partitions.
		startProcess(t, ns, newNode("c", ""))
		observer.waitUntilPlaced(t, "a", "b", "c")
		if after := observer.Table(); !equalNodes(&before, &after) || after.Revision != before.Revision+2 {
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
		observer := startProcess(t, ns, nil)
		startProcess(t, ns, newNode("a", ""))
		b := startProcess(t, ns, newNode("b", ""))
		observer.waitUntilPlaced(t, "a", "b")
		first := observer.Table()

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
		observer.waitUntilPlaced(t, "a")
		if !observer.member(t, "b").Draining || observer.member(t, "a").Draining {
			t.Errorf("members: got %+v, want only b draining", observer.Members())
		}

		// The node still drains after a restart.
		b.stop()
		startProcess(t, ns, newNode("b", ""))
		advance(time.Minute)
		if got := observer.nodesWithPartitions(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("nodes with partitions after a restart: got %v, want a", got)
		}
		if !observer.member(t, "b").Draining {
			t.Errorf("member b after a restart: got %+v, want it draining", observer.member(t, "b"))
		}

		// If all nodes drain, the table stays as it is.
		if err := command.SetDraining(t.Context(), "a", true); err != nil {
			t.Fatal(err)
		}
		observer.waitUntil(t, "a drains", func() bool { return observer.member(t, "a").Draining })
		advance(time.Minute)
		if got := observer.nodesWithPartitions(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("nodes with partitions when all drain: got %v, want a", got)
		}

		// The drains are undone.
		for _, name := range []string{"a", "b"} {
			if err := command.SetDraining(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
		}

		observer.waitUntilPlaced(t, "a", "b")
		if last := observer.Table(); !equalNodes(&first, &last) {
			t.Errorf("table after the drains: got nodes %v, want those of the first table", observer.nodesWithPartitions())
		}
	})
}

// TestNewerProcessTakesTheName runs two processes with the same name. The older one ends with
// ErrNameTakenOver, and the newer one keeps the node.
func TestNewerProcessTakesTheName(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		startProcess(t, ns, newNode("b", ""))
		older := startProcess(t, ns, newNode("a", ""))
		observer.waitUntilPlaced(t, "a", "b")

		replacement := newNode("a", "")
		replacement.Addr = "elsewhere:1"
		newer := startProcess(t, ns, replacement)
		err := older.waitUntilEnded(t)
		if !errors.Is(err, ErrNameTakenOver) || !strings.Contains(err.Error(), replacement.Addr) {
			t.Errorf("older process: got error %v, want %v with %q", err, ErrNameTakenOver, replacement.Addr)
		}

		advance(2 * DefaultReplaceAfter)
		if got := observer.member(t, "a").Addr; got != replacement.Addr {
			t.Errorf("address of node a: got %s, want %s", got, replacement.Addr)
		}
		if got := observer.Table().Revision; got != 1 {
			t.Errorf("table: got revision %d, want 1", got)
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
		a := startProcess(t, ns, newNode("a", ""))
		a.waitUntilPlaced(t, "a")
		put := func(addr string) {
			value, err := encodeValue(memberValue{
				V: formatVersion, Instance: "another", Member: Member{Name: "b", Addr: addr, Weight: 1},
			})
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

		errs := map[string]error{
			"write":  a.writeKey(t.Context(), snapshot, []byte("{}")),
			"delete": a.deleteKey(t.Context(), snapshot),
		}
		for operation, err := range errs {
			if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
				t.Errorf("%s with an outdated snapshot: got error %v, want %v", operation, err, jetstream.ErrKeyRevisionMismatch)
			}
		}
	})
}

// TestRestartedNodeReturnsWithoutChange restarts a node several times. The node is back within a
// renewal, and neither the members nor the table change meanwhile.
func TestRestartedNodeReturnsWithoutChange(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		startProcess(t, ns, newNode("b", ""))
		a := startProcess(t, ns, newNode("a", ""))
		observer.waitUntilPlaced(t, "a", "b")
		for range 3 {
			a.stop()
			if err := a.waitUntilEnded(t); err != nil {
				t.Errorf("end of the node: got error %v, want none", err)
			}

			changed := observer.Changed()
			advance(DefaultExpireAfter / 2)
			began := time.Now()

			// Until the new process has written its key, nothing that it serves counts as announced.
			serves := observer.member(t, "a").Serves
			a = openProcess(t, ns, newNode("a", ""))
			a.Announce(Announcement{Serves: serves})
			if a.IsAnnounced() {
				t.Error("partitions that the node served before its restart: got announced, want not yet")
			}

			// It also serves two more partitions, which depend on the clock of the bubble.
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
			observer.waitUntil(t, "a serves it", func() bool { return observer.member(t, "a").Serves == serves })
			if took := time.Since(began); took > DefaultRenewEvery {
				t.Errorf("time until the node was back: got %v, want at most %v", took, DefaultRenewEvery)
			}
			a.waitUntil(t, "a has read its own partitions", a.IsAnnounced)
		}

		if got := observer.Table().Revision; got != 1 {
			t.Errorf("table after the restarts: got %d, want 1", got)
		}
	})
}

// TestAnotherNodeTakesTheLease stops the controller. Another node takes the lease after
// ExpireAfter.
func TestAnotherNodeTakesTheLease(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, startProcess(t, ns, newNode(name, "")))
		}
		observer.waitUntilPlaced(t, "a", "b", "c")

		first := observer.findController(all...)
		first.stop()
		stopped := time.Now()
		for observer.findController(all...) == first {
			advance(DefaultRenewEvery)
		}
		after := time.Since(stopped)
		if after < DefaultExpireAfter-DefaultRenewEvery || after > DefaultExpireAfter+2*DefaultRenewEvery {
			t.Errorf("time until the lease of the stopped controller was taken: got %v, want about %v", after, DefaultExpireAfter)
		}

		second := observer.findController(all...)
		if second == nil {
			t.Fatal("controller: got none, want another node")
		}
		names := slices.DeleteFunc([]string{"a", "b", "c"}, func(name string) bool { return name == first.self.Name })
		observer.waitUntilPlaced(t, names...)
	})
}

// TestFormerControllerWritesNothing cuts off the controller until another node has the lease. The
// former controller does not renew the lease and does not write the table, although it has not seen
// that yet.
func TestFormerControllerWritesNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		a := startProcess(t, ns, newNode("a", ""))
		b := startProcess(t, ns, newNode("b", ""))
		observer.waitUntilPlaced(t, "a", "b")

		old := observer.findController(a, b)
		old.setCut(true)
		for observer.findController(a, b) == old {
			advance(DefaultRenewEvery)
		}
		old.stop()

		// The table changes while the old controller is cut off.
		startProcess(t, ns, newNode("c", ""))
		observer.waitUntil(t, "c has partitions", func() bool { return slices.Contains(observer.nodesWithPartitions(), "c") })
		newTable := observer.Table()
		old.setCut(false)
		for old.nc.Status().String() != "CONNECTED" {
			advance(time.Second)
		}

		// The old controller must learn from its attempts that another node has the lease.
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
		if got := observer.Table(); got.Revision != newTable.Revision || !equalNodes(&got, &newTable) {
			t.Errorf("table: got %d, want still %d", got.Revision, newTable.Revision)
		}
	})
}

// TestUnreachableBucketChangesNothing cuts off one process, and then all of them. They keep the
// members and the table that they knew, log each outage once, and learn afterwards what has changed
// meanwhile.
func TestUnreachableBucketChangesNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		quiet := startProcess(t, ns, nil)
		a := startProcess(t, ns, newNode("a", ""))
		b := startProcess(t, ns, newNode("b", ""))
		observer.waitUntilPlaced(t, "a", "b")

		// One process is cut off, and then all of them.
		changed := observer.Changed()
		observer.setCut(true)
		advance(5 * time.Minute)
		if got := observer.memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("members for the process that is cut off: got %v, want a and b", got)
		}
		for _, p := range []*process{a, b, quiet} {
			p.setCut(true)
		}
		advance(5 * time.Minute)
		for _, p := range []*process{observer, a, b, quiet} {
			p.setCut(false)
		}
		advance(5 * time.Minute)
		select {
		case <-changed:
			t.Errorf("after the outage: got a change to members %v and table %d, want none", observer.memberNames(), observer.Table().Revision)
		default:
		}

		if got := observer.member(t, "a").LastSeen; time.Since(got) > 2*DefaultRenewEvery {
			t.Errorf("last renewal of a: got %v ago, want at most %v", time.Since(got), 2*DefaultRenewEvery)
		}

		// A process that was cut off learns afterwards what has changed meanwhile.
		observer.setCut(true)
		b.stop()
		quiet.waitUntilMembers(t, "a")
		advance(time.Minute)
		observer.setCut(false)
		observer.waitUntilMembers(t, "a")
		observer.waitUntilPlaced(t, "a")
		advance(DefaultRenewEvery)

		// Each outage was logged once.
		for _, p := range []*process{observer, a, quiet} {
			p.stop()
		}
		for p, outages := range map[*process]int{observer: 2, a: 1, quiet: 1} {
			lines := p.log.String()
			begins, ends := strings.Count(lines, "the bucket cannot be"), strings.Count(lines, "in reach again")
			if begins != outages || ends != outages {
				t.Errorf("logged outages: got %d that began and %d that ended, want %d:\n%s", begins, ends, outages, lines)
			}
		}

		// Open waits for a short outage to end, and fails after a long one.
		observer.setCut(true)
		opened := make(chan error, 1)
		go func() {
			_, err := Open(t.Context(), Options{JS: observer.js, LogID: testLog})
			opened <- err
		}()

		advance(openTimeout / 2)
		observer.setCut(false)
		if err := <-opened; err != nil {
			t.Errorf("Open while the server is out of reach for a moment: got error %v, want none", err)
		}
		observer.setCut(true)
		if _, err := Open(t.Context(), Options{JS: observer.js, LogID: testLog}); err == nil {
			t.Error("Open without a server: got no error, want one")
		}
	})
}

// TestLostAnswersAreFoundByTheWatch writes the keys of a node again, as if its own writes had
// succeeded without an answer. The node learns of them from the watch and keeps renewing.
func TestLostAnswersAreFoundByTheWatch(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		a := startProcess(t, ns, newNode("a", ""))
		observer.waitUntilPlaced(t, "a")
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
		if m := observer.member(t, "a"); time.Since(m.LastSeen) > DefaultRenewEvery {
			t.Errorf("last renewal of a: got %v ago, want at most %v", time.Since(m.LastSeen), DefaultRenewEvery)
		}
	})
}

// TestDeletedBucketIsRestored deletes the bucket. The nodes create it again with the same members
// and the same table, which gets the next revision.
func TestDeletedBucketIsRestored(t *testing.T) {
	runInBubble(t, func(t *testing.T, ns *server.Server) {
		observer := startProcess(t, ns, nil)
		for _, p := range []*process{startProcess(t, ns, newNode("a", "")), startProcess(t, ns, newNode("b", "")), observer} {
			p.waitUntilPlaced(t, "a", "b")
		}

		before := observer.Table()
		if err := observer.js.DeleteKeyValue(t.Context(), observer.bucketName()); err != nil {
			t.Fatal(err)
		}

		observer.waitUntil(t, "another table", func() bool { return observer.Table().Revision > before.Revision })
		advance(2 * DefaultRenewEvery) // each node has written its key
		if diff := cmp.Diff(before.Nodes, observer.Table().Nodes); diff != "" {
			t.Errorf("nodes of the restored table (-want +got):\n%s", diff)
		}
		if got := observer.memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("members after the bucket was restored: got %v, want a and b", got)
		}

		newProcess := openProcess(t, ns, nil)
		if got := newProcess.memberNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("members for a new process: got %v, want a and b", got)
		}
		if got, want := newProcess.Table().Revision, before.Revision+1; got != want {
			t.Errorf("table for a new process: got revision %d, want %d", got, want)
		}

		// A deleted table is written again, too.
		if err := observer.kv.Delete(t.Context(), tableKey); err != nil {
			t.Fatal(err)
		}
		observer.waitUntil(t, "a table again", func() bool { return observer.Table().Revision == before.Revision+2 })
	})
}

// TestUnreadableKeysAreIgnored writes values that this version cannot read. Nodes still start, a
// controller still writes tables, and the keys are logged once and listed.
func TestUnreadableKeysAreIgnored(t *testing.T) {
	for _, value := range []string{"?", `{"v":2}`} {
		t.Run(value, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, ns *server.Server) {
				observer := startProcess(t, ns, nil)
				put := func(key string) {
					t.Helper()
					observer.Cluster.mu.Lock()
					kv := observer.kv // the watch may replace it
					observer.Cluster.mu.Unlock()
					if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
						t.Fatal(err)
					}
				}

				for _, key := range []string{nodePrefix + "x", drainPrefix + "x", leaseKey, tableKey, nodePrefix + "a"} {
					put(key)
				}
				a := startProcess(t, ns, newNode("a", ""))
				b := startProcess(t, ns, newNode("b", ""))

				// The nodes must have read the table, too: a bucket keeps one value of a key, and a
				// controller that has not read its first table begins to count revisions again.
				for _, p := range []*process{observer, a, b} {
					p.waitUntilPlaced(t, "a", "b")
				}

				// The running node writes its key again, and the controller writes the table again.
				put(nodePrefix + "x")
				put(nodePrefix + "a")
				before := observer.Table().Revision
				put(tableKey)
				observer.waitUntil(t, "another table", func() bool { return observer.Table().Revision > before })
				advance(time.Minute)
				if diff := cmp.Diff([]string{drainPrefix + "x", nodePrefix + "x"}, observer.UnreadableKeys()); diff != "" {
					t.Errorf("unreadable keys (-want +got):\n%s", diff)
				}

				for _, p := range []*process{observer, a, b} {
					if got := p.memberNames(); !slices.Equal(got, []string{"a", "b"}) {
						t.Errorf("members for a process: got %v, want a and b", got)
					}
					if got := p.nodesWithPartitions(); !slices.Equal(got, []string{"a", "b"}) {
						t.Errorf("nodes in the table of a process: got %v, want a and b", got)
					}
					p.stop()
					if err := p.waitUntilEnded(t); err != nil {
						t.Error(err)
					}
				}

				if got := strings.Count(observer.log.String(), "key=node.x "); got != 1 {
					t.Errorf("log lines about node.x: got %d, want 1:\n%s", got, observer.log)
				}
			})
		})
	}
}

// TestOpenRejectsInvalidOptions opens clusters with options that cannot work.
func TestOpenRejectsInvalidOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no log":                        {},
		"log id with a dot":             {LogID: "a.b"},
		"negative number of copies":     {LogID: "x", Copies: -1},
		"negative number of replicas":   {LogID: "x", BucketReplicas: -1},
		"negative renewal period":       {LogID: "x", RenewEvery: -1},
		"expiry within three renewals":  {LogID: "x", RenewEvery: 10 * time.Second},
		"replacement before the expiry": {LogID: "x", ReplaceAfter: time.Second},
		"node without a name":           {LogID: "x", Self: &Member{Addr: "a:1"}},
		"node with a long name":         {LogID: "x", Self: &Member{Name: strings.Repeat("a", 65), Addr: "a:1"}},
		"node with a slash in its name": {LogID: "x", Self: &Member{Name: "a/b", Addr: "a:1"}},
		"address without a port":        {LogID: "x", Self: &Member{Name: "a", Addr: "a"}},
		"negative weight":               {LogID: "x", Self: &Member{Name: "a", Addr: "a:1", Weight: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(t.Context(), o); err == nil {
				t.Errorf("Open with %+v: got no error, want one", o)
			}
		})
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

	observer := all[0]
	info, err := observer.js.Stream(ctx, "KV_skein-cluster-"+testLog)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.CachedInfo().Config; got.Storage != jetstream.FileStorage || got.MaxMsgsPerSubject != 1 || got.MaxAge != 0 {
		t.Errorf("bucket: got %+v, want one value per key, on disk, without expiry", got)
	}
	observer.waitUntilPlaced(t, "a", "b", "c")
	all[3].stop()
	observer.waitUntilPlaced(t, "a", "b")
}
