package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestDialAcceptsOnlyHTTPURLs(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:1", "https://skein.example/", "https://skein.example/api"} {
		t.Run("valid: "+url, func(t *testing.T) {
			c, err := client.Dial(url, client.Options{})
			if err != nil {
				t.Fatalf("Dial: got the error %v, want none", err)
			}
			c.Close()
		})
	}

	for _, url := range []string{"", "127.0.0.1:7001", "nats://x", "http://", "http://a b"} {
		t.Run("invalid: "+url, func(t *testing.T) {
			c, err := client.Dial(url, client.Options{})
			if !errors.Is(err, client.ErrBaseURL) {
				t.Errorf("Dial: got the error %v, want %v", err, client.ErrBaseURL)
			}
			if err == nil {
				c.Close()
			}
		})
	}
}

func TestTokenIsSentWithEachCall(t *testing.T) {
	for _, c := range []struct {
		name, token string
		want        []string // the values of the header Authorization
	}{
		{"no token", "", nil},
		{"a token", "skein_x", []string{"Bearer skein_x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			received := make(chan []string, 1)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				received <- r.Header["Authorization"]
			}))
			defer server.Close()
			dialed, err := client.Dial(server.URL, client.Options{Token: c.token})
			if err != nil {
				t.Fatal(err)
			}
			defer dialed.Close()

			// The call fails, because the server answers with an empty body that is no message.
			_, err = dialed.Graph.ListBlocked(t.Context(), connect.NewRequest(&skeinv1.ListBlockedRequest{UserId: "ann"}))

			select {
			case got := <-received:
				if !slices.Equal(got, c.want) {
					t.Errorf("header Authorization: got %q, want %q", got, c.want)
				}
			default:
				t.Errorf("the server received no call; ListBlocked returned %v", err)
			}
		})
	}
}

func TestClientUsesEveryProtocol(t *testing.T) {
	url, stop := startService()
	defer stop()
	callersHTTP := &http.Client{Transport: &http.Transport{}}
	defer callersHTTP.CloseIdleConnections()

	for name, o := range map[string]client.Options{
		"default":                      {},
		"JSON":                         {Connect: []connect.ClientOption{connect.WithProtoJSON()}},
		"GET":                          {Connect: []connect.ClientOption{connect.WithHTTPGet()}},
		"gRPC":                         {HTTP2: true, Connect: []connect.ClientOption{connect.WithGRPC()}},
		"the caller's own HTTP client": {HTTP: callersHTTP},
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
				t.Errorf("CheckFollows: got the error %v, want none", err)
			}
		})
	}
}

// mustAddDetail adds a detail to an error.
func mustAddDetail(t *testing.T, err *connect.Error, m proto.Message) {
	t.Helper()
	detail, detailErr := connect.NewErrorDetail(m)
	if detailErr != nil {
		t.Fatal(detailErr)
	}
	err.AddDetail(detail)
}

func TestErrorDetailsOfTheServiceAreFound(t *testing.T) {
	ofService := connect.NewError(connect.CodeUnavailable, errors.New("x"))
	mustAddDetail(t, ofService, &errdetails.ErrorInfo{Domain: "skein", Reason: "NOT_CAUGHT_UP"})
	if delay, ok := client.RetryDelay(ofService); ok {
		t.Errorf("RetryDelay of an error without a delay: got %v, want none", delay)
	}

	mustAddDetail(t, ofService, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if delay, ok := client.RetryDelay(ofService); !ok || delay != time.Second {
		t.Errorf("RetryDelay: got %v (found: %t), want 1s", delay, ok)
	}
	if got := client.Reason(ofService); got != "NOT_CAUGHT_UP" {
		t.Errorf("Reason: got %q, want NOT_CAUGHT_UP", got)
	}
	if got := client.Violations(ofService); len(got) != 0 {
		t.Errorf("Violations: got %v, want none", got)
	}

	// Reasons of other domains are not those of the service.
	ofProxy := connect.NewError(connect.CodeUnknown, errors.New("x"))
	mustAddDetail(t, ofProxy, &errdetails.ErrorInfo{Domain: "other", Reason: "R"})
	for _, err := range []error{ofProxy, context.Canceled, nil} {
		if got := client.Reason(err); got != "" {
			t.Errorf("Reason(%v): got %q, want none, because the error does not come from the service", err, got)
		}
	}
}

// TestSessionReadsItsOwnWrites checks that a session sends its latest position with each read,
// unless the request has an at_least of its own. It leaves the request of the caller unchanged.
func TestSessionReadsItsOwnWrites(t *testing.T) {
	url, stop := startService()
	defer stop()
	session := new(client.Session)
	c, err := client.Dial(url, client.Options{Connect: []connect.ClientOption{connect.WithInterceptors(session)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	// A read that did not wait for the write before it would miss that write now and then, so the
	// test repeats both.
	const writes = 100
	list := &skeinv1.ListFollowersRequest{UserId: "star"}
	for i := range writes {
		publish := &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow(fmt.Sprint("fan", i), "star")}}
		if _, err := c.Events.Publish(t.Context(), connect.NewRequest(publish)); err != nil {
			t.Fatal(err)
		}
		res, err := c.Graph.ListFollowers(t.Context(), connect.NewRequest(list))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := res.Msg.GetTotalSize(), uint32(i+1); got != want {
			t.Fatalf("ListFollowers after %d writes: got %d followers, want %d", i+1, got, want)
		}
		if got := list.GetAtLeast(); got != "" {
			t.Fatalf("at_least of the caller's request: got %q, want it unchanged", got)
		}
	}

	// Streams are reads, too.
	scan, err := c.Graph.ScanFollowers(t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
		Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "star"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	followers := 0
	for scan.Receive() {
		followers += len(scan.Msg().GetEntries())
	}
	if err := errors.Join(scan.Err(), scan.Close()); err != nil {
		t.Errorf("ScanFollowers: got the error %v, want none", err)
	}
	if followers != writes {
		t.Errorf("ScanFollowers: got %d followers, want %d", followers, writes)
	}

	// The service refuses the caller's at_least, so the session has not replaced it.
	list.AtLeast = "mine"
	_, err = c.Graph.ListFollowers(t.Context(), connect.NewRequest(list))
	if got := client.Reason(err); got != "INVALID_POSITION" {
		t.Errorf("ListFollowers with at_least \"mine\": got the reason %q (%v), want INVALID_POSITION", got, err)
	}
	if got := list.GetAtLeast(); got != "mine" {
		t.Errorf("at_least of the caller's request: got %q, want \"mine\"", got)
	}
}

func TestSessionRemembersTheLatestPosition(t *testing.T) {
	positionAt := func(epoch uint32, seq uint64) string {
		return events.Position{Log: [4]byte{1}, Epoch: epoch, Seq: seq}.String()
	}

	// The steps follow each other in one session.
	var session client.Session
	for _, step := range []struct{ position, want string }{
		{"", ""},
		{"garbage", ""},
		{positionAt(1, 5), positionAt(1, 5)},
		{positionAt(1, 4), positionAt(1, 5)},
		{positionAt(1, 6), positionAt(1, 6)},
		{"", positionAt(1, 6)},
		{positionAt(2, 6), positionAt(2, 6)},
		{positionAt(1, 7), positionAt(2, 6)},
	} {
		session.Remember(step.position)
		if got := session.Position(); got != step.want {
			t.Errorf("position after Remember(%q): got %q, want %q", step.position, got, step.want)
		}
	}
}
