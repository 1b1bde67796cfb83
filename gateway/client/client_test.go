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

func TestDialAcceptsOnlyHTTPURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://127.0.0.1:1": true, "https://skein.example/": true, "https://skein.example/api": true,
		"": false, "127.0.0.1:7001": false, "nats://x": false, "http://": false, "http://a b": false,
	} {
		c, err := client.Dial(url, client.Options{})
		if (err == nil) != ok || !ok && !errors.Is(err, client.ErrBaseURL) {
			t.Errorf("%q: got the error %v, expected valid to be %t", url, err, ok)
		}
		if err == nil {
			c.Close()
		}
	}
}

func TestTokenIsSentWithEachCall(t *testing.T) {
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
			t.Errorf("token %q: got the Authorization %q", token, got)
		}
	}
}

func TestClientUsesEveryProtocol(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			c, err := client.Dial(url+"/", o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.Graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{{UserId: "ann", Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: "bob"}}},
			}))
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrorDetailsOfTheServiceAreFound(t *testing.T) {
	err := connect.NewError(connect.CodeUnavailable, errors.New("x"))
	for _, m := range []*errdetails.ErrorInfo{{Domain: "skein", Reason: "NOT_CAUGHT_UP"}} {
		d, derr := connect.NewErrorDetail(m)
		if derr != nil {
			t.Fatal(derr)
		}
		err.AddDetail(d)
	}
	if _, ok := client.RetryDelay(err); ok {
		t.Error("got a delay, although the error names none")
	}
	d, derr := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if derr != nil {
		t.Fatal(derr)
	}
	err.AddDetail(d)
	if delay, ok := client.RetryDelay(err); !ok || delay != time.Second {
		t.Errorf("got the delay %v (found: %t), expected 1 s", delay, ok)
	}
	if client.Reason(err) != "NOT_CAUGHT_UP" || len(client.Violations(err)) != 0 {
		t.Errorf("got the reason %q and the violations %v, expected NOT_CAUGHT_UP and none", client.Reason(err), client.Violations(err))
	}
	foreign := connect.NewError(connect.CodeUnknown, errors.New("x"))
	if d, derr = connect.NewErrorDetail(&errdetails.ErrorInfo{Domain: "other", Reason: "R"}); derr != nil {
		t.Fatal(derr)
	}
	foreign.AddDetail(d)
	if client.Reason(foreign) != "" || client.Reason(context.Canceled) != "" || client.Reason(nil) != "" {
		t.Error("got a reason for an error that does not come from the service")
	}
}

// A session sends its latest position with each read, unless the request has an at_least of its
// own. It leaves the request of the caller unchanged.
func TestSessionReadsItsOwnWrites(t *testing.T) {
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
			t.Fatalf("after write %d: got %d followers, %v; expected one per write", i, res.Msg.GetTotalSize(), err)
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
		t.Errorf("the scan has %d followers, %v; expected 100", n, err)
	}
	list.AtLeast = "mine"
	_, err = c.Graph.ListFollowers(t.Context(), connect.NewRequest(list))
	if client.Reason(err) != "INVALID_POSITION" || list.GetAtLeast() != "mine" {
		t.Errorf("got %v and at_least %q, expected INVALID_POSITION for \"mine\"", err, list.GetAtLeast())
	}
}

func TestSessionRemembersTheLatestPosition(t *testing.T) {
	var s client.Session
	at := func(epoch uint32, seq uint64) string {
		return events.Position{Log: [4]byte{1}, Epoch: epoch, Seq: seq}.String()
	}
	for _, step := range []struct{ position, want string }{
		{"", ""},
		{"garbage", ""},
		{at(1, 5), at(1, 5)},
		{at(1, 4), at(1, 5)},
		{at(1, 6), at(1, 6)},
		{"", at(1, 6)},
		{at(2, 6), at(2, 6)},
		{at(1, 7), at(2, 6)},
	} {
		if s.Remember(step.position); s.Position() != step.want {
			t.Errorf("after %q: got the position %q, expected %q", step.position, s.Position(), step.want)
		}
	}
}
