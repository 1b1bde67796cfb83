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

// clone copies the state with the parts that the test changes.
func (s *expectedState) clone() *expectedState {
	c := *s
	c.followedAt, c.likes, c.plays = maps.Clone(s.followedAt), maps.Clone(s.likes), maps.Clone(s.plays)
	c.pins, c.pinnedAt, c.served = maps.Clone(s.pins), maps.Clone(s.pinnedAt), maps.Clone(s.served)
	return &c
}

// TestSoakFindsLostAndWrongAnswers demands that the traffic of the soak finds nothing wrong in a
// healthy service, in all that it compares. It then changes what is expected: an event that the
// service never got must count as lost, and an event that is not expected must count as wrong.
func TestSoakFindsLostAndWrongAnswers(t *testing.T) {
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	traffic := newSoakTraffic(1, 2, []*command.Client{api}, t.Logf)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	trafficCtx, stopTraffic := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { traffic.run(trafficCtx, time.Millisecond); close(ended) }()
	for traffic.writers[0].startedBatches.Load() < 60 && ctx.Err() == nil {
		if err := traffic.compareAllWithin(ctx, waitLimit); err != nil {
			t.Error(err)
		}
	}

	// While the gate is held, no batch is under way, so what is expected equals what is stored.
	traffic.publishGate.Lock()
	stopTraffic()
	traffic.publishGate.Unlock()
	<-ended

	if lost, wrong, undocumented := traffic.findings(); lost+wrong+undocumented > 0 || traffic.operationCounts["whole realms compared"] == 0 {
		t.Fatalf("a healthy service: %s", traffic.report())
	}
	t.Log(traffic.report())

	w := traffic.writers[0]
	for _, tt := range []struct {
		name   string
		change func(*expectedState)
		lost   bool
	}{
		{"a follow that the service never got", func(l *expectedState) { l.apply(userFollowed(w.user(0), "nobody")) }, true},
		{"a play that the service never got", func(l *expectedState) { l.apply(played(w.user(0), w.item(0))) }, true},
		{"a pin that the service never got", func(l *expectedState) {
			l.apply(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
				Pin: &skeinv1.Pin{OwnerId: w.user(0), PinId: "none"}, ItemId: w.item(0),
			}}})
		}, true},
		{"a serve that the service never got", func(l *expectedState) {
			l.apply(&skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: w.user(0), ItemIds: []string{"x"}}}})
		}, true},
		{"a follow that nobody told of", func(l *expectedState) {
			for pair := range l.followedAt {
				delete(l.followedAt, pair)
				break
			}
		}, false},
		{"follows in another order", func(l *expectedState) {
			for pair, at := range l.followedAt {
				l.followedAt[pair] = -at
			}
		}, false},
		{"a like that nobody told of", func(l *expectedState) {
			for pair := range l.likes {
				delete(l.likes, pair)
				break
			}
		}, false},
	} {
		traffic := newSoakTraffic(1, 1, []*command.Client{api}, func(string, ...any) {})
		compared := traffic.writers[0]
		compared.lastPosition = w.lastPosition
		compared.expected = w.expected.clone()
		compared.compareAll(ctx)
		if lost, wrong, _ := traffic.findings(); lost+wrong > 0 {
			t.Fatalf("the ledger, written again, does not agree: %s", strings.Join(traffic.examples, "\n"))
		}
		tt.change(compared.expected)
		compared.compareAll(ctx)
		switch lost, wrong, _ := traffic.findings(); {
		case tt.lost && lost == 0:
			t.Errorf("%s is not found to be lost: %s", tt.name, traffic.report())
		case !tt.lost && (lost > 0 || wrong == 0):
			t.Errorf("%s is not found to be wrong: %s", tt.name, traffic.report())
		}
	}
}
