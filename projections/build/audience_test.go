package build

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/model/histories"
)

// TestAudience: a pin goes to the home of its owner and to every partition that an event about the owner went to before, and with enough
// sets to no other.
func TestAudience(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := inbox.New(inbox.DefaultSettings())
		wide, narrow := newAudiences(p, 1<<20), newAudiences(p, 0)
		want := map[string]events.Partitions{}
		for _, ev := range histories.History(t, histories.Options{Feeds: true}) {
			var to events.Partitions
			p.Route(&ev, &to)
			routed, shared := to, to
			toAll := routed == events.AllPartitions()
			wide.narrow(&ev, &to, toAll)
			narrow.narrow(&ev, &shared, toAll)
			if ev.Kind != events.PinCreated && ev.Kind != events.PinMoved {
				if to != routed || shared != routed {
					t.Fatalf("%v goes to %s, want %s", ev, &to, &routed)
				}
				if routed != events.AllPartitions() {
					for _, user := range []string{ev.User, ev.Peer} {
						set := want[user]
						set.AddSet(&routed)
						want[user] = set
					}
				}
				continue
			}
			least := want[ev.User]
			least.AddHome(ev.User)
			if to != least {
				t.Fatalf("%v goes to %s, want %s", ev, &to, &least)
			}
			both := shared
			if both.AddSet(&least); both != shared {
				t.Fatalf("with one set, %v goes to %s, which lacks some of %s", ev, &shared, &least)
			}
		}
	})
}

// TestAudienceOfOthers: what a projection does not narrow goes where it is routed.
func TestAudienceOfOthers(t *testing.T) {
	all := events.AllPartitions()
	newAudiences(graph.New(), 1<<20).narrow(&events.Event{Kind: events.PinCreated, User: "ann"}, &all, true)
	if all != events.AllPartitions() {
		t.Errorf("it goes to %s", &all)
	}
}
