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
		name     string
		change   func(*expectedState)
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
		{"a follow that is not expected", func(s *expectedState) {
			for pair := range s.followedAt {
				delete(s.followedAt, pair)
				break
			}
		}, false},
		{"follows that are expected in another order", func(s *expectedState) {
			for pair, at := range s.followedAt {
				s.followedAt[pair] = -at
			}
		}, false},
		{"a like that is not expected", func(s *expectedState) {
			for pair := range s.likes {
				delete(s.likes, pair)
				break
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			traffic := newSoakTraffic(1, 1, []*command.Client{api}, func(string, ...any) {})
			compared := traffic.writers[0]
			compared.lastPosition = w.lastPosition
			compared.expected = w.expected.clone()
			compared.compareAll(ctx)
			if lost, wrong, _ := traffic.findings(); lost+wrong > 0 {
				t.Fatalf("a copy of what is expected differs from the answers: %s", strings.Join(traffic.examples, "\n"))
			}

			tt.change(compared.expected)
			compared.compareAll(ctx)
			switch lost, wrong, _ := traffic.findings(); {
			case tt.wantLost && lost == 0:
				t.Errorf("found %d lost events, expected at least 1: %s", lost, traffic.report())
			case !tt.wantLost && (lost > 0 || wrong == 0):
				t.Errorf("found %d lost events and %d wrong answers, expected only wrong answers: %s", lost, wrong, traffic.report())
			}
		})
	}
}
