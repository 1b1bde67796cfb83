package gateway

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// BenchmarkForwarded compares calls to the node that holds what they are about, calls to the same
// node as other nodes make them, and calls to a router, which forwards them. Clients are as in
// [BenchmarkHTTP]. The metric cpu-ns/op is the processor time per call of client and servers
// together.
func BenchmarkForwarded(b *testing.B) {
	c := newCluster(b, 1)
	c.nodes[0].flushedAt(b, c.whole.benchFacts(b))
	router := c.router(func() []Node { return *c.alive.Load() })
	if router.server.holds("17") || !c.nodes[0].server.holds("17") {
		b.Fatalf("partition %d is at the wrong node", peers.PartitionOf("17"))
	}
	node := (*c.alive.Load())[0]

	for _, request := range benchRequests() {
		for _, route := range []struct {
			name, url string
			asNode    bool
		}{
			{"direct", c.nodes[0].url, false},
			{"as a node", "http://" + node.Addr, true},
			{"forwarded", router.url, false},
		} {
			b.Run(request.name+" "+route.name, func(b *testing.B) {
				body := marshal(b, request.req)
				authorization := ""
				if route.asNode {
					// The proof is valid for half a minute, which is longer than the benchmark
					// runs.
					proof, _ := router.server.cluster.Credentials().SignCall(&node, request.procedure, peers.HashBody(body), time.Now())
					authorization = "Authorization: " + proof + "\r\n"
				}
				rawRequest := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n%s",
					request.procedure, authorization, len(body), body)

				usedBefore := processorTime(b)
				b.SetParallelism(4)
				b.RunParallel(func(pb *testing.PB) {
					if err := sendRepeatedly(route.url, rawRequest, pb.Next); err != nil {
						b.Error(err)
					}
				})
				used := processorTime(b) - usedBefore
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkHungNode compares the second before one of three nodes hangs with the second after: the
// node then accepts calls and does not answer them. A router gets 500 checks per second whether or
// not earlier ones were answered, and asks that node first for a third of them. Durations are from
// when a call was due.
func BenchmarkHungNode(b *testing.B) {
	c := newCluster(b, 3)
	at := c.whole.benchFacts(b)
	for _, n := range c.nodes {
		n.flushedAt(b, at)
	}
	healthy := *c.alive.Load()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = hung.Close() })
	withHungNode := slices.Clone(healthy)
	withHungNode[1].Addr = hung.Addr().String()

	var before, after []time.Duration
	for b.Loop() {
		var alive atomic.Pointer[[]Node]
		alive.Store(&healthy)
		router := c.router(func() []Node { return *alive.Load() })

		// In the first two seconds, the router connects to nodes and learns how long answers take.
		measureChecks(b, router, 2)
		before = append(before, measureChecks(b, router, 1)...)
		alive.Store(&withHungNode)
		after = append(after, measureChecks(b, router, 1)...)
	}
	reportQuantiles(b, before, "-before")
	reportQuantiles(b, after, "-after")
}

// measureChecks makes 500 checks per second, and returns how long each took from when it was due.
func measureChecks(b *testing.B, router *world, seconds int) []time.Duration {
	b.Helper()
	const rate = 500
	began := time.Now()
	durations := make([]time.Duration, seconds*rate)
	var running sync.WaitGroup
	for i := range durations {
		due := began.Add(time.Duration(i) * time.Second / rate)
		if err := wait.For(b.Context(), time.Until(due)); err != nil {
			b.Fatal(err)
		}
		running.Go(func() {
			req := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair(strconv.Itoa(i), "1")}}
			if _, err := router.callMethod(req); err != nil {
				b.Error(err)
			}
			durations[i] = time.Since(due)
		})
	}
	running.Wait()
	return durations
}

// BenchmarkFeedOfNodes reads first pages of 20 entries, one after the other, of readers who follow
// 20 users each: from one process, and from the nodes of a cluster in turn. The metric cpu-ns/op is
// the processor time per page of client and servers together.
func BenchmarkFeedOfNodes(b *testing.B) {
	for _, nodes := range []int{3, 8} {
		// withFeeds restores the default settings of feeds, which newCluster makes small.
		c := newCluster(b, nodes, withFeeds)
		at := c.whole.benchFeeds(b)
		for _, servers := range []struct {
			name   string
			worlds []*world
		}{
			{"one process", []*world{c.whole}},
			{fmt.Sprint(nodes, " nodes"), c.nodes},
		} {
			b.Run(servers.name, func(b *testing.B) {
				var durations []time.Duration
				usedBefore := processorTime(b)
				for i := 0; b.Loop(); i++ {
					began := time.Now()
					res, err := servers.worlds[i%len(servers.worlds)].callMethod(&skeinv1.ReadFeedRequest{
						ReaderId: fmt.Sprint("reader", i%benchReaders), PageSize: 20, AtLeast: at,
					})
					if err != nil {
						b.Fatal(err)
					}
					if n := len(res.(*skeinv1.ReadFeedResponse).GetEntries()); n != 20 {
						b.Fatalf("got %d entries, want 20: %v", n, res)
					}
					durations = append(durations, time.Since(began))
				}
				used := processorTime(b) - usedBefore
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
				reportQuantiles(b, durations, "")
			})
		}
	}
}

const benchReaders = 500

// benchFeeds publishes feeds and returns the position that contains them: each reader follows 20 of
// 200 users, each of whom has ten pins.
func (w *world) benchFeeds(b *testing.B) (at string) {
	b.Helper()
	const owners, followed, pins = 200, 20, 10
	var evs []*skeinv1.Event
	for reader := range benchReaders {
		for i := range followed {
			evs = append(evs, follow(fmt.Sprint("reader", reader), fmt.Sprint("owner", (7*reader+11*i)%owners)))
		}
	}
	for pin := range pins {
		for owner := range owners {
			evs = append(evs, pinned(fmt.Sprint("owner", owner), "", fmt.Sprint("pin", pin)))
		}
	}

	for batch := range slices.Chunk(evs, 1000) {
		res, err := w.server.events.Publish(b.Context(), &skeinv1.PublishRequest{Events: batch}, &call.Info{})
		if err != nil {
			b.Fatal(err)
		}
		at = res.GetPosition()
	}
	return at
}

// reportQuantiles reports the median, the 99th percentile and the maximum, in milliseconds. The
// names of the metrics end with suffix.
func reportQuantiles(b *testing.B, durations []time.Duration, suffix string) {
	b.Helper()
	slices.Sort(durations)
	for _, q := range []float64{0.5, 0.99, 1} {
		quantile := durations[int(q*float64(len(durations)-1))]
		b.ReportMetric(float64(quantile.Microseconds())/1000, fmt.Sprintf("p%g-ms%s", 100*q, suffix))
	}
}

// processorTime returns the processor time that this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
