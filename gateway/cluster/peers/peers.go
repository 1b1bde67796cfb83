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
	// Addr is the host:port of the listener for other nodes.
	Addr string
	// Serves are the partitions about which the node answers calls.
	Serves events.Partitions
}

const (
	// attemptTimeout is how long one node may take to answer before another node is asked instead,
	// if there is one that could answer. It ends an attempt to begin a stream. An attempt of
	// Scatter may go on after it until the other node has answered.
	attemptTimeout = time.Second
	// lastAttemptTimeout is how long a node may take at most, while no other node answers instead.
	lastAttemptTimeout = 30 * time.Second
	// minSuspicion is how long a node is suspected after it did not answer: for that time it is
	// asked only after all others. The duration doubles with each further failure in a row, up to
	// maxSuspicion. A node that has stopped is by then no longer among the nodes that are alive.
	minSuspicion = time.Second
	maxSuspicion = 16 * time.Second
	// maxConnsPerNode limits how many calls to a node run at the same time. More calls wait until
	// one has ended. Streams are not limited.
	maxConnsPerNode = 256
	// aliveCheckInterval is the interval at which a stream checks whether its node is still alive.
	// Nodes renew their keys in the bucket of the cluster at the same interval.
	aliveCheckInterval = 2 * time.Second
	// dialTimeout is how long it may take to connect without TLS. Options.Dial must limit the time
	// itself. dialTimeout allows for the loss of the first packet, which is sent again after a
	// second (RFC 6298, section 2).
	dialTimeout = 3 * time.Second
	// IdleTimeout is how long a connection without a call stays open.
	IdleTimeout = time.Minute
)

// Peers calls the other nodes of a cluster. Its methods may be called concurrently.
type Peers struct {
	// nodes returns the other nodes that are alive.
	nodes func() []Node
	// calls and streams have separate connections. A stream occupies its connection for as long as
	// it lasts, so many streams would leave no connections for calls.
	calls, streams *http.Client

	scheme      string
	credentials *Credentials
	// keys read the positions in page tokens, and log is the id of the log. Both are used to check
	// the positions of answers.
	keys pagetoken.KeyRing
	log  events.LogID
	// bytes is the process's budget of bytes. The memory of answers is taken from it.
	bytes  *admission.Budget
	logger *slog.Logger
	// Calls counts the calls to other nodes.
	Calls Calls

	clients clientCache

	// mu guards all fields below.
	mu sync.Mutex
	// suspected has an entry for each node that did not answer its last call or was overtaken by
	// another node, by name. The node is suspected only until the time in its entry. When it
	// answers, the entry is deleted.
	suspected map[string]suspicion
	// usualLatency is about the 95th percentile of the times in which a node answers a method. It
	// is kept per method. If it were kept per node, long calls among many short ones would always
	// be hedged. These would be only a twentieth of the calls, but more than that of the work.
	usualLatency map[nodeMethod]time.Duration
	// clockOffsets is by how much the clock of a node is ahead of the clock of this process, by the
	// name of the node. It has only nodes that refused a call because their clock differs.
	clockOffsets map[string]time.Duration
	// lastBadAnswerLog is when a bad answer of a node was last logged, by the name of the node.
	lastBadAnswerLog map[string]time.Time
	// lastFailureLog is when a call that no node answered was last logged.
	lastFailureLog time.Time
	// hedgeCredit increases by 1 with each answered call, up to maxSavedHedges*answersPerHedge,
	// which it also has at first. Each hedge costs answersPerHedge.
	hedgeCredit int
}

// nodeMethod is a method of one node.
type nodeMethod struct{ node, procedure string }

// suspicion is what is known about a node that did not answer its last call, or was overtaken by
// another node.
type suspicion struct {
	// until is when the suspicion ends, and duration is how long it lasts. Until then the node is
	// asked only after all others.
	until    time.Time
	duration time.Duration
	// overtakenCalls is how many calls in a row another node has answered before this node did. It
	// keeps its value when a suspicion ends, so one more overtaken call begins the next suspicion.
	overtakenCalls int
}

// Calls counts calls to other nodes by their result.
type Calls struct {
	// OK counts calls that were answered, also with an error that any other node would return, too.
	OK atomic.Uint64
	// Retried counts calls that a node did not answer, or not before another node. Another node was
	// then asked, if there was one.
	Retried atomic.Uint64
	// Hedged counts calls that were made in addition because another node was slow.
	Hedged atomic.Uint64
	// Failed counts calls of Scatter and ForwardStream for which no node has answered, although the
	// caller still waited.
	Failed atomic.Uint64
}

// Dial connects to an address.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Options configure [Peers].
type Options struct {
	// Nodes returns the other nodes that are alive.
	Nodes func() []Node
	// Name and Addr are the name and the address of this node in the cluster. They are empty for a
	// router.
	Name, Addr string
	// Keys are the keys of page tokens, and Log is the id of the log. All nodes of a cluster have
	// the same ones, and prove that to each other.
	Keys pagetoken.KeyRing
	Log  events.LogID
	// Dial connects with TLS. If it is nil, connections are not encrypted.
	Dial Dial
	// Bytes is the budget of bytes from which the memory of answers is taken.
	Bytes *admission.Budget
	// Logger receives the bad answers of nodes, and the calls that no node has answered.
	Logger *slog.Logger
}

// maxHeaderBytes limits the size of the HTTP headers of an answer. Nodes send a few hundred bytes.
const maxHeaderBytes = 16 << 10

// New returns the Peers of a cluster.
func New(o Options) *Peers {
	scheme := "http://"
	if o.Dial != nil {
		scheme = "https://"
	}

	dialer := &net.Dialer{Timeout: dialTimeout}
	streamTransport := &http.Transport{
		DialContext:            dialer.DialContext,
		DialTLSContext:         o.Dial,
		MaxIdleConnsPerHost:    maxConnsPerNode,
		IdleConnTimeout:        IdleTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	callTransport := streamTransport.Clone()
	callTransport.MaxConnsPerHost = maxConnsPerNode

	return &Peers{
		nodes:            o.Nodes,
		calls:            newHTTPClient(callTransport),
		streams:          newHTTPClient(streamTransport),
		scheme:           scheme,
		credentials:      NewCredentials(o.Keys, o.Log, o.Name, o.Addr),
		keys:             o.Keys,
		log:              o.Log,
		bytes:            o.Bytes,
		logger:           o.Logger,
		suspected:        map[string]suspicion{},
		usualLatency:     map[nodeMethod]time.Duration{},
		clockOffsets:     map[string]time.Duration{},
		lastBadAnswerLog: map[string]time.Time{},
		hedgeCredit:      maxSavedHedges * answersPerHedge,
	}
}

// newHTTPClient returns a client that does not follow redirects, because no node sends one.
func newHTTPClient(t *http.Transport) *http.Client {
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: noRedirect}
}

// Credentials returns the credentials of this node.
func (p *Peers) Credentials() *Credentials { return p.credentials }

// Close closes the connections that are not in use.
func (p *Peers) Close() {
	p.calls.CloseIdleConnections()
	p.streams.CloseIdleConnections()
}

// PartitionOf returns the partition of a home, which is the id of a user or item.
func PartitionOf(home string) uint8 { return events.ShardOf(home).Partition() }

// nodesServing returns the nodes that serve a partition and whose names are not in tried, in the
// order in which they should be asked. Calls about the same partition go to the same node as long
// as it answers, because that node has the rows of earlier calls in memory.
func (p *Peers) nodesServing(partition uint8, tried []string) []Node {
	var found []Node
	for _, n := range p.nodes() {
		if n.Serves.Has(partition) && !slices.Contains(tried, n.Name) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	if len(found) < 2 {
		return found
	}

	// Rotate, so that partitions are spread over the nodes, and then move suspected nodes to the
	// end.
	first := int(partition) % len(found)
	found = slices.Concat(found[first:], found[:first])
	slices.SortStableFunc(found, func(a, b Node) int {
		return cmp.Compare(p.suspicionRank(a.Name), p.suspicionRank(b.Name))
	})
	return found
}

// IsServed reports whether another node serves a partition.
func (p *Peers) IsServed(partition uint8) bool { return len(p.nodesServing(partition, nil)) > 0 }

// ServedByOthers returns the partitions that other nodes serve.
func (p *Peers) ServedByOthers() (served events.Partitions) {
	for _, n := range p.nodes() {
		served.AddSet(&n.Serves)
	}
	return served
}

// suspicionRank returns 1 for a node that is suspected, and 0 for any other.
func (p *Peers) suspicionRank(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.suspected[name].until) {
		return 1
	}
	return 0
}

// suspect records that a node did not answer, so that it is asked only after all others for a
// while.
func (p *Peers) suspect(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspectLocked(name)
}

// suspectLocked is suspect for a caller that holds mu.
func (p *Peers) suspectLocked(name string) {
	s := p.suspected[name]
	now := time.Now()
	if now.Before(s.until) {
		// This call began before the first one failed. If it counted, a single failure of a node
		// with many calls would lead to the longest suspicion.
		return
	}
	s.duration = min(max(2*s.duration, minSuspicion), maxSuspicion)
	s.until = now.Add(s.duration)
	p.suspected[name] = s
}

// clearSuspicion records that a node has answered: it deletes the node's entry in suspected, and
// increases the credit for hedges.
func (p *Peers) clearSuspicion(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.suspected, name)
	p.hedgeCredit = min(p.hedgeCredit+1, maxSavedHedges*answersPerHedge)
}

// spendHedgeCredit reports whether the credit is enough to ask another node in addition to a slow
// one. If so, it deducts the cost of a hedge and counts the hedge.
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

// recordResult records whether a node has answered a call that ended with err, and reports whether
// another node should be asked. If ctx has ended, the caller no longer waits, and the node is not
// suspected. So ctx must not be the context that ends with the time limit of the attempt.
func (p *Peers) recordResult(ctx context.Context, name string, err error) (askAnother bool) {
	switch {
	case errors.Is(err, errNoMemory):
		// This process has refused the answer, which says nothing about the node.
		return false
	case isFinal(err):
		p.Calls.OK.Add(1)
		p.clearSuspicion(name)
		return false
	case ctx.Err() != nil:
		// The caller no longer waits. A node must not be suspected for that.
		return false
	}

	p.Calls.Retried.Add(1)
	if errors.Is(err, ErrBadAnswer) {
		p.logBadAnswer(name, err)
	}
	// Errors that a healthy node returns have a reason. Without one, the node could not be reached,
	// or it has failed.
	if apierror.Of(err).Reason == skeinv1.Reason_REASON_UNSPECIFIED {
		p.suspect(name)
	}
	return true
}

// badAnswerLogInterval is the shortest time between two log lines about bad answers of a node.
const badAnswerLogInterval = time.Minute

// logBadAnswer logs a bad answer of a node, unless one was logged a short time ago.
func (p *Peers) logBadAnswer(name string, err error) {
	now := time.Now()
	// The line is written without the lock, which every call needs.
	p.mu.Lock()
	last, isKnown := p.lastBadAnswerLog[name]
	isDue := !isKnown || now.Sub(last) >= badAnswerLogInterval
	if isDue {
		p.lastBadAnswerLog[name] = now
	}
	p.mu.Unlock()

	if isDue {
		p.logger.Warn("another node gave a bad answer, and the next copy is asked", "node", name, "error", err)
	}
}

// isFinal reports whether no other node could give a better result: the call has succeeded, or has
// an error that any node would return.
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

// countFailure counts and logs a call that ended with err, if no node has answered it. It ignores a
// call that a node has answered, and one whose caller has gone away.
func (p *Peers) countFailure(ctx context.Context, err error) {
	if !isFinal(err) && !errors.Is(ctx.Err(), context.Canceled) {
		p.Calls.Failed.Add(1)
		p.logFailure(err)
	}
}

// failureLogInterval is the shortest time between two log lines about calls that no node answered.
const failureLogInterval = time.Minute

// logFailure logs that no other node has answered a call, unless that was logged a short time ago.
// The line also has the error of the node that was asked last, because nodes may learn of each
// other from the bucket of the cluster, and yet not reach each other.
func (p *Peers) logFailure(err error) {
	now := time.Now()
	p.mu.Lock()
	isDue := now.Sub(p.lastFailureLog) >= failureLogInterval
	if isDue {
		p.lastFailureLog = now
	}
	p.mu.Unlock()
	if isDue {
		p.logger.Warn("no other node has answered a call", "error", err, "cause", errors.Unwrap(err))
	}
}

// noNodeError returns the error for a partition that no remaining node serves. lastErr is the error
// of the node that was asked last, or nil if none was asked. If lastErr has a reason, noNodeError
// returns it unchanged, because it says more to the client.
func noNodeError(partition uint8, lastErr error) error {
	failure, ok := errors.AsType[*apierror.Failure](lastErr)
	if ok && failure.Reason != skeinv1.Reason_REASON_UNSPECIFIED {
		return failure
	}
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_NOT_HERE, Retry: apierror.RetrySoon, Cause: lastErr,
		Text: fmt.Sprintf("no node that can be reached serves partition %d of %d", partition, events.NumPartitions),
	}
}

// NotHereError returns the error with which a node answers a call about partitions that it does not
// serve.
func NotHereError() error {
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_NOT_HERE, Retry: apierror.RetryAtOnce,
		Text: "the node does not serve the partition",
	}
}

// Call makes one call to one node. Only ctx limits how long the call takes, and its result changes
// neither the counts of calls nor the suspicion of the node. lag is by how many envelopes the
// answer is behind the log, or negative if the answer does not say.
func Call[Req, Res any](
	ctx context.Context, p *Peers, n *Node, procedure string, req *Req,
) (res *Res, lag int64, err error) {
	answer, err := clientFor[Req, Res](p, p.calls, n, procedure).CallUnary(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, 0, callError(n, err)
	}
	if err := p.checkPosition(n.Name, req, answer.Msg); err != nil {
		return nil, 0, err
	}
	return answer.Msg, parseLag(answer.Header()), nil
}

// callError returns the error of a call to a node. An error that the node has returned keeps its
// meaning. Anything else, such as an answer that cannot be decoded, is the fault of the node or of
// the connection, unless the context of the call has ended.
func callError(n *Node, err error) error {
	if connect.IsWireError(err) {
		return apierror.OfPeer(err)
	}
	if f, ok := errors.AsType[*apierror.Failure](err); ok {
		return f
	}

	// Connect's client gives these codes to failures of the connection and to the end of ctx.
	switch connect.CodeOf(err) {
	case connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeUnavailable:
		return apierror.OfPeer(err)
	}
	return badAnswer(n.Name, "gave an answer that cannot be read: "+err.Error())
}

// parseLag returns the lag in the header of an answer, or -1 if there is none.
func parseLag(h http.Header) int64 {
	lag, err := strconv.ParseInt(h.Get(call.LagHeader), 10, 64)
	if err != nil {
		return -1
	}
	return lag
}

// Forward passes a call on to a node that serves the partition, and returns the node's answer. lag
// is as for [Call].
func Forward[Req, Res any](
	ctx context.Context, p *Peers, partition uint8, procedure string, req *Req,
) (res *Res, lag int64, err error) {
	ask := func(ctx context.Context, n *Node, _ []int) (keep func(), err error) {
		nodeRes, nodeLag, err := Call[Req, Res](ctx, p, n, procedure, req)
		return func() { res, lag = nodeRes, nodeLag }, err
	}
	err = p.Scatter(ctx, procedure, []uint8{partition}, ask)
	return res, lag, err
}

// attemptTimeoutFor returns how long one node may take to answer. If other nodes could answer
// instead, at least half of the time until the deadline of ctx is left for them.
func attemptTimeoutFor(ctx context.Context, hasOthers bool) time.Duration {
	if !hasOthers {
		return lastAttemptTimeout
	}
	deadline, ok := ctx.Deadline()
	if ok {
		return min(attemptTimeout, time.Until(deadline)/2)
	}
	return attemptTimeout
}

// ForwardStream passes a call on to a node that serves the partition, and passes the parts of the
// node's stream to send. setLag gets the lag of the first part, before it is sent. If the node
// fails before the first part, ForwardStream asks other nodes. After that, an error ends the
// stream, and the client must continue with a new call where the stream ended.
func ForwardStream[Req, Res any](
	ctx context.Context, p *Peers, partition uint8, procedure string, req *Req, setLag func(int64), send func(*Res) error,
) error {
	var hasSent bool
	err := retryUntilReached(ctx, func() (canRetry bool, err error) {
		hasSent, err = forwardStreamOnce(ctx, p, partition, procedure, req, setLag, send)
		return !hasSent, err
	})
	if !hasSent {
		p.countFailure(ctx, err)
	}
	return err
}

// forwardStreamOnce is ForwardStream without pauses and without a second round: it asks each node
// at most once. hasSent says that a part of a stream was passed to send.
func forwardStreamOnce[Req, Res any](
	ctx context.Context, p *Peers, partition uint8, procedure string, req *Req, setLag func(int64), send func(*Res) error,
) (hasSent bool, err error) {
	var tried []string
	for {
		nodes := p.nodesServing(partition, tried)
		if len(nodes) == 0 {
			return false, noNodeError(partition, err)
		}
		n := &nodes[0]
		tried = append(tried, n.Name)
		var sendErr error
		sendPart := func(part *Res) error {
			sendErr = send(part)
			return sendErr
		}
		hasSent, err = Stream(ctx, p, n, attemptTimeoutFor(ctx, len(nodes) > 1), procedure, req, setLag, sendPart)
		if sendErr != nil {
			// The client did not take a part in time, or has gone away. The node has answered.
			p.recordResult(ctx, n.Name, nil)
			return hasSent, sendErr
		}

		// After the first part, another node cannot continue the stream: its first part would
		// repeat what the client already has.
		askAnother := p.recordResult(ctx, n.Name, err)
		if !askAnother || hasSent {
			return hasSent, err
		}
	}
}

// errSilent ends the stream of a node that does not send the first part in time, or that is no
// longer among the nodes that are alive.
var errSilent = &apierror.Failure{
	Code: connect.CodeUnavailable, Retry: apierror.RetrySoon, Text: "the node that answers the stream has fallen silent",
}

// Stream makes one call to one node that answers with a stream, and passes the parts to send. The
// first part must arrive within limit. After that, the stream may last as long as the node is
// alive. setLag gets the lag of the first part before that part is passed to send; it is not called
// if the node does not say its lag. hasSent says that a part was passed to send.
func Stream[Req, Res any](
	ctx context.Context, p *Peers, n *Node, limit time.Duration, procedure string, req *Req,
	setLag func(int64), send func(*Res) error,
) (hasSent bool, err error) {
	ctx, memory := p.chargeStream(ctx)
	defer memory.release()
	ctx, end := context.WithCancelCause(ctx)

	// The watchdog reads ctx concurrently, so ctx must not be assigned after this.
	begun := make(chan struct{}) // closed at the first part
	var watchdog sync.WaitGroup
	watchdog.Go(func() { p.endStreamOfSilentNode(ctx, n, limit, begun, end) })
	defer watchdog.Wait()
	defer end(nil)

	parts, err := clientFor[Req, Res](p, p.streams, n, procedure).CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		return false, streamError(ctx, n, err)
	}
	// End the context first, because Close would otherwise read the stream to its end.
	defer func() {
		end(nil)
		_ = parts.Close()
	}()

	for parts.Receive() {
		if err := p.checkPosition(n.Name, req, parts.Msg()); err != nil {
			return hasSent, err
		}
		if !hasSent {
			close(begun)
			if lag := parseLag(parts.ResponseHeader()); lag >= 0 {
				setLag(lag)
			}
		}
		hasSent = true
		if err := send(parts.Msg()); err != nil {
			return hasSent, err
		}
		memory.nextMessage()
	}

	if err := parts.Err(); err != nil {
		return hasSent, streamError(ctx, n, err)
	}
	return hasSent, nil
}

// streamError returns errSilent if the watchdog has ended the stream with it, and otherwise the
// error of the call.
func streamError(ctx context.Context, n *Node, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errSilent) {
		return cause
	}
	return callError(n, err)
}

// endStreamOfSilentNode ends a stream with errSilent if begun is not closed within limit, or if the
// node is later no longer among those that are alive. The connection alone would not show that,
// because a node that hangs keeps its connections open. endStreamOfSilentNode returns after it has
// ended the stream, or when ctx, the context of the stream, ends.
func (p *Peers) endStreamOfSilentNode(
	ctx context.Context, n *Node, limit time.Duration, begun <-chan struct{}, end context.CancelCauseFunc,
) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-begun:
			begun = nil // from now on, the node only has to be alive; a nil channel is never ready
		case <-timer.C:
			// If the stream has begun at the same time, select may still choose this case.
			select {
			case <-begun:
				begun = nil
			default:
			}
			if begun != nil || !p.isAlive(n) {
				end(errSilent)
				return
			}
		case <-ctx.Done():
			return
		}
		timer.Reset(aliveCheckInterval)
	}
}

// isAlive reports whether a node is still among the nodes that are alive, with the same address. A
// node that returned with another address was restarted, and no longer has the stream.
func (p *Peers) isAlive(n *Node) bool {
	return slices.ContainsFunc(p.nodes(), func(o Node) bool { return o.Name == n.Name && o.Addr == n.Addr })
}
