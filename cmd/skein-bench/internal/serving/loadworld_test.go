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

// TestLoadWorld decodes all events of the world: none may be malformed.
func TestLoadWorld(t *testing.T) {
	w := newLoadWorld(1000, 5000, time.Now())
	dec := events.NewDecoder(events.Cursor{})
	now, seq := events.Micros(time.Now().UnixMicro()), uint64(0)
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

// TestLoadMethods demands that there is a row for every method, and that requests differ.
func TestLoadMethods(t *testing.T) {
	w := newLoadWorld(1000, 5000, time.Now())
	asked, ids := map[string]bool{}, map[string]bool{}
	for _, m := range w.methods() {
		if ids[m.id] {
			t.Errorf("two rows are named %s", m.id)
		}
		asked[m.procedure], ids[m.id] = true, true
		if len(m.requests) > 1 && proto.Equal(m.requests[0], m.requests[1]) && proto.Equal(m.requests[1], m.requests[2]) {
			t.Errorf("%s is asked the same again and again", m.title)
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		skeinv1.File_skein_v1_graph_service_proto, skeinv1.File_skein_v1_feed_service_proto,
		skeinv1.File_skein_v1_seen_service_proto, skeinv1.File_skein_v1_counter_service_proto,
	} {
		methods := file.Services().Get(0).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()); !m.IsStreamingServer() && !asked[path] {
				t.Errorf("%s is not asked", path)
			}
		}
	}
}
