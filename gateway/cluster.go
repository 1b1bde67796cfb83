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

// In a cluster each node holds some partitions, and takes every call. Package peers says how it asks the others. A method that reads
// rows is about the home that its request names ([homeOf]), or has parts that are each about a home (parts.go).

// Node is a node of the cluster as the others see it.
type Node = peers.Node

// Keeper keeps the stores of a node.
type Keeper = peerservice.Keeper

// joined is what a server in a cluster has besides.
type clusterServer struct {
	*peers.Peers
	// methods are those that other nodes call, by their paths.
	methods map[string]http.Handler
	keeper  Keeper // may be nil
	// known reports whether the other nodes can know what this one serves; nil means always.
	isAnnounced func() bool
	// tls is what nodes show each other; nil means nothing.
	certificates *access.Certificates
}

// newJoined returns nil outside of a cluster. Answers of other nodes count in the budget of bytes.
func newClusterServer(o *Options, bytes *admission.Budget) *clusterServer {
	if o.Nodes == nil {
		return nil
	}
	var secure peers.Dial
	if o.NodeCertificates != nil {
		secure = o.NodeCertificates.Dial
	}
	others := peers.New(peers.Options{
		Nodes: o.Nodes, Name: o.NodeName, Addr: o.NodeAddr, Keys: o.Keys, Log: o.Log.ID(), Dial: secure, Bytes: bytes, Logger: o.Logger,
	})
	return &clusterServer{others, map[string]http.Handler{}, o.Keeper, o.Joined, o.NodeCertificates}
}

// isKnown reports whether the other nodes can know what this one serves. It is true outside of a cluster.
func (j *clusterServer) isKnownToOthers() bool {
	return j == nil || j.isAnnounced == nil || j.isAnnounced()
}

// holds reports whether all stores have the rows of a home.
func (s *Server) holds(home string) bool {
	if home == "" {
		return true
	}
	partition := peers.PartitionOf(home)
	for _, store := range s.views.All {
		if held := store.Holds(); !held.Has(partition) {
			return false
		}
	}
	return true
}

// answers reports whether the server answers itself for a home that it holds: it has once been at the head of the log, or nobody else does.
func (s *Server) canAnswerFor(home string) bool {
	if !s.holds(home) {
		return false
	}
	for _, store := range []*views.Store{s.views.Graph, s.views.Inbox, s.views.Seen, s.views.Counters} {
		if store != nil && store.Rebuilding() {
			return !s.cluster.IsServed(peers.PartitionOf(home))
		}
	}
	return true
}

// Serves returns the partitions that the server answers for: those that all stores have.
func (s *Server) Serves() events.Partitions {
	all := events.AllPartitions()
	for _, store := range s.views.All {
		held := store.Holds()
		all.Intersect(&held)
	}
	return all
}

// unservedPartitions returns how many partitions neither this node nor another one serves, as far as this node knows. A call about such a
// partition fails with NOT_HERE. It is 0 outside of a cluster.
func (s *Server) countUnservedPartitions() int {
	if s.cluster == nil {
		return 0
	}
	served, others := s.Serves(), s.cluster.ServedByOthers()
	served.AddSet(&others)
	return events.NumPartitions - served.Len()
}

// isAnswerable reports whether a node may get calls, given how many partitions nobody serves. At first that must be none. Later, after a
// part of the cluster is lost, one that remains is enough: no other node could answer more, and if all of them refused calls, calls about
// the other partitions would fail as well.
func (s *Server) isAnswerable(unserved int) bool {
	if unserved == 0 {
		s.wasFullyServed.Store(true)
	}
	return unserved == 0 || s.wasFullyServed.Load() && unserved < events.NumPartitions
}

// homeOf returns the user whose rows a request is about. It is empty for what is about no user, as everybody's list by heat, which any node
// gathers.
func homeOf(req proto.Message) string {
	var home string
	if m, ok := req.(interface{ GetBoard() *skeinv1.Board }); ok {
		home = m.GetBoard().GetOwnerId()
	}
	switch m := req.(type) {
	case interface{ GetViewerId() string }: // before the others whom it names
		return m.GetViewerId()
	case interface{ GetReaderId() string }:
		return m.GetReaderId()
	case interface{ GetUserId() string }:
		return cmp.Or(m.GetUserId(), home)
	case interface{ GetOwnerId() string }:
		return cmp.Or(m.GetOwnerId(), home)
	}
	return home
}

// read mounts a method that reads rows of one home; readByHand and readStream likewise. See [unary], [unaryByHand] and [stream].
func read[Req, Res any, P request.Message[Req]](s *Server, procedure string, check func(*request.Checker, P), do unaryHandler[Req, Res, P]) {
	unary(s, procedure, check, routeByHome(s, procedure, do))
}

func readByHand[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(P) []apierror.Violation, do unaryHandler[Req, Res, P],
) {
	unaryByHand(s, procedure, check, routeByHome(s, procedure, do))
}

func readStream[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(*request.Checker, P), do streamHandler[Req, Res, P],
) *streamMethod[Req, Res, P] {
	return stream(s, procedure, check, routeStreamByHome(s, procedure, do))
}

// unaryDo and streamDo are the methods of services.
type (
	unaryHandler[Req, Res any, P request.Message[Req]]  func(context.Context, P, *call.Info) (*Res, error)
	streamHandler[Req, Res any, P request.Message[Req]] func(context.Context, P, call.Stream[Res]) error
)

// homed has a node that holds the home that a request is about answer it.
func routeByHome[Req, Res any, P request.Message[Req]](s *Server, procedure string, do unaryHandler[Req, Res, P]) unaryHandler[Req, Res, P] {
	if s.cluster == nil {
		return do
	}
	mountPeerMethod(s, procedure, func(req P) bool { return s.holds(homeOf(req)) }, do)
	return func(ctx context.Context, req P, x *call.Info) (*Res, error) {
		of := homeOf(req)
		if s.canAnswerFor(of) {
			// What is given up while a call reads it is no answer. It comes back only by a build, which takes longer than a call.
			if res, err := do(ctx, req, x); s.holds(of) && !s.shouldAskOthers(err, of) {
				return res, err
			}
		}
		res, lag, err := peers.Forward[Req, Res](ctx, s.cluster.Peers, peers.PartitionOf(of), procedure, (*Req)(req))
		x.Lag = lag
		return res, err
	}
}

// lagging reports whether another node may answer, because the store of this one has stopped, or is too far behind.
func (s *Server) shouldAskOthers(err error, homes ...string) bool {
	elsewhere := func(home string) bool { return s.cluster.IsServed(peers.PartitionOf(home)) }
	if err == nil || !slices.ContainsFunc(homes, elsewhere) {
		return false
	}
	switch apierror.Of(err).Reason {
	case skeinv1.Reason_REASON_NOT_CAUGHT_UP, skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE:
		return true
	}
	return false
}

// homedStream is [homed] for a method that answers with a stream.
func routeStreamByHome[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, do streamHandler[Req, Res, P],
) streamHandler[Req, Res, P] {
	if s.cluster == nil {
		return do
	}
	s.cluster.methods[procedure] = connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, req *connect.Request[Req], out *connect.ServerStream[Res]) error {
			if !s.holds(homeOf(P(req.Msg))) {
				return s.errorForPeer(procedure, peers.NotHereError())
			}
			return s.errorForPeer(procedure, do(ctx, P(req.Msg), &homeStream[Res]{&rpcStream[Res]{out: out}, s, homeOf(P(req.Msg))}))
		})
	return func(ctx context.Context, req P, out call.Stream[Res]) error {
		of := homeOf(req)
		if s.canAnswerFor(of) {
			return do(ctx, req, &homeStream[Res]{out, s, of})
		}
		return peers.ForwardStream(ctx, s.cluster.Peers, peers.PartitionOf(of), procedure, (*Req)(req), out.SetLag, out.Send)
	}
}

// heldParts ends a stream when the node gives up the home that it is about. The client opens another one, at a node that has it.
type homeStream[Res any] struct {
	call.Stream[Res]
	s    *Server
	home string
}

// Send is part of [call.Stream].
func (p *homeStream[Res]) Send(part *Res) error {
	if !p.s.holds(p.home) {
		return peers.NotHereError()
	}
	return p.Stream.Send(part)
}

// Other nodes call a listener of its own, which no application needs to reach. A node that calls has checked its caller and the request,
// and proves that it has the keys of page tokens.

// peerMethod is a method for other nodes, which have checked callers and requests. The loop answers plain calls (plain.go), and
// Connect's handler all others.
type peerMethod[Req, Res any, P request.Message[Req]] struct {
	s    *Server
	name string
	// holds reports whether the node holds what a request is about, which it must until the request is answered.
	holds func(P) bool
	do    unaryHandler[Req, Res, P]
	http.Handler
}

// forPeers mounts a method for other nodes.
func mountPeerMethod[Req, Res any, P request.Message[Req]](s *Server, procedure string, holds func(P) bool, do unaryHandler[Req, Res, P]) {
	m := &peerMethod[Req, Res, P]{s: s, name: procedure, holds: holds, do: do}
	m.Handler = connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[Req]) (*connect.Response[Res], error) {
		x := call.Info{Lag: -1, LongPages: s.budgets.LongPages}
		defer x.Made()
		res, err := m.answer(ctx, P(req.Msg), &x)
		if err != nil {
			return nil, err
		}
		answer := connect.NewResponse(res)
		if x.Lag >= 0 {
			answer.Header()[LagHeader] = formatLag(x.Lag)
		}
		return answer, nil
	})
	s.cluster.methods[procedure] = m
}

func (m *peerMethod[Req, Res, P]) answer(ctx context.Context, req P, x *call.Info) (*Res, error) {
	if !m.holds(req) {
		return nil, m.s.errorForPeer(m.name, peers.NotHereError())
	}
	res, err := m.do(ctx, req, x)
	if err == nil && !m.holds(req) {
		err = peers.NotHereError()
	}
	return res, m.s.errorForPeer(m.name, err)
}

func (*peerMethod[Req, Res, P]) admitBeforeBody(caller identity) bool { return caller.authError == nil }

func (m *peerMethod[Req, Res, P]) answerPlain(
	ctx context.Context, caller identity, body, dst []byte,
) (answer []byte, lag int64, err error) {
	if caller.node == nil || !caller.node.HasBody(body) {
		return nil, 0, connect.NewError(connect.CodeUnauthenticated, errUnsignedBody)
	}
	x := call.Info{Lag: -1, LongPages: m.s.budgets.LongPages}
	defer x.Made()
	req := P(new(Req))
	if err := request.UnmarshalProto(body, req); err != nil {
		return nil, 0, connect.NewError(connect.CodeInvalidArgument, err)
	}
	res, err := m.answer(ctx, req, &x)
	if err != nil {
		return nil, x.Lag, err
	}
	answer, err = appendMessage(dst, any(res))
	return answer, x.Lag, err
}

// RunPeers serves the other nodes of the cluster on a listener, until ctx ends. Calls under way are answered.
func (s *Server) RunPeers(ctx context.Context, l net.Listener) error {
	defer s.cluster.Close()
	if s.cluster.certificates != nil {
		l = tls.NewListener(l, s.cluster.certificates.Config())
	}
	conns := &admission.Connections{}
	rest := s.httpServer(s.peersHandler(), conns)
	rest.WriteTimeout, rest.IdleTimeout = 0, 2*peers.IdleTimeout // streams are long, and idle connections are closed by the caller
	e := &endpoint{s: s, methods: s.cluster.methods, authenticate: s.authenticateNode, conns: conns}
	loop := e.loop(l, rest)
	ended := make(chan error, 1)
	go func() { ended <- loop.Serve() }() //nolint:contextcheck // calls outlive the order to stop, which ctx is

	// A listener that fails ends Serve with an error. What is under way is answered all the same.
	var err error
	stopped := false
	select {
	case <-ctx.Done():
	case err = <-ended:
		stopped = true
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
	defer cancel()
	if loop.Shutdown(last) != nil {
		_ = loop.Close() // it has waited as long as it may
	}
	if !stopped {
		err = <-ended
	}
	return err
}

// errOtherBody refuses a body that another node has not signed.
var errUnsignedBody = errors.New("the body is not the one for which the caller has proven to be a node")

// authenticateNode authenticates another node. Each call is proven by itself, so a node has no session.
func (s *Server) authenticateNode(path []byte, authorization string, _ *x509.Certificate) identity {
	proof, err := s.cluster.Credentials().VerifyCall(authorization, string(path), time.Now())
	if err != nil {
		return identity{authError: err}
	}
	return identity{node: proof}
}

// mountPeers mounts what nodes ask each other.
func (s *Server) mountPeers() {
	mountNodeMethod(s, peerv1connect.PeerServiceAskProcedure, peerservice.New(s.views).Ask)
	if s.cluster.keeper != nil {
		keeping := peerservice.KeeperService{Keeper: s.cluster.keeper}
		mountNodeMethod(s, peerv1connect.PeerServiceFlushProcedure, keeping.Flush)
		mountNodeMethod(s, peerv1connect.PeerServiceCleanProcedure, keeping.Clean)
		s.cluster.methods[peerv1connect.PeerServiceRowsProcedure] = connect.NewServerStreamHandler(peerv1connect.PeerServiceRowsProcedure,
			func(ctx context.Context, req *connect.Request[peerv1.RowsRequest], out *connect.ServerStream[peerv1.RowsResponse]) error {
				return keeping.Rows(ctx, req.Msg, out.Send)
			})
	}
}

// peersHandler answers calls of other nodes that the loop does not.
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

// forNodes mounts a method that only nodes call.
func mountNodeMethod[Req, Res any, P request.Message[Req]](s *Server, procedure string, do func(context.Context, P) (*Res, error)) {
	mountPeerMethod(s, procedure, func(P) bool { return true },
		func(ctx context.Context, req P, _ *call.Info) (*Res, error) { return do(ctx, req) })
}

// FlushNode has a node fold and flush the log up to a deletion, for an erasure, see [Keeper]. Why is what the node objects to; an error is
// one of reaching it.
func (s *Server) FlushNode(ctx context.Context, n Node, epoch uint32, seq uint64) (done bool, why string, err error) {
	res, _, err := peers.Call[peerv1.FlushRequest, peerv1.FlushResponse](ctx, s.cluster.Peers, &n,
		peerv1connect.PeerServiceFlushProcedure, &peerv1.FlushRequest{Epoch: epoch, Seq: seq})
	return res.GetDone(), res.GetWhy(), err
}

// CleanNode asks a node whether its stores were built from the log of an epoch, see [Keeper].
func (s *Server) CleanNode(ctx context.Context, n Node, epoch uint32) (done bool, why string, err error) {
	res, _, err := peers.Call[peerv1.CleanRequest, peerv1.CleanResponse](ctx, s.cluster.Peers, &n,
		peerv1connect.PeerServiceCleanProcedure, &peerv1.CleanRequest{Epoch: epoch})
	return res.GetDone(), res.GetWhy(), err
}

// rowsWait bounds how long a node is waited for that gives rows, from one part of them to the next.
const rowsTimeout = 30 * time.Second

// RowsOf has a node give rows, see [Keeper].
func (s *Server) RowsOf(
	ctx context.Context, n Node, projection, fold string, epoch uint32, of events.Partitions, do func(key, value []byte) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(rowsTimeout, func() { cancel(fmt.Errorf("no rows came for %v", rowsTimeout)) })
	defer silent.Stop()
	req := &peerv1.RowsRequest{Projection: projection, Fold: fold, Epoch: epoch, Partitions: of.String()}
	_, err := peers.Stream(ctx, s.cluster.Peers, &n, rowsTimeout, peerv1connect.PeerServiceRowsProcedure, req, func(int64) {},
		func(part *peerv1.RowsResponse) error {
			silent.Stop() // while do writes
			defer silent.Reset(rowsTimeout)
			return peerservice.EachRow(part, do)
		})
	return cmp.Or(context.Cause(ctx), err)
}

// forPeer is an error as another node gets it.
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
