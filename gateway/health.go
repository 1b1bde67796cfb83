package gateway

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/projections/live"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// healthPeriod is the interval at which a health stream reads the health of its service.
const healthPeriod = time.Second

func (s *Server) mountHealth() {
	mountUnary(s, healthv1connect.HealthCheckProcedure, nil, s.healthCheck)
	mountStream(s, healthv1connect.HealthWatchProcedure, nil, s.healthWatch)
}

// healthCheck returns the health of the process (service "") or of a service by its full name.
func (s *Server) healthCheck(
	_ context.Context, req *healthv1.HealthCheckRequest, _ *call.Info,
) (*healthv1.HealthCheckResponse, error) {
	status := s.healthOf(req.GetService())
	if status == healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, &apierror.Failure{
			Code: connect.CodeNotFound,
			Text: fmt.Sprintf("there is no service %q", req.GetService()),
		}
	}
	return &healthv1.HealthCheckResponse{Status: status}, nil
}

// healthWatch sends the health at once and after every change, until the client leaves or the
// server stops. Before the server ends the stream, it sends the health once more, so the client
// sees that the service stops.
func (s *Server) healthWatch(
	ctx context.Context, req *healthv1.HealthCheckRequest, out call.Stream[healthv1.HealthCheckResponse],
) error {
	tick := time.NewTicker(s.healthPeriod)
	defer tick.Stop()
	last := healthv1.HealthCheckResponse_ServingStatus(-1) // differs from every status
	for {
		if current := s.healthOf(req.GetService()); current != last {
			last = current
			if err := out.Send(&healthv1.HealthCheckResponse{Status: current}); err != nil {
				return err
			}
		}
		if s.serverCtx.Err() != nil {
			return apierror.ErrStopping
		}

		// Health depends on many parts of the process, which do not announce changes, so it is read
		// again and again.
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		// ctx also ends with the server. In that case the loop sends the last health first.
		if ctx.Err() != nil && s.serverCtx.Err() == nil {
			return context.Cause(ctx)
		}
	}
}

// healthOf returns the health of the process (service "") or of a service by its full name. A
// service without a projection, or whose projection has failed, is not serving. While a projection
// is held, nothing is serving, as for /readyz.
func (s *Server) healthOf(service string) healthv1.HealthCheckResponse_ServingStatus {
	isStopping := s.draining.Load() || s.serverCtx.Err() != nil
	serving := !isStopping && s.isReady() && s.cluster.isKnownToOthers() &&
		s.isAnswerable(s.countUnservedPartitions()) && s.heldError() == nil
	switch service {
	case "":
		serving = serving && !s.allFailed()
	case connectv1.GraphServiceName:
		serving = serving && canAnswer(s.views.Graph.Live)
	case connectv1.FeedServiceName:
		serving = serving && s.views.Inbox != nil && canAnswer(s.views.Inbox.Live)
	case connectv1.SeenServiceName:
		serving = serving && s.views.Seen != nil && canAnswer(s.views.Seen.Live)
	case connectv1.CounterServiceName:
		serving = serving && s.views.Counters != nil && canAnswer(s.views.Counters.Live)
	case connectv1.NotificationServiceName:
		serving = serving && s.views.Notifications != nil && canAnswer(s.views.Notifications.Live)
	case connectv1.EventServiceName, connectv1.AdminServiceName, healthv1connect.HealthName:
		// These need no projection.
	default:
		return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	}

	if serving {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
}

// canAnswer reports whether a projection can be read: it has not failed and was not stopped.
func canAnswer(store *live.Live) bool {
	return store.Status().Answers()
}
