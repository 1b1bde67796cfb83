package eventlog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// BenchmarkPublish publishes single follows from several goroutines. Each waits for its
// acknowledgement, so there is one fsync per envelope.
func BenchmarkPublish(b *testing.B) {
	for _, publishers := range []int{1, 64, 1000} {
		b.Run(fmt.Sprint(publishers), func(b *testing.B) {
			l := mustOpenLog(b, Config{})
			envelopes := 0
			p := newPublisher(b, l, PublisherOptions{Listener: PublisherListener{
				Appended: func(AppendInfo) { envelopes++ },
			}})
			ctx := context.Background()
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range publishers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := p.Publish(ctx, []*skeinv1.Event{newFollow(int(n))}, PublishOptions{}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}

			wg.Wait()
			b.StopTimer()
			if err := p.Close(ctx); err != nil {
				b.Error(err)
			}
			reportEvents(b, 1)
			b.ReportMetric(float64(b.N)/float64(envelopes), "events/envelope")
		})
	}
}

// BenchmarkRead reads a log of up to a million events through a hub, in envelopes of several sizes.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1, 20, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := mustOpenLog(b, Config{})
			envelopes := min(1_000_000/size, 10_000)
			data := mustEncode(b, newFollows(0, size)...)
			for range envelopes { // faster than a publisher, which waits for each acknowledgement
				if err := l.conn.nc.Publish(Subject, data); err != nil {
					b.Fatal(err)
				}
			}

			for head := (Head{}); head.Last < uint64(envelopes); {
				var err error
				if head, err = l.Head(context.Background()); err != nil {
					b.Fatal(err)
				}
			}

			b.ResetTimer()
			for range b.N {
				h, _ := runHub(b, l, HubOptions{})
				s := mustSubscribe(b, h, l.Start())
				n := 0
				for n < envelopes {
					envs, err := s.Next(context.Background(), 1<<20)
					if err != nil {
						b.Fatal(err)
					}
					n += len(envs)
				}

				h.Close()
			}

			reportEvents(b, envelopes*size)
			b.ReportMetric(float64(envelopes)*float64(b.N)/b.Elapsed().Seconds(), "envelopes/s")
		})
	}
}
