package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request/requesttest"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// twoWays puts calls to a server plainly, so that the loop answers them, and again so that Connect's handler does.
type twoWays struct {
	*world
	t      *testing.T
	client *http.Client
}

// ordinarily makes a call not plain and changes nothing else: it says that the body is not compressed.
const ordinarily = "Content-Encoding: identity"

func newTwoWays(t *testing.T, w *world) *twoWays {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &twoWays{world: w, t: t, client: &http.Client{Transport: transport}}
}

// told is an answer, without what net/http adds by itself.
type told struct {
	status int
	header http.Header
	body   []byte
}

func (two *twoWays) ask(procedure string, body []byte, headers ...string) (told, bool) {
	two.t.Helper()
	req, err := http.NewRequestWithContext(two.t.Context(), http.MethodPost, two.url+procedure, bytes.NewReader(body))
	if err != nil {
		two.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/proto")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	before := two.server.conns.HandedOver.Load()
	res, err := two.client.Do(req)
	if err != nil {
		two.t.Fatal(err)
	}
	defer res.Body.Close()
	a := told{status: res.StatusCode, header: res.Header}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		two.t.Fatal(err)
	}
	for _, name := range []string{"Date", "Content-Length", ErrorIDHeader} { // a failure has another name each time
		a.header.Del(name)
	}
	if two.server.conns.HandedOver.Load() == before {
		return a, true
	}
	// The next call begins in the loop, on a connection of its own.
	two.client.CloseIdleConnections()
	return a, false
}

// same demands that a plain call is answered as Connect's handler answers it, and returns the answer.
func (two *twoWays) same(procedure string, body []byte, headers ...string) told {
	two.t.Helper()
	got, plain := two.ask(procedure, body, headers...)
	want, ordinary := two.ask(procedure, body, append(headers, ordinarily)...)
	if !plain || ordinary {
		two.t.Fatalf("%s %v: plain %v, then %v", procedure, headers, plain, ordinary)
	}
	if got.status == http.StatusOK && got.header.Get("Content-Encoding") == "" {
		// The same message, in whatever order its fields stand.
		got.body, want.body = two.canonical(procedure, got.body), two.canonical(procedure, want.body)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(told{})); diff != "" {
		two.t.Errorf("%s %x %v: %s", procedure, body, headers, diff)
	}
	return got
}

func (two *twoWays) canonical(procedure string, body []byte) []byte {
	two.t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(descriptorOf(procedure).Output().FullName())
	if err != nil {
		two.t.Fatal(err)
	}
	m := kind.New().Interface()
	if err := proto.Unmarshal(body, m); err != nil {
		two.t.Fatalf("%s: %x: %v", procedure, body, err)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		two.t.Fatal(err)
	}
	return data
}

// reads are the unary methods without side effects.
func (two *twoWays) reads() []string {
	var found []string
	for procedure := range two.server.methods {
		d := descriptorOf(procedure)
		if d != nil && strings.HasPrefix(procedure, "/skein.v1.") && !d.IsStreamingServer() &&
			strings.Contains(fmt.Sprint(d.Options()), "NO_SIDE_EFFECTS") && !strings.Contains(procedure, "AdminService") {
			found = append(found, procedure)
		}
	}
	slices.Sort(found)
	return found
}

// requestOf makes a request of which nearly everything may be wrong.
func requestOf(r *rand.Rand, procedure string, positions []string) []byte {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(descriptorOf(procedure).Input().FullName())
	if err != nil {
		panic(err)
	}
	m := kind.New()
	requesttest.Fill(r, m, []float64{1, 0.7, 0.4}[r.IntN(3)])
	replaceTexts(r, m, positions)
	data, err := proto.Marshal(m.Interface())
	if err != nil {
		panic(err)
	}
	if r.IntN(8) == 0 && len(data) > 0 {
		data[r.IntN(len(data))] ^= 1 << r.IntN(8)
	}
	return data
}

// replaceTexts makes most ids those of users that there are, and most numbers and positions right.
func replaceTexts(r *rand.Rand, m protoreflect.Message, positions []string) {
	ids := []string{"ann", "bob", "cid", "7", "x y", ""}
	id := func() protoreflect.Value { return protoreflect.ValueOfString(ids[min(r.IntN(40), r.IntN(len(ids)))]) }
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				if f.Message() != nil {
					replaceTexts(r, v.List().Get(i).Message(), positions)
				} else if f.Kind() == protoreflect.StringKind {
					v.List().Set(i, id())
				}
			}
		case f.Message() != nil:
			replaceTexts(r, m.Mutable(f).Message(), positions)
		case f.Name() == "at_least":
			m.Set(f, protoreflect.ValueOfString(positions[r.IntN(len(positions))]))
		case f.Name() == "page_token", f.Name() == "newer_than":
			if r.IntN(4) > 0 {
				m.Clear(f)
			}
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, id())
		case f.Kind() == protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(5))))
		case f.Kind() == protoreflect.Int32Kind:
			m.Set(f, protoreflect.ValueOfInt32(int32(r.IntN(8)-1)))
		}
		return true
	})
}

// counts are the calls by method and code.
func (two *twoWays) counts() map[string]float64 {
	two.t.Helper()
	families, err := two.registry.Gather()
	if err != nil {
		two.t.Fatal(err)
	}
	n := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "skein_rpc_duration_seconds" {
			for _, m := range family.GetMetric() {
				n[fmt.Sprint(m.GetLabel())] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}

// A plain call is answered, and counted, as Connect's handler answers it: random requests to all reads.
func TestPlainIsTheSame(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen, withCounters)
	for i := range 60 {
		w.publish(follow(fmt.Sprint("reader", i), "ann"))
	}
	at := w.publish(follow("ann", "bob"), follow("bob", "ann"), pinned("bob", "", "p1"), played("ann", "7"), followBoard("ann", "cid", "cats"))
	w.caughtUp(at)
	plainIsTheSame(t, newTwoWays(t, w), at)
}

func plainIsTheSame(t *testing.T, two *twoWays, at string) {
	if reads := two.reads(); len(reads) < 15 {
		t.Fatalf("only these are asked: %v", reads)
	}
	w := two.world
	r := rand.New(rand.NewPCG(1, 2))
	positions := []string{"", "", at, at, "no position", w.log.Position(1 << 40).String(), strings.Repeat("x", 300)}
	statuses := map[int]int{}
	before := two.counts()
	for _, procedure := range two.reads() {
		for range 60 {
			headers := [][]string{
				nil,
				{"Connect-Protocol-Version: 1"},
				{"Accept-Encoding: gzip"},
				{"Accept-Encoding: identity"},
				{"Connect-Timeout-Ms: 10000"},
				{"User-Agent: x", "Traceparent: y", "X-Z: 1"},
			}[r.IntN(6)]
			statuses[two.same(procedure, requestOf(r, procedure, positions), headers...).status]++
		}
	}
	if statuses[http.StatusOK] < 100 || statuses[http.StatusBadRequest] < 100 {
		t.Errorf("answers by status: %v", statuses)
	}
	for labels, n := range two.counts() {
		if n -= before[labels]; int(n)%2 != 0 {
			t.Errorf("%s: %v calls counted of two times so many", labels, n)
		}
	}
}

// caughtUp waits until all stores contain a position.
func (w *world) caughtUp(at string) {
	w.t.Helper()
	d, err := views.DemandOf(at)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, store := range w.server.views.All {
		if err := store.WaitFor(context.Background(), d.Position.Seq); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A long answer is compressed for a client that accepts that.
func TestPlainCompresses(t *testing.T) {
	w := newWorld(t)
	var at string
	for i := range 100 {
		at = w.publish(follow(fmt.Sprint("reader", i), "ann"))
	}
	w.caughtUp(at)
	plainCompresses(t, newTwoWays(t, w))
}

func plainCompresses(t *testing.T, two *twoWays) {
	for size, compressed := range map[int32]bool{1: false, 100: true} {
		body := marshal(t, &skeinv1.ListFollowersRequest{UserId: "ann", PageSize: size})
		plain := two.same(connectv1.GraphServiceListFollowersProcedure, body)
		packed := two.same(connectv1.GraphServiceListFollowersProcedure, body, "Accept-Encoding: gzip")
		if (packed.header.Get("Content-Encoding") == "gzip") != compressed {
			t.Errorf("%d entries: %v", size, packed.header)
		}
		if compressed {
			z, err := gzip.NewReader(bytes.NewReader(packed.body))
			if err != nil {
				t.Fatal(err)
			}
			unpacked, err := io.ReadAll(z)
			if err != nil || !bytes.Equal(two.canonical(connectv1.GraphServiceListFollowersProcedure, unpacked), plain.body) {
				t.Error("it is another answer", err)
			}
		}
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What is not plain is left alone.
func TestOtherCallsTakeNetHTTP(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	notPlainOnes(t, newTwoWays(t, w), at)
}

func notPlainOnes(t *testing.T, two *twoWays, at string) {
	body := marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	for header, status := range map[string]int{
		"Content-Type: application/json":  http.StatusOK, // the second one does not count
		"Content-Encoding: gzip":          http.StatusBadRequest,
		"Content-Encoding: zip":           http.StatusNotImplemented,
		"Accept-Encoding: br, gzip":       http.StatusOK,
		"Connect-Protocol-Version: 2":     http.StatusBadRequest,
		"Connect-Timeout-Ms: -1":          http.StatusBadRequest,
		"Connect-Timeout-Ms: +1000":       http.StatusOK,
		"Connect-Timeout-Ms: soon":        http.StatusBadRequest,
		"Connect-Timeout-Ms: 00000000001": http.StatusBadRequest,
		"Connect-Timeout-Ms: 99999999999": http.StatusBadRequest,
		ordinarily:                        http.StatusOK,
	} {
		if a, plain := two.ask(connectv1.GraphServiceListFollowersProcedure, body, header); plain || a.status != status {
			t.Errorf("%s: %d %s, plain: %v", header, a.status, a.body, plain)
		}
	}
	// As long as a request may be, and more than is set aside for a plain one.
	long := marshal(t, &skeinv1.ListFollowersRequest{UserId: strings.Repeat("x", 64<<10)})
	if a, plain := two.ask(connectv1.GraphServiceListFollowersProcedure, long); plain || a.status != http.StatusBadRequest {
		t.Errorf("a long body: %d %s, plain: %v", a.status, a.body, plain)
	}
}

// What fails otherwise than for its request fails alike: deadlines, states that are not reached, missing projections, bugs.
func TestPlainFailsTheSame(t *testing.T) {
	w := newWorld(t, withSeen)
	at := w.publish(follow("ann", "bob"))
	behind := w.replica(asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 5 * time.Millisecond; o.Limits.BodyBytes = 5000 })
	unary(behind.server, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic("a bug")
		})
	unary(behind.server, connectv1.GraphServiceListMutedProcedure, nil,
		func(context.Context, *skeinv1.ListMutedRequest, *call.Info) (*skeinv1.ListMutedResponse, error) {
			return &skeinv1.ListMutedResponse{NextPageToken: "\xff"}, nil
		})
	unary(behind.server, connectv1.GraphServiceListExcludedBoardsProcedure, nil,
		func(ctx context.Context, _ *skeinv1.ListExcludedBoardsRequest, _ *call.Info) (*skeinv1.ListExcludedBoardsResponse, error) {
			if until, ok := ctx.Deadline(); !ok || time.Until(until) > time.Second {
				return &skeinv1.ListExcludedBoardsResponse{}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at}
	newTwoWays(t, w).same(connectv1.GraphServiceCheckFollowsProcedure, marshal(t, check))
	if a, plain := newTwoWays(t, w).ask(connectv1.GraphServiceCheckFollowsProcedure, marshal(t, check), "Connect-Timeout-Ms: 0"); plain ||
		a.status != http.StatusGatewayTimeout {
		t.Errorf("no time: %d %s, plain: %v", a.status, a.body, plain)
	}
	two := newTwoWays(t, behind)
	patient := two.same(connectv1.GraphServiceListExcludedBoardsProcedure,
		marshal(t, &skeinv1.ListExcludedBoardsRequest{UserId: "ann"}), "Connect-Timeout-Ms: 100")
	if patient.status != http.StatusGatewayTimeout {
		t.Errorf("a caller who gives up: %d %s", patient.status, patient.body)
	}
	plainFailsTheSame(t, two, check)
}

func plainFailsTheSame(t *testing.T, two *twoWays, check *skeinv1.CheckFollowsRequest) {
	for _, c := range []struct {
		procedure string
		req       proto.Message
		status    int
	}{
		{connectv1.GraphServiceCheckFollowsProcedure, check, http.StatusServiceUnavailable},
		{connectv1.GraphServiceListBlockedProcedure, &skeinv1.ListBlockedRequest{UserId: "ann"}, http.StatusInternalServerError},
		{connectv1.GraphServiceListMutedProcedure, &skeinv1.ListMutedRequest{UserId: "ann"}, http.StatusInternalServerError},
		{connectv1.SeenServiceFilterSeenProcedure, &skeinv1.FilterSeenRequest{UserId: "ann"}, http.StatusNotImplemented},
		{connectv1.GraphServiceListMutualsProcedure, &skeinv1.ListMutualsRequest{UserId: strings.Repeat("x", 5000)}, http.StatusBadRequest},
	} {
		ask := func(procedure string, body []byte, _ ...string) told {
			a, plain := two.ask(procedure, body)
			if plain {
				t.Error("a body above the limit is read in the loop")
			}
			return a
		}
		if proto.Size(c.req) < 5000 {
			ask = two.same
		}
		if a := ask(c.procedure, marshal(t, c.req)); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.procedure, a.status, a.body, c.status)
		}
	}
}

// A body that ends before its length, and a caller who goes away, end a plain call as any other.
func TestPlainBodyBreaksOff(t *testing.T) {
	w := newWorld(t)
	var answers []string
	for _, header := range []string{"X: y", ordinarily} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\n%s\r\nContent-Length: 100\r\n\r\nabc",
			connectv1.GraphServiceCheckFollowsProcedure, header)
		if tcp, ok := conn.(*net.TCPConn); !ok || tcp.CloseWrite() != nil {
			t.Fatal("the connection cannot be closed for writing")
		}
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		status, _, _ := strings.Cut(head, "\r\n")
		answers = append(answers, status+body)
	}
	if answers[0] != answers[1] || !strings.Contains(answers[0], "unexpected EOF") {
		t.Errorf("%q, want %q", answers[0], answers[1])
	}
}
