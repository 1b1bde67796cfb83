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

func TestCallConnSendsAllCallsOverOneConnection(t *testing.T) {
	var remotes []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotes = append(remotes, r.RemoteAddr)
		body, err := io.ReadAll(r.Body)
		m := new(skeinv1.ListServedRequest)
		if err != nil || proto.Unmarshal(body, m) != nil || r.Header.Get("Content-Type") != "application/proto" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		if m.GetUserId() == "nobody" {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		// The answer is so long that the server sends it in chunks, without its length.
		for range 5000 {
			_, _ = io.WriteString(w, r.URL.Path+m.GetUserId()+m.GetAtLeast())
		}
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	addr := Address{host, port}
	all, err := DialCallConns(t.Context(), addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := all.Close(); err != nil {
			t.Error(err)
		}
	}()
	calls, err := EncodeCalls(addr, "/served", Protobuf(), []proto.Message{
		&skeinv1.ListServedRequest{UserId: "a"}, &skeinv1.ListServedRequest{UserId: "b", AtLeast: "0"}, &skeinv1.ListServedRequest{UserId: "nobody"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"/serveda", "/servedb9", "", "/served"} {
		atLeast, body := "", new(bytes.Buffer)
		if i == 1 {
			atLeast = "9"
		}
		if i == 3 {
			i, body = 0, nil
		}
		err := all[0].Call(calls, i, atLeast, body)
		switch {
		case i == 2:
			if err == nil || !strings.Contains(err.Error(), "404 Not Found: not found") {
				t.Errorf("call %d: expected the status 404, got %v", i, err)
			}
		case err != nil || body != nil && body.String() != strings.Repeat(want, 5000):
			t.Errorf("call %d: expected %q many times, got %v, %v", i, want, body, err)
		}
	}
	for _, r := range remotes {
		if r != remotes[0] {
			t.Errorf("expected one connection from %s, got another from %s", remotes[0], r)
		}
	}
	for name, calls := range map[string]struct {
		encoding Encoding
		request  proto.Message
	}{
		"a method without at_least": {Protobuf(), &skeinv1.PublishRequest{}},
		"a call in JSON":            {JSON(), &skeinv1.ListServedRequest{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := EncodeCalls(addr, "/any", calls.encoding, []proto.Message{calls.request})
			if err != nil {
				t.Fatal(err)
			}
			err = all[0].Call(c, 0, "9", nil)
			if err == nil || !strings.Contains(err.Error(), "cannot ask for a position") {
				t.Errorf("expected that the call cannot ask for a position, got %v", err)
			}
		})
	}
}
