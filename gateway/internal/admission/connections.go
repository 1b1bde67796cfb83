package admission

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Connections are the open connections of a server, including those that were handed to net/http. Their number is limited, and that of
// one client address to half of it. A new connection above the limit closes another one on which no call is worked on: one that is
// idle, that has sent nothing or half a request, or that does not take its answer. So a client cannot keep others out by holding
// connections.
type Connections struct {
	mu   sync.Mutex
	open map[*Conn]struct{}
	// byAddress counts the open connections of each address.
	byAddress map[netip.Prefix]int
	// handed are the connections that net/http serves, by the values that net/http knows.
	handed map[net.Conn]*Conn
	// none is closed when the last connection ends. The caller who waits for that makes it.
	none chan struct{}

	// Accepted counts the connections that came, and HandedOver those of them that were handed to net/http.
	Accepted, HandedOver atomic.Uint64
	// Evicted counts connections that were closed for new ones, and Refused new ones for which none could be closed.
	Evicted, Refused atomic.Uint64
}

// Conn is an open connection.
type Conn struct {
	conn    net.Conn
	address netip.Prefix
	// Caller names the other end where the caller has no name: it is the address.
	Caller string
	// callsInWork counts the calls from when their request is whole until their answer is made.
	callsInWork atomic.Int32
	// lastBegin is when such a call last began, or the connection was opened, in nanoseconds.
	lastBegin atomic.Int64
}

// evictTries is how many connections are looked at to find idle ones. Of the first evictChoice idle ones, the one that has been idle
// longest is closed. A complete search would take too long under the lock.
const evictTries, evictChoice = 1024, 64

// Enter adds a new connection. With limit connections open, or half of them from its address, it closes another one for it. If every
// other one has a call in work, Enter returns nil, and the caller must close the new one.
func (c *Connections) Enter(conn net.Conn, limit int) *Conn {
	c.Accepted.Add(1)
	in := &Conn{conn: conn, address: addressOf(conn)}
	in.Caller = in.address.String()
	in.lastBegin.Store(time.Now().UnixNano())

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.byAddress, c.handed = map[*Conn]struct{}{}, map[netip.Prefix]int{}, map[net.Conn]*Conn{}
	}
	if own := c.byAddress[in.address] >= max(1, limit/2); own || len(c.open) >= limit {
		if !c.evict(in.address, own) {
			c.Refused.Add(1)
			return nil
		}
		c.Evicted.Add(1)
	}

	c.open[in] = struct{}{}
	c.byAddress[in.address]++
	return in
}

// evict closes the connection of a sample on which no call has begun for the longest time, and reports whether there was one. With
// own set, only connections of the address count.
func (c *Connections) evict(address netip.Prefix, own bool) bool {
	var victim *Conn
	tries, found := 0, 0
	for o := range c.open { // a map has another order each time, so the sample is a random one
		if tries++; tries > evictTries || found == evictChoice {
			break
		}
		if o.callsInWork.Load() > 0 || own && o.address != address {
			continue
		}
		if found++; victim == nil || o.lastBegin.Load() < victim.lastBegin.Load() {
			victim = o
		}
	}
	if victim == nil {
		return false
	}
	c.remove(victim)

	// Closes the connection below TLS, because the close message of TLS could block.
	conn := victim.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
	return true
}

// Leave forgets a connection that was closed.
func (c *Connections) Leave(o *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(o)
}

// remove forgets a connection. An evicted connection is removed a second time when it has ended.
func (c *Connections) remove(o *Conn) {
	if _, ok := c.open[o]; !ok {
		return
	}
	delete(c.open, o)
	if c.byAddress[o.address]--; c.byAddress[o.address] == 0 {
		delete(c.byAddress, o.address)
	}
	c.notifyIfNone()
}

// Hand records that net/http serves a connection, and knows it as another value.
func (c *Connections) Hand(o *Conn, as net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handed[as] = o
	c.HandedOver.Add(1)
}

// Known returns the connection that net/http knows as this value, or nil if it was not handed over.
func (c *Connections) Known(as net.Conn) *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handed[as]
}

// Ended forgets a connection that net/http has closed.
func (c *Connections) Ended(as net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.handed[as]; o != nil {
		delete(c.handed, as)
		c.remove(o)
	}
}

// Count returns how many connections are open.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// notifyIfNone closes the channel of the caller who waits for the end of all connections.
func (c *Connections) notifyIfNone() {
	if c.none != nil && len(c.open) == 0 {
		close(c.none)
		c.none = nil
	}
}

// Drained returns a channel that is closed when, after the delay, either no connection is open or the grace has passed.
func (c *Connections) Drained(delay, grace time.Duration) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		if delay > 0 {
			<-time.After(delay)
		}
		none := make(chan struct{})
		c.mu.Lock()
		c.none = none
		c.notifyIfNone()
		c.mu.Unlock()
		select {
		case <-none:
		case <-time.After(grace):
		}
	}()
	return over
}

// Begin marks the connection as one with a call in work until [Conn.End]. Both do nothing on a nil Conn.
func (o *Conn) Begin(now time.Time) {
	if o != nil {
		o.lastBegin.Store(now.UnixNano())
		o.callsInWork.Add(1)
	}
}

// End follows the work on a call.
func (o *Conn) End() {
	if o != nil {
		o.callsInWork.Add(-1)
	}
}

// addressOf returns the IPv4 address of a client, or the network of 64 bits from which a client of IPv6 can choose its address.
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
