package gateway

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/peers"
	"github.com/skein-feed/skein/gateway/internal/peerservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
)

// Other nodes call a listener of its own, which no application needs to reach. A node that calls has checked its caller and the request,
// and proves that it has the keys of page tokens.

// forPeers mounts a method for other nodes, which have checked callers and requests. The node must hold what the request is about until it
// is answered.
func forPeers[Req, Res any, P request.Message[Req]](s *Server, procedure string, holds func(P) bool, do unaryDo[Req, Res, P]) {
	s.cluster.handler.Handle(procedure, connect.NewUnaryHandler(procedure,
		func(ctx context.Context, req *connect.Request[Req]) (*connect.Response[Res], error) {
			x := call.Info{Lag: -1, LongAnswers: s.longAnswers}
			defer x.Made()
			if !holds(P(req.Msg)) {
				return nil, s.forPeer(procedure, peers.NotHere())
			}
			res, err := do(ctx, P(req.Msg), &x)
			if err == nil && !holds(P(req.Msg)) {
				err = peers.NotHere()
			}
			if err != nil {
				return nil, s.forPeer(procedure, err)
			}
			answer := connect.NewResponse(res)
			if x.Lag >= 0 {
				answer.Header()[LagHeader] = lagValue(x.Lag)
			}
			return answer, nil
		}))
}

// RunPeers serves the other nodes of the cluster on a listener, until ctx ends. Calls under way are answered.
func (s *Server) RunPeers(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: s.peersHandler(), ReadHeaderTimeout: 10 * time.Second}
	var stopping sync.WaitGroup
	defer stopping.Wait()
	served, ended := context.WithCancel(ctx)
	defer ended()
	stopping.Go(func() {
		<-served.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
		defer cancel()
		if err := srv.Shutdown(last); err != nil {
			_ = srv.Close() // it has waited as long as it may
		}
		s.cluster.Close()
	})
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// peersHandler answers calls of nodes that have the keys of this one.
func (s *Server) peersHandler() http.Handler {
	const procedure = peerv1connect.PeerServiceAskProcedure
	asked := peerservice.New(s.views)
	s.cluster.handler.Handle(procedure, connect.NewUnaryHandler(procedure,
		func(ctx context.Context, req *connect.Request[peerv1.AskRequest]) (*connect.Response[peerv1.AskResponse], error) {
			res, err := asked.Ask(ctx, req.Msg)
			if err != nil {
				return nil, s.forPeer(procedure, err)
			}
			return connect.NewResponse(res), nil
		}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.views.Keys.Proves(nodes, r.Header.Get("Authorization")) {
			http.Error(w, "not a node of this cluster: all nodes have the same --page-token-keys", http.StatusUnauthorized)
			return
		}
		s.cluster.handler.ServeHTTP(w, r)
	})
}

// forPeer is an error as another node gets it.
func (s *Server) forPeer(procedure string, err error) error {
	if err == nil {
		return nil
	}
	f := apierror.Of(err)
	if f.Code == connect.CodeInternal {
		s.logger.Error("call of another node failed", "method", procedure[1:], "error", err)
	}
	return f.ConnectError()
}
