package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestRequestIDs checks that an internal error can be found in the log by an id: the one that the
// caller has given the call, or else one that the server makes and returns. It holds for calls
// that the loop answers, for those that net/http answers, and for gRPC-Web.
func TestRequestIDs(t *testing.T) {
	var log callLog
	w := newWorld(t, func(o *worldOptions) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })

	// CheckFollows fails with an internal error if it is asked about the follower "broken".
	m, ok := w.server.methods[connectv1.GraphServiceCheckFollowsProcedure].(*unaryMethod[
		skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest])
	if !ok {
		t.Fatalf("CheckFollows is a %T", w.server.methods[connectv1.GraphServiceCheckFollowsProcedure])
	}
	checkFollows := m.handle
	m.handle = func(ctx context.Context, req *skeinv1.CheckFollowsRequest, x *call.Info) (*skeinv1.CheckFollowsResponse, error) {
		if req.GetPairs()[0].GetUserId() == "broken" {
			return nil, errors.New("a row that cannot be")
		}
		return checkFollows(ctx, req, x)
	}

	// callWithID returns the headers of the answer, or those of the error.
	callWithID := func(t *testing.T, follower, id string, options ...connect.ClientOption) (map[string][]string, error) {
		t.Helper()
		req := connect.NewRequest(&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair(follower, "bob")}})
		if id != "" {
			req.Header().Set(RequestIDHeader, id) //nolint:canonicalheader // it is as net/http has it
		}
		res, err := connectv1.NewGraphServiceClient(w.http, w.url, options...).CheckFollows(t.Context(), req)
		if refused, ok := errors.AsType[*connect.Error](err); ok {
			return refused.Meta(), err
		}
		if err != nil {
			t.Fatal(err)
		}
		return res.Header(), nil
	}

	for _, protocol := range []struct {
		name    string
		options []connect.ClientOption
	}{
		{"plain", nil},
		{"JSON", []connect.ClientOption{connect.WithProtoJSON()}},
		{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		t.Run(protocol.name, func(t *testing.T) {
			for _, c := range []struct {
				name, id string
				isValid  bool
			}{
				{"a good id", "checkout-7/2:a", true},
				{"no id", "", false},
				{"spaces", "no good name", false},
				{"quotes", "\"quoted\"", false},
				{"a long id", strings.Repeat("x", maxRequestID+1), false},
			} {
				log.reset()
				header, err := callWithID(t, "broken", c.id, protocol.options...)
				if connect.CodeOf(err) != connect.CodeInternal {
					t.Fatalf("%s: got error %v, want code %v", c.name, err, connect.CodeInternal)
				}

				returned := first(header[ErrorIDHeader])
				if c.isValid && returned != c.id {
					t.Errorf("%s: got id %q, want %q", c.name, returned, c.id)
				}
				if !c.isValid && (returned == "" || returned == c.id) {
					t.Errorf("%s: got id %q, want one that the server made", c.name, returned)
				}
				if line := log.line(t); line["request_id"] != returned || line["msg"] != "call failed" {
					t.Errorf("%s: got log line %v, want a failed call with id %q", c.name, line, returned)
				}
			}

			// Calls that succeed, or fail by the caller's own fault, are not logged. The server
			// makes no id for them, and returns the caller's id only with an error.
			log.reset()
			if header, err := callWithID(t, "ann", "checkout-8", protocol.options...); err != nil || header[ErrorIDHeader] != nil {
				t.Errorf("good call: got error %v and id %q, want neither", err, header[ErrorIDHeader])
			}
			header, err := callWithID(t, "", "", protocol.options...)
			if connect.CodeOf(err) != connect.CodeInvalidArgument || header[ErrorIDHeader] != nil {
				t.Errorf("bad call without an id: got error %v and id %q, want code %v and no id",
					err, header[ErrorIDHeader], connect.CodeInvalidArgument)
			}
			header, err = callWithID(t, "", "checkout-9", protocol.options...)
			if connect.CodeOf(err) != connect.CodeInvalidArgument || first(header[ErrorIDHeader]) != "checkout-9" {
				t.Errorf("bad call with an id: got error %v and id %q, want code %v and %q",
					err, header[ErrorIDHeader], connect.CodeInvalidArgument, "checkout-9")
			}
			if text := log.text(); text != "" {
				t.Errorf("calls without an internal error: got log %s, want nothing", text)
			}

			// The plain calls come first, so that no connection is at net/http yet.
			if n := w.server.conns.HandedOver.Load(); protocol.name == "plain" && n > 0 {
				t.Errorf("%d connections went to net/http, want none", n)
			}
		})
	}
}

// first returns the first of the values of a header, or "" if there is none.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// callLog holds what a logger has written since the last reset.
type callLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *callLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *callLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
}

func (l *callLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// line parses the log, which must be exactly one line of JSON.
func (l *callLog) line(t *testing.T) (line map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.text()), &line); err != nil {
		t.Errorf("got log %q, want one line of JSON: %v", l.text(), err)
	}
	return line
}
