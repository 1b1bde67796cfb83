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

// clone copies what is spoilt here.
func (l *ledger) clone() *ledger {
	c := *l
	c.follows, c.likes, c.plays = maps.Clone(l.follows), maps.Clone(l.likes), maps.Clone(l.plays)
	c.pins, c.born, c.served = maps.Clone(l.pins), maps.Clone(l.born), maps.Clone(l.served)
	return &c
}

// TestSoakFindsLostAndWrongAnswers demands that the traffic of the soak finds nothing wrong in a
// healthy service, in all that it compares. It then spoils the ledger: an event that the service
// never got must count as lost, and an event that the ledger lacks must count as wrong.
func TestSoakFindsLostAndWrongAnswers(t *testing.T) {
	api, stop := startApp(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	f := newSoak(1, 2, []*command.Client{api}, t.Logf)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	working, rest := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { f.run(working, time.Millisecond); close(ended) }()
	for f.realms[0].begun.Load() < 60 && ctx.Err() == nil {
		if err := f.equalWithin(ctx, patience); err != nil {
			t.Error(err)
		}
	}
	// With the gate nothing is under way.
	f.gate.Lock()
	rest()
	f.gate.Unlock()
	<-ended
	if lost, wrong, undocumented := f.verdict(); lost+wrong+undocumented > 0 || f.operations["whole realms compared"] == 0 {
		t.Fatalf("a service that is well: %s", f.report())
	}
	t.Log(f.report())

	w := f.realms[0]
	for _, c := range []struct {
		name  string
		spoil func(*ledger)
		lost  bool
	}{
		{"a follow that the service never got", func(l *ledger) { l.apply(userFollowed(w.user(0), "nobody")) }, true},
		{"a play that the service never got", func(l *ledger) { l.apply(played(w.user(0), w.item(0))) }, true},
		{"a pin that the service never got", func(l *ledger) {
			l.apply(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
				Pin: &skeinv1.Pin{OwnerId: w.user(0), PinId: "none"}, ItemId: w.item(0),
			}}})
		}, true},
		{"a serve that the service never got", func(l *ledger) {
			l.apply(&skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: w.user(0), ItemIds: []string{"x"}}}})
		}, true},
		{"a follow that nobody told of", func(l *ledger) {
			for pair := range l.follows {
				delete(l.follows, pair)
				break
			}
		}, false},
		{"follows in another order", func(l *ledger) {
			for pair, at := range l.follows {
				l.follows[pair] = -at
			}
		}, false},
		{"a like that nobody told of", func(l *ledger) {
			for pair := range l.likes {
				delete(l.likes, pair)
				break
			}
		}, false},
	} {
		f := newSoak(1, 1, []*command.Client{api}, func(string, ...any) {})
		spoilt := f.realms[0]
		spoilt.position = w.position
		spoilt.ledger = w.ledger.clone()
		spoilt.compareAll(ctx)
		if lost, wrong, _ := f.verdict(); lost+wrong > 0 {
			t.Fatalf("the ledger, written again, does not agree: %s", strings.Join(f.examples, "\n"))
		}
		c.spoil(spoilt.ledger)
		spoilt.compareAll(ctx)
		switch lost, wrong, _ := f.verdict(); {
		case c.lost && lost == 0:
			t.Errorf("%s is not found to be lost: %s", c.name, f.report())
		case !c.lost && (lost > 0 || wrong == 0):
			t.Errorf("%s is not found to be wrong: %s", c.name, f.report())
		}
	}
}
