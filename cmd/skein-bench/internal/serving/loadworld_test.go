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
	dec := events.NewDecoder(events.Cursor{})
	now := events.Micros(time.Now().UnixMicro())
	seq := uint64(0)
	kinds := map[events.Kind]int{}
	decode := func(calls []*skeinv1.PublishRequest) {
		t.Helper()
		for _, call := range calls {
			data, err := events.EncodeEnvelope(call.Events)
			if err != nil {
				t.Fatal(err)
			}
			seq++
			env, err := dec.Decode(seq, now, data)
			if err != nil {
				t.Fatal(err)
			}
			if len(env.Rejects) > 0 {
				t.Fatalf("rejected: %+v", env.Rejects[0])
			}
			for i := range env.Events {
				kinds[env.Events[i].Kind]++
			}
		}
	}
	decode(groupIntoCalls(w.graph.FollowEvents(), 1000))
	decode(groupIntoCalls(w.listEvents(), 1000))
	decode(groupIntoCalls(w.pinEvents(), 1000))
	decode(groupIntoCalls(w.recentActivity(), 1000))
	decode(groupIntoCalls(w.playHistory(), 1000))
	decode(groupIntoCalls(w.writtenEvents(0, 500), 10))
	for kind, want := range map[events.Kind]int{
		events.UserFollowed: 5000 + 100, events.PinCreated: 1000 + 50, events.Served: 1000,
		events.ItemHidden: 1000,
		events.Played:     1000*watcherPlays + 250, events.Reacted: 1000*watcherPlays/20 + 100,
	} {
		if kinds[kind] != want {
			t.Errorf("%v: %d events, want %d", kind, kinds[kind], want)
		}
	}
	for _, kind := range []events.Kind{
		events.BoardCreated, events.BoardFollowed, events.BoardUnfollowed, events.UserMuted, events.UserBlocked,
	} {
		if kinds[kind] < len(w.busy)*listLength/2 {
			t.Errorf("%v: %d events", kind, kinds[kind])
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
			t.Errorf("two rows are named %s", m.id)
		}
		procedures[m.procedure] = true
		ids[m.id] = true
		if len(m.requests) > 1 && proto.Equal(m.requests[0], m.requests[1]) && proto.Equal(m.requests[1], m.requests[2]) {
			t.Errorf("%s: expected different requests", m.title)
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		skeinv1.File_skein_v1_graph_service_proto, skeinv1.File_skein_v1_feed_service_proto,
		skeinv1.File_skein_v1_seen_service_proto, skeinv1.File_skein_v1_counter_service_proto,
	} {
		methods := file.Services().Get(0).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()); !m.IsStreamingServer() && !procedures[path] {
				t.Errorf("%s has no row", path)
			}
		}
	}
}
