package gateway

import (
	"context"
	"maps"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// toyService is a whole service of one method, as docs/development.md says how to add one: the
// method, a line that mounts it, and its right.
type toyService struct{ *views.Views }

// countFollowing returns how many users a user follows explicitly.
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
		return nil, events.ErrClosed // as an error from below
	}
	return &skeinv1.ListFollowingResponse{TotalSize: call.Count(counts.Following), Position: r.Position}, nil
}

const toyProcedure = "/toy.v1.ToyService/CountFollowing"

// TestToyMethod: a method that is mounted as every other one has all that they have, with nothing
// said in it: the right of its callers, the rules of its request, positions, budgets, codes of
// errors, metrics, and every way of calling.
func TestToyMethod(t *testing.T) {
	g := newGuarded(t)
	s := g.server
	s.rights = maps.Clone(rights)
	s.rights[toyProcedure] = right{roles: access.Read, bound: requireUserIn("user_id")}
	mountUnary(s, toyProcedure, request.ValidateUser, (&toyService{s.views}).countFollowing)

	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), follow("eve", "ann"), follow("eve", "bob"))
	ways := map[string][]connect.ClientOption{
		"Connect": nil, "JSON": {connect.WithProtoJSON()}, "gRPC-Web": {connect.WithGRPCWeb()},
	}
	served := 0
	for way, options := range ways {
		t.Run(way, func(t *testing.T) {
			ask := func(caller string, req *skeinv1.ListFollowingRequest) (*connect.Response[skeinv1.ListFollowingResponse], error) {
				client := connect.NewClient[skeinv1.ListFollowingRequest, skeinv1.ListFollowingResponse](
					g.as(g.tokens[caller]).http, g.url+toyProcedure, options...)
				return client.CallUnary(t.Context(), connect.NewRequest(req))
			}
			res, err := ask("reader", &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at})
			if err != nil {
				t.Fatal(err)
			}
			if served++; res.Msg.GetTotalSize() != 1 || res.Msg.GetPosition() != at || res.Header().Get(LagHeader) != "0" {
				t.Errorf("%v, %q behind", res.Msg, res.Header().Get(LagHeader))
			}
			for name, c := range map[string]struct {
				caller string
				req    *skeinv1.ListFollowingRequest
				code   connect.Code
				reason string
				field  string
			}{
				"no token":            {"", &skeinv1.ListFollowingRequest{UserId: "ann"}, connect.CodeUnauthenticated, "TOKEN_MISSING", ""},
				"another role":        {"publisher", &skeinv1.ListFollowingRequest{UserId: "ann"}, connect.CodePermissionDenied, "ROLE_MISSING", ""},
				"about another":       {"ann", &skeinv1.ListFollowingRequest{UserId: "bob"}, connect.CodePermissionDenied, "OTHER_USER", ""},
				"a rule":              {"reader", &skeinv1.ListFollowingRequest{UserId: "ann", PageSize: -1}, connect.CodeInvalidArgument, "INVALID_FIELD", "page_size"},
				"no id":               {"reader", &skeinv1.ListFollowingRequest{}, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id"},
				"no position":         {"reader", &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: "x"}, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least"},
				"an error from below": {"reader", &skeinv1.ListFollowingRequest{UserId: "eve", AtLeast: at}, connect.CodeUnavailable, "LOG_UNAVAILABLE", ""},
			} {
				t.Run(name, func(t *testing.T) {
					_, err := ask(c.caller, c.req)
					wantError(t, err, c.code, c.reason, c.field)
				})
			}
			reads := s.budgets.Reads
			taken := reads.Limit
			if f := reads.Take("", taken); f != nil {
				t.Fatal(f)
			}
			defer reads.Release("", taken)
			_, err = ask("reader", &skeinv1.ListFollowingRequest{UserId: "ann"})
			wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
		})
	}
	name := toyProcedure[1:]
	if n := g.count("skein_rpc_duration_seconds", "method", name, "code", "ok"); n != float64(served) {
		t.Errorf("%v good calls are counted, %d were made", n, served)
	}
	if n := g.count("skein_rpc_duration_seconds", "method", name); n != float64(9*served) {
		t.Errorf("%v calls are counted, %d were made", n, 9*served)
	}
}
