package admission

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Connections are the open connections of a server, including those that the loop has passed to
// net/http. Their number is limited, and one client address may have half of that number. A new
// connection above the limit replaces one that has no call in work: one that is idle, that has sent
// nothing or only a part of a request, or whose client does not read its answer. So a client cannot
// keep others out by holding connections. The zero value is ready to use.
type Connections struct {
	mu   sync.Mutex
	open map[*Conn]struct{}
	// byAddress counts the open connections of each address.
	byAddress map[netip.Prefix]int
	// atNetHTTP has the connections that net/http serves, by the values under which net/http knows
	// them.
	atNetHTTP map[net.Conn]*Conn
	// noneOpen is closed when the last connection ends. It is nil unless [Connections.Drained]
	// waits for that.
	noneOpen chan struct{}

	// Accepted counts all connections that were accepted, and HandedOver those of them that were
	// passed to net/http.
	Accepted, HandedOver atomic.Uint64
	// Evicted counts connections that were closed for new ones, and Refused new ones for which no
	// connection could be closed.
	Evicted, Refused atomic.Uint64
}

// Conn is an open connection.
type Conn struct {
	conn    net.Conn
	address netip.Prefix
	// Caller is the client's address as a text. Budgets count calls under it if the caller has no
	// name.
	Caller string
	// callsInWork counts the calls of the connection whose requests have arrived completely and
	// whose answers are not made yet.
	callsInWork atomic.Int32
	// lastBegin is when such a call last began or, before the first one, when the connection was
	// opened, in Unix nanoseconds.
	lastBegin atomic.Int64
}

const (
	// evictTries is how many connections evict examines at most. A complete search would take too
	// long while it holds the lock.
	evictTries = 1024
	// evictChoice is how many candidates evict chooses from.
	evictChoice = 64
)

// Enter adds a new connection. If limit connections are open, or half of that number from the same
// address, it closes another one. If it finds none that it may close, it returns nil, and the
// caller must close the new connection.
func (c *Connections) Enter(conn net.Conn, limit int) *Conn {
	c.Accepted.Add(1)
	in := &Conn{conn: conn, address: addressOf(conn)}
	in.Caller = in.address.String()
	in.lastBegin.Store(time.Now().UnixNano())

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*Conn]struct{}{}
		c.byAddress = map[netip.Prefix]int{}
		c.atNetHTTP = map[net.Conn]*Conn{}
	}
	// An address that has used up its half replaces a connection of its own, so that it takes none
	// from others.
	isAddressFull := c.byAddress[in.address] >= max(1, limit/2)
	if isAddressFull || len(c.open) >= limit {
		if !c.evict(in.address, isAddressFull) {
			c.Refused.Add(1)
			return nil
		}
		c.Evicted.Add(1)
	}

	c.open[in] = struct{}{}
	c.byAddress[in.address]++
	return in
}

// evict closes one connection without a call in work. Of a random sample, it takes the one on which
// no call has begun for the longest time. It returns false if it finds none. If sameAddress is set,
// it considers only connections of the address. c.mu must be held.
func (c *Connections) evict(address netip.Prefix, sameAddress bool) bool {
	// The order of a map is random, so the sample is random, too. A client cannot arrange that its
	// connections are never found.
	var victim *Conn
	tries := 0
	found := 0
	for o := range c.open {
		tries++
		if tries > evictTries || found == evictChoice {
			break
		}
		if o.callsInWork.Load() > 0 || sameAddress && o.address != address {
			continue
		}
		found++
		if victim == nil || o.lastBegin.Load() < victim.lastBegin.Load() {
			victim = o
		}
	}
	if victim == nil {
		return false
	}

	// The victim is removed here and not when its goroutine ends, so that the new connection can
	// take its place at once.
	c.remove(victim)

	// Close the connection below TLS, because writing the close message of TLS could block.
	conn := victim.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
	return true
}

// Leave removes a connection that was closed.
func (c *Connections) Leave(o *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(o)
}

// remove removes a connection. It does nothing if the connection was evicted, and so removed,
// before it ended. c.mu must be held.
func (c *Connections) remove(o *Conn) {
	if _, ok := c.open[o]; !ok {
		return
	}
	delete(c.open, o)
	c.byAddress[o.address]--
	if c.byAddress[o.address] == 0 {
		// Otherwise the map would grow with every address that was ever seen.
		delete(c.byAddress, o.address)
	}
	c.notifyIfNoneOpen()
}

// PassToNetHTTP records that net/http now serves a connection, which net/http knows as conn.
func (c *Connections) PassToNetHTTP(o *Conn, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atNetHTTP[conn] = o
	c.HandedOver.Add(1)
}

// Find returns the connection that net/http knows as conn, or nil if it was not passed with
// PassToNetHTTP.
func (c *Connections) Find(conn net.Conn) *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.atNetHTTP[conn]
}

// RemoveFromNetHTTP removes a connection that net/http has closed.
func (c *Connections) RemoveFromNetHTTP(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.atNetHTTP[conn]; o != nil {
		delete(c.atNetHTTP, conn)
		c.remove(o)
	}
}

// Count returns how many connections are open.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// notifyIfNoneOpen wakes up Drained if no connection is left. c.mu must be held.
func (c *Connections) notifyIfNoneOpen() {
	if c.noneOpen != nil && len(c.open) == 0 {
		close(c.noneOpen)
		c.noneOpen = nil
	}
}

// Drained returns a channel that is closed once no connection is open, and after grace at the
// latest. Only one caller may wait at a time.
func (c *Connections) Drained(grace time.Duration) <-chan struct{} {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		noneOpen := make(chan struct{})
		c.mu.Lock()
		c.noneOpen = noneOpen
		c.notifyIfNoneOpen() // there may be no connection whose end would notify
		c.mu.Unlock()

		select {
		case <-noneOpen:
		case <-time.After(grace):
		}
	}()
	return drained
}

// Begin marks the connection as busy until [Conn.End]. Both are no-ops on a nil Conn.
func (o *Conn) Begin(now time.Time) {
	if o != nil {
		o.lastBegin.Store(now.UnixNano())
		o.callsInWork.Add(1)
	}
}

// End ends what Begin has begun: the answer to the call is made.
func (o *Conn) End() {
	if o != nil {
		o.callsInWork.Add(-1)
	}
}

// addressOf returns the IPv4 address of a client or, for IPv6, the network of 64 bits in which the
// client can choose any address.
func addressOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	// An IPv4 client of a listener for both protocols has a mapped address, and must not count as
	// one of IPv6, all of whose clients would share a network.
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}
