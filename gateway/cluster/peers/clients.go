package peers

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// clientKey names a method of a node at an address.
type clientKey struct{ name, addr, procedure string }

// clientCache keeps one client for each method of each member of the cluster, because making a client costs as much as a call.
//
// Names and addresses come from the bucket of the cluster. The cache drops the clients of nodes that are no longer members, so that
// whoever writes ever new addresses there cannot make it grow.
type clientCache struct {
	mu sync.RWMutex
	// clients holds values of type *connect.Client[Req, Res], whose type depends on the procedure.
	clients map[clientKey]any
}

// get returns the client of the key, or nil.
func (c *clientCache) get(key clientKey) any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.clients[key]
}

// put keeps a client, and drops those of nodes that are not among members. It does not keep a client of a node that is not a member itself.
func (c *clientCache) put(key clientKey, client any, members []Node) {
	addrs := map[string]string{}
	for _, n := range members {
		addrs[n.Name] = n.Addr
	}
	isMember := func(k clientKey) bool {
		addr, ok := addrs[k.name]
		return ok && addr == k.addr
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.clients, func(k clientKey, _ any) bool { return !isMember(k) })
	if !isMember(key) {
		return
	}
	if c.clients == nil {
		c.clients = map[clientKey]any{}
	}
	c.clients[key] = client
}

// clientFor returns the client of a method of a node, from the cache if it is there.
func clientFor[Req, Res any](p *Peers, by *http.Client, n *Node, procedure string) *connect.Client[Req, Res] {
	key := clientKey{n.Name, n.Addr, procedure}
	if client, ok := p.clients.get(key).(*connect.Client[Req, Res]); ok {
		return client
	}

	// Nothing is compressed: that would cost more than sending it over a private network.
	client := connect.NewClient[Req, Res](&nodeClient{Peers: p, http: by, node: *n}, p.scheme+n.Addr+procedure,
		connect.WithAcceptCompression("gzip", nil, nil))

	members := p.nodes()
	p.clients.put(key, client, members)
	p.forgetOtherThan(members)
	return client
}

// forgetOtherThan drops what is remembered by name of nodes that are no longer members: names come from the bucket, as addresses do. A node
// that comes back starts without suspicion, and its latency and clock are measured again.
func (p *Peers) forgetOtherThan(members []Node) {
	isMember := map[string]bool{}
	for _, n := range members {
		isMember[n.Name] = true
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.suspected, func(name string, _ suspicion) bool { return !isMember[name] })
	maps.DeleteFunc(p.usualLatency, func(m nodeMethod, _ time.Duration) bool { return !isMember[m.node] })
	maps.DeleteFunc(p.clockOffsets, func(name string, _ time.Duration) bool { return !isMember[name] })
	maps.DeleteFunc(p.lastBadAnswer, func(name string, _ time.Time) bool { return !isMember[name] })
}
