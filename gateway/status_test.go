package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
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

// ownServer starts a NATS server for the log of a world. external makes the world use it.
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
		t.Fatal("the NATS server is not ready")
	}
	return ns, func(o *worldOptions) { o.logConfig = eventlog.Config{URL: ns.ClientURL()} }
}

// stranger returns a function that appends any bytes to the log, as another NATS client can. The
// log is on a server of its own, which external makes the world use.
func stranger(t *testing.T) (external func(*worldOptions), appendRaw func([]byte)) {
	t.Helper()
	ns, external := ownServer(t)
	nc, err := nats.Connect(ns.ClientURL(), nats.Timeout(patienceOfTests))
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
		// Without a deadline, Publish would wait five seconds for the disk.
		ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
		defer cancel()
		if _, err := js.Publish(ctx, eventlog.Subject, data); err != nil {
			t.Fatal(err)
		}
	}
}

// statusWithLog returns the status of the service, including that of the log. GetStatus leaves it
// out if the log does not answer within two seconds, and is called again then.
func (w *world) statusWithLog(req *skeinv1.GetStatusRequest) (res *skeinv1.GetStatusResponse) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		res = ask(w, w.admin.GetStatus, req)
		if res.GetLog().GetError() == "" {
			break
		}
	}
	return res
}

func TestGetStatus(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	res := w.statusWithLog(&skeinv1.GetStatusRequest{AtLeast: at})

	log := res.GetLog()
	if len(log.GetLogId()) != 32 || log.GetEpoch() != 1 {
		t.Errorf("got log %v, want an id of 32 characters and epoch 1", log)
	}
	if log.GetFirstSequence() != 1 || log.GetLastSequence() != 1 {
		t.Errorf("got log %v, want sequences from 1 to 1", log)
	}
	if log.GetBytes() == 0 || log.GetMaxBytes() != 1<<30 || log.DaysUntilFull != nil {
		t.Errorf("got log %v, want some of %d bytes, and no days until it is full", log, 1<<30)
	}

	if res.GetPosition() != at || res.GetRejectedEventCount() != 0 || res.GetNextPageToken() != "" {
		t.Errorf("got %v, want position %s, no rejected events and no token", res, at)
	}
	if n := len(res.GetProjections()); n != 1 {
		t.Fatalf("got %d projections, want 1", n)
	}
	p := res.GetProjections()[0]
	if p.GetName() != "graph" || p.GetVersion() != graph.New().Version() || len(p.GetFingerprint()) != 32 || p.GetGeneration() != 1 {
		t.Errorf("got projection %v, want the first generation of the graph, version %d", p, graph.New().Version())
	}
	if p.GetPosition() != at || p.GetLagEnvelopes() != 0 || p.GetLagSeconds() != 0 {
		t.Errorf("got projection %v, want position %s and no lag", p, at)
	}
	if p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_READY || p.GetError() != "" || p.GetLastVerifyTime() != nil {
		t.Errorf("got projection %v, want it ready, without an error, and never verified", p)
	}
}

// TestOneVocabularyOfStates checks that a state has one name in metrics, in /readyz, in GetStatus
// and in docs/operations.md, also during a rebuild.
func TestOneVocabularyOfStates(t *testing.T) {
	// The API has one more value, for a state that is not set.
	if got, want := len(adminservice.ProjectionStates), len(skeinv1.ProjectionState_name)-1; got != want {
		t.Errorf("got %d states, want %d as in the API", got, want)
	}
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for st, value := range adminservice.ProjectionStates {
		name := store.State(st).String()
		if want := "PROJECTION_STATE_" + strings.ToUpper(name); value.String() != want {
			t.Errorf("state %s: got %s in the API, want %s", name, value, want)
		}
		if !strings.Contains(string(doc), "| `"+name+"` |") {
			t.Errorf("state %s has no row in docs/operations.md", name)
		}
	}

	// The store is starting until it has folded the log.
	w := newWorld(t)
	ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{AtLeast: w.publish(follow("ann", "bob"))})
	w.wantState("at first", "ready")

	errBuild := errors.New("the build fails")
	_, err = w.store.BuildNext(t.Context(), func(string) error {
		w.wantState("during the build of the next generation", "rebuilding")
		return errBuild
	})
	if !errors.Is(err, errBuild) {
		t.Fatalf("BuildNext: got %v, want %v", err, errBuild)
	}
	w.wantState("after the build", "ready")
}

// wantState fails the test unless /readyz, the metrics and GetStatus have the state of the graph.
func (w *world) wantState(when, name string) {
	w.t.Helper()
	w.wantReady(when, http.StatusOK, "ready", name)

	// The metric of the state is 1, and the metrics of all other states are 0.
	for i := range adminservice.ProjectionStates {
		state := store.State(i).String()
		want := 0.0
		if state == name {
			want = 1
		}
		if got := w.count("skein_projection_state", "projection", "graph", "state", state); got != want {
			w.t.Errorf("%s: metric of state %s: got %v, want %v", when, state, got, want)
		}
	}

	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	got := res.GetProjections()[0].GetState().String()
	if want := "PROJECTION_STATE_" + strings.ToUpper(name); got != want {
		w.t.Errorf("%s: GetStatus: got state %s, want %s", when, got, want)
	}
}

// TestGetStatusWithoutTheLog checks that GetStatus still answers while the log is down: with an
// error of the log, and with all that the process knows without the log.
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
	log := res.GetLog()
	if log.GetError() == "" || len(log.GetLogId()) != 32 || log.GetEpoch() != 1 || log.GetLastSequence() != 1 {
		t.Errorf("got log %v, want an error, an id of 32 characters, epoch 1 and last sequence 1", log)
	}
	if res.GetPosition() != at {
		t.Errorf("got position %s, want %s", res.GetPosition(), at)
	}
	p := res.GetProjections()[0]
	if p.GetPosition() != at || p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_READY {
		t.Errorf("got projection %v, want it ready at %s", p, at)
	}
}

func TestGetStatusOfAnEmptyLog(t *testing.T) {
	w := newWorld(t, asleep)
	res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	if log := res.GetLog(); log.GetFirstSequence() != 0 || log.GetLastSequence() != 0 {
		t.Errorf("got log %v, want no sequences", log)
	}
	if want := w.log.Position(0).String(); res.GetPosition() != want {
		t.Errorf("got position %s, want %s", res.GetPosition(), want)
	}
	if got, want := res.GetProjections()[0].GetState(), skeinv1.ProjectionState_PROJECTION_STATE_STARTING; got != want {
		t.Errorf("got state %v, want %v", got, want)
	}
}

// TestRejectedEvents checks that what other clients appended and no projection can use is counted
// and listed, the latest first. The pages are consistent while more is appended.
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

	// Slot -1 stands for a whole envelope.
	want := []string{"26/1 REASON_SELF_RELATION"}
	for sequence := 25; sequence >= 1; sequence-- {
		want = append(want, fmt.Sprintf("%d/-1 REASON_INVALID_FIELD", sequence))
	}

	// After each page, another rejected envelope and a good event come.
	var got []string
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{PageSize: 10, PageToken: token, AtLeast: at})
		for _, r := range res.GetRejectedEvents() {
			got = append(got, fmt.Sprintf("%d/%d %v", r.GetSequence(), r.GetSlot(), r.GetReason()))
			if r.GetMessage() == "" || len(r.GetData()) == 0 || r.GetPosition() != w.log.Position(r.GetSequence()).String() {
				t.Errorf("got rejected event %v, want a message, data, and the position of its sequence", r)
			}
		}
		if want := int64(26 + page); res.GetRejectedEventCount() != want {
			t.Errorf("page %d: got %d rejected events in all, want %d", page, res.GetRejectedEventCount(), want)
		}
		token = res.GetNextPageToken()
		appendRaw([]byte("more"))
		at = w.publish(follow("ann", fmt.Sprint("eve", page)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rejected events (-want +got):\n%s", diff)
	}

	// The good events of the same envelope count, and so does all that came after the garbage: bob,
	// cid, dan, and one user for each of three pages.
	list := w.following("ann", anyKind).all(t, 10, at)
	if len(list) != 6 || !slices.Contains(list, "cid explicit") {
		t.Errorf("ann follows %v, want 6 users, and cid among them", list)
	}

	_, err = w.admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{PageToken: "AQ"}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
}

// TestRejectedEventsThatAreForgotten checks that the pages end if there are more rejected events
// than the store keeps, and have all those that it keeps.
func TestRejectedEventsThatAreForgotten(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	envelope, err := events.EncodeEnvelope(slices.Repeat([]*skeinv1.Event{follow("ann", "ann")}, 600))
	if err != nil {
		t.Fatal(err)
	}
	appendRaw(envelope)
	appendRaw(envelope)
	at := w.publish(follow("ann", "bob"))

	listed := 0
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		res := ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{PageSize: 1000, PageToken: token, AtLeast: at})
		if res.GetRejectedEventCount() != 1200 {
			t.Errorf("page %d: got %d rejected events in all, want 1200", page, res.GetRejectedEventCount())
		}
		listed += len(res.GetRejectedEvents())
		token = res.GetNextPageToken()
	}
	if listed != store.MaxStoredRejects {
		t.Errorf("got %d listed rejected events, want %d", listed, store.MaxStoredRejects)
	}
}

// TestStatusOfAllStores checks that GetStatus, /readyz, the metrics and a wait of Publish include
// every store of the process.
func TestStatusOfAllStores(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen, withCounters)
	published := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{played("ann", "a")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})

	var names []string
	for _, p := range ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{}).GetProjections() {
		names = append(names, p.GetName())
		if p.GetPosition() != published.GetPosition() || p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_READY {
			t.Errorf("got projection %v, want it ready at %s", p, published.GetPosition())
		}
	}
	if want := []string{"counters", "graph", "inbox", "seen"}; !slices.Equal(names, want) {
		t.Errorf("got projections %v, want %v", names, want)
	}

	for _, name := range names {
		if got := w.count("skein_projection_position", "projection", name); got != 1 {
			t.Errorf("metric of the position of %s: got %v, want 1", name, got)
		}
	}
	if _, _, page := w.get("/readyz"); !strings.Contains(string(page), `"seen":{"state":"ready"`) {
		t.Errorf("/readyz: got %s, want the seen store to be ready", page)
	}
}

// TestLagOfWhatStandsStill checks that a projection that does not fold, for instance while it waits
// for disk, has a lag, although it does not learn of new events.
func TestLagOfWhatStandsStill(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, asleep, external)
	appendRaw([]byte("no events"))
	appendRaw([]byte("nor these"))

	res := w.statusWithLog(&skeinv1.GetStatusRequest{})
	if got := res.GetProjections()[0].GetLagEnvelopes(); got != 2 {
		t.Errorf("GetStatus: got a lag of %d envelopes, want 2", got)
	}
	if got := w.count("skein_projection_lag_envelopes", "projection", "graph"); got != 2 {
		t.Errorf("metric: got a lag of %v envelopes, want 2", got)
	}
}
