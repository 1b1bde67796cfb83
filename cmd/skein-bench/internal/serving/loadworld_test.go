package serving

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestEventsOfTheWorldAreAccepted decodes all events of the world. The decoder must not reject any
// of them.
func TestEventsOfTheWorldAreAccepted(t *testing.T) {
	w := newLoadWorld(1000, 5000, time.Now())
	decoder := events.NewDecoder(events.Cursor{})
	now := events.Micros(time.Now().UnixMicro())
	seq := uint64(0)
	countByKind := map[events.Kind]int{}
	mustDecode := func(calls []*skeinv1.PublishRequest) {
		t.Helper()
		for _, call := range calls {
			data, err := events.EncodeEnvelope(call.Events)
			if err != nil {
				t.Fatal(err)
			}
			seq++
			env, err := decoder.Decode(seq, now, data)
			if err != nil {
				t.Fatal(err)
			}
			if len(env.Rejects) > 0 {
				t.Fatalf("rejects: got %+v, want none", env.Rejects)
			}
			for i := range env.Events {
				countByKind[env.Events[i].Kind]++
			}
		}
	}

	mustDecode(groupIntoCalls(w.graph.FollowEvents(), 1000))
	mustDecode(groupIntoCalls(w.listEvents(), 1000))
	mustDecode(groupIntoCalls(w.pinEvents(), 1000))
	mustDecode(groupIntoCalls(w.recentActivity(), 1000))
	mustDecode(groupIntoCalls(w.playHistory(), 1000))
	mustDecode(groupIntoCalls(w.writtenEvents(0, 500), 10))

	// Where there are two terms, the second one is for the events that are written under load.
	for kind, want := range map[events.Kind]int{
		events.UserFollowed: 5000 + 100, events.PinCreated: 1000 + 50, events.Served: 1000,
		events.ItemHidden: 1000,
		events.Played:     1000*watcherPlays + 250, events.Reacted: 1000*watcherPlays/20 + 100,
	} {
		if got := countByKind[kind]; got != want {
			t.Errorf("events of kind %v: got %d, want %d", kind, got, want)
		}
	}

	// Each busy user has listLength of these, or fewer if the user follows fewer users.
	for _, kind := range []events.Kind{
		events.BoardCreated, events.BoardFollowed, events.BoardUnfollowed, events.UserMuted, events.UserBlocked,
	} {
		if got, least := countByKind[kind], len(w.busy)*listLength/2; got < least {
			t.Errorf("events of kind %v: got %d, want at least %d", kind, got, least)
		}
	}
}

// TestEveryReadMethodHasARow checks that each method that reads has a row, and that its requests
// are not all the same.
func TestEveryReadMethodHasARow(t *testing.T) {
	w := newLoadWorld(1000, 5000, time.Now())
	procedures := map[string]bool{}
	ids := map[string]bool{}
	for _, m := range w.methods() {
		if ids[m.id] {
			t.Errorf("rows named %s: got two, want one", m.id)
		}
		procedures[m.procedure] = true
		ids[m.id] = true

		// Two of three requests may be the same by chance.
		if len(m.requests) > 2 && proto.Equal(m.requests[0], m.requests[1]) && proto.Equal(m.requests[1], m.requests[2]) {
			t.Errorf("first three requests of %s: got the same request, want different ones", m.title)
		}
	}

	for _, file := range []protoreflect.FileDescriptor{
		skeinv1.File_skein_v1_graph_service_proto, skeinv1.File_skein_v1_feed_service_proto,
		skeinv1.File_skein_v1_seen_service_proto, skeinv1.File_skein_v1_counter_service_proto,
	} {
		methods := file.Services().Get(0).Methods()
		for i := range methods.Len() {
			method := methods.Get(i)
			path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
			if !method.IsStreamingServer() && !procedures[path] {
				t.Errorf("row of %s: got none, want one", path)
			}
		}
	}
}
