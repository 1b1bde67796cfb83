package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/adminservice"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ownServer is a NATS server for the log of a world.
func ownServer(t *testing.T) (ns *server.Server, external func(*worldOptions)) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, SyncAlways: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the server is not ready")
	}
	return ns, func(o *worldOptions) { o.logConfig = eventlog.Config{URL: ns.ClientURL()} }
}

// stranger is a NATS client that appends to the log what it likes. The log is on a server of its
// own.
func stranger(t *testing.T) (external func(*worldOptions), appendRaw func([]byte)) {
	t.Helper()
	ns, external := ownServer(t)
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return external, func(data []byte) {
		t.Helper()
		if _, err := js.Publish(t.Context(), eventlog.Subject, data); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGetStatus(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{AtLeast: at})
	log := res.GetLog()
	if len(log.GetLogId()) != 32 || log.GetEpoch() != 1 || log.GetFirstSequence() != 1 || log.GetLastSequence() != 1 ||
		log.GetBytes() == 0 || log.GetMaxBytes() != 1<<30 || log.DaysUntilFull != nil {
		t.Error(log)
	}
	if res.GetPosition() != at || len(res.GetProjections()) != 1 || res.GetRejectedEventCount() != 0 || res.GetNextPageToken() != "" {
		t.Error(res)
	}
	p := res.GetProjections()[0]
	if p.GetName() != "graph" || p.GetVersion() != graph.New().Version() || len(p.GetFingerprint()) != 32 || p.GetGeneration() != 1 ||
		p.GetPosition() != at || p.GetLagEnvelopes() != 0 || p.GetLagSeconds() != 0 || p.GetError() != "" ||
		p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_READY || p.GetLastVerifyTime() != nil {
		t.Error(p)
	}
}

// TestOneVocabularyOfStates: a state has one name in metrics, /readyz and GetStatus; a rebuild is
// one of them.
func TestOneVocabularyOfStates(t *testing.T) {
	if len(adminservice.ProjectionStates) != len(skeinv1.ProjectionState_name)-1 {
		t.Errorf("%d states, %d values of the API", len(adminservice.ProjectionStates), len(skeinv1.ProjectionState_name)-1)
	}
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for st, value := range adminservice.ProjectionStates {
		name := store.State(st).String()
		if value.String() != "PROJECTION_STATE_"+strings.ToUpper(name) {
			t.Errorf("%s is %s in the API", name, value)
		}
		if !strings.Contains(string(doc), "| `"+name+"` |") {
			t.Errorf("%s has no row in docs/operations.md", name)
		}
	}
	w := newWorld(t)
	ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{AtLeast: w.publish(follow("ann", "bob"))}) // it starts first
	w.wantState("at first", "ready")
	fault := errors.New("no build today")
	_, err = w.store.BuildNext(t.Context(), func(string) error {
		w.wantState("with a next generation", "rebuilding")
		return fault
	})
	if !errors.Is(err, fault) {
		t.Fatal(err)
	}
	w.wantState("without it", "ready")
}

func (w *world) wantState(when, name string) {
	w.t.Helper()
	w.wantReady(when, http.StatusOK, "ready", name)
	for st := range adminservice.ProjectionStates {
		want := 0.0
		if store.State(st).String() == name {
			want = 1
		}
		if got := w.count("skein_projection_state", "projection", "graph", "state", store.State(st).String()); got != want {
			w.t.Errorf("%s: the metric of %v is %v, want %v", when, store.State(st), got, want)
		}
	}
	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	if got := res.GetProjections()[0].GetState().String(); got != "PROJECTION_STATE_"+strings.ToUpper(name) {
		w.t.Errorf("%s: the status says %s", when, got)
	}
}

// TestGetStatusWithoutTheLog: what is known is answered, and that the log is down is said; a
// publish says that it took nothing.
func TestGetStatusWithoutTheLog(t *testing.T) {
	ns, external := ownServer(t)
	w := newWorld(t, external)
	at := w.publish(follow("ann", "bob"))
	if err := w.store.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	if log := res.GetLog(); log.GetError() == "" || len(log.GetLogId()) != 32 || log.GetEpoch() != 1 || log.GetLastSequence() != 1 {
		t.Error(log)
	}
	if p := res.GetProjections()[0]; p.GetPosition() != at || res.GetPosition() != at ||
		p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_READY {
		t.Error(res)
	}
}

func TestGetStatusOfAnEmptyLog(t *testing.T) {
	w := newWorld(t, asleep)
	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	if log := res.GetLog(); log.GetFirstSequence() != 0 || log.GetLastSequence() != 0 || res.GetPosition() != w.log.Position(0).String() {
		t.Error(res)
	}
	if st := res.GetProjections()[0].GetState(); st != skeinv1.ProjectionState_PROJECTION_STATE_STARTING {
		t.Error(st)
	}
}

// What others appended and no fold can use is counted and shown, latest first, in pages that hold
// while more comes.
func TestRejectedEvents(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	for i := range 25 {
		appendRaw(fmt.Appendf(nil, "garbage %d", i))
	}
	envelope, err := events.EncodeEnvelope([]*skeinv1.Event{follow("ann", "bob"), follow("ann", "ann"), follow("ann", "cid")})
	if err != nil {
		t.Fatal(err)
	}
	appendRaw(envelope)
	at := w.publish(follow("ann", "dan"))
	var got []string
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{PageSize: 10, PageToken: token, AtLeast: at})
		for _, r := range res.GetRejectedEvents() {
			got = append(got, fmt.Sprintf("%d/%d %v", r.GetSequence(), r.GetSlot(), r.GetReason()))
			if r.GetMessage() == "" || len(r.GetData()) == 0 || r.GetPosition() != w.log.Position(r.GetSequence()).String() {
				t.Error(r)
			}
		}
		if want := int64(26 + page); res.GetRejectedEventCount() != want {
			t.Errorf("page %d: %d rejected, want %d", page, res.GetRejectedEventCount(), want)
		}
		token = res.GetNextPageToken()
		appendRaw([]byte("more"))
		at = w.publish(follow("ann", fmt.Sprint("eve", page)))
	}
	if len(got) != 26 || got[0] != "26/1 REASON_SELF_RELATION" || !strings.HasPrefix(got[1], "25/-1 ") || !strings.HasPrefix(got[25], "1/-1 ") {
		t.Errorf("%d: %v", len(got), got)
	}
	// The good events of the same envelope count, and so does all that came after the garbage.
	if list := w.following("ann", anyKind).all(t, 10, at); len(list) != 6 || !slices.Contains(list, "cid explicit") {
		t.Error(list)
	}
	_, err = w.admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{PageToken: "AQ"}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
}

// Of more rejects than are kept, the kept ones are shown, and the pages end.
func TestRejectedEventsThatAreForgotten(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	var bad []*skeinv1.Event
	for range 600 {
		bad = append(bad, follow("ann", "ann"))
	}
	envelope, err := events.EncodeEnvelope(bad)
	if err != nil {
		t.Fatal(err)
	}
	appendRaw(envelope)
	appendRaw(envelope)
	at := w.publish(follow("ann", "bob"))
	shown, token := 0, ""
	for page := 0; page == 0 || token != ""; page++ {
		res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{PageSize: 1000, PageToken: token, AtLeast: at})
		if res.GetRejectedEventCount() != 1200 {
			t.Error(res.GetRejectedEventCount())
		}
		shown += len(res.GetRejectedEvents())
		token = res.GetNextPageToken()
	}
	if shown != store.MaxStoredRejects {
		t.Errorf("%d are shown", shown)
	}
}

// Status, readiness and VISIBLE are about every store of the process.
func TestStatusOfAllStores(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen, withCounters)
	res, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{played("ann", "a")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{}).GetProjections() {
		names = append(names, p.GetName())
		if p.GetPosition() != res.Msg.GetPosition() || p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_READY {
			t.Error(p)
		}
	}
	if want := []string{"counters", "graph", "inbox", "seen"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	for _, name := range names {
		if w.count("skein_projection_position", "projection", name) != 1 {
			t.Errorf("%s has no metrics", name)
		}
	}
	if _, _, page := w.get("/readyz"); !strings.Contains(string(page), `"seen":{"state":"ready"`) {
		t.Errorf("%s", page)
	}
}

// A projection that does not continue, as one that waits for disk, does not learn of new events.
// Its lag is reported all the same.
func TestLagOfWhatStandsStill(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, asleep, external)
	appendRaw([]byte("no events"))
	appendRaw([]byte("nor these"))
	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	if p := res.GetProjections()[0]; p.GetLagEnvelopes() != 2 {
		t.Errorf("%d envelopes behind, want 2", p.GetLagEnvelopes())
	}
	if lag := w.count("skein_projection_lag_envelopes", "projection", "graph"); lag != 2 {
		t.Errorf("the metrics say %v, want 2", lag)
	}
}
