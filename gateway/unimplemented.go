package gateway

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// services returns the descriptors of all services of the API.
func services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	for _, file := range []protoreflect.FileDescriptor{
		skeinv1.File_skein_v1_event_service_proto, skeinv1.File_skein_v1_graph_service_proto,
		skeinv1.File_skein_v1_feed_service_proto, skeinv1.File_skein_v1_seen_service_proto,
		skeinv1.File_skein_v1_counter_service_proto, skeinv1.File_skein_v1_notification_service_proto,
		skeinv1.File_skein_v1_admin_service_proto,
	} {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
	}
	return all
}

// methodRequirements says, for the error of an unimplemented method, which projections or operator
// the method needs. The key is the name of the service, or that of the method if it needs more than
// the other methods of its service.
var methodRequirements = map[protoreflect.Name]string{
	"FeedService":         "the inbox projection, which this process does not have",
	"SeenService":         "the seen projection, which this process does not have",
	"CounterService":      "the counters projection, which this process does not have",
	"NotificationService": "the notifications projection, which this process does not have",
	"BatchGetViewerState": "the inbox, seen and counters projections, which this process does not have all of",
	"AdminService":        "an operator, which this process does not have; GetStatus is there",
}

// mountUnimplemented mounts a handler for every method that is not mounted yet. It answers with
// "unimplemented" and the reason.
func (s *Server) mountUnimplemented() {
	for _, service := range services() {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			procedure := fmt.Sprintf("/%s/%s", service.FullName(), m.Name())
			if _, ok := s.methods[procedure]; ok {
				continue
			}

			requirement, ok := methodRequirements[m.Name()]
			if !ok {
				requirement = methodRequirements[service.Name()]
			}
			err := &apierror.Failure{
				Code: connect.CodeUnimplemented, Reason: skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE,
				Text: fmt.Sprintf("%s.%s needs %s", service.Name(), m.Name(), requirement),
			}
			if m.IsStreamingServer() {
				mountStream(s, procedure, nil,
					func(context.Context, *emptypb.Empty, call.Stream[emptypb.Empty]) error { return err })
			} else {
				mountUnary(s, procedure, nil,
					func(context.Context, *emptypb.Empty, *call.Info) (*emptypb.Empty, error) { return nil, err })
			}
			s.unimplemented[strings.TrimPrefix(procedure, "/")] = true
		}
	}
}
