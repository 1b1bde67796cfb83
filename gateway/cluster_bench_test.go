package gateway

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/internal/peers"
	"github.com/skein-feed/skein/projections"
)

// BenchmarkForwarded puts calls to a node that holds what they are about, to the same node as other nodes do, and to a router, which
// forwards them. Clients are as in [BenchmarkHTTP]. The metric is the processor time of a call, of client and servers together.
func BenchmarkForwarded(b *testing.B) {
	c := newCluster(b, 1)
	c.nodes[0].flushedAt(b, c.whole.benchFacts(b))
	router := c.whole.replica(withFeeds, withSeen, func(o *worldOptions) {
		o.partitions, o.Nodes = &projections.Partitions{}, func() []Node { return *c.alive.Load() }
	})
	if router.server.holds("17") || !c.nodes[0].server.holds("17") {
		b.Fatalf("partition %d is at the wrong node", peers.PartitionOf("17"))
	}
	for _, call := range benchRequests() {
		for _, to := range []struct{ name, url, head string }{
			{"direct", c.nodes[0].url, ""},
			{"as a node", "http://" + (*c.alive.Load())[0].Addr, "Authorization: " + router.server.views.Keys.Proof(nodes) + "\r\n"},
			{"forwarded", router.url, ""},
		} {
			b.Run(call.name+" "+to.name, func(b *testing.B) {
				body := marshal(b, call.req)
				request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n%s",
					call.procedure, to.head, len(body), body)
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

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
