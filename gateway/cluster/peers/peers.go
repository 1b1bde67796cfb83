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
	// attemptTimeout is how long one node may take to answer if another node could answer instead.
	// If the node has not begun a stream by then, ForwardStream ends the attempt and asks the other
	// node. Scatter asks the other node then at the latest, but lets the first attempt continue
	// until the other node has answered.
	attemptTimeout = time.Second
	// lastAttemptTimeout limits every attempt of Scatter. It also limits how long ForwardStream
	// waits for the first part of a stream if no other node could answer instead.
	lastAttemptTimeout = 30 * time.Second
	// minSuspicion is how long the first suspicion of a node lasts. While a node is suspected, it
	// is asked only after all others. If the node fails again before it has answered a call, the
	// next suspicion lasts twice as long, up to maxSuspicion. Longer suspicions are not needed: as
	// long as the bucket of the cluster can be reached, a node that has stopped is removed from the
	// nodes that are alive after about 20 seconds (placement.DefaultExpireAfter).
	minSuspicion = time.Second
	maxSuspicion = 16 * time.Second
	// maxConnsPerNode limits how many calls to a node run at the same time, because each call needs
	// a connection of its own. Further calls wait until one has ended, and that time counts as time
	// that the node takes. Streams are not limited. maxConnsPerNode also limits how many idle
	// connections to a node are kept, separately for calls and for streams.
	maxConnsPerNode = 256
	// aliveCheckInterval is the interval at which a stream checks whether its node is still alive.
	// More frequent checks would gain little, because a node counts as alive for 20 seconds after
	// it last renewed its key in the bucket of the cluster (placement.DefaultExpireAfter).
	aliveCheckInterval = 2 * time.Second
	// dialTimeout is how long it may take to connect without TLS. It allows for the loss of the
	// first packet, which TCP sends again after a second (RFC 6298, section 2). It does not apply
	// to Options.Dial.
	dialTimeout = 3 * time.Second
	// IdleTimeout is how long a connection without a call stays open. Then the calling node closes
	// the connection. The called node must keep it open for longer: if the called node closed it,
	// a call could be lost that arrives at the same time.
	IdleTimeout = time.Minute
)

// Peers calls the other nodes of a cluster. Its methods may be called concurrently.
type Peers struct {
	// nodes returns the other nodes that are alive.
	nodes func() []Node
	// calls and streams have separate connections, and only those of calls are limited
	// (maxConnsPerNode). A stream occupies its connection for as long as it lasts, so if streams
	// shared the limit, many streams would leave no connections for calls.
	calls, streams *http.Client

	scheme      string
	credentials *Credentials
	// keys are used to read the positions in page tokens, and log is the id of the log.
	// checkPosition uses both to check the positions of answers.
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
	// suspected has an entry, by name, for each node that has failed or was overtaken since it last
	// answered a call. When the node answers, the entry is deleted. A node with an entry is not
	// always suspected: see suspicion.
	suspected map[string]suspicion
	// usualLatency is about the 95th percentile of the times in which a node answers a method. A
	// percentile that is outside the limits for hedgeDelay is replaced by the nearer limit. Each
	// method of a node has its own entry. With one entry per node, a method with long calls would
	// always be hedged if the node has many short calls of other methods. The long calls may be
	// only a twentieth of all calls, but they are more than a twentieth of the work.
	usualLatency map[nodeMethod]time.Duration
	// clockOffsets says, by the name of a node, by how much the clock of the node is ahead of the
	// clock of this process. It has an entry only for a node that once refused a call because the
	// clocks differ.
	clockOffsets map[string]time.Duration
	// lastBadAnswerLog is when a bad answer of a node was last logged, by the name of the node.
	lastBadAnswerLog map[string]time.Time
	// lastFailureLog is when a call that no node answered was last logged.
	lastFailureLog time.Time
	// hedgeCredit limits how many hedges are made (see hedgeDelayFactor). Each answered call
	// increases it by 1, and each hedge decreases it by answersPerHedge. Its maximum is
	// maxSavedHedges*answersPerHedge. It begins at the maximum.
	hedgeCredit int
}

// nodeMethod is a method of one node.
type nodeMethod struct{ node, procedure string }

// suspicion is what is known about a node that has failed, or that another node has overtaken,
// since the node last answered a call.
type suspicion struct {
	// until is when the last suspicion of the node ends or has ended, and duration is how long that
	// suspicion lasts. Until then the node is asked only after all others. Both are zero if the
	// node has not been suspected yet.
	until    time.Time
	duration time.Duration
	// overtakenCalls is how many calls another node has answered before this node did. Calls to the
	// node while it is suspected do not count. When a suspicion ends, overtakenCalls keeps its
	// value. So after a suspicion for overtaken calls, one more overtaken call begins the next
	// suspicion.
	overtakenCalls int
}

// Calls counts calls to other nodes by their result. OK and Retried count the single calls to nodes
// that Scatter and ForwardStream make. They do not count a call that ended because the caller no
// longer waits, or a hedge that ended because the first node has answered. [Call] and [Stream] by
// themselves count nothing.
type Calls struct {
	// OK counts calls that were answered, even if the answer was an error that any other node would
	// return, too.
	OK atomic.Uint64
	// Retried counts calls in which a node failed, or was overtaken by another node. Another node
	// was asked, if there was one. Retried also counts streams that failed after their first part,
	// for which no other node is asked.
	Retried atomic.Uint64
	// Hedged counts hedges that used credit: other nodes were asked in addition, because a node was
	// slow. It counts a hedge once, even if several nodes were asked. It does not count a hedge
	// that had no credit and was made only when the node had used up its time (attemptTimeoutFor).
	Hedged atomic.Uint64
	// Failed counts the calls of Scatter and of ForwardStream that no node has answered. It counts
	// a call whose deadline has passed, but not a call whose caller has gone away.
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
	// Dial connects with TLS. It must itself limit how long that may take. If it is nil,
	// connections are not encrypted.
	Dial Dial
	// Bytes is the budget of bytes from which the memory of answers is taken.
	Bytes *admission.Budget
	// Logger receives the bad answers of nodes, at most one per minute and node, and the calls that
	// no node has answered, at most one per minute.
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

// newHTTPClient returns a client that does not follow redirects. No node sends a redirect, so a
// redirect has no proof of a node, and nodeClient refuses it like any other answer without a proof.
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
// order in which they should be asked: the nodes that are suspected come last. The order for a
// partition changes only with the nodes and the suspicions. So most calls about the same partition
// go to the same node, which has the rows of earlier calls in memory. assignNodes may still prefer
// a later node.
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

	// Rotate the nodes, so that different nodes come first for different partitions, and then move
	// suspected nodes to the end.
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

// suspect records that a node has failed. It begins a suspicion of the node, unless the node is
// suspected already.
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
		// Many calls to a node may fail at the same time. If each of them counted, a single failure
		// of the node would lead to the longest suspicion.
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

// spendHedgeCredit reports whether the credit is enough for a hedge. If so, it deducts the cost of
// the hedge and counts the hedge.
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
// another node should be asked. ctx must be the context of the caller, and not the context that
// ends with the time limit of the attempt: if ctx has ended, recordResult assumes that the caller
// no longer waits. It then records nothing about a call that was not answered.
func (p *Peers) recordResult(ctx context.Context, name string, err error) (askAnother bool) {
	switch {
	case errors.Is(err, errNoMemory):
		// This process had no memory for the answer, which says nothing about the node. The answer
		// of another node would need memory, too.
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
	// An error that a healthy node returns has a reason, so such a node is not suspected, although
	// another node is asked. An error without a reason means that the node could not be reached,
	// did not answer in time, gave a bad answer, or has an internal error.
	if apierror.Of(err).Reason == skeinv1.Reason_REASON_UNSPECIFIED {
		p.suspect(name)
	}
	return true
}

// badAnswerLogInterval is the shortest time between two log lines about bad answers of a node.
const badAnswerLogInterval = time.Minute

// logBadAnswer logs a bad answer of a node, unless one of the same node was logged less than
// badAnswerLogInterval ago.
func (p *Peers) logBadAnswer(name string, err error) {
	now := time.Now()
	// The line is written after mu is unlocked, because every call needs mu.
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

// isFinal reports whether no other node could give a better result than err: the call has
// succeeded, any node would return the same error, or this process has no memory for an answer.
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

// countFailure counts and logs a call of Scatter or ForwardStream that ended with err, if no node
// has answered it. It ignores a call that a node has answered, a call for whose answers this
// process had no memory, and a call whose caller has gone away. It does count a call whose deadline
// has passed.
func (p *Peers) countFailure(ctx context.Context, err error) {
	if !isFinal(err) && !errors.Is(ctx.Err(), context.Canceled) {
		p.Calls.Failed.Add(1)
		p.logFailure(err)
	}
}

// failureLogInterval is the shortest time between two log lines about calls that no node answered.
const failureLogInterval = time.Minute

// logFailure logs that no other node has answered a call, unless that was logged less than
// failureLogInterval ago. If err is from noNodeError, the line also has the error of the node that
// was asked last. That error shows, for example, that this node knows another node from the bucket
// of the cluster, and yet cannot connect to it.
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

// noNodeError returns the error for a partition that is served by no node that is left to ask.
// lastErr is the error of the node that was asked last, or nil if none was asked. If lastErr has a
// reason, noNodeError returns lastErr, because it says more to the client. Otherwise the error has
// the reason NOT_HERE and the cause lastErr.
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

// Call makes one call to one node. Only ctx limits how long the node may take to answer. Call does
// not change p.Calls, and does not suspect the node. If an [AskFunc] makes the call, Scatter does
// both. lag is by how many envelopes the answer is behind the log, or negative if the answer does
// not say.
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

// callError turns an error of Connect's client into the error of a call to a node. An error that
// the node has returned keeps its code, reason and text. A Failure that this package has returned
// while it read the answer stays as it is, and so does the code for a failure of the connection or
// for the end of the context. Anything else means that the answer cannot be decoded, and becomes a
// bad answer of the node.
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

// parseLag returns the lag in the header of an answer, or a negative number if the answer has none.
func parseLag(h http.Header) int64 {
	lag, err := strconv.ParseInt(h.Get(call.LagHeader), 10, 64)
	if err != nil {
		return -1
	}
	return lag
}

// Forward passes a call on to a node that serves the partition, and returns the node's answer. If
// the node fails or is slow, Forward asks other nodes, as [Peers.Scatter] does. lag is as for
// [Call].
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

// attemptTimeoutFor returns how long one node may take to answer before other nodes are asked. If
// no other node could answer, it returns lastAttemptTimeout. Otherwise it returns attemptTimeout,
// or half of the time until the deadline of ctx if that is shorter, so that the other half is left
// for the other nodes.
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

// ForwardStream passes a call on to a node that serves the partition, and calls send with each part
// of the node's stream. It calls setLag as [Stream] does. If the node fails before the first part,
// ForwardStream asks the other nodes. If none of them can be reached, it pauses and asks all of
// them again, up to three times. After the first part, an error ends the stream, and the client
// must continue with a new call where the stream ended.
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

// forwardStreamOnce is ForwardStream without the pauses and repetitions: it asks each node at most
// once. hasSent says that send was called.
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
			// The client did not take a part in time, or has gone away. The node itself has
			// answered, so the call counts as answered.
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

// errSilent is the error with which the watchdog (endStreamOfSilentNode) ends the stream of a node
// that does not send the first part in time, or that is no longer among the nodes that are alive.
// errSilent has no reason, so recordResult suspects the node.
var errSilent = &apierror.Failure{
	Code: connect.CodeUnavailable, Retry: apierror.RetrySoon, Text: "the node that answers the stream has fallen silent",
}

// Stream makes one call to one node that answers with a stream, and calls send with each part of
// the stream. The first part must arrive within limit. After that, the stream may last as long as
// the node is alive. Before it sends the first part, Stream calls setLag with the lag of the node,
// if the node says its lag. If send fails, Stream ends the stream and returns the error of send.
// hasSent says that send was called. Like [Call], Stream does not change p.Calls and does not
// suspect the node.
func Stream[Req, Res any](
	ctx context.Context, p *Peers, n *Node, limit time.Duration, procedure string, req *Req,
	setLag func(int64), send func(*Res) error,
) (hasSent bool, err error) {
	ctx, memory := p.chargeStream(ctx)
	defer memory.release()
	ctx, end := context.WithCancelCause(ctx)

	// The watchdog reads the variable ctx concurrently, so ctx must not be assigned after this.
	begun := make(chan struct{}) // closed at the first part
	var watchdog sync.WaitGroup
	watchdog.Go(func() { p.endStreamOfSilentNode(ctx, n, limit, begun, end) })
	defer watchdog.Wait()
	defer end(nil)

	parts, err := clientFor[Req, Res](p, p.streams, n, procedure).CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		return false, streamError(ctx, n, err)
	}
	// End the context before Close, because Close would otherwise read the rest of the stream.
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

// endStreamOfSilentNode is the watchdog of a stream. It ends the stream with errSilent if begun is
// not closed within limit, or if the node is later no longer among the nodes that are alive. Errors
// of the connection are not enough to notice that a node hangs, because its connections stay open.
// While the bucket of the cluster cannot be reached, no node is removed from the nodes that are
// alive, so endStreamOfSilentNode then ends no stream that has begun. It returns after it has ended
// the stream, or when ctx, the context of the stream, ends.
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
			// If begun was closed when the timer fired, select may have chosen either case.
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

// isAlive reports whether a node is still among the nodes that are alive, with the same address. If
// the address differs, the node was restarted, and no longer has the streams of before.
func (p *Peers) isAlive(n *Node) bool {
	return slices.ContainsFunc(p.nodes(), func(o Node) bool { return o.Name == n.Name && o.Addr == n.Addr })
}
