package eventlog

import (
	"bytes"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// proxy forwards the connections of clients to a server, and can cut them.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[net.Conn]struct{}
	// up gets each chunk that a client sends to the server, and down each chunk that the server
	// sends. If they return true, the proxy cuts the connection and does not forward the chunk.
	up, down func(chunk []byte) bool
}

// newProxy starts a proxy for the server on a free port, and stops it at the end of the test.
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

// watchChunks sets the functions up and down for all later connections.
func (p *proxy) watchChunks(up, down func(chunk []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
}

// setServer makes the proxy forward all later connections to another server.
func (p *proxy) setServer(ns *server.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = ns.Addr().String()
}

// url returns the address of the proxy for clients.
func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// accept accepts connections until the listener is closed.
func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		upstream, err := net.Dial("tcp", target)
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

// forward copies one direction of a connection until it ends or cut returns true.
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

// closeConns closes connections and forgets them.
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

// TestRetryNeitherLosesNorDoubles cuts the connection after each envelope was appended and before
// its acknowledgement arrives, and sometimes before the append. The retries store every event
// exactly once.
func TestRetryNeitherLosesNorDoubles(t *testing.T) {
	checkLeaks(t)
	cuts := 1000
	if testing.Short() {
		cuts = 50
	}
	ns := startTestServer(t, server.Options{})
	p := newProxy(t, ns)

	var appended, lastCut, sent atomic.Int64
	acknowledgement := regexp.MustCompile(`\{"stream":"SKEIN","seq":(\d+)`)
	down := func(chunk []byte) bool {
		// Cut off the first acknowledgement of each envelope that arrives. If the server was slow,
		// the publisher has sent the envelope twice by then, so the first acknowledgement may come
		// together with that of the duplicate, or be lost in a connection that up has cut. A late
		// one of a duplicate may also come together with the first one of the next envelope.
		acks := acknowledgement.FindAllSubmatch(chunk, -1)
		if len(acks) == 0 {
			return false
		}
		newest := acks[len(acks)-1]
		seq, err := strconv.ParseInt(string(newest[1]), 10, 64)
		if err != nil || seq <= lastCut.Load() {
			return false
		}
		lastCut.Store(seq)
		appended.Add(1)
		return true
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

	if got := int(appended.Load()); got != cuts {
		t.Errorf("acknowledgements that were cut off: got %d, want %d", got, cuts)
	}
	if repeated != cuts {
		t.Errorf("envelopes that were already appended: got %d, want %d", repeated, cuts)
	}
	if err := pub.Close(testContext(t)); err != nil {
		t.Error(err)
	}

	seen := countFollowers(readWholeLog(t, mustOpenLog(t, Config{URL: ns.ClientURL()})))
	for n := range cuts {
		if times := seen[newFollow(n).GetUserFollowed().GetUserId()]; times != 1 {
			t.Errorf("event %d: got it %d times in the log, want once", n, times)
		}
	}
}
