package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/gatewaytest"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// erasing is a cluster of two nodes, each of which holds some partitions alone, and a process that
// holds everything.
type erasing struct {
	nodes

	url     string
	archive string
	// target has the snapshots of all nodes.
	target string
	apis   map[string]*command.Client
	stops  map[string]func()
}

// start starts a node on a data directory.
func (e *erasing) start(name, dir string) {
	e.t.Helper()
	l, err := (&net.ListenConfig{}).Listen(e.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	api, stop := startApp(e.t, dir, slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log, o.Maintenance.Archive, o.Maintenance.Snapshots = eventlog.Config{URL: e.url}, e.bucket(e.archive), e.bucket(e.target)
		o.Node = &node.Config{Name: name, Addr: l.Addr().String(), Listener: l, Weight: 1, Copies: 1}
	})
	e.apis[name], e.stops[name] = api, stop
	e.running[name] = &door{&server{addr: addressOf(api)}, e.t.Context(), func() {}}
}

// bucket returns that of a directory.
func (e *erasing) bucket(dir string) bucket.Bucket {
	e.t.Helper()
	b, err := bucket.NewDir(dir)
	if err != nil {
		e.t.Fatal(err)
	}
	return b
}

func addressOf(api *command.Client) string { return strings.TrimPrefix(api.URL, "http://") }

func (e *erasing) stop(name string) {
	if stop := e.stops[name]; stop != nil {
		delete(e.stops, name)
		delete(e.running, name)
		stop()
	}
}

// served waits until each node serves what it should, and each has something.
func (e *erasing) served() {
	e.t.Helper()
	if err := eventually(e.t.Context(), func(ctx context.Context) error {
		for _, api := range []*command.Client{e.apis["a"], e.apis["b"]} {
			res, err := api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
			if err != nil {
				return err
			}
			of := res.Msg.GetCluster().GetNodes()
			if len(of) != 2 {
				return fmt.Errorf("%d nodes", len(of))
			}
			for _, n := range of {
				if n.GetServes() != n.GetGiven() || n.GetGiven() == 0 {
					return fmt.Errorf("%v", n)
				}
			}
		}
		return nil
	}); err != nil {
		e.t.Fatal(err)
	}
}

// erase erases a user at the node that archives.
func (e *erasing) erase(user string) (code int, out string) {
	code, text, trouble := skein("replay", "erase", user, "--yes", "--server", e.apis["a"].URL)
	return code, text + trouble
}

// snapshots has each node take a snapshot, and returns a copy of all that there are then, and of
// those of a node that is gone.
func (e *erasing) snapshots() (copied string) {
	e.t.Helper()
	for _, api := range e.apis {
		if code, out, said := skein("snapshot", "--name", "before", "--server", api.URL); code != exitOK {
			e.t.Fatal(code, out, said)
		}
	}
	copied = filepath.Join(e.t.TempDir(), "snapshots")
	err := errors.Join(os.CopyFS(filepath.Join(e.target, "nodes", "gone"), os.DirFS(filepath.Join(e.target, "nodes", "b"))),
		os.CopyFS(copied, os.DirFS(e.target)))
	if err != nil {
		e.t.Fatal(err)
	}
	return copied
}

// restore returns a data directory with the latest snapshot of node b.
func (e *erasing) restore(target string) (dir string) {
	e.t.Helper()
	dir = e.t.TempDir()
	if code, out, said := skein("restore", "--data", dir, "--target", filepath.Join(target, "nodes", "b")); code != exitOK {
		e.t.Fatal(code, out, said)
	}
	return dir
}

// same puts questions to the nodes, which must answer as the process that holds everything.
func (e *erasing) same(seed uint64, at string) {
	e.t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		if err := e.compare(rng, gatewaytest.Question(rng, at)); err != nil {
			e.t.Fatal(err)
		}
	}
}

// ofNode returns a user whose rows one of the nodes has alone.
func ofNode(name string) string {
	table := placement.Place([]placement.Member{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}, 1)
	for i := 0; ; i++ {
		user := fmt.Sprintf("somebody-to-be-erased-%d", i)
		if table.Nodes[events.ShardOf(user).Partition()][0] == name {
			return user
		}
	}
}

// TestErasureRemovesUserFromEveryNode demands that a user who is erased at one node is in no file
// of any node, of the archive and of the log. Nothing may be scrubbed while a node is away. A node
// that returns with old data, be it a copy or a snapshot, must be clean, too, and no snapshot may
// have the user.
func TestErasureRemovesUserFromEveryNode(t *testing.T) {
	t.Parallel()
	user := ofNode("b")
	ns := newNATS(t)
	a, b, archived := t.TempDir(), t.TempDir(), t.TempDir()
	e := &erasing{
		nodes: nodes{t: t, http: &http.Client{Transport: &http.Transport{}}, running: map[string]*door{}},
		url:   ns.ClientURL(), archive: archived, target: t.TempDir(), apis: map[string]*command.Client{}, stops: map[string]func(){},
	}
	t.Cleanup(e.http.CloseIdleConnections)
	e.start("a", a)
	defer func() { e.stop("a") }()
	if err := eventually(t.Context(), func(context.Context) error { // until it archives
		code, out := e.erase("nobody") //nolint:contextcheck // a command makes its own
		if code != exitFailed || !strings.Contains(out, "no event of the log names this user") {
			return errors.New(out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	whole, stop := startApp(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log, o.Maintenance.Archive = eventlog.Config{URL: e.url}, e.bucket(archived)
	})
	defer stop()
	e.whole = &server{addr: addressOf(whole)}
	e.start("b", b)
	defer func() { e.stop("b") }()
	e.served()
	rng := rand.New(rand.NewPCG(1, 1))
	evs := gatewaytest.Events(rng, 200)
	for i := range 30 {
		evs = append(evs, userFollowed(user, fmt.Sprint("u", i)), userFollowed(fmt.Sprint("u", i), user))
	}
	for i := range 60 {
		attributes := make([]byte, 250) // tables with them are not compressed, so the id can be found
		for i := range attributes {
			attributes[i] = byte(rng.Uint32())
		}
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: user, PinId: fmt.Sprint("p", i)}, BoardId: "b", ItemId: "i", Attributes: attributes,
		}}})
	}
	publish(t, whole, evs...)
	at := publish(t, whole, gatewaytest.Events(rng, 200)...)
	e.same(1, at)
	snapshots := e.snapshots()

	e.stop("b") // its stores are flushed
	before := filepath.Join(t.TempDir(), "before")
	if err := os.CopyFS(before, os.DirFS(b)); err != nil {
		t.Fatal(err)
	}
	if len(conformance.FilesWith(e.t, before, user)) == 0 {
		t.Fatal("the id is nowhere before")
	}
	code, out := e.erase(user)
	if code == exitOK || !strings.Contains(out, "b cannot be reached: start it, or wait until its partitions were given to others") {
		t.Errorf("with a node away: %d, %s", code, out)
	}
	e.start("b", b)
	e.served()
	if code, out := e.erase(user); code != exitOK || !strings.Contains(out, "node b: its stores were built anew") {
		t.Fatalf("%d, %s", code, out)
	}
	for _, name := range []string{"a", "b", "gone"} { // those that were taken by hand are removed by name
		if code, out, said := skein("snapshot", "prune", "before", "--target", filepath.Join(e.target, "nodes", name)); code != exitOK {
			t.Fatal(code, out, said)
		}
	}
	at = publish(t, whole, userFollowed("u1", "u2"))
	e.same(2, at)
	if code, out, said := skein("snapshot", "--name", "after", "--server", e.apis["b"].URL); code != exitOK {
		t.Fatal(code, out, said)
	}
	for _, dir := range []string{a, b, archived, e.target, ns.JetStreamConfig().StoreDir} {
		if found := conformance.FilesWith(e.t, dir, user); len(found) > 0 {
			t.Errorf("the id is still in %v", found)
		}
	}
	for i, dir := range []string{before, e.restore(snapshots), e.restore(e.target)} {
		e.stop("b")
		e.start("b", dir)
		e.served()
		e.same(uint64(3+i), at)
		for _, dir := range []string{dir, e.target} {
			if found := conformance.FilesWith(e.t, dir, user); len(found) > 0 {
				t.Errorf("%d: the id is still in %v", i, found)
			}
		}
	}
}
