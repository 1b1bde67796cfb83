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

// BenchmarkForwarded puts calls to a node that holds what they are about, to the same node as other
// nodes do, and to a router, which forwards them. Clients are as in [BenchmarkHTTP]. The metric is
// the processor time of a call, of client and servers together.
func BenchmarkForwarded(b *testing.B) {
	c := newCluster(b, 1)
	c.nodes[0].flushedAt(b, c.whole.benchFacts(b))
	router := c.router(func() []Node { return *c.alive.Load() })
	if router.server.holds("17") || !c.nodes[0].server.holds("17") {
		b.Fatalf("partition %d is at the wrong node", peers.PartitionOf("17"))
	}
	node := (*c.alive.Load())[0]
	for _, call := range benchRequests() {
		for _, to := range []struct {
			name, url string
			isProven  bool
		}{{"direct", c.nodes[0].url, false}, {"as a node", "http://" + node.Addr, true}, {"forwarded", router.url, false}} {
			b.Run(call.name+" "+to.name, func(b *testing.B) {
				body, head := marshal(b, call.req), ""
				if to.isProven { // for half a minute
					proof, _ := router.server.cluster.Credentials().SignCall(&node, call.procedure, peers.HashBody(body), time.Now())
					head = "Authorization: " + proof + "\r\n"
				}
				request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n%s",
					call.procedure, head, len(body), body)
				began := processorTime(b)
				b.SetParallelism(4)
				b.RunParallel(func(pb *testing.PB) {
					if err := drive(to.url, request, pb.Next); err != nil {
						b.Error(err)
					}
				})
				b.ReportMetric(float64((processorTime(b)-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkHungNode is the second before a node of three stands still, and the second after: it
// takes calls and does not answer them. A router gets 500 checks a second in an open loop, a third
// of them for that node first. Times are from when a call was due.
func BenchmarkHungNode(b *testing.B) {
	c := newCluster(b, 3)
	at := c.whole.benchFacts(b)
	for _, n := range c.nodes {
		n.flushedAt(b, at)
	}
	well := *c.alive.Load()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = hung.Close() })
	still := slices.Clone(well)
	still[1].Addr = hung.Addr().String()
	var before, after []time.Duration
	for b.Loop() {
		var alive atomic.Pointer[[]Node]
		alive.Store(&well)
		router := c.router(func() []Node { return *alive.Load() })
		checksOfSeconds(b, router, 2) // connections, and how long answers take
		before = append(before, checksOfSeconds(b, router, 1)...)
		alive.Store(&still)
		after = append(after, checksOfSeconds(b, router, 1)...)
	}
	reportTimes(b, before, "-before")
	reportTimes(b, after, "-after")
}

// checksOfSeconds puts 500 checks a second.
func checksOfSeconds(b *testing.B, to *world, seconds int) []time.Duration {
	b.Helper()
	const rate = 500
	began := time.Now()
	took := make([]time.Duration, seconds*rate)
	var under sync.WaitGroup
	for i := range took {
		due := began.Add(time.Duration(i) * time.Second / rate)
		if err := wait.For(b.Context(), time.Until(due)); err != nil {
			b.Fatal(err)
		}
		under.Go(func() {
			req := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair(strconv.Itoa(i), "1")}}
			if _, err := to.answerTo(req); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(due)
		})
	}
	under.Wait()
	return took
}

// BenchmarkFeedOfNodes reads first pages of 20 of readers who follow 20 users each, one after the
// other: from one process, and from each of some nodes in turn. The processor time is that of
// client and servers together.
func BenchmarkFeedOfNodes(b *testing.B) {
	for _, nodes := range []int{3, 8} {
		c := newCluster(b, nodes, withFeeds) // with the default settings of feeds
		at := c.whole.benchFeeds(b)
		for _, to := range []struct {
			name string
			ask  []*world
		}{{"one process", []*world{c.whole}}, {fmt.Sprint(nodes, " nodes"), c.nodes}} {
			b.Run(to.name, func(b *testing.B) {
				var times []time.Duration
				used := processorTime(b)
				for i := 0; b.Loop(); i++ {
					began := time.Now()
					res, err := to.ask[i%len(to.ask)].answerTo(&skeinv1.ReadFeedRequest{
						ReaderId: fmt.Sprint("reader", i%benchReaders), PageSize: 20, AtLeast: at,
					})
					if err != nil || len(res.(*skeinv1.ReadFeedResponse).GetEntries()) != 20 {
						b.Fatal(res, err)
					}
					times = append(times, time.Since(began))
				}
				b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
				reportTimes(b, times, "")
			})
		}
	}
}

const benchReaders = 500

// benchFeeds publishes feeds of 20 of 200 users, each of whom has ten pins.
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
	for part := range slices.Chunk(evs, 1000) {
		res, err := w.server.events.Publish(b.Context(), &skeinv1.PublishRequest{Events: part}, &call.Info{})
		if err != nil {
			b.Fatal(err)
		}
		at = res.GetPosition()
	}
	return at
}

// reportTimes reports quantiles.
func reportTimes(b *testing.B, times []time.Duration, when string) {
	b.Helper()
	slices.Sort(times)
	for _, q := range []float64{0.5, 0.99, 1} {
		b.ReportMetric(float64(times[int(q*float64(len(times)-1))].Microseconds())/1000, fmt.Sprintf("p%g-ms%s", 100*q, when))
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
