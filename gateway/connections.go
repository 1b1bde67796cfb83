package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connections are the open ones, those that were handed to net/http among them. There are at most so many, and half as many from
// one address. One that comes above that closes another one on which no call is worked on: idle or silent since it was opened,
// with half a request, or with an answer that is not taken. So nobody keeps others out by holding connections.
type connections struct {
	mu   sync.Mutex
	open map[*clientConn]struct{}
	// byAddress counts them.
	byAddress map[netip.Prefix]int
	// handed are those in net/http, as it knows them.
	handed map[net.Conn]*clientConn
	// none is closed when there is none, once somebody waits for that.
	none chan struct{}
}

// clientConn is an open connection.
type clientConn struct {
	conn    net.Conn
	address netip.Prefix
	// party is who is at the other end, for want of a name.
	party string
	// working counts the calls that are worked on, from when their request is whole until their answer is made.
	working atomic.Int32
	// last is when such a call last began, or the connection was opened, in nanoseconds.
	last atomic.Int64
}

// crowdTries is how many connections are looked at for one that is quiet. The first crowdChoice that are so are compared.
const crowdTries, crowdChoice = 1024, 64

// enter takes a connection, and returns nil if there is no room for it. It reports whether another one was closed.
func (c *connections) enter(conn net.Conn, most int) (in *clientConn, evicted bool) {
	in = &clientConn{conn: conn, address: addressOf(conn)}
	in.party = in.address.String()
	in.last.Store(time.Now().UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.byAddress, c.handed = map[*clientConn]struct{}{}, map[netip.Prefix]int{}, map[net.Conn]*clientConn{}
	}
	if own := c.byAddress[in.address] >= max(1, most/2); own || len(c.open) >= most {
		if evicted = c.evict(in.address, own); !evicted {
			return nil, false
		}
	}
	c.open[in] = struct{}{}
	c.byAddress[in.address]++
	return in, evicted
}

// evict closes the connection that has been quiet for the longest time, of a sample, and reports whether there was one. With own
// it must be of the address.
func (c *connections) evict(address netip.Prefix, own bool) bool {
	var victim *clientConn
	tries, found := 0, 0
	for o := range c.open { // in an order that is another one each time
		if tries++; tries > crowdTries || found == crowdChoice {
			break
		}
		if o.working.Load() > 0 || own && o.address != address {
			continue
		}
		if found++; victim == nil || o.last.Load() < victim.last.Load() {
			victim = o
		}
	}
	if victim == nil {
		return false
	}
	c.remove(victim)
	// The connection below TLS: to say goodbye could take a while.
	conn := victim.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
	return true
}

// leave forgets a connection that was closed.
func (c *connections) leave(o *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(o)
}

// remove forgets a connection. What was evicted is removed again when it has ended.
func (c *connections) remove(o *clientConn) {
	if _, ok := c.open[o]; !ok {
		return
	}
	delete(c.open, o)
	if c.byAddress[o.address]--; c.byAddress[o.address] == 0 {
		delete(c.byAddress, o.address)
	}
	c.tell()
}

// hand notes that net/http knows a connection by another name.
func (c *connections) hand(o *clientConn, as net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handed[as] = o
}

// ended forgets a connection that net/http has closed.
func (c *connections) ended(as net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.handed[as]; o != nil {
		delete(c.handed, as)
		c.remove(o)
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func (c *connections) tell() {
	if c.none != nil && len(c.open) == 0 {
		close(c.none)
		c.none = nil
	}
}

// drained returns a channel that closes after the delay and, then, when no connection is open or the grace is over.
func (c *connections) drained(delay, grace time.Duration) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		if delay > 0 {
			<-time.After(delay)
		}
		none := make(chan struct{})
		c.mu.Lock()
		c.none = none
		c.tell()
		c.mu.Unlock()
		select {
		case <-none:
		case <-time.After(grace):
		}
	}()
	return over
}

// begin and end are around the work on a call; of no connection, nothing.
func (o *clientConn) begin(now time.Time) {
	if o != nil {
		o.last.Store(now.UnixNano())
		o.working.Add(1)
	}
}

func (o *clientConn) end() {
	if o != nil {
		o.working.Add(-1)
	}
}

// addressOf returns the address of a client, or the network of 64 bits that it may choose its address from.
func addressOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}

type connectionKey struct{}

// connectionOf is the connection of a call in net/http; nil: [Server.Run] does not know it.
func connectionOf(ctx context.Context) *clientConn {
	o, _ := ctx.Value(connectionKey{}).(*clientConn)
	return o
}
