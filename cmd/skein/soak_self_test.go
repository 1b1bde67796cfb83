package main

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// clone copies the state with those maps that the cases of the test change.
func (s *expectedState) clone() *expectedState {
	c := *s
	c.followedAt = maps.Clone(s.followedAt)
	c.likes = maps.Clone(s.likes)
	c.plays = maps.Clone(s.plays)
	c.pins = maps.Clone(s.pins)
	c.pinnedAt = maps.Clone(s.pinnedAt)
	c.served = maps.Clone(s.served)
	return &c
}

// deleteAnyKey deletes one key of a map.
func deleteAnyKey[K comparable, V any](m map[K]V) {
	for key := range m {
		delete(m, key)
		return
	}
}

// TestSoakFindsLostAndWrongAnswers demands that the traffic of the soak finds nothing wrong in a
// healthy service, in all that it compares. It then changes what is expected: an event that the
// service never got must count as lost, and an event that is not expected must count as wrong.
func TestSoakFindsLostAndWrongAnswers(t *testing.T) {
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()

	// Make traffic until the first writer has events of all kinds.
	traffic := newSoakTraffic(1, 2, []*command.Client{api}, t.Logf)
	w := traffic.writers[0]
	trafficCtx, stopTraffic := context.WithCancel(ctx)
	defer stopTraffic()
	trafficEnded := make(chan struct{})
	go func() {
		defer close(trafficEnded)
		traffic.run(trafficCtx, time.Millisecond)
	}()
	for w.startedBatches.Load() < 60 && ctx.Err() == nil {
		if err := traffic.compareAllWithin(ctx, waitLimit); err != nil {
			t.Errorf("healthy service: got %v, want that everything is compared", err)
		}
	}

	// While the gate is held, no batch is under way, so what is expected equals what is stored.
	traffic.publishGate.Lock()
	stopTraffic()
	traffic.publishGate.Unlock()
	<-trafficEnded

	lost, wrong, undocumented := traffic.findings()
	if lost+wrong+undocumented > 0 {
		t.Fatalf("healthy service: got %d lost, %d wrong and %d undocumented, want none:\n%s",
			lost, wrong, undocumented, strings.Join(traffic.examples, "\n"))
	}
	if traffic.operationCounts["whole realms compared"] == 0 {
		t.Fatalf("healthy service: got no writer that compared everything, want at least one:\n%s", traffic.report())
	}
	t.Log(traffic.report())

	for _, tt := range []struct {
		name   string
		change func(*expectedState)
		// wantLost says that an event must count as lost. Otherwise answers must count as wrong,
		// and no event as lost.
		wantLost bool
	}{
		{"a follow that the service never got", func(s *expectedState) { s.apply(userFollowed(w.user(0), "nobody")) }, true},
		{"a play that the service never got", func(s *expectedState) { s.apply(played(w.user(0), w.item(0))) }, true},
		{"a pin that the service never got", func(s *expectedState) {
			s.apply(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
				Pin: &skeinv1.Pin{OwnerId: w.user(0), PinId: "none"}, ItemId: w.item(0),
			}}})
		}, true},
		{"a serve that the service never got", func(s *expectedState) {
			s.apply(&skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: w.user(0), ItemIds: []string{"x"}}}})
		}, true},
		{"a follow that is not expected", func(s *expectedState) { deleteAnyKey(s.followedAt) }, false},
		{"follows that are expected in another order", func(s *expectedState) {
			for pair, at := range s.followedAt {
				s.followedAt[pair] = -at
			}
		}, false},
		{"a like that is not expected", func(s *expectedState) { deleteAnyKey(s.likes) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A writer of the same name asks about the same users. The copy of what is expected
			// must agree with the service, or the case would prove nothing.
			traffic := newSoakTraffic(1, 1, []*command.Client{api}, func(string, ...any) {})
			compared := traffic.writers[0]
			compared.lastPosition = w.lastPosition
			compared.expected = w.expected.clone()
			compared.compareAll(ctx)
			if lost, wrong, undocumented := traffic.findings(); lost+wrong+undocumented > 0 {
				t.Fatalf("copy of what is expected: got %d lost, %d wrong and %d undocumented, want none:\n%s",
					lost, wrong, undocumented, strings.Join(traffic.examples, "\n"))
			}

			tt.change(compared.expected)
			compared.compareAll(ctx)
			lost, wrong, undocumented := traffic.findings()
			if undocumented > 0 {
				t.Errorf("got %d undocumented errors, want none:\n%s", undocumented, strings.Join(traffic.examples, "\n"))
			}
			if tt.wantLost && lost == 0 {
				t.Errorf("got no lost event, want at least 1:\n%s", traffic.report())
			}
			if !tt.wantLost && (lost > 0 || wrong == 0) {
				t.Errorf("got %d lost events and %d wrong answers, want no lost event and at least 1 wrong answer:\n%s",
					lost, wrong, strings.Join(traffic.examples, "\n"))
			}
		})
	}
}
