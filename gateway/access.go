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

// identity is the caller of a call, or the reason why authentication failed. The zero identity has
// no role, so a code path that forgets to authenticate refuses every call.
type identity struct {
	caller access.Caller
	// authError says why authentication failed. It is nil for an authenticated caller.
	authError error
	// reauthenticate authenticates the caller again, for streams that outlive a token. It is nil if
	// the caller cannot lose its rights.
	reauthenticate func() identity
	// node is the proof of a caller that is another node of the cluster. It is nil for clients.
	node *peers.CallProof
	// conn is the connection of a call in net/http. It is nil for a call of the loop in package
	// http1, whose session has the connection.
	conn *admission.Conn
}

// budgetCaller returns the name under which budgets count the call: the authenticated caller's
// name, or else the client's address. isOpen says that the method needs no authentication.
func (id identity) budgetCaller(s *Server, isOpen bool) string {
	switch {
	case id.node != nil:
		// Each call of a node counts by itself, because many callers may be behind the node.
		return "call of a node " + id.node.Nonce
	case s.authenticator != nil && !isOpen && id.authError == nil:
		return "caller " + id.caller.Name
	case id.conn != nil:
		return id.conn.Caller
	}
	return ""
}

// authenticate identifies the caller of a call. Every code path that accepts calls authenticates
// before it reads a body. Authorization happens in two places only: [method.checkRole], and then
// [method.checkSubject].
func (s *Server) authenticate(authorization string, cert *x509.Certificate) identity {
	if s.authenticator == nil {
		return identity{caller: access.Anyone()}
	}
	caller, err := s.authenticator.Authorize(time.Now(), authorization, cert)
	return identity{caller: caller, authError: err}
}

// checkRole refuses callers who may not call the method, whatever the request says.
func (m *method) checkRole(id identity) error {
	switch {
	case m.right.open:
		return nil
	case id.authError != nil:
		return unauthenticatedError(id.authError)
	case !id.caller.Roles.Any(m.right.roles):
		return missingRoleError(m.right.roles)
	case id.caller.User != "" && m.right.bound.refusedField == nil:
		// A caller who is bound to one user may not call this method at all.
		return otherUserError(id.caller.User, "the answer")
	}
	return nil
}

// admitBeforeBody is part of plainMethod.
func (m *method) admitBeforeBody(caller identity) bool {
	return caller.authError == nil || m.right.open
}

// checkSubject refuses a valid request about another user if the caller is bound to one user. It
// also logs calls of operators.
func (m *method) checkSubject(ctx context.Context, id identity, req proto.Message) error {
	if user := id.caller.User; user != "" && !m.right.open {
		if field := m.right.bound.refusedField(user, req); field != "" {
			return otherUserError(user, field)
		}
	}
	if m.right.roles == access.Admin && m.s.authenticator != nil {
		m.s.logger.InfoContext(ctx, "admin call", "method", m.name, "caller", id.caller.Name)
	}
	return nil
}

// streamContext returns a context for a stream that also ends when the server stops, or when its
// caller would no longer be admitted because the token has expired or was removed from the token
// file. The caller must call the returned function when the stream has ended.
//
// A stream may last for months and there may be thousands of them, so the checks run on timers
// instead of a goroutine per stream.
func (m *method) streamContext(ctx context.Context, id identity) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unlinkServer := context.AfterFunc(m.s.serverCtx, func() { cancel(apierror.ErrStopping) })
	if id.reauthenticate == nil {
		return ctx, func() { unlinkServer(); cancel(nil) }
	}

	// The function reads check, so it must not run before check is set: the timer first gets a time
	// that never comes.
	var check *time.Timer
	check = time.AfterFunc(longestDuration, func() {
		if err := m.recheckCaller(id); err != nil {
			cancel(err)
		}
		// Once the stream has ended, nobody would stop the timer again.
		if ctx.Err() == nil {
			check.Reset(m.s.reauthPeriod)
		}
	})
	check.Reset(m.s.reauthPeriod)
	return ctx, func() { unlinkServer(); cancel(nil); check.Stop() }
}

// longestDuration is longer than any process runs.
const longestDuration = time.Duration(math.MaxInt64)

// recheckCaller returns an error if the caller of a stream would be refused now, or is now bound to
// another user.
func (m *method) recheckCaller(id identity) error {
	current := id.reauthenticate()
	if err := m.checkRole(current); err != nil {
		return err
	}
	// The token file may now bind the same token to another user, whose data the stream would then
	// have to show instead.
	if current.caller.User != id.caller.User {
		return otherUserError(current.caller.User, "the stream")
	}
	return nil
}

// streamEndError returns the reason why a stream of streamContext ended: the server stops, or the
// caller is no longer admitted. If it ended for another reason, streamEndError returns err.
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

// reauthPeriod is the interval at which the caller of a stream is authenticated again. The streams
// of a revoked token end within it. A shorter one would cost processor time for thousands of
// streams, which verify their tokens each time.
const reauthPeriod = 5 * time.Second

// authorizationHeader returns the header Authorization. If a request has it twice, the joined
// values are not a valid token and the call is refused, because proxies and servers disagree on
// which of the two counts.
func authorizationHeader(r *http.Request) string {
	return strings.Join(r.Header["Authorization"], ", ")
}

// verifiedCertificate returns the verified client certificate of a connection, or nil if there is
// none.
func verifiedCertificate(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// requireRoles returns a handler for a page that is not part of the API. It admits callers with at
// least one of the roles. Callers who are bound to a user are admitted only to pages that are for
// all roles.
func (s *Server) requireRoles(roles access.Roles, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := s.authenticate(authorizationHeader(r), verifiedCertificate(r.TLS))

		var f *apierror.Failure
		switch {
		case id.authError != nil:
			f = unauthenticatedError(id.authError)
		case !id.caller.Roles.Any(roles):
			f = missingRoleError(roles)
		case id.caller.User != "" && roles != access.AllRoles:
			f = otherUserError(id.caller.User, "this page")
		default:
			h.ServeHTTP(w, r)
			return
		}

		if err := s.errorWriter.Write(w, r, f.ConnectError()); err != nil {
			s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
		}
	})
}

// unauthenticatedError is the error of a call whose credentials are missing or invalid. Its text is
// that of package access, which never quotes a part of a token.
func unauthenticatedError(err error) *apierror.Failure {
	f := &apierror.Failure{
		Code: connect.CodeUnauthenticated, Reason: skeinv1.Reason_REASON_TOKEN_INVALID, Text: err.Error(),
	}
	switch {
	case errors.Is(err, access.ErrMissing):
		f.Reason = skeinv1.Reason_REASON_TOKEN_MISSING
	case errors.Is(err, access.ErrExpired):
		f.Reason = skeinv1.Reason_REASON_TOKEN_EXPIRED
	}
	return f
}

// missingRoleError is the error of a call whose caller has none of the roles.
func missingRoleError(roles access.Roles) *apierror.Failure {
	names := strings.ReplaceAll(roles.String(), ",", " or ")
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ROLE_MISSING,
		Text: "this needs the role " + names, Metadata: map[string]string{"role": names},
	}
}

// otherUserError is the error of a call whose caller is bound to the user. subject is what is about
// other users: a field, or a noun.
func otherUserError(user, subject string) *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_OTHER_USER,
		Text:     fmt.Sprintf("the caller acts for one user only, and %s is not of that user alone", subject),
		Metadata: map[string]string{"user_id": user},
	}
}
