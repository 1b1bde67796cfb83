package programs

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestCallConnSendsAllCallsOverOneConnection makes calls to a server that answers with the path and
// the fields of each request many times.
func TestCallConnSendsAllCallsOverOneConnection(t *testing.T) {
	const repetitions = 5000
	var remoteAddrs []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remoteAddrs = append(remoteAddrs, r.RemoteAddr)
		body, err := io.ReadAll(r.Body)
		request := new(skeinv1.ListServedRequest)
		if err != nil || proto.Unmarshal(body, request) != nil || r.Header.Get("Content-Type") != "application/proto" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		if request.GetUserId() == "nobody" {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}

		// The answer is so long that the server sends it in chunks, without its length.
		for range repetitions {
			_, _ = io.WriteString(w, r.URL.Path+request.GetUserId()+request.GetAtLeast())
		}
	}))
	defer server.Close()

	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	addr := Address{host, port}
	conns, err := DialCallConns(t.Context(), addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conns.Close(); err != nil {
			t.Error(err)
		}
	}()

	calls, err := EncodeCalls(addr, "/served", Protobuf(), []proto.Message{
		&skeinv1.ListServedRequest{UserId: "a"}, &skeinv1.ListServedRequest{UserId: "b", AtLeast: "0"}, &skeinv1.ListServedRequest{UserId: "nobody"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name        string
		call        int
		atLeast     string
		dropsAnswer bool
		wantText    string // what is repeated in the answer
		wantErr     string
	}{
		{name: "a request as it was encoded", call: 0, wantText: "/serveda"},
		{name: "a request with another position", call: 1, atLeast: "9", wantText: "/servedb9"},
		{name: "a request that is answered with an error", call: 2, wantErr: "404 Not Found: not found"},
		{name: "an answer that is dropped", call: 0, dropsAnswer: true},
		{name: "a request after a dropped answer", call: 0, wantText: "/serveda"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var body *bytes.Buffer
			if !test.dropsAnswer {
				body = new(bytes.Buffer)
			}
			err := conns[0].Call(calls, test.call, test.atLeast, body)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("Call: got error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if body != nil && body.String() != strings.Repeat(test.wantText, repetitions) {
				t.Errorf("answer: got %q, want %d times %q", body, repetitions, test.wantText)
			}
		})
	}
	for _, remoteAddr := range remoteAddrs {
		if remoteAddr != remoteAddrs[0] {
			t.Errorf("address of the client: got %s, want %s for all calls", remoteAddr, remoteAddrs[0])
		}
	}

	// These calls fail before they are sent.
	for name, test := range map[string]struct {
		encoding Encoding
		request  proto.Message
	}{
		"a method without at_least": {Protobuf(), &skeinv1.PublishRequest{}},
		"a call in JSON":            {JSON(), &skeinv1.ListServedRequest{}},
	} {
		t.Run(name, func(t *testing.T) {
			calls, err := EncodeCalls(addr, "/any", test.encoding, []proto.Message{test.request})
			if err != nil {
				t.Fatal(err)
			}
			const want = "cannot ask for a position"
			if err := conns[0].Call(calls, 0, "9", nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Call with a position: got error %v, want one with %q", err, want)
			}
		})
	}
}
