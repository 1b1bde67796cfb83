package eventlog

import (
	"bytes"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// proxy stands between a client and a server and cuts connections.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	// up and down see what goes to the server and comes from it, and return true to cut the connection instead of
	// passing it on.
	up, down func(chunk []byte) bool
}

func newProxy(t testing.TB, ns *server.Server) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: ns.Addr().String(), conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cutAll()
		p.wg.Wait()
	})
	return p
}

// cutOn sets what later connections are watched for.
func (p *proxy) watchChunks(up, down func(chunk []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[upstream] = struct{}{}, struct{}{}
		up, down := p.up, p.down
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(upstream, client, up) })
		p.wg.Go(func() { p.forward(client, upstream, down) })
	}
}

func (p *proxy) forward(to, from net.Conn, cut func([]byte) bool) {
	defer p.closeConns(to, from)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if cut != nil && cut(buf[:n]) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) closeConns(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// cutAll cuts every connection.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// TestRetryNeitherLosesNorDoubles cuts the connection between the append of each envelope and its
// acknowledgement, and sometimes before the append.
func TestRetryNeitherLosesNorDoubles(t *testing.T) {
	checkLeaks(t)
	cuts := 1000
	if testing.Short() {
		cuts = 100
	}
	ns := startTestServer(t, server.Options{})
	p := newProxy(t, ns)
	var appended, sent atomic.Int64
	down := func(chunk []byte) bool {
		// An acknowledgement of what was not a repeat.
		return bytes.Contains(chunk, []byte(`{"stream":"SKEIN"`)) && !bytes.Contains(chunk, []byte(`"duplicate"`)) &&
			appended.Add(1) > 0
	}
	up := func(chunk []byte) bool {
		return bytes.Contains(chunk, []byte("HPUB "+Subject)) && sent.Add(1)%10 == 0
	}
	p.watchChunks(up, down)
	l := mustOpenLog(t, Config{URL: p.url(), Logger: slog.New(slog.DiscardHandler)})
	var repeated int
	pub := newPublisher(t, l, PublisherOptions{Listener: PublisherListener{Appended: func(info AppendInfo) {
		if info.Repeated {
			repeated++
		}
	}}})
	for n := range cuts {
		mustPublish(t, pub, newFollows(n, n+1))
	}
	if got := int(appended.Load()); got != cuts || repeated != cuts {
		t.Errorf("%d acknowledgements were cut off and %d repeats acknowledged, want %d of each", got, repeated, cuts)
	}
	if err := pub.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	seen := countFollowers(readWholeLog(t, mustOpenLog(t, Config{URL: ns.ClientURL()})))
	for n := range cuts {
		if times := seen[newFollow(n).GetUserFollowed().GetUserId()]; times != 1 {
			t.Errorf("event %d is in the log %d times", n, times)
		}
	}
}
