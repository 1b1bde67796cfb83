package peers

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// clientKey identifies a method of a node: the name and address of the node, and the procedure.
type clientKey struct{ name, addr, procedure string }

// clientCache has one client for each method of each member of the cluster, because making a client
// costs as much as a call. The members are the nodes that are alive.
//
// Names and addresses come from the bucket of the cluster. The cache drops the clients of nodes
// that are no longer members, so that it cannot grow without limit when new addresses keep
// appearing in the bucket.
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

// put adds a client, and drops the clients of nodes that are not among members. It adds nothing for
// a node that is not a member: its call began before the node left.
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

// clientFor returns the client of a method of a node, which makes its requests with httpClient. It
// makes a new one only if the cache has none.
func clientFor[Req, Res any](p *Peers, httpClient *http.Client, n *Node, procedure string) *connect.Client[Req, Res] {
	key := clientKey{n.Name, n.Addr, procedure}
	if client, ok := p.clients.get(key).(*connect.Client[Req, Res]); ok {
		return client
	}

	// Without decompressors, the client accepts no compressed answers. Compression would cost more
	// than sending the bytes over a private network.
	withoutCompression := connect.WithAcceptCompression("gzip", nil, nil)
	signing := &nodeClient{Peers: p, http: httpClient, node: *n}
	client := connect.NewClient[Req, Res](signing, p.scheme+n.Addr+procedure, withoutCompression)

	members := p.nodes()
	p.clients.put(key, client, members)
	p.forgetNonMembers(members)
	return client
}

// forgetNonMembers drops what is recorded about nodes that are no longer members, so that these
// maps cannot grow without limit either. A node that returns starts without suspicion, and its
// latency and clock are measured again.
func (p *Peers) forgetNonMembers(members []Node) {
	isMember := map[string]bool{}
	for _, n := range members {
		isMember[n.Name] = true
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.suspected, func(name string, _ suspicion) bool { return !isMember[name] })
	maps.DeleteFunc(p.usualLatency, func(m nodeMethod, _ time.Duration) bool { return !isMember[m.node] })
	maps.DeleteFunc(p.clockOffsets, func(name string, _ time.Duration) bool { return !isMember[name] })
	maps.DeleteFunc(p.lastBadAnswerLog, func(name string, _ time.Time) bool { return !isMember[name] })
}
