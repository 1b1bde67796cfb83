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
	randomAuthor := func() string { return fmt.Sprint("author", random.IntN(authors)) }
	randomItem := func() string { return fmt.Sprint("i", random.IntN(pins)) }

	// Both readers follow all authors, of whose pins a tenth are re-pins.
	var evs []*skeinv1.Event
	for i := range authors {
		author := fmt.Sprint("author", i)
		evs = append(evs, follow("plain", author), follow("filters", author))
	}
	for i := range pins {
		pin := fmt.Sprint("p", i)
		item := randomItem()
		if i%10 == 0 {
			evs = append(evs, repinned(randomAuthor(), pin, item, randomAuthor(), "original"))
			continue
		}
		evs = append(evs, showing(randomAuthor(), pin, item))
	}

	// Only the second reader has something to leave out.
	for i := range 20 {
		evs = append(evs, mute("filters", fmt.Sprint("author", i)), hideRepins("filters", fmt.Sprint("author", 100+i)))
	}
	for range 300 {
		evs = append(evs, played("filters", randomItem()), hidden("filters", randomItem()))
	}

	// Publish the events, and write the rows of the stores to disk, so that pages are read from
	// tables as in a service that has run for a while.
	at := ""
	for batch := range slices.Chunk(evs, 900) {
		res, err := w.server.events.Publish(context.Background(), &skeinv1.PublishRequest{Events: batch}, &call.Info{})
		if err != nil {
			b.Fatal(err)
		}
		at = res.GetPosition()
	}
	demand, err := views.DemandOf(at)
	if err != nil {
		b.Fatal(err)
	}
	for _, store := range []*live.Live{w.store, w.inbox, w.seen, w.counters} {
		if err := store.WaitFor(context.Background(), demand.Position.Seq); err != nil {
			b.Fatal(err)
		}
		if err := store.Serving().Flush(); err != nil {
			b.Fatal(err)
		}
	}

	const pagesPerRound = 100
	timePerPage := func(req *skeinv1.ReadFeedRequest) time.Duration {
		began := processorTime(b)
		for range pagesPerRound {
			res, err := w.server.feed.ReadFeed(context.Background(), req, &call.Info{})
			if err != nil {
				b.Fatal(err)
			}
			if len(res.GetEntries()) != 20 {
				b.Fatalf("ReadFeed: got a page of %d entries, want 20", len(res.GetEntries()))
			}
		}
		return (processorTime(b) - began) / pagesPerRound
	}
	plain := &skeinv1.ReadFeedRequest{ReaderId: "plain", PageSize: 20}
	filtered := &skeinv1.ReadFeedRequest{ReaderId: "filters", PageSize: 20, HideSeen: true, OnePerItem: true}

	// The first round of each reader fills the caches, and is not measured.
	timePerPage(plain)
	timePerPage(filtered)

	var plainTimes, filteredTimes, ratios []float64
	for b.Loop() {
		plainTime := timePerPage(plain).Seconds()
		filteredTime := timePerPage(filtered).Seconds()
		plainTimes = append(plainTimes, plainTime*1e6)
		filteredTimes = append(filteredTimes, filteredTime*1e6)
		ratios = append(ratios, filteredTime/plainTime)
	}
	b.ReportMetric(median(plainTimes), "µs/plain")
	b.ReportMetric(median(filteredTimes), "µs/filtered")
	b.ReportMetric(median(ratios), "filtered/plain")
	b.ReportMetric(0, "ns/op") // hides the time of a round, which says nothing
}

// median sorts values and returns the middle one.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
