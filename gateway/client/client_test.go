package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestDial(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://127.0.0.1:1": true, "https://skein.example/": true, "https://skein.example/api": true,
		"": false, "127.0.0.1:7001": false, "nats://x": false, "http://": false, "http://a b": false,
	} {
		c, err := client.Dial(url, client.Options{})
		if (err == nil) != ok || !ok && !errors.Is(err, client.ErrBaseURL) {
			t.Errorf("%q: %v", url, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// A token goes with every call.
func TestToken(t *testing.T) {
	for _, token := range []string{"", "skein_x"} {
		var got []string
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header["Authorization"] }))
		c, err := client.Dial(s.URL, client.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Graph.ListBlocked(t.Context(), connect.NewRequest(&skeinv1.ListBlockedRequest{UserId: "ann"}))
		c.Close()
		s.Close()
		if want := token != ""; want != (len(got) == 1) || want && got[0] != "Bearer "+token {
			t.Errorf("%q: %q", token, got)
		}
	}
}

func TestProtocols(t *testing.T) {
	url, stop := service()
	defer stop()
	own := &http.Client{Transport: &http.Transport{}}
	defer own.CloseIdleConnections()
	for name, o := range map[string]client.Options{
		"default": {},
		"json":    {Connect: []connect.ClientOption{connect.WithProtoJSON()}},
		"get":     {Connect: []connect.ClientOption{connect.WithHTTPGet()}},
		"grpc":    {HTTP2: true, Connect: []connect.ClientOption{connect.WithGRPC()}},
		"own":     {HTTP: own},
	} {
		c, err := client.Dial(url+"/", o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
			Pairs: []*skeinv1.FollowPair{{UserId: "ann", Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: "bob"}}},
		}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

func TestErrorDetails(t *testing.T) {
	err := connect.NewError(connect.CodeUnavailable, errors.New("x"))
	for _, m := range []*errdetails.ErrorInfo{{Domain: "skein", Reason: "NOT_CAUGHT_UP"}} {
		d, derr := connect.NewErrorDetail(m)
		if derr != nil {
			t.Fatal(derr)
		}
		err.AddDetail(d)
	}
	if _, ok := client.RetryDelay(err); ok {
		t.Error("a delay that nobody gave")
	}
	d, derr := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if derr != nil {
		t.Fatal(derr)
	}
	err.AddDetail(d)
	if delay, ok := client.RetryDelay(err); !ok || delay != time.Second {
		t.Error(delay, ok)
	}
	if client.Reason(err) != "NOT_CAUGHT_UP" || len(client.Violations(err)) != 0 {
		t.Error(client.Reason(err))
	}
	foreign := connect.NewError(connect.CodeUnknown, errors.New("x"))
	if d, derr = connect.NewErrorDetail(&errdetails.ErrorInfo{Domain: "other", Reason: "R"}); derr != nil {
		t.Fatal(derr)
	}
	foreign.AddDetail(d)
	if client.Reason(foreign) != "" || client.Reason(context.Canceled) != "" || client.Reason(nil) != "" {
		t.Error("reasons of others")
	}
}

// A session demands the latest position that it has seen, leaves the caller's demands alone, and takes its own out of
// the request again.
func TestSession(t *testing.T) {
	url, stop := service()
	defer stop()
	s := new(client.Session)
	c, err := client.Dial(url, client.Options{Connect: []connect.ClientOption{connect.WithInterceptors(s)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list := &skeinv1.ListFollowersRequest{UserId: "star"}
	for i := range 100 {
		event := follow("fan"+string(rune('A'+i%26))+string(rune('a'+i/26)), "star")
		if _, err := c.Events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{event}})); err != nil {
			t.Fatal(err)
		}
		res, err := c.Graph.ListFollowers(t.Context(), connect.NewRequest(list))
		if err != nil || res.Msg.GetTotalSize() != uint32(i+1) {
			t.Fatalf("write %d: %d followers, %v", i, res.Msg.GetTotalSize(), err)
		}
		if list.GetAtLeast() != "" {
			t.Fatal("the request of the caller was changed")
		}
	}
	scan, err := c.Graph.ScanFollowers(t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
		Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "star"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for scan.Receive() {
		n += len(scan.Msg().GetEntries())
	}
	if err := errors.Join(scan.Err(), scan.Close()); err != nil || n != 100 {
		t.Errorf("scan: %d, %v", n, err)
	}
	list.AtLeast = "mine"
	_, err = c.Graph.ListFollowers(t.Context(), connect.NewRequest(list))
	if client.Reason(err) != "INVALID_POSITION" || list.GetAtLeast() != "mine" {
		t.Errorf("%v", err)
	}
}

func TestSessionNotesTheLatest(t *testing.T) {
	var s client.Session
	at := func(epoch uint32, seq uint64) string {
		return events.Position{Log: [4]byte{1}, Epoch: epoch, Seq: seq}.String()
	}
	for _, step := range []struct{ note, want string }{
		{"", ""},
		{"garbage", ""},
		{at(1, 5), at(1, 5)},
		{at(1, 4), at(1, 5)},
		{at(1, 6), at(1, 6)},
		{"", at(1, 6)},
		{at(2, 6), at(2, 6)},
		{at(1, 7), at(2, 6)},
	} {
		if s.Note(step.note); s.Position() != step.want {
			t.Errorf("after %q: %q, want %q", step.note, s.Position(), step.want)
		}
	}
}
