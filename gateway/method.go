package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/http1"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A method is one RPC. All go the same way: decode, check, answer, count; what is of one RPC alone stands in its file.
// The handlers are mounted here and not by the generated code, so that this way has no gap: a request that does not
// decode is answered, and counted, as every other error.
type method struct {
	s *Server
	// name is "skein.v1.GraphService/CheckFollows".
	name string
	// right is who may call it.
	right right
	// budget is that of the class of the method: how many of its calls may be in work.
	budget  *admission.Budget
	metrics metrics.RPC
}

// LagHeader is the response header of reads: by how many envelopes of the log the answering state was behind the end
// of the log that the process knew.
const LagHeader = call.LagHeader

// unary mounts a request-response method. Requests are held against the rules in their proto, then against check,
// which looks at ids; nil means there are none.
func unary[Req, Res any, P request.Message[Req]](
	s *Server, procedure string,
	check func(*request.Checker, P),
	do func(context.Context, P, *call.Info) (*Res, error),
) {
	unaryByHand(s, procedure, checkRulesAndIDs(s, check), func(ctx context.Context, req P, x *call.Info) (*Res, error) {
		ctx, cancel := context.WithTimeout(ctx, s.limits.CallTimeout)
		defer cancel()
		return do(ctx, req, x)
	})
}

// unaryByHand mounts a request-response method whose requests are checked by check alone, for calls that are too frequent
// for the rules in their proto (docs/decisions/0005) and end by themselves; nil means nothing can be wrong with a request.
func unaryByHand[Req, Res any, P request.Message[Req]](
	s *Server, procedure string,
	check func(P) []apierror.Violation,
	do func(context.Context, P, *call.Info) (*Res, error),
) {
	u := &unaryMethod[Req, Res, P]{method: s.newMethod(procedure), check: check, do: do}
	u.budget = s.budgetOf(u.right)
	u.Handler = connect.NewUnaryHandler(procedure,
		func(ctx context.Context, req *connect.Request[request.Received[Req, P]]) (*connect.Response[Res], error) {
			x := call.Info{Lag: -1, LongPages: s.budgets.LongPages}
			defer x.Made()
			if arrived := httpCallOf(ctx); s.cluster != nil && arrived != nil {
				var release func()
				ctx, release = s.cluster.ChargeAnswers(ctx, arrived.memory.Caller())
				defer release()
			}
			msg, err := u.answer(ctx, identityOf(ctx), req.Msg, &x)
			if err != nil {
				return nil, err
			}
			answer, _ := any(msg).(proto.Message)
			// It is held as a message and as the bytes of that. A message that is refused is garbage at once: there may be thousands.
			if f := reserveAnswer(ctx, admission.HeldPerByte*proto.Size(answer)); f != nil {
				return nil, s.answerRefusedError(ctx, f)
			}
			res := connect.NewResponse(msg)
			if x.Lag >= 0 {
				res.Header()[LagHeader] = formatLag(x.Lag)
			}
			return res, nil
		}, s.handlerOptions(procedure)...)
	s.methods[procedure] = u
}

// answer answers a call, whichever way it came. A caller without the permission is refused before the request is looked at.
func (u *unaryMethod[Req, Res, P]) answer(
	ctx context.Context, a identity, req *request.Received[Req, P], x *call.Info,
) (res *Res, err error) {
	start := time.Now()
	ctx = u.beginSpan(ctx)
	defer func() { err = u.finishCall(ctx, start, err, recover()) }()
	if err := u.checkRole(a); err != nil {
		return nil, err
	}
	if err := u.reserveCall(a, start); err != nil {
		return nil, err
	}
	defer u.releaseCall(a)
	if err := validateRequest(req, u.check); err != nil {
		return nil, err
	}
	if err := u.checkSubject(ctx, a, req.Message()); err != nil {
		return nil, err
	}
	res, err = u.do(ctx, &req.Msg, x)
	if conceal := u.right.bound.conceal; err == nil && conceal != nil && a.caller.User != "" {
		answer, _ := any(res).(proto.Message)
		conceal(a.caller.User, req.Message(), answer)
	}
	return res, err
}

// budgetOf returns the budget for the calls of a method with such a right.
func (s *Server) budgetOf(r right) *admission.Budget {
	switch {
	case r.open:
		return s.budgets.Health
	case r.roles.Any(access.Admin):
		return s.budgets.Operators
	case r.roles.Any(access.Publish):
		return s.budgets.Writes
	}
	return s.budgets.Reads
}

// enter takes a call's place in the budget of its class, and counts it for its caller, or refuses it. The caller of enter must call
// leave when the call has ended. Calls that need no token count for nobody.
func (m *method) reserveCall(a identity, now time.Time) error {
	if f := m.budget.Take("", 1); f != nil {
		return f
	}
	if !m.right.open {
		if f := m.s.reserveForCaller(a.caller.Name, now); f != nil {
			m.budget.Give("", 1)
			return f
		}
	}
	a.conn.Begin(now)
	return nil
}

// enterCaller counts a call for its caller, or refuses it.
func (s *Server) reserveForCaller(caller string, now time.Time) *apierror.Failure {
	if f := s.budgets.Callers.Take(caller, 1); f != nil {
		return f
	}
	f := s.callerRates.Take(caller, now)
	if f != nil {
		s.budgets.Callers.Give(caller, 1)
	}
	return f
}

// leave gives back what enter has taken.
func (m *method) releaseCall(a identity) {
	a.conn.End()
	m.budget.Give("", 1)
	if !m.right.open {
		m.s.budgets.Callers.Give(a.caller.Name, 1)
	}
}

// streamMethod is a method that answers with a stream. Its requests are checked as those of [unary].
type streamMethod[Req, Res any, P request.Message[Req]] struct {
	*method
	procedure string
	check     func(P) []apierror.Violation
	do        func(context.Context, P, call.Stream[Res]) error
}

// stream mounts a method that answers with a stream.
func stream[Req, Res any, P request.Message[Req]](
	s *Server, procedure string,
	check func(*request.Checker, P),
	do func(context.Context, P, call.Stream[Res]) error,
) *streamMethod[Req, Res, P] {
	m := &streamMethod[Req, Res, P]{s.newMethod(procedure), procedure, checkRulesAndIDs(s, check), do}
	m.budget = s.budgets.NewStream(procedure, !m.right.open && !m.right.roles.Any(access.Admin))
	s.streams[procedure] = true
	s.methods[procedure] = connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, req *connect.Request[request.Received[Req, P]], out *connect.ServerStream[Res]) error {
			return m.answer(ctx, req.Msg, &rpcStream[Res]{out, answerDeadlineOf(ctx)})
		}, s.handlerOptions(procedure)...)
	return m
}

// answer answers a call, whichever way it came, until its stream ends.
func (m *streamMethod[Req, Res, P]) answer(ctx context.Context, req *request.Received[Req, P], out call.Stream[Res]) (err error) {
	start := time.Now()
	ctx = m.beginSpan(ctx)
	followed := ctx
	defer func() { err = m.finishCall(followed, start, err, recover()) }()
	a := identityOf(ctx)
	if err := m.checkRole(a); err != nil {
		return err
	}
	if err := m.reserveCall(a, start); err != nil {
		return err
	}
	defer m.releaseCall(a)
	if err := validateRequest(req, m.check); err != nil {
		return err
	}
	if err := m.checkSubject(ctx, a, req.Message()); err != nil {
		return err
	}
	if p := answerDeadlineOf(ctx); p != nil {
		p.clearReadDeadline()
	}
	ctx, end := m.streamContext(ctx, a)
	defer end()
	if err = m.do(ctx, &req.Msg, out); err != nil && ctx.Err() != nil {
		return streamEndError(ctx, err)
	}
	return err
}

// refuse answers what is no good request.
func validateRequest[Req any, P request.Message[Req]](req *request.Received[Req, P], check func(P) []apierror.Violation) error {
	if f, ok := errors.AsType[*apierror.Failure](req.Err); ok {
		return f
	}
	if req.Err != nil {
		name := P(&req.Msg).ProtoReflect().Descriptor().FullName()
		return &apierror.Failure{
			Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD,
			Text:  fmt.Sprintf("the body is no %s: %s", name, strings.TrimSpace(strings.TrimPrefix(req.Err.Error(), "proto:"))),
			Cause: req.Err,
		}
	}
	if check == nil {
		return nil
	}
	if found := check(&req.Msg); len(found) > 0 {
		return apierror.Invalid(found...)
	}
	return nil
}

// lagValues are the values of the header for the lags that nearly all answers have.
var commonLags = [...][]string{{"0"}, {"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"7"}}

func formatLag(lag int64) []string {
	if lag < int64(len(commonLags)) {
		return commonLags[lag]
	}
	return []string{fmt.Sprint(lag)}
}

func (s *Server) newMethod(procedure string) *method {
	name := strings.TrimPrefix(procedure, "/")
	s.metrics.Internal.WithLabelValues(name)
	return &method{s: s, name: name, right: s.rights[procedure], metrics: s.metrics.RPC(name)}
}

// handlerOptions gives every method the same codecs and limits, and GET to those without side effects.
func (s *Server) handlerOptions(procedure string) []connect.HandlerOption {
	options := []connect.HandlerOption{
		request.Codecs(),
		connect.WithReadMaxBytes(s.limits.BodyBytes),
		s.gzipOption(),
		connect.WithCompressMinBytes(http1.CompressMinBytes),
	}
	if d := descriptorOf(procedure); d != nil {
		options = append(options, connect.WithSchema(d))
		if hasNoSideEffects(d) {
			options = append(options, connect.WithIdempotency(connect.IdempotencyNoSideEffects))
		}
	}
	return options
}

// freeOfSideEffects reports whether the API declares that a method changes nothing. Those can be called by GET.
func hasNoSideEffects(d protoreflect.MethodDescriptor) bool {
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

func descriptorOf(procedure string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MethodDescriptor)
	return m
}

// finish turns whatever ended a call into the error that the client gets, logs what is ours, and counts.
func (m *method) finishCall(ctx context.Context, start time.Time, err error, panicked any) error {
	if panicked != nil {
		if perr, ok := panicked.(error); ok && errors.Is(perr, http.ErrAbortHandler) {
			panic(panicked)
		}
		err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if err == nil {
		m.metrics.OK.Observe(time.Since(start).Seconds())
		m.endSpan(ctx, nil)
		return nil
	}
	f := apierror.Of(err)
	defer m.endSpan(ctx, f)
	if f.Code == connect.CodeInternal || m.s.logger.Enabled(ctx, slog.LevelDebug) {
		ctx = ensureRequestID(ctx)
	}
	if f.Code == connect.CodeInternal {
		m.s.metrics.Internal.WithLabelValues(m.name).Inc()
		m.s.logger.ErrorContext(ctx, "call failed", "method", m.name, "error", err)
	} else {
		m.s.logger.DebugContext(ctx, "call refused", "method", m.name, "code", f.Code.String(), "error", err)
	}
	m.metrics.Failed(f.Code, time.Since(start))
	m.s.metrics.Refused(f)
	return addErrorID(ctx, f.ConnectError())
}

// ruled checks a request against the rules in its proto, then its ids.
func checkRulesAndIDs[P proto.Message](s *Server, ids func(*request.Checker, P)) func(P) []apierror.Violation {
	return func(req P) []apierror.Violation {
		if found := s.rules.Check(req); len(found) > 0 || ids == nil {
			return found
		}
		var c request.Checker
		ids(&c, req)
		return c.Found
	}
}
