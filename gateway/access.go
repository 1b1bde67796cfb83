package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// identity is the caller of a call, or the reason why authentication failed. The zero identity has no role, so that a way into the
// server that forgets to authenticate refuses every call.
type identity struct {
	caller    access.Caller
	authError error
	// again authenticates the caller again, for streams that outlive a token; nil means that the caller is known once and for all.
	reauthenticate func() identity
	// node is the proof of a caller that is another node of the cluster; nil for clients.
	node *peers.CallProof
	// conn is where a call in net/http came from; nil for those of the loop, which knows its own.
	conn *admission.Conn
}

// budgetCaller names the caller for whom a budget counts: an authenticated caller by name, or else the address.
func (a identity) budgetCaller(s *Server, open bool) string {
	switch {
	case a.node != nil: // each call by itself: many callers may stand behind one node
		return "call of a node " + a.node.Nonce
	case s.gate != nil && !open && a.authError == nil:
		return "caller " + a.caller.Name
	case a.conn != nil:
		return a.conn.Caller
	}
	return ""
}

// authenticate identifies the caller of a call. Every way into the server does so before it reads a body. Authorization has one place for all:
// [method.permit], then [method.about].
func (s *Server) authenticate(authorization string, cert *x509.Certificate) identity {
	if s.gate == nil {
		return identity{caller: access.Anyone()}
	}
	caller, err := s.gate.Authorize(time.Now(), authorization, cert)
	return identity{caller: caller, authError: err}
}

// permit refuses callers who may not call the method, whatever the request is.
func (m *method) checkRole(a identity) error {
	switch {
	case m.right.open:
		return nil
	case a.authError != nil:
		return unauthenticatedError(a.authError)
	case !a.caller.Roles.Any(m.right.roles):
		return missingRoleError(m.right.roles)
	case a.caller.User != "" && m.right.bound.other == nil:
		return otherUserError(a.caller.User, "the answer")
	}
	return nil
}

// admitBeforeBody is part of plainMethod.
func (m *method) admitBeforeBody(caller identity) bool {
	return caller.authError == nil || m.right.open
}

// about refuses a well-formed request about another user, if the caller is bound to one user.
func (m *method) checkSubject(ctx context.Context, a identity, req proto.Message) error {
	if user := a.caller.User; user != "" && !m.right.open {
		if field := m.right.bound.other(user, req); field != "" {
			return otherUserError(user, field)
		}
	}
	if m.right.roles == access.Admin && m.s.gate != nil {
		m.s.logger.InfoContext(ctx, "admin call", "method", m.name, "caller", a.caller.Name)
	}
	return nil
}

// whileServed returns a context that also ends when the server stops, or when the caller of a stream would no longer be let in: when
// its token has expired, or was taken out of the file. A stream may last for months, and there may be thousands: none has a goroutine
// for this.
func (m *method) streamContext(ctx context.Context, a identity) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(m.s.serverCtx, func() { cancel(apierror.ErrStopping) })
	if a.reauthenticate == nil {
		return ctx, func() { release(); cancel(nil) }
	}
	var check *time.Timer
	check = time.AfterFunc(longestDuration, func() {
		if err := m.recheckCaller(a); err != nil {
			cancel(err)
		}
		if ctx.Err() == nil {
			check.Reset(m.s.reauthPeriod)
		}
	})
	check.Reset(m.s.reauthPeriod) // not before the variable is set, which the function reads
	return ctx, func() { release(); cancel(nil); check.Stop() }
}

// never is longer than any process runs.
const longestDuration = time.Duration(math.MaxInt64)

// permitAgain returns an error if the caller of a stream would be refused now, or would be bound to another user.
func (m *method) recheckCaller(a identity) error {
	now := a.reauthenticate()
	if err := m.checkRole(now); err != nil {
		return err
	}
	if now.caller.User != a.caller.User {
		return otherUserError(now.caller.User, "the stream")
	}
	return nil
}

// endOf returns why a stream ended: the server stops, or the caller is no longer permitted. Otherwise it returns err.
func streamEndError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if f, ok := errors.AsType[*apierror.Failure](cause); ok {
		return f
	}
	if errors.Is(cause, apierror.ErrStopping) {
		return apierror.ErrStopping
	}
	return err
}

// admitPeriod is the interval at which the caller of a stream is authenticated again. A token that is revoked stops its streams then.
const reauthPeriod = 5 * time.Second

// authorizationOf returns the header Authorization. Two of them are taken as none, because proxies and servers disagree on which counts.
func authorizationHeader(r *http.Request) string {
	return strings.Join(r.Header["Authorization"], ", ")
}

// certificateOf is the client certificate of a connection, if it was verified; nil means there is none.
func verifiedCertificate(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// guarded has a page beside the API answer callers with one of some roles who are bound to no user.
func (s *Server) requireRoles(roles access.Roles, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := s.authenticate(authorizationHeader(r), verifiedCertificate(r.TLS))
		var f *apierror.Failure
		switch {
		case a.authError != nil:
			f = unauthenticatedError(a.authError)
		case !a.caller.Roles.Any(roles):
			f = missingRoleError(roles)
		case a.caller.User != "" && roles != access.AllRoles:
			f = otherUserError(a.caller.User, "this page")
		default:
			h.ServeHTTP(w, r)
			return
		}
		if err := s.errorWriter.Write(w, r, f.ConnectError()); err != nil {
			s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
		}
	})
}

// unknownCaller is the refusal of a call whose credentials are missing or invalid. Its texts are those of package access, which
// quote no part of a token.
func unauthenticatedError(err error) *apierror.Failure {
	f := &apierror.Failure{Code: connect.CodeUnauthenticated, Reason: skeinv1.Reason_REASON_TOKEN_INVALID, Text: err.Error()}
	switch {
	case errors.Is(err, access.ErrMissing):
		f.Reason = skeinv1.Reason_REASON_TOKEN_MISSING
	case errors.Is(err, access.ErrExpired):
		f.Reason = skeinv1.Reason_REASON_TOKEN_EXPIRED
	}
	return f
}

func missingRoleError(roles access.Roles) *apierror.Failure {
	names := strings.ReplaceAll(roles.String(), ",", " or ")
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ROLE_MISSING,
		Text: "this needs the role " + names, Metadata: map[string]string{"role": names},
	}
}

func otherUserError(user, field string) *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_OTHER_USER,
		Text:     fmt.Sprintf("the caller acts for one user only, and %s is not of that user alone", field),
		Metadata: map[string]string{"user_id": user},
	}
}
