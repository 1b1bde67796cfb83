package gateway

import (
	"context"
	"maps"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// toyService is a whole service with one method. docs/development.md says how to add such a method:
// the method itself, a line that mounts it, and its right.
type toyService struct{ *views.Views }

// countFollowing returns how many users a user follows explicitly. If there are several, it fails
// with an error of the log instead, which stands for an error of a package that a method calls.
func (s *toyService) countFollowing(
	ctx context.Context, req *skeinv1.ListFollowingRequest, x *call.Info,
) (*skeinv1.ListFollowingResponse, error) {
	r, err := s.OpenGraphAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.Close()

	counts, err := r.UserCounts(req.GetUserId())
	if err != nil {
		return nil, err
	}
	if counts.Following > 1 {
		return nil, events.ErrClosed
	}
	return &skeinv1.ListFollowingResponse{TotalSize: call.Count(counts.Following), Position: r.Position}, nil
}

const toyProcedure = "/toy.v1.ToyService/CountFollowing"

// TestToyMethod checks that a method that is mounted as every other one has all that they have,
// without code of its own for it: the right of its callers, the rules of its request, positions,
// budgets, codes of errors, metrics, and all protocols.
func TestToyMethod(t *testing.T) {
	g := newGuarded(t)
	s := g.server
	s.rights = maps.Clone(rights)
	s.rights[toyProcedure] = right{roles: access.Read, bound: requireUserIn("user_id")}
	mountUnary(s, toyProcedure, request.ValidateUser, (&toyService{s.views}).countFollowing)

	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), follow("eve", "ann"), follow("eve", "bob"))
	answeredCalls := 0
	allCalls := 0
	for protocol, options := range map[string][]connect.ClientOption{
		"Connect":  nil,
		"JSON":     {connect.WithProtoJSON()},
		"gRPC-Web": {connect.WithGRPCWeb()},
	} {
		t.Run(protocol, func(t *testing.T) {
			callToy := func(caller string, req *skeinv1.ListFollowingRequest) (*connect.Response[skeinv1.ListFollowingResponse], error) {
				allCalls++
				client := connect.NewClient[skeinv1.ListFollowingRequest, skeinv1.ListFollowingResponse](
					g.as(g.tokens[caller]).http, g.url+toyProcedure, options...)
				return client.CallUnary(t.Context(), connect.NewRequest(req))
			}

			res, err := callToy("reader", &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at})
			if err != nil {
				t.Fatal(err)
			}
			answeredCalls++
			if res.Msg.GetTotalSize() != 1 || res.Msg.GetPosition() != at {
				t.Errorf("got %v, want 1 user at %s", res.Msg, at)
			}
			if lag := res.Header().Get(LagHeader); lag != "0" {
				t.Errorf("%s: got %q, want 0", LagHeader, lag)
			}

			for name, c := range map[string]struct {
				caller string
				req    *skeinv1.ListFollowingRequest
				code   connect.Code
				reason string
				field  string
			}{
				"no token":      {"", &skeinv1.ListFollowingRequest{UserId: "ann"}, connect.CodeUnauthenticated, "TOKEN_MISSING", ""},
				"another role":  {"publisher", &skeinv1.ListFollowingRequest{UserId: "ann"}, connect.CodePermissionDenied, "ROLE_MISSING", ""},
				"about another": {"ann", &skeinv1.ListFollowingRequest{UserId: "bob"}, connect.CodePermissionDenied, "OTHER_USER", ""},
				"a rule": {
					"reader", &skeinv1.ListFollowingRequest{UserId: "ann", PageSize: -1},
					connect.CodeInvalidArgument, "INVALID_FIELD", "page_size",
				},
				"no id": {"reader", &skeinv1.ListFollowingRequest{}, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id"},
				"no position": {
					"reader", &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: "x"},
					connect.CodeInvalidArgument, "INVALID_POSITION", "at_least",
				},
				"an error from below": {
					"reader", &skeinv1.ListFollowingRequest{UserId: "eve", AtLeast: at},
					connect.CodeUnavailable, "LOG_UNAVAILABLE", "",
				},
			} {
				t.Run(name, func(t *testing.T) {
					_, err := callToy(c.caller, c.req)
					wantError(t, err, c.code, c.reason, c.field)
				})
			}

			// The budget of reads is used up.
			reads := s.budgets.Reads
			if f := reads.Take("", reads.Limit); f != nil {
				t.Fatal(f)
			}
			defer reads.Release("", reads.Limit)
			_, err = callToy("reader", &skeinv1.ListFollowingRequest{UserId: "ann"})
			wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
		})
	}

	name := strings.TrimPrefix(toyProcedure, "/")
	if n := g.count("skein_rpc_duration_seconds", "method", name, "code", "ok"); n != float64(answeredCalls) {
		t.Errorf("metric of calls that were answered: got %v, want %d", n, answeredCalls)
	}
	if n := g.count("skein_rpc_duration_seconds", "method", name); n != float64(allCalls) {
		t.Errorf("metric of all calls: got %v, want %d", n, allCalls)
	}
}
