package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/cluster/peerservice"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// In a cluster, each node holds some partitions and accepts every call. Package peers describes how
// a node asks the others. A method that reads rows is either about one home, which its request
// names ([homeOf]), or its request has parts that are each about one home (parts.go).

// Node is a node of the cluster as the others see it.
type Node = peers.Node

// StoreAccess gives other nodes access to the stores of a node.
type StoreAccess = peerservice.StoreAccess

// clusterServer has what a server needs only in a cluster.
type clusterServer struct {
	*peers.Peers
	// methods are the handlers that other nodes call, by path.
	methods map[string]http.Handler
	keeper  StoreAccess // may be nil
	// isAnnounced reports whether the other nodes can know which partitions this one serves. Nil
	// means always.
	isAnnounced func() bool
	// certificates are what nodes present to each other. If nil, connections between nodes are not
	// encrypted.
	certificates *access.Certificates
}

// newClusterServer returns nil outside of a cluster. The answers of other nodes count in the budget
// of bytes.
func newClusterServer(o *Options, bytes *admission.Budget) *clusterServer {
	if o.Nodes == nil {
		return nil
	}
	var dialTLS peers.Dial
	if o.NodeCertificates != nil {
		dialTLS = o.NodeCertificates.Dial
	}
	return &clusterServer{
		Peers: peers.New(peers.Options{
			Nodes: o.Nodes, Name: o.NodeName, Addr: o.NodeAddr,
			Keys: o.Keys, Log: o.Log.ID(),
			Dial: dialTLS, Bytes: bytes, Logger: o.Logger,
		}),
		methods:      map[string]http.Handler{},
		keeper:       o.StoreAccess,
		isAnnounced:  o.IsJoined,
		certificates: o.NodeCertificates,
	}
}

// isKnownToOthers reports whether the other nodes can know which partitions this node serves. It is
// true outside of a cluster.
func (c *clusterServer) isKnownToOthers() bool {
	return c == nil || c.isAnnounced == nil || c.isAnnounced()
}

// holds reports whether all stores have the rows of a home. Every node holds the empty home.
func (s *Server) holds(home string) bool {
	if home == "" {
		return true
	}

	// All stores are asked, because they take over and give up a partition one after the other.
	partition := peers.PartitionOf(home)
	for _, store := range s.views.All {
		held := store.Holds()
		if !held.Has(partition) {
			return false
		}
	}
	return true
}

// canAnswerFor reports whether this node answers calls about a home itself. It must hold the home,
// and its stores must have caught up with the log once; while they have not, it answers only if no
// other node serves the partition.
func (s *Server) canAnswerFor(home string) bool {
	if !s.holds(home) {
		return false
	}
	for _, store := range []*views.Store{s.views.Graph, s.views.Inbox, s.views.Seen, s.views.Counters, s.views.Notifications} {
		if store != nil && store.Rebuilding() {
			return !s.cluster.IsServed(peers.PartitionOf(home))
		}
	}
	return true
}

// Serves returns the partitions that the server answers for: those that all its stores hold.
func (s *Server) Serves() events.Partitions {
	served := events.AllPartitions()
	for _, store := range s.views.All {
		held := store.Holds()
		served.Intersect(&held)
	}
	return served
}

// countUnservedPartitions returns how many partitions neither this node nor another one serves, as
// far as this node knows. A call about such a partition fails with NOT_HERE. The count is 0 outside
// of a cluster.
func (s *Server) countUnservedPartitions() int {
	if s.cluster == nil {
		return 0
	}
	served := s.Serves()
	others := s.cluster.ServedByOthers()
	served.AddSet(&others)
	return events.NumPartitions - served.Len()
}

// isAnswerable reports whether a node may get calls, given how many partitions nobody serves. At
// first every partition must be served. After a part of the cluster is lost, one served partition
// is enough: no other node could answer more, and if all nodes refused calls, calls about the
// remaining partitions would fail as well.
func (s *Server) isAnswerable(unserved int) bool {
	if unserved == 0 {
		s.wasFullyServed.Store(true)
		return true
	}
	return s.wasFullyServed.Load() && unserved < events.NumPartitions
}

// homeOf returns the user whose rows a request is about. It returns "" for a request that is about
// no single user, such as one for the trending items of all users. Any node can collect the answer
// to such a request.
func homeOf(req proto.Message) string {
	var boardOwner string
	if m, ok := req.(interface{ GetBoard() *skeinv1.Board }); ok {
		boardOwner = m.GetBoard().GetOwnerId()
	}

	// The viewer and the reader come first, because their requests also name the users whom they
	// ask about.
	switch m := req.(type) {
	case interface{ GetViewerId() string }:
		return m.GetViewerId()
	case interface{ GetReaderId() string }:
		return m.GetReaderId()
	case interface{ GetUserId() string }:
		return cmp.Or(m.GetUserId(), boardOwner)
	case interface{ GetOwnerId() string }:
		return cmp.Or(m.GetOwnerId(), boardOwner)
	}
	return boardOwner
}

// mountRead mounts a method that reads rows of one home. See [mountUnary].
func mountRead[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(*request.Checker, P), handle unaryHandler[Req, Res, P],
) {
	mountUnary(s, procedure, check, routeByHome(s, procedure, handle))
}

// mountReadByHand mounts a method that reads rows of one home. See [mountUnaryByHand].
func mountReadByHand[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(P) []apierror.Violation, handle unaryHandler[Req, Res, P],
) {
	mountUnaryByHand(s, procedure, check, routeByHome(s, procedure, handle))
}

// mountReadStream mounts a method that reads rows of one home. See [mountStream].
func mountReadStream[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(*request.Checker, P), handle streamHandler[Req, Res, P],
) *streamMethod[Req, Res, P] {
	return mountStream(s, procedure, check, routeStreamByHome(s, procedure, handle))
}

// unaryHandler and streamHandler are the signatures of the methods of services.
type (
	unaryHandler[Req, Res any, P request.Message[Req]]  func(context.Context, P, *call.Info) (*Res, error)
	streamHandler[Req, Res any, P request.Message[Req]] func(context.Context, P, call.Stream[Res]) error
)

// routeByHome returns a handler that calls handle if this node can answer for the home of the
// request, and otherwise forwards the request to a node that can. It also mounts handle for other
// nodes. Outside of a cluster it returns handle.
func routeByHome[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, handle unaryHandler[Req, Res, P],
) unaryHandler[Req, Res, P] {
	if s.cluster == nil {
		return handle
	}
	mountPeerMethod(s, procedure, func(req P) bool { return s.holds(homeOf(req)) }, handle)

	return func(ctx context.Context, req P, info *call.Info) (*Res, error) {
		home := homeOf(req)
		if s.canAnswerFor(home) {
			// If the node has given up the home meanwhile, the answer may lack rows and is dropped.
			// A check after the answer is enough, because a home returns only by a build, which
			// takes longer than a call.
			res, err := handle(ctx, req, info)
			if s.holds(home) && !s.shouldAskOthers(err, home) {
				return res, err
			}
		}
		res, lag, err := peers.Forward[Req, Res](ctx, s.cluster.Peers, peers.PartitionOf(home), procedure, (*Req)(req))
		info.Lag = lag
		return res, err
	}
}

// shouldAskOthers reports whether another node may answer a call that failed here with err, because
// the store of this node has stopped or is too far behind, and another node serves one of the
// homes.
func (s *Server) shouldAskOthers(err error, homes ...string) bool {
	isServedElsewhere := func(home string) bool { return s.cluster.IsServed(peers.PartitionOf(home)) }
	if err == nil || !slices.ContainsFunc(homes, isServedElsewhere) {
		return false
	}
	switch apierror.Of(err).Reason {
	case skeinv1.Reason_REASON_NOT_CAUGHT_UP, skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE:
		return true
	}
	return false
}

// routeStreamByHome is [routeByHome] for a method that answers with a stream.
func routeStreamByHome[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, handle streamHandler[Req, Res, P],
) streamHandler[Req, Res, P] {
	if s.cluster == nil {
		return handle
	}

	// What other nodes forward is answered here and never forwarded again, so that nodes that
	// disagree on who holds a partition cannot send a call in circles.
	s.cluster.methods[procedure] = connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, req *connect.Request[Req], out *connect.ServerStream[Res]) error {
			home := homeOf(P(req.Msg))
			if !s.holds(home) {
				return s.errorForPeer(procedure, peers.NotHereError())
			}
			err := handle(ctx, P(req.Msg), &homeStream[Res]{&rpcStream[Res]{out: out}, s, home})
			return s.errorForPeer(procedure, err)
		})

	return func(ctx context.Context, req P, out call.Stream[Res]) error {
		home := homeOf(req)
		if s.canAnswerFor(home) {
			return handle(ctx, req, &homeStream[Res]{out, s, home})
		}
		partition := peers.PartitionOf(home)
		return peers.ForwardStream(ctx, s.cluster.Peers, partition, procedure, (*Req)(req), out.SetLag, out.Send)
	}
}

// homeStream is a stream that ends when the node gives up the home that the stream is about. The
// client then opens a new stream, which reaches a node that holds the home.
type homeStream[Res any] struct {
	call.Stream[Res]
	s    *Server
	home string
}

// Send is part of [call.Stream].
func (h *homeStream[Res]) Send(part *Res) error {
	if !h.s.holds(h.home) {
		return peers.NotHereError()
	}
	return h.Stream.Send(part)
}

// Other nodes call a listener of their own, which no application needs to reach. The node that
// calls proves that it has the keys of page tokens. It has already authenticated its caller and
// checked the request, so the methods here do neither.

// peerMethod is a request-response method for other nodes. The loop answers plain calls (plain.go),
// and Connect's handler all others.
type peerMethod[Req, Res any, P request.Message[Req]] struct {
	s *Server
	// name is the path, with the leading slash.
	name string
	// holds reports whether this node holds all that a request is about. It must be true before and
	// after the request is answered.
	holds  func(P) bool
	handle unaryHandler[Req, Res, P]
	http.Handler
}

// mountPeerMethod mounts a request-response method for other nodes.
func mountPeerMethod[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, holds func(P) bool, handle unaryHandler[Req, Res, P],
) {
	m := &peerMethod[Req, Res, P]{s: s, name: procedure, holds: holds, handle: handle}
	m.Handler = connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[Req]) (*connect.Response[Res], error) {
		info := call.Info{Lag: -1, LongPages: s.budgets.LongPages}
		defer info.ReleaseLongPage()
		res, err := m.answer(ctx, P(req.Msg), &info)
		if err != nil {
			return nil, err
		}
		response := connect.NewResponse(res)
		if info.Lag >= 0 {
			response.Header()[LagHeader] = formatLag(info.Lag)
		}
		return response, nil
	})
	s.cluster.methods[procedure] = m
}

// answer answers a call of another node. If this node does not hold what the request is about, or
// gives it up meanwhile, the error tells the caller to ask another node.
func (m *peerMethod[Req, Res, P]) answer(ctx context.Context, req P, info *call.Info) (*Res, error) {
	if !m.holds(req) {
		return nil, m.s.errorForPeer(m.name, peers.NotHereError())
	}
	res, err := m.handle(ctx, req, info)
	if err == nil && !m.holds(req) {
		// The node has given up the rows meanwhile, so the answer may lack some of them.
		err = peers.NotHereError()
	}
	return res, m.s.errorForPeer(m.name, err)
}

// admitBeforeBody is part of plainMethod.
func (*peerMethod[Req, Res, P]) admitBeforeBody(caller identity) bool { return caller.authError == nil }

// answerPlain is part of plainMethod.
func (m *peerMethod[Req, Res, P]) answerPlain(
	ctx context.Context, caller identity, body, dst []byte,
) (answer []byte, lag int64, err error) {
	// The proof of the caller covers the hash of the body, which could not be compared before the
	// body was read.
	if caller.node == nil || !caller.node.HasBody(body) {
		return nil, 0, connect.NewError(connect.CodeUnauthenticated, errUnsignedBody)
	}
	req := P(new(Req))
	if err := request.UnmarshalProto(body, req); err != nil {
		return nil, 0, connect.NewError(connect.CodeInvalidArgument, err)
	}

	info := call.Info{Lag: -1, LongPages: m.s.budgets.LongPages}
	defer info.ReleaseLongPage()
	res, err := m.answer(ctx, req, &info)
	if err != nil {
		return nil, info.Lag, err
	}
	answer, err = appendMessage(dst, any(res))
	return answer, info.Lag, err
}

// RunPeers serves the other nodes of the cluster on a listener until ctx ends. Then it answers the
// calls under way and returns.
func (s *Server) RunPeers(ctx context.Context, l net.Listener) error {
	defer s.cluster.Close()
	if s.cluster.certificates != nil {
		l = tls.NewListener(l, s.cluster.certificates.Config())
	}

	conns := &admission.Connections{}
	netHTTP := s.httpServer(s.peersHandler(), conns)
	netHTTP.WriteTimeout = 0 // streams between nodes may last for any time
	// The caller closes idle connections first. Otherwise it could send a call on a connection that
	// this node is closing, and would not know whether the call has arrived.
	netHTTP.IdleTimeout = 2 * peers.IdleTimeout
	e := &endpoint{s: s, methods: s.cluster.methods, authenticate: s.authenticateNode, conns: conns}
	loop := e.loop(l, netHTTP)
	loopEnded := make(chan error, 1)
	go func() { loopEnded <- loop.Serve() }() //nolint:contextcheck // calls may last longer than ctx, which only says when to stop

	// A listener that fails ends Serve with an error. Even then, the calls under way are answered.
	var err error
	hasEnded := false
	select {
	case <-ctx.Done():
	case err = <-loopEnded:
		hasEnded = true
	}

	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
	defer cancel()
	if loop.Shutdown(shutdownCtx) != nil {
		_ = loop.Close() // the calls that are still under way have used up their time
	}
	if !hasEnded {
		err = <-loopEnded
	}
	return err
}

// errUnsignedBody refuses a body that is not the one that another node has signed.
var errUnsignedBody = errors.New("the body is not the one for which the caller has proven to be a node")

// authenticateNode authenticates another node. Each call has a proof of its own, so nodes have no
// sessions.
func (s *Server) authenticateNode(path []byte, authorization string, _ *x509.Certificate) identity {
	proof, err := s.cluster.Credentials().VerifyCall(authorization, string(path), time.Now())
	if err != nil {
		return identity{authError: err}
	}
	return identity{node: proof}
}

// mountPeers mounts the methods that only nodes call.
func (s *Server) mountPeers() {
	mountNodeMethod(s, peerv1connect.PeerServiceAskProcedure, peerservice.New(s.views).Ask)
	if s.cluster.keeper == nil {
		return
	}
	keeperService := peerservice.StoreService{Access: s.cluster.keeper}
	mountNodeMethod(s, peerv1connect.PeerServiceFlushProcedure, keeperService.Flush)
	mountNodeMethod(s, peerv1connect.PeerServiceCleanProcedure, keeperService.Clean)
	s.cluster.methods[peerv1connect.PeerServiceRowsProcedure] = connect.NewServerStreamHandler(peerv1connect.PeerServiceRowsProcedure,
		func(ctx context.Context, req *connect.Request[peerv1.RowsRequest], out *connect.ServerStream[peerv1.RowsResponse]) error {
			return keeperService.Rows(ctx, req.Msg, out.Send)
		})
}

// peersHandler answers the calls of other nodes that the loop passes to net/http.
func (s *Server) peersHandler() http.Handler {
	return s.cluster.Credentials().Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := s.cluster.methods[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}), s.limits.BodyBytes)
}

// mountNodeMethod mounts a method that only nodes call, and that is about no home.
func mountNodeMethod[Req, Res any, P request.Message[Req]](s *Server, procedure string, handle func(context.Context, P) (*Res, error)) {
	mountPeerMethod(s, procedure, func(P) bool { return true },
		func(ctx context.Context, req P, _ *call.Info) (*Res, error) { return handle(ctx, req) })
}

// FlushNode makes a node fold and flush the log up to a deletion, for an erasure (see
// [StoreAccess]). why says what stands in the way on that node. err is not nil only if the node
// could not be reached.
func (s *Server) FlushNode(ctx context.Context, n Node, epoch uint32, seq uint64) (done bool, why string, err error) {
	res, _, err := peers.Call[peerv1.FlushRequest, peerv1.FlushResponse](ctx, s.cluster.Peers, &n,
		peerv1connect.PeerServiceFlushProcedure, &peerv1.FlushRequest{Epoch: epoch, Seq: seq})
	return res.GetDone(), res.GetWhy(), err
}

// CleanNode asks a node whether its stores were built from the log of an epoch (see [StoreAccess]).
// why and err are as those of FlushNode.
func (s *Server) CleanNode(ctx context.Context, n Node, epoch uint32) (done bool, why string, err error) {
	res, _, err := peers.Call[peerv1.CleanRequest, peerv1.CleanResponse](ctx, s.cluster.Peers, &n,
		peerv1connect.PeerServiceCleanProcedure, &peerv1.CleanRequest{Epoch: epoch})
	return res.GetDone(), res.GetWhy(), err
}

// rowsTimeout is how long RowsOf waits for the first or the next message with rows.
const rowsTimeout = 30 * time.Second

// RowsOf calls handleRow with the rows of some partitions that another node sends (see
// [StoreAccess]). It fails if the node sends nothing for rowsTimeout.
func (s *Server) RowsOf(
	ctx context.Context, n Node, projection, fold string, epoch uint32, partitions events.Partitions, handleRow func(key, value []byte) error,
) error {
	// The timer limits the time between two messages, and not that of the whole call, because there
	// may be any number of rows.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(rowsTimeout, func() { cancel(fmt.Errorf("no rows came for %v", rowsTimeout)) })
	defer timer.Stop()

	req := &peerv1.RowsRequest{Projection: projection, Fold: fold, Epoch: epoch, Partitions: partitions.String()}
	ignoreLag := func(int64) {}
	_, err := peers.Stream(ctx, s.cluster.Peers, &n, rowsTimeout, peerv1connect.PeerServiceRowsProcedure, req, ignoreLag,
		func(part *peerv1.RowsResponse) error {
			timer.Stop() // the time that handleRow takes does not count
			defer timer.Reset(rowsTimeout)
			return peerservice.EachRow(part, handleRow)
		})
	return cmp.Or(context.Cause(ctx), err)
}

// errorForPeer returns an error as another node receives it, with its code, reason and details. It
// logs internal errors here, because the other node receives no cause.
func (s *Server) errorForPeer(procedure string, err error) error {
	if err == nil {
		return nil
	}
	f := apierror.Of(err)
	if f.Code == connect.CodeInternal {
		s.logger.Error("call of another node failed", "method", procedure[1:], "error", err)
	}
	return f.ConnectError()
}
