package admission

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Connections are the open ones, those that were handed to net/http among them. There are at most so many, and half as many from
// one address. One that comes above that closes another one on which no call is worked on: idle or silent since it was opened,
// with half a request, or with an answer that is not taken. So a client cannot keep others out by holding connections.
type Connections struct {
	mu   sync.Mutex
	open map[*Conn]struct{}
	// byAddress counts them.
	byAddress map[netip.Prefix]int
	// handed are those in net/http, as it knows them.
	handed map[net.Conn]*Conn
	// none is closed when the last connection ends. It is made by the caller who waits for that.
	none chan struct{}

	// Accepted counts the connections that came, handedOver those of them that were left to net/http.
	Accepted, HandedOver atomic.Uint64
	// Evicted counts idle connections that made room for others, refused those for which there was none.
	Evicted, Refused atomic.Uint64
}

// Conn is an open connection.
type Conn struct {
	conn    net.Conn
	address netip.Prefix
	// Party identifies the other end where the caller has no name.
	Party string
	// working counts the calls that are worked on, from when their request is whole until their answer is made.
	working atomic.Int32
	// last is when such a call last began, or the connection was opened, in nanoseconds.
	last atomic.Int64
}

// evictTries is the number of connections that are searched for idle ones. The first evictChoice idle ones are compared.
const evictTries, evictChoice = 1024, 64

// Enter takes a connection of at most so many, and returns nil if there is no room for it.
func (c *Connections) Enter(conn net.Conn, most int) *Conn {
	c.Accepted.Add(1)
	in := &Conn{conn: conn, address: addressOf(conn)}
	in.Party = in.address.String()
	in.last.Store(time.Now().UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.byAddress, c.handed = map[*Conn]struct{}{}, map[netip.Prefix]int{}, map[net.Conn]*Conn{}
	}
	if own := c.byAddress[in.address] >= max(1, most/2); own || len(c.open) >= most {
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

// evict closes the connection that has been quiet for the longest time, of a sample, and reports whether there was one. With own
// it must be of the address.
func (c *Connections) evict(address netip.Prefix, own bool) bool {
	var victim *Conn
	tries, found := 0, 0
	for o := range c.open { // in an order that is another one each time
		if tries++; tries > evictTries || found == evictChoice {
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
	c.tell()
}

// Hand notes that net/http knows a connection by another name.
func (c *Connections) Hand(o *Conn, as net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handed[as] = o
	c.HandedOver.Add(1)
}

// Known returns a connection that net/http has; nil means it came another way.
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

func (c *Connections) tell() {
	if c.none != nil && len(c.open) == 0 {
		close(c.none)
		c.none = nil
	}
}

// Drained returns a channel that closes after the delay and, then, when no connection is open or the grace is over.
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
		c.tell()
		c.mu.Unlock()
		select {
		case <-none:
		case <-time.After(grace):
		}
	}()
	return over
}

// Begin is before the work on a call, which [Conn.End] ends. Of no connection both do nothing.
func (o *Conn) Begin(now time.Time) {
	if o != nil {
		o.last.Store(now.UnixNano())
		o.working.Add(1)
	}
}

// End is after the work on a call.
func (o *Conn) End() {
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
