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

// An internal error is found in the log by the name that its caller has given the call, or else by
// one that the answer tells: for plain calls, for those of net/http, and for gRPC.
func TestRequestIDs(t *testing.T) {
	var log callLog
	w := newWorld(t, func(o *worldOptions) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	m, ok := w.server.methods[connectv1.GraphServiceCheckFollowsProcedure].(*unaryMethod[
		skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest])
	if !ok {
		t.Fatal("CheckFollows is another method")
	}
	answers := m.handle
	m.handle = func(ctx context.Context, req *skeinv1.CheckFollowsRequest, x *call.Info) (*skeinv1.CheckFollowsResponse, error) {
		if req.GetPairs()[0].GetUserId() == "broken" {
			return nil, errors.New("a row that cannot be")
		}
		return answers(ctx, req, x)
	}
	ask := func(follower, id string, options ...connect.ClientOption) (http map[string][]string, err error) {
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
	for _, c := range []struct {
		name    string
		options []connect.ClientOption
	}{
		{"plain", nil},
		{"JSON", []connect.ClientOption{connect.WithProtoJSON()}},
		{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		for _, id := range []string{"checkout-7/2:a", "", "no good name", "\"quoted\"", strings.Repeat("x", maxRequestID+1)} {
			log.reset()
			header, err := ask("broken", id, c.options...)
			if connect.CodeOf(err) != connect.CodeInternal {
				t.Fatalf("%s: %v", c.name, err)
			}
			told := first(header[ErrorIDHeader])
			if sane := id == "checkout-7/2:a"; sane && told != id || !sane && (told == "" || told == id) {
				t.Errorf("%s: a call named %q is told %q", c.name, id, told)
			}
			if line := log.line(t); line["request_id"] != told || line["msg"] != "call failed" {
				t.Errorf("%s: told %q, logged %v", c.name, told, line)
			}
		}
		log.reset()
		// Of what is right, or refused for the caller's own fault, nothing is logged, and nothing
		// is made.
		if header, err := ask("ann", "checkout-8", c.options...); err != nil || header[ErrorIDHeader] != nil {
			t.Errorf("%s: %v, %v", c.name, header, err)
		}
		if header, err := ask("", "", c.options...); connect.CodeOf(err) != connect.CodeInvalidArgument || header[ErrorIDHeader] != nil {
			t.Errorf("%s: %v, %v", c.name, header, err)
		}
		if header, _ := ask("", "checkout-9", c.options...); first(header[ErrorIDHeader]) != "checkout-9" {
			t.Errorf("%s: %v", c.name, header)
		}
		if n := w.server.conns.HandedOver.Load(); c.name == "plain" && n > 0 {
			t.Error("plain calls were not answered by the loop")
		}
		if text := log.text(); text != "" {
			t.Errorf("%s: logged %s", c.name, text)
		}
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// callLog keeps what is logged.
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

// line is the one line that was logged.
func (l *callLog) line(t *testing.T) (line map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.text()), &line); err != nil {
		t.Errorf("%v: %s", err, l.text())
	}
	return line
}
