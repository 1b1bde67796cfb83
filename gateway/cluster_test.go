package gateway

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	"github.com/skein-feed/skein/gateway/gatewaytest"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// cluster has several nodes over one log, and a process over the same log that holds everything.
type cluster struct {
	whole *world
	nodes []*world
	// alive are the nodes that the nodes consider alive.
	alive atomic.Pointer[[]Node]
	// stopPeers has, for each node, a function that stops its listener for other nodes.
	stopPeers []func()
}

// smallFeeds makes inboxes short, and makes feeds read the outbox of an owner who has more than one
// follower in a partition, so that feeds need the outboxes of other nodes.
func smallFeeds(o *worldOptions) {
	settings := inbox.DefaultSettings()
	settings.Keep = 20
	settings.Threshold = 1
	o.inbox = &settings
}

// newCluster starts so many nodes. Two of them hold each partition p: the nodes p and p+1, modulo
// the number of nodes.
func newCluster(t testing.TB, nodes int, options ...func(*worldOptions)) *cluster {
	t.Helper()
	options = append([]func(*worldOptions){withNotifications, withSeen, smallFeeds}, options...)
	c := &cluster{whole: newWorld(t, options...)}
	c.alive.Store(&[]Node{})
	for i := range nodes {
		held := &events.Partitions{}
		for p := range events.NumPartitions {
			if p%nodes == i || (p+1)%nodes == i {
				held.Add(uint8(p))
			}
		}

		name := fmt.Sprintf("node-%d", i)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n := c.whole.replica(append(slices.Clone(options), func(o *worldOptions) {
			o.partitions = held
			o.NodeName = name
			o.NodeAddr = l.Addr().String()
			o.Nodes = func() []Node {
				return slices.DeleteFunc(slices.Clone(*c.alive.Load()), func(n Node) bool { return n.Name == name })
			}
		})...)
		if got := n.server.Serves(); got != *held {
			t.Fatalf("%s serves %s, want %s", name, &got, held)
		}
		c.nodes = append(c.nodes, n)
		c.join(t, name, n, held, l)
	}
	return c
}

// join starts the listener of a node for other nodes, and adds the node to those that are alive.
func (c *cluster) join(t testing.TB, name string, n *world, held *events.Partitions, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.server.RunPeers(ctx, l) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("RunPeers of %s: %v", name, err)
		}
	})
	c.stopPeers = append(c.stopPeers, stop)
	t.Cleanup(stop)

	alive := append(slices.Clone(*c.alive.Load()), Node{Name: name, Addr: l.Addr().String(), Serves: *held})
	c.alive.Store(&alive)
}

// router starts a process that holds nothing, and asks the given nodes.
func (c *cluster) router(nodes func() []Node, options ...func(*worldOptions)) *world {
	return c.whole.replica(append(options, withNotifications, withSeen, func(o *worldOptions) {
		o.partitions = &events.Partitions{}
		o.Nodes = nodes
	})...)
}

// callMethod calls the method that takes a request of this type, and returns the answer.
func (w *world) callMethod(req proto.Message) (proto.Message, error) {
	m := gatewaytest.Method(req)
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	status, _, answer := w.post("/"+string(m.Parent().FullName())+"/"+string(m.Name()), "application/proto", bytes.NewReader(body))
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", status, answer)
	}
	messageType, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	res := messageType.New().Interface()
	return res, proto.Unmarshal(answer, res)
}

// readAllPages returns all pages of the answer to a request. The nodes answer in turn.
func readAllPages(req proto.Message, nodes ...*world) ([]proto.Message, error) {
	return gatewaytest.Pages(req, func(page int, req proto.Message) (proto.Message, error) {
		return nodes[page%len(nodes)].callMethod(req)
	})
}

// compareAnswers sends random requests to the nodes, which answer the pages in turn. It expects the
// answers of the process that holds everything. The requests are about users and items whose names
// begin with prefix.
func (c *cluster) compareAnswers(t fatalTester, rng *rand.Rand, prefix, at string, nodes []*world, requests int) {
	t.Helper()
	for range requests {
		req := gatewaytest.QuestionOf(rng, prefix, at)
		want, err := readAllPages(req, c.whole)
		if err != nil {
			t.Fatalf("%T %v: %v", req, req, err)
		}
		first := rng.IntN(len(nodes))
		got, err := readAllPages(req, slices.Concat(nodes[first:], nodes[:first])...)
		if err != nil {
			t.Fatalf("%T %v, beginning at node %d: %v", req, req, first, err)
		}
		if !slices.EqualFunc(got, want, proto.Equal) {
			t.Fatalf("%T %v, beginning at node %d:\n got %v\nwant %v", req, req, first, got, want)
		}
	}
}

// fatalTester is a test, or one history of a property.
type fatalTester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// TestClusterAnswersAsOneProcess checks that, whichever node gets a request, and whichever node
// gets the request for the next page, the answer is that of a process that holds everything. This
// is also true after a node is gone.
func TestClusterAnswersAsOneProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	rng := rand.New(rand.NewPCG(1, 2))
	var at string
	for range 4 {
		for range 8 {
			at = c.nodes[rng.IntN(len(c.nodes))].publish(gatewaytest.Events(rng, 50)...)
		}
		c.compareAnswers(t, rng, "", at, c.nodes, 300)
	}
	c.stopPeers[1]()
	c.compareAnswers(t, rng, "", at, []*world{c.nodes[0], c.nodes[2]}, 300)
}

// TestClusterAnswersGeneratedHistories checks that, about each of many short histories of follows
// and their settings, blocks, mutes, pins, edits, re-pins, reactions, plays and hidden items, a
// cluster of three nodes answers as the process that holds everything. The tests of the projections
// compare such answers with the model.
func TestClusterAnswersGeneratedHistories(t *testing.T) {
	c := newCluster(t, 3)
	histories := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		prefix := fmt.Sprintf("h%d-", histories)
		histories++
		at := c.nodes[rng.IntN(len(c.nodes))].publish(gatewaytest.EventsOf(rng, prefix, 60)...)
		c.compareAnswers(t, rng, prefix, at, c.nodes, 8)
	})
}

// TestClusterOfNoMoreNodesThanCopies checks a cluster in which each node holds everything, so that
// a node has no other node to ask.
func TestClusterOfNoMoreNodesThanCopies(t *testing.T) {
	c := newCluster(t, 2)
	rng := rand.New(rand.NewPCG(3, 4))
	at := c.nodes[0].publish(gatewaytest.Events(rng, 200)...)
	c.compareAnswers(t, rng, "", at, c.nodes, 200)
}

// TestNodesTrustOnlyTheirAuthority checks that nodes with certificates of one authority answer each
// other, and nobody else.
func TestNodesTrustOnlyTheirAuthority(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	stranger := accesstest.NewAuthority(t)
	withCertificate := func(signer, trusted *accesstest.Authority) func(*worldOptions) {
		return func(o *worldOptions) {
			cert, key := signer.Node(t.TempDir())
			var err error
			o.NodeCertificates, err = access.OpenCertificates(access.Files{Cert: cert, Key: key, ClientCA: trusted.File}, nil)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	c := newCluster(t, 3, withCertificate(authority, authority))
	rng := rand.New(rand.NewPCG(5, 6))
	at := c.nodes[0].publish(gatewaytest.Events(rng, 200)...)
	c.compareAnswers(t, rng, "", at, c.nodes, 100)

	alive := func() []Node { return *c.alive.Load() }
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	t.Run("router with a certificate", func(t *testing.T) {
		if _, err := c.router(alive, withCertificate(authority, authority)).callMethod(check); err != nil {
			t.Errorf("got %v, want an answer", err)
		}
	})
	for name, option := range map[string]func(*worldOptions){
		"router without a certificate":                      func(*worldOptions) {},
		"router with a certificate of a stranger":           withCertificate(stranger, authority),
		"router that does not trust the authority of nodes": withCertificate(authority, stranger),
	} {
		t.Run(name, func(t *testing.T) {
			const want = "no node that can be reached serves partition"
			res, err := c.router(alive, option).callMethod(check)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v with the error %v, want an error with %q", res, err, want)
			}
		})
	}
}

// TestEveryReadFindsItsNode checks that other nodes can call every method that reads rows.
func TestEveryReadFindsItsNode(t *testing.T) {
	c := newCluster(t, 1)
	s := c.nodes[0].server
	servicesThatRead := []string{"GraphService", "FeedService", "SeenService", "CounterService", "NotificationService"}
	for procedure := range s.methods {
		service, _, _ := strings.Cut(strings.TrimPrefix(procedure, "/skein.v1."), "/")
		if !slices.Contains(servicesThatRead, service) {
			continue
		}
		if procedure == connectv1.CounterServiceListReactionsProcedure {
			continue // the node that is asked collects the answer from all nodes
		}
		if _, ok := s.cluster.methods[procedure]; !ok {
			t.Errorf("other nodes cannot call %s: mount it with read or one of its variants (mount.go)", procedure)
		}
	}
}
