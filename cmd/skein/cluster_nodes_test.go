package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	"github.com/skein-feed/skein/gateway/gatewaytest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// nodeCluster is a cluster of nodes over one log, with a reference process that has all rows. The
// test compares the answers of the nodes with the answers of the reference.
type nodeCluster struct {
	t         *testing.T
	nats      *natsCluster
	reference *serverProcess
	http      *http.Client
	// program is the program of the nodes; empty means the program under test.
	program string
	// flags are passed to every node that is added, besides the flags that every node needs.
	flags []string
	// ca signs the certificates that nodes show to each other; nil means that they show none.
	ca *accesstest.Authority
	// members are the members of the cluster, as a process sees them that is no member itself.
	members *placement.Cluster

	// publishing is locked while a call of Publish is under way.
	publishing sync.Mutex

	mu sync.Mutex
	// inService are the nodes that clients call.
	inService map[string]*callableNode
	// answered counts the questions that were answered correctly.
	answered atomic.Int64
	// stopAsking is closed when the load should end.
	stopAsking chan struct{}
}

// callableNode is a node that clients call. Its calls end when cancelCalls is called.
type callableNode struct {
	*serverProcess
	calls       context.Context
	cancelCalls context.CancelFunc
}

// TestReadsSucceedWhileNodesFail demands that no read fails, and that each is answered as by a
// process that has all rows, while nodes are killed, stand still, join and leave, and while the
// NATS servers are restarted.
func TestReadsSucceedWhileNodesFail(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	c := startNodes(ctx, t, "")

	disruptions := []disruption{
		{"a node is killed", c.killNode},
		{"a node is paused", c.pauseNode},
		{"a node joins", c.joinNode},
		{"a node leaves", c.removeNode},
		{"the NATS servers restart", c.restartNATSServers},
		{"all nodes restart", func(ctx context.Context) error { return c.restartNodes(ctx, "") }},
	}
	if testing.Short() {
		disruptions = disruptions[:2]
	}

	// After a failure, the cluster is not what the next disruption expects.
	c.runUnderLoad(ctx, func(ctx context.Context) {
		for _, d := range disruptions {
			if !c.disrupt(ctx, d) {
				break
			}
		}
	})
}

// joinNode adds a node, which must copy all rows of at least one store from other nodes.
func (c *nodeCluster) joinNode(ctx context.Context) error {
	// At this level a node logs how each store got its partitions.
	c.flags = []string{"--log-level", "debug"}
	if err := c.addNode(ctx, "n3"); err != nil {
		return err
	}

	reportPattern := regexp.MustCompile(`(\d+) partitions in place of 0, (\d+) of them copied`)
	return eventually(ctx, func(context.Context) error {
		text, err := c.inService["n3"].readLogFile()
		if err != nil {
			return err
		}

		reports := reportPattern.FindAllStringSubmatch(text, -1)
		for _, report := range reports {
			received, copied := report[1], report[2]
			if received == copied && received != "0" {
				return nil
			}
		}
		return fmt.Errorf("the node logs %q, want that all partitions of one store were copied", reports)
	})
}

// disruption is something that happens to the nodes while they are called.
type disruption struct {
	name string
	run  func(context.Context) error
}

// disrupt runs a disruption, and checks that the cluster recovers and that questions are answered
// afterwards. It reports whether that is so.
func (c *nodeCluster) disrupt(ctx context.Context, d disruption) bool {
	began := time.Now()
	err := d.run(ctx)
	if err == nil {
		err = c.waitUntilHealed(ctx)
	}
	if err == nil {
		err = c.waitForQuestions(ctx, 100)
	}
	if err != nil {
		c.t.Errorf("%s: got %v, want that the cluster recovers", d.name, err)
		return false
	}

	c.t.Logf("%s: the cluster recovered after %v", d.name, time.Since(began))
	return true
}

// runUnderLoad calls disrupt while questions are asked, and lets every node verify its stores at
// the end. The context of disrupt ends when a question is answered incorrectly.
func (c *nodeCluster) runUnderLoad(ctx context.Context, disrupt func(context.Context)) {
	t := c.t
	loadCtx, cancelLoad := context.WithCancel(ctx)
	t.Cleanup(cancelLoad)
	loadEnded := make(chan error, 1)
	go func() {
		err := c.publishAndCompare(ctx)
		if err != nil {
			cancelLoad()
		}
		loadEnded <- err
	}()

	disrupt(loadCtx)
	close(c.stopAsking)
	if err := <-loadEnded; err != nil {
		t.Error(err)
	}
	t.Logf("%d questions were answered", c.answered.Load())

	for name, s := range c.inService {
		out, err := verifyWithRetry(ctx, func(ctx context.Context) (string, error) {
			out, err := exec.CommandContext(ctx, "skein", "replay", "verify", "--server", s.addr).CombinedOutput()
			return string(out), err
		})
		if err != nil {
			t.Errorf("verification of %s: got %v, want no error: %s", name, err, out)
		}
	}
}

// verifyWithRetry verifies the stores of a node, up to three times if the node drops partitions
// meanwhile. A node does so some time after a partition has moved to another node.
func verifyWithRetry(ctx context.Context, verify func(context.Context) (string, error)) (out string, err error) {
	for range 3 {
		out, err = verify(ctx)
		wasInterrupted := err != nil && strings.Contains(fmt.Sprint(out, err), "start it again")
		if !wasInterrupted {
			break
		}
	}
	return out, err
}

// startNodes starts a cluster of three nodes, and waits until two nodes serve each partition. An
// empty program means the program under test. Programs of other versions show no certificates.
func startNodes(ctx context.Context, t *testing.T, program string, flags ...string) *nodeCluster {
	t.Helper()
	c := &nodeCluster{
		t:          t,
		program:    program,
		flags:      flags,
		nats:       startNATSCluster(t),
		http:       &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		inService:  map[string]*callableNode{},
		stopAsking: make(chan struct{}),
	}
	t.Cleanup(c.http.CloseIdleConnections)
	if program == "" {
		c.ca = accesstest.NewAuthority(t)
	}

	c.reference = &serverProcess{t: t, dir: t.TempDir(), flags: []string{"--nats", c.nats.urls()}}
	t.Cleanup(c.reference.kill)
	if err := c.reference.start(ctx); err != nil {
		t.Fatal(err)
	}

	for i := range 3 {
		if err := c.addNode(ctx, fmt.Sprint("n", i)); err != nil {
			t.Fatal(err)
		}
	}

	// The first node has made the bucket of the members.
	var err error
	c.members, err = watchMembers(ctx, t, c.nats.js)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.waitUntilHealed(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// findClusterLogID returns the id of the log whose cluster has a bucket on the NATS servers.
func findClusterLogID(ctx context.Context, js jetstream.JetStream) (id string, err error) {
	buckets := js.KeyValueStoreNames(ctx)
	for name := range buckets.Name() {
		if suffix, ok := strings.CutPrefix(name, placement.BucketName("")); ok {
			id = suffix
		}
	}

	if err := buckets.Error(); err != nil {
		return "", err
	}
	if id == "" {
		return "", errors.New("no node has made a bucket")
	}
	return id, nil
}

// watchMembers watches the members of a cluster, as a process does that is no member, until the
// test ends.
func watchMembers(ctx context.Context, t *testing.T, js jetstream.JetStream) (*placement.Cluster, error) {
	t.Helper()
	id, err := findClusterLogID(ctx, js)
	if err != nil {
		return nil, err
	}
	members, err := placement.Open(ctx, placement.Options{JS: js, LogID: id})
	if err != nil {
		return nil, err
	}

	// The context of a test ends before its cleanups run, which may still need the members.
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- members.Run(runCtx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("watch of the members: got %v, want that it ends when it is canceled", err)
		}
	})
	return members, nil
}

// addNode starts another node. The node has the same address after each restart, because the other
// nodes call it there before they learn that it is back.
func (c *nodeCluster) addNode(ctx context.Context, name string) error {
	ports, err := findFreePorts(25000, 1)
	if err != nil {
		return err
	}

	// This is the least --replace-after, so that the others soon take over the partitions of a node
	// that fails.
	s := &serverProcess{t: c.t, dir: c.t.TempDir(), program: c.program, flags: []string{
		"--nats", c.nats.urls(), "--node", name, "--node-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]),
		"--replace-after", placement.DefaultExpireAfter.String(),
	}}
	s.flags = append(s.flags, c.flags...)
	if c.ca != nil {
		cert, key := c.ca.Node(c.t.TempDir())
		s.flags = append(s.flags, "--node-cert", cert, "--node-key", key, "--node-ca", c.ca.File)
	}

	c.t.Cleanup(func() {
		s.kill()
		if text, err := s.readLogFile(); c.t.Failed() {
			c.t.Logf("the log of %s (%v):\n%s", name, err, text)
		}
	})

	if err := s.start(ctx); err != nil {
		return err
	}
	c.putInService(name, s)
	return nil
}

// putInService lets clients call a node.
func (c *nodeCluster) putInService(name string, s *serverProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	c.inService[name] = &callableNode{s, calls, cancel}
}

// takeOutOfService lets clients call a node no longer, and returns the node.
func (c *nodeCluster) takeOutOfService(name string) *callableNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.inService[name]
	delete(c.inService, name)
	return s
}

// shuffledNodes returns the nodes that clients call, in a random order.
func (c *nodeCluster) shuffledNodes(rng *rand.Rand) (list []*callableNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.inService {
		list = append(list, s)
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// waitUntilHealed waits until the members are exactly the nodes that clients call, and two of them
// serve each partition.
func (c *nodeCluster) waitUntilHealed(ctx context.Context) error {
	return eventually(ctx, func(context.Context) error {
		var copies [events.NumPartitions]int
		members := c.members.Members()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range members {
			if c.inService[m.Name] == nil {
				return fmt.Errorf("%s is still a member", m.Name)
			}
			for p := range copies {
				if m.Serves.Has(uint8(p)) {
					copies[p]++
				}
			}
		}

		fewest := slices.Min(copies[:])
		if len(members) != len(c.inService) || fewest < 2 {
			return fmt.Errorf("got %d members and a partition with %d copies, want %d members and 2 copies", len(members), fewest, len(c.inService))
		}
		return nil
	})
}

// waitForQuestions waits until n more questions are answered.
func (c *nodeCluster) waitForQuestions(ctx context.Context, n int64) error {
	want := c.answered.Load() + n
	return eventually(ctx, func(context.Context) error {
		if got := c.answered.Load(); got < want {
			return fmt.Errorf("got %d answered questions, want %d", got, want)
		}
		return nil
	})
}

// killNode kills a node, and starts it again after some questions.
func (c *nodeCluster) killNode(ctx context.Context) error {
	s := c.takeOutOfService("n0")
	defer func() { c.putInService("n0", s.serverProcess) }()
	s.kill()
	if err := c.waitForQuestions(ctx, 200); err != nil {
		return err
	}
	return s.start(ctx)
}

// pauseNode stops the threads of a node during some questions.
func (c *nodeCluster) pauseNode(ctx context.Context) error {
	s := c.takeOutOfService("n1")
	defer func() { c.putInService("n1", s.serverProcess) }()

	// The node must not have a call of Publish, because a call goes on although its client has
	// given up: the node would append the events when it continues, while answers are compared.
	c.publishing.Lock()
	err := s.cmd.Process.Signal(syscall.SIGSTOP)
	c.publishing.Unlock()
	if err != nil {
		return err
	}
	s.cancelCalls() // otherwise these calls would wait until the node continues
	return errors.Join(c.waitForQuestions(ctx, 100), s.cmd.Process.Signal(syscall.SIGCONT))
}

// removeNode stops a node for good, so that the others take over its partitions.
func (c *nodeCluster) removeNode(context.Context) error {
	return c.takeOutOfService("n2").stopGracefully()
}

// restartNATSServers restarts the NATS servers one after the other, as an upgrade does.
func (c *nodeCluster) restartNATSServers(ctx context.Context) error {
	for i := range c.nats.servers {
		c.nats.stopServer(i)
		c.nats.startServer(i)
		if _, err := c.nats.waitUntilReplicated(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restartNodes restarts all nodes with a program, one after the other.
func (c *nodeCluster) restartNodes(ctx context.Context, program string) error {
	return c.restartNodesAfter(ctx, program, func(context.Context, *serverProcess) error { return nil })
}

// restartNodesAfter does the same, and calls before with each node while the node is still running.
func (c *nodeCluster) restartNodesAfter(ctx context.Context, program string, before func(context.Context, *serverProcess) error) error {
	for _, name := range slices.Sorted(maps.Keys(c.inService)) {
		if err := before(ctx, c.inService[name].serverProcess); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		s := c.takeOutOfService(name)
		if err := s.stopGracefully(); err != nil {
			return fmt.Errorf("%s ended with %w", name, err)
		}
		s.program = program
		if err := s.start(ctx); err != nil {
			return err
		}

		// The next node is stopped only when this one serves its partitions again.
		c.putInService(name, s.serverProcess)
		if err := c.waitUntilHealed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// publishAndCompare alternates between publishing events and asking questions about them, until
// stopAsking is closed. The log must not grow between two answers, or they could not be compared.
func (c *nodeCluster) publishAndCompare(ctx context.Context) error {
	for round := uint64(0); ; round++ {
		select {
		case <-c.stopAsking:
			return nil
		default:
		}

		rng := rand.New(rand.NewPCG(round, 0))
		position, err := c.publishEvents(ctx, rng)
		if err != nil {
			return err
		}

		var askers errgroup.Group
		for asker := range uint64(4) {
			askers.Go(func() error { //nolint:contextcheck // a question has the context of the node that is asked
				rng := rand.New(rand.NewPCG(round, asker+1))
				for range 5 {
					if err := c.compareAnswers(rng, gatewaytest.Question(rng, position)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := askers.Wait(); err != nil {
			return err
		}
	}
}

// publishEvents publishes some events. It repeats each call until a node takes the events, since no
// node can while the NATS servers elect a leader. It returns the position of the last event.
func (c *nodeCluster) publishEvents(ctx context.Context, rng *rand.Rand) (position string, err error) {
	for range 3 {
		evs := gatewaytest.Events(rng, 20)
		err := eventually(ctx, func(context.Context) error {
			c.publishing.Lock()
			defer c.publishing.Unlock()
			res, err := c.askAnyNode(rng, &skeinv1.PublishRequest{Events: evs})
			if err == nil {
				position = res.(*skeinv1.PublishResponse).GetPosition()
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("publish: %w", err)
		}
	}
	return position, nil
}

// compareAnswers puts a question to the reference process, and each of its pages to a random node,
// and compares the answers.
func (c *nodeCluster) compareAnswers(rng *rand.Rand, req proto.Message) error {
	want, err := gatewaytest.Pages(req, func(_ int, req proto.Message) (proto.Message, error) {
		for {
			res, err := c.askProcess(context.Background(), c.reference.addr, req)
			if !errors.Is(err, errBehind) {
				return res, err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("the reference process: %T %v: %w", req, req, err)
	}

	got, err := gatewaytest.Pages(req, func(_ int, req proto.Message) (proto.Message, error) {
		return c.askAnyNode(rng, req)
	})
	if err != nil {
		return fmt.Errorf("%T %v: %w", req, req, err)
	}

	if !slices.EqualFunc(got, want, proto.Equal) {
		return fmt.Errorf("%T %v:\n got %v\nwant %v", req, req, got, want)
	}
	c.answered.Add(1)
	return nil
}

var (
	// errNoAnswer is returned if the connection to a process broke or could not be made.
	errNoAnswer = errors.New("no answer")
	// errBehind is returned if a process has not reached the position that a read demands within
	// the time that a call waits. That happens while the NATS servers elect a leader (docs/faq.md,
	// Limits).
	errBehind = errors.New("not caught up")
)

// askAnyNode puts a request to random nodes until one of them answers. It goes on to the next node
// if the connection breaks or the node is behind.
func (c *nodeCluster) askAnyNode(rng *rand.Rand, req proto.Message) (proto.Message, error) {
	for {
		for _, node := range c.shuffledNodes(rng) {
			res, err := c.askProcess(node.calls, node.addr, req)
			if !errors.Is(err, errNoAnswer) && !errors.Is(err, errBehind) {
				return res, err
			}
		}
	}
}

// askProcess puts a request to the process at an address.
func (c *nodeCluster) askProcess(ctx context.Context, addr string, req proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()

	// Send the request as the Connect protocol says.
	method := gatewaytest.Method(req)
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("http://%s/%s/%s", addr, method.Parent().FullName(), method.Name())
	httpReq, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	httpReq.Header.Set("Content-Type", "application/proto")

	answer, err := c.http.Do(httpReq)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}

	if strings.Contains(string(body), notCaughtUp) {
		return nil, errBehind
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", addr, answer.Status, body)
	}

	messageType, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, err
	}
	res := messageType.New().Interface()
	return res, proto.Unmarshal(body, res)
}
