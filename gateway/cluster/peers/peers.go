package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/pagetoken"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Node is a node of the cluster as others see it.
type Node struct {
	Name string
	// Addr is host:port of the listener for other nodes.
	Addr string
	// Serves are the partitions that it answers for.
	Serves events.Partitions
}

const (
	// attempt bounds how long one node is waited for while there is another, and lastAttempt while there is none.
	attemptTimeout, lastAttemptTimeout = time.Second, 30 * time.Second
	// suspicion is how long a node that did not answer is asked last. It doubles each time, up to maxSuspicion, when others take it for dead.
	minSuspicion, maxSuspicion = time.Second, 16 * time.Second
	// connections bounds the calls, but not the streams, under way to a node. More wait for one to end.
	maxConnsPerNode = 256
	// aliveEvery is how often a stream looks whether its node is alive. Nodes say so as often.
	checkAliveEvery = 2 * time.Second
	// dialTimeout bounds how long it takes to connect: enough for a first packet to be lost, which is sent again after a second (RFC 6298,
	// section 2). While another node may answer, an attempt ends before.
	dialTimeout = 3 * time.Second
	// IdleTimeout is how long a connection without a call is kept.
	IdleTimeout = time.Minute
)

// Peers are the other nodes. Its methods are safe for concurrent use.
type Peers struct {
	nodes func() []Node
	// calls and streams have connections of their own: each stream keeps one for as long as it lasts, and would take that of calls.
	calls, streams *http.Client

	scheme      string
	credentials *Credentials
	// keys and log are those that positions and page tokens are compared with.
	keys pagetoken.KeyRing
	log  events.LogID
	// bytes is the budget of bytes of the process.
	bytes  *admission.Budget
	logger *slog.Logger
	// Calls counts the calls to other nodes.
	Calls Calls

	clients clientCache

	mu sync.Mutex
	// silent has the nodes that did not answer their last call.
	suspected map[string]suspicion
	// usual is about the 95th percentile of the times in which a node answers a method. It is kept for each method, because long calls
	// among short ones would always be hedged, and cost more than a twentieth of the work.
	usualLatency map[nodeMethod]time.Duration
	// clockOffsets has by how much the clocks of nodes are ahead, for those whose clocks were too different.
	clockOffsets map[string]time.Duration
	// lastBadAnswer is when a bad answer of each node was last logged.
	lastBadAnswer map[string]time.Time
	// lastFailure is when a call that no node answered was last logged.
	lastFailure time.Time
	// spare counts the answered calls that were not spent on hedges, up to maxHedges*hedgeShare.
	hedgeCredit int
}

// method is one of a node.
type nodeMethod struct{ node, procedure string }

// silence is that of a node: until when it is asked last, for how long that is, and how many calls were overtaken since it answered.
type suspicion struct {
	until          time.Time
	duration       time.Duration
	overtakenCalls int
}

// Calls counts calls to other nodes by their result.
type Calls struct {
	// OK were answered, maybe with an error that is the caller's. Retried were not, and another node was asked, if there was one. Hedged were
	// made while a slow node was asked.
	OK, Retried, Hedged atomic.Uint64
	// Failed are those for which no node was left, or the time of the caller.
	Failed atomic.Uint64
}

// Dial connects to an address.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Options are what the calls to other nodes are made with.
type Options struct {
	// Nodes returns the other nodes that are alive.
	Nodes func() []Node
	// Name and Addr are those by which other nodes know this one; a router has none.
	Name, Addr string
	// Keys are the keys of page tokens, by which nodes prove themselves, and Log is the id of their log.
	Keys pagetoken.KeyRing
	Log  events.LogID
	// Dial connects by TLS. Without it connections are not encrypted.
	Dial Dial
	// Bytes is the budget in which answers count.
	Bytes *admission.Budget
	// Logger gets the bad answers of nodes, and calls that no node has answered.
	Logger *slog.Logger
}

// maxHeaderBytes bounds the head of an answer. Nodes send a few hundred bytes.
const maxHeaderBytes = 16 << 10

// New returns the other nodes of a cluster.
func New(o Options) *Peers {
	dialer := &net.Dialer{Timeout: dialTimeout}
	scheme := "http://"
	if o.Dial != nil {
		scheme = "https://"
	}
	forStreams := &http.Transport{
		DialContext: dialer.DialContext, DialTLSContext: o.Dial, MaxIdleConnsPerHost: maxConnsPerNode, IdleConnTimeout: IdleTimeout,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes,
	}
	forCalls := forStreams.Clone()
	forCalls.MaxConnsPerHost = maxConnsPerNode
	return &Peers{
		nodes: o.Nodes, calls: newHTTPClient(forCalls), streams: newHTTPClient(forStreams),
		scheme: scheme, credentials: NewCredentials(o.Keys, o.Log, o.Name, o.Addr), keys: o.Keys, log: o.Log, bytes: o.Bytes, logger: o.Logger,
		suspected: map[string]suspicion{}, usualLatency: map[nodeMethod]time.Duration{}, hedgeCredit: maxSavedHedges * answersPerHedge,
		clockOffsets: map[string]time.Duration{}, lastBadAnswer: map[string]time.Time{},
	}
}

// newHTTPClient returns a client that follows no redirect: no node sends one.
func newHTTPClient(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Credentials are those of this node.
func (p *Peers) Credentials() *Credentials { return p.credentials }

// Close closes the connections that are not in use.
func (p *Peers) Close() {
	p.calls.CloseIdleConnections()
	p.streams.CloseIdleConnections()
}

// PartitionOf returns the partition of a user or item.
func PartitionOf(home string) uint8 { return events.ShardOf(home).Partition() }

// serving returns the nodes that serve a partition and were not tried, the one to ask first in front. Calls about a partition go to the
// same node as long as it answers, because that has in memory what was asked before.
func (p *Peers) nodesServing(partition uint8, tried []string) []Node {
	var found []Node
	for _, n := range p.nodes() {
		if n.Serves.Has(partition) && !slices.Contains(tried, n.Name) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	if len(found) > 1 {
		first := int(partition) % len(found)
		found = slices.Concat(found[first:], found[:first])
		slices.SortStableFunc(found, func(a, b Node) int { return cmp.Compare(p.suspicionRank(a.Name), p.suspicionRank(b.Name)) })
	}
	return found
}

// IsServed reports whether another node serves a partition.
func (p *Peers) IsServed(partition uint8) bool { return len(p.nodesServing(partition, nil)) > 0 }

// ServedByOthers returns the partitions that other nodes serve.
func (p *Peers) ServedByOthers() (all events.Partitions) {
	for _, n := range p.nodes() {
		all.AddSet(&n.Serves)
	}
	return all
}

// suspects is 1 for a node that did not answer lately.
func (p *Peers) suspicionRank(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.suspected[name]; ok && time.Now().Before(s.until) {
		return 1
	}
	return 0
}

// suspect has a node that did not answer be asked last for a while.
func (p *Peers) suspect(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspectLocked(name)
}

// silence is suspect, and is called with mu held.
func (p *Peers) suspectLocked(name string) {
	s, now := p.suspected[name], time.Now()
	if now.Before(s.until) {
		return // a call that was under way when the first one failed
	}
	s.duration = min(max(2*s.duration, minSuspicion), maxSuspicion)
	s.until = now.Add(s.duration)
	p.suspected[name] = s
}

// trust ends the suspicion of a node that answered.
func (p *Peers) clearSuspicion(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.suspected, name)
	p.hedgeCredit = min(p.hedgeCredit+1, maxSavedHedges*answersPerHedge)
}

// mayHedge reports whether another node may be asked as well, and counts that it is.
func (p *Peers) spendHedgeCredit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hedgeCredit < answersPerHedge {
		return false
	}
	p.hedgeCredit -= answersPerHedge
	p.Calls.Hedged.Add(1)
	return true
}

// judge notes whether a node answered, and reports whether another one may answer better.
func (p *Peers) recordResult(ctx context.Context, name string, err error) (again bool) {
	switch {
	case isFinal(err):
		p.Calls.OK.Add(1)
		p.clearSuspicion(name)
		return false
	case ctx.Err() != nil: // the caller does not want it any more
		return false
	case errors.Is(err, errNoMemory): // this process has refused the call
		return false
	}
	p.Calls.Retried.Add(1)
	if errors.Is(err, ErrBadAnswer) {
		p.logBadAnswer(name, err)
	}
	if apierror.Of(err).Reason == skeinv1.Reason_REASON_UNSPECIFIED { // no node says so
		p.suspect(name)
	}
	return true
}

// badAnswerEvery bounds how often bad answers of a node are logged.
const badAnswerEvery = time.Minute

func (p *Peers) logBadAnswer(name string, err error) {
	now := time.Now()
	p.mu.Lock()
	last, isKnown := p.lastBadAnswer[name]
	isDue := !isKnown || now.Sub(last) >= badAnswerEvery
	if isDue {
		p.lastBadAnswer[name] = now
	}
	p.mu.Unlock()
	if isDue {
		p.logger.Warn("another node gave a bad answer, and the next copy is asked", "node", name, "error", err)
	}
}

// final reports whether any other node would answer likewise.
func isFinal(err error) bool {
	if err == nil || errors.Is(err, errNoMemory) {
		return true
	}
	switch apierror.Of(err).Code {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodeUnimplemented:
		return true
	}
	return false
}

// ended counts what has failed. A caller who went away has not waited for an answer.
func (p *Peers) countFailure(ctx context.Context, err error) {
	if !isFinal(err) && !errors.Is(ctx.Err(), context.Canceled) {
		p.Calls.Failed.Add(1)
		p.logFailure(err)
	}
}

// failureLogInterval bounds how often calls that failed are logged.
const failureLogInterval = time.Minute

// logFailure logs that no other node has answered a call, at most once per failureLogInterval. The cause is what happened at the node that
// was asked last: the nodes may know each other from the bucket, and yet not reach each other.
func (p *Peers) logFailure(err error) {
	now := time.Now()
	p.mu.Lock()
	isDue := now.Sub(p.lastFailure) >= failureLogInterval
	if isDue {
		p.lastFailure = now
	}
	p.mu.Unlock()
	if isDue {
		p.logger.Warn("no other node has answered a call", "error", err, "cause", errors.Unwrap(err))
	}
}

// noNode returns the error of a partition that no node serves. The cause is the error of the last node that was asked, or nil.
func noNodeError(partition uint8, cause error) error {
	if f, ok := errors.AsType[*apierror.Failure](cause); ok && f.Reason != skeinv1.Reason_REASON_UNSPECIFIED {
		return f
	}
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_NOT_HERE, Retry: apierror.RetrySoon, Cause: cause,
		Text: fmt.Sprintf("no node that can be reached serves partition %d of %d", partition, events.NumPartitions),
	}
}

// NotHereError is the error of a node that is asked about partitions that it does not serve.
func NotHereError() error {
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_NOT_HERE, Retry: apierror.RetryAtOnce,
		Text: "the node does not serve the partition",
	}
}

// Call makes a call to a node, and returns how far behind the log the answer is; negative: it does not say.
func Call[Req, Res any](ctx context.Context, p *Peers, n *Node, procedure string, req *Req) (res *Res, lag int64, err error) {
	answer, err := clientFor[Req, Res](p, p.calls, n, procedure).CallUnary(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, 0, callError(n, err)
	}
	if err := p.checkPosition(n.Name, req, answer.Msg); err != nil {
		return nil, 0, err
	}
	return answer.Msg, parseLag(answer.Header()), nil
}

// errorOf returns the error of a call to a node. What the node itself says stays as it is. Anything else, such as an answer that cannot be
// decoded, is the fault of the node or of the connection, and never that of the caller.
func callError(n *Node, err error) error {
	if connect.IsWireError(err) {
		return apierror.OfPeer(err)
	}
	if f, ok := errors.AsType[*apierror.Failure](err); ok {
		return f
	}
	switch connect.CodeOf(err) {
	case connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeUnavailable:
		return apierror.OfPeer(err)
	}
	return badAnswer(n.Name, "gave an answer that cannot be read: "+err.Error())
}

func parseLag(h http.Header) int64 {
	if lag, err := strconv.ParseInt(h.Get(call.LagHeader), 10, 64); err == nil {
		return lag
	}
	return -1
}

// Forward has a node that serves a partition answer a call.
func Forward[Req, Res any](
	ctx context.Context, p *Peers, partition uint8, procedure string, req *Req,
) (res *Res, lag int64, err error) {
	err = p.Scatter(ctx, procedure, []uint8{partition}, func(ctx context.Context, n *Node, _ []int) (keep func(), err error) {
		got, behind, err := Call[Req, Res](ctx, p, n, procedure, req)
		return func() { res, lag = got, behind }, err
	})
	return res, lag, err
}

// limitOf bounds an attempt, more so where there are others.
func attemptTimeoutFor(ctx context.Context, others bool) time.Duration {
	if !others {
		return lastAttemptTimeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		return min(attemptTimeout, time.Until(deadline)/2)
	}
	return attemptTimeout
}

// ForwardStream has a node that serves a partition answer a call with a stream. Once a part was sent, an error ends it: the caller
// continues with a call of its own, where that one stopped.
func ForwardStream[Req, Res any](
	ctx context.Context, p *Peers, partition uint8, procedure string, req *Req, setLag func(int64), send func(*Res) error,
) error {
	var sent bool
	err := retryUntilReached(ctx, func() (again bool, err error) {
		sent, err = forwardStream(ctx, p, partition, procedure, req, setLag, send)
		return !sent, err
	})
	if !sent {
		p.countFailure(ctx, err)
	}
	return err
}

// forwardStream is ForwardStream, with each node asked once, and reports whether a part was sent.
func forwardStream[Req, Res any](
	ctx context.Context, p *Peers, partition uint8, procedure string, req *Req, setLag func(int64), send func(*Res) error,
) (sent bool, err error) {
	for tried := []string(nil); ; {
		nodes := p.nodesServing(partition, tried)
		if len(nodes) == 0 {
			return false, noNodeError(partition, err)
		}
		tried = append(tried, nodes[0].Name)
		sent, err = Stream(ctx, p, &nodes[0], attemptTimeoutFor(ctx, len(nodes) > 1), procedure, req, setLag, send)
		if !p.recordResult(ctx, nodes[0].Name, err) || sent {
			return sent, err
		}
	}
}

// errSilent ends the stream of a node that does not begin with it, or is no longer alive.
var errSilent = &apierror.Failure{
	Code: connect.CodeUnavailable, Retry: apierror.RetrySoon, Text: "the node that answers the stream has fallen silent",
}

// Stream passes on the stream of a node, which must begin within a limit, and reports whether a part of it was sent.
func Stream[Req, Res any](
	ctx context.Context, p *Peers, n *Node, limit time.Duration, procedure string, req *Req, setLag func(int64), send func(*Res) error,
) (sent bool, err error) {
	ctx, memory := p.chargeStream(ctx)
	defer memory.release()
	ctx, end := context.WithCancelCause(ctx)

	// The goroutine reads ctx, so ctx must not be assigned after this.
	begun := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() { p.endStreamOfSilentNode(ctx, n, limit, begun, end) })
	defer ended.Wait()
	defer end(nil)

	parts, err := clientFor[Req, Res](p, p.streams, n, procedure).CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		return false, streamError(ctx, n, err)
	}
	defer func() {
		end(nil)
		_ = parts.Close() // whatever is left of it is not wanted
	}()
	for parts.Receive() {
		if err := p.checkPosition(n.Name, req, parts.Msg()); err != nil {
			return sent, err
		}
		if !sent {
			close(begun)
			if lag := parseLag(parts.ResponseHeader()); lag >= 0 {
				setLag(lag)
			}
		}
		sent = true
		if err := send(parts.Msg()); err != nil {
			return sent, err
		}
		memory.nextMessage()
	}
	if err := parts.Err(); err != nil {
		return sent, streamError(ctx, n, err)
	}
	return sent, nil
}

func streamError(ctx context.Context, n *Node, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return callError(n, err)
}

// endStreamOfSilentNode ends the stream of a node that does not begin within a limit, or is no longer among those that are alive: a node that hangs
// keeps its connections. It returns when ctx ends, which is that of the stream.
func (p *Peers) endStreamOfSilentNode(ctx context.Context, n *Node, limit time.Duration, begun <-chan struct{}, end context.CancelCauseFunc) {
	look := time.NewTimer(limit)
	defer look.Stop()
	for {
		select {
		case <-begun:
			begun = nil
		case <-look.C:
			if begun != nil || !p.isAlive(n) {
				end(errSilent)
				return
			}
		case <-ctx.Done():
			return
		}
		look.Reset(checkAliveEvery)
	}
}

// alive reports whether a node is among the others, by its address: a node that comes back elsewhere has not the streams that it had.
func (p *Peers) isAlive(n *Node) bool {
	return slices.ContainsFunc(p.nodes(), func(o Node) bool { return o.Name == n.Name && o.Addr == n.Addr })
}
