//go:build unix

package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// BenchmarkFilteredPage compares the processor time of a page of 20 that leaves out seen and hidden
// items, pins of muted users, re-pins that the reader hides, re-pins of muted users and second pins
// of an item, with that of a page of a reader without filters, who follows the same users. It reads
// the two in turn and reports the median of the ratios.
func BenchmarkFilteredPage(b *testing.B) {
	const authors, pins = 300, 6000
	w := newWorld(b, withAllStores, func(o *worldOptions) { o.cache = 512 << 20 })
	random := rand.New(rand.NewPCG(1, 2))
	author := func() string { return fmt.Sprint("author", random.IntN(authors)) }

	var evs []*skeinv1.Event
	for i := range authors {
		evs = append(evs, follow("plain", fmt.Sprint("author", i)), follow("filters", fmt.Sprint("author", i)))
	}
	for i := range pins {
		item := fmt.Sprint("i", random.IntN(pins))
		if i%10 == 0 {
			evs = append(evs, repinned(author(), fmt.Sprint("p", i), item, author(), "original"))
			continue
		}
		evs = append(evs, showing(author(), fmt.Sprint("p", i), item))
	}
	for i := range 20 {
		evs = append(evs, mute("filters", fmt.Sprint("author", i)), hideRepins("filters", fmt.Sprint("author", 100+i)))
	}
	for range 300 {
		evs = append(evs, played("filters", fmt.Sprint("i", random.IntN(pins))), hidden("filters", fmt.Sprint("i", random.IntN(pins))))
	}
	at := ""
	for batch := range slices.Chunk(evs, 900) {
		res, err := w.server.events.Publish(context.Background(), &skeinv1.PublishRequest{Events: batch}, &call.Info{})
		if err != nil {
			b.Fatal(err)
		}
		at = res.GetPosition()
	}
	d, err := views.DemandOf(at)
	if err != nil {
		b.Fatal(err)
	}
	for _, store := range []*live.Live{w.store, w.inbox, w.seen, w.counters} {
		if err := store.WaitFor(context.Background(), d.Position.Seq); err != nil {
			b.Fatal(err)
		}
		if err := store.Serving().Flush(); err != nil {
			b.Fatal(err)
		}
	}

	const pages = 100 // of each reader per round
	timeOf := func(req *skeinv1.ReadFeedRequest) time.Duration {
		began := processorTime(b)
		for range pages {
			res, err := w.server.feed.ReadFeed(context.Background(), req, &call.Info{})
			if err != nil || len(res.GetEntries()) != 20 {
				b.Fatal(len(res.GetEntries()), err)
			}
		}
		return (processorTime(b) - began) / pages
	}
	plain := &skeinv1.ReadFeedRequest{ReaderId: "plain", PageSize: 20}
	filtered := &skeinv1.ReadFeedRequest{ReaderId: "filters", PageSize: 20, HideSeen: true, OnePerItem: true}
	timeOf(plain)
	timeOf(filtered)

	var plainTimes, filteredTimes, ratios []float64
	for b.Loop() {
		p, f := timeOf(plain), timeOf(filtered)
		plainTimes, filteredTimes = append(plainTimes, p.Seconds()*1e6), append(filteredTimes, f.Seconds()*1e6)
		ratios = append(ratios, f.Seconds()/p.Seconds())
	}
	b.ReportMetric(median(plainTimes), "µs/plain")
	b.ReportMetric(median(filteredTimes), "µs/filtered")
	b.ReportMetric(median(ratios), "filtered/plain")
	b.ReportMetric(0, "ns/op")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
