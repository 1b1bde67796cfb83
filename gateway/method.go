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

// method is one RPC. All methods take the same steps: decode, check, answer, count. Only what is
// specific to one method is in its own file.
//
// The handlers are created here and not by Connect's generated code, because a generated handler
// answers a request that does not decode by itself, without skein's error details and without
// counting it.
type method struct {
	s *Server
	// name is the path without the leading slash: "skein.v1.GraphService/CheckFollows".
	name string
	// right says who may call the method.
	right right
	// budget limits how many calls of the method's class may be in work.
	budget  *admission.Budget
	metrics metrics.RPC
}

// LagHeader is the response header of reads with the lag of the answer: by how many envelopes the
// state that answered was behind the end of the log, as far as the process knew the log.
const LagHeader = call.LagHeader

// mountUnary mounts a request-response method. A request is checked against the rules in its proto
// first, and then by check, which looks at ids. A nil check means that the request has no ids. Each
// call has the time limit CallTimeout.
func mountUnary[Req, Res any, P request.Message[Req]](
	s *Server, procedure string,
	check func(*request.Checker, P),
	handle func(context.Context, P, *call.Info) (*Res, error),
) {
	mountUnaryByHand(s, procedure, checkRulesAndIDs(s, check), func(ctx context.Context, req P, info *call.Info) (*Res, error) {
		ctx, cancel := context.WithTimeout(ctx, s.limits.CallTimeout)
		defer cancel()
		return handle(ctx, req, info)
	})
}

// mountUnaryByHand mounts a request-response method whose requests are checked by the hand-written
// check alone, and whose calls have no time limit. It is for methods that are called too often for
// the rules in their proto (docs/decisions/0005-edge-validation.md) and that end by themselves. A
// nil check means that every request is valid.
func mountUnaryByHand[Req, Res any, P request.Message[Req]](
	s *Server, procedure string,
	check func(P) []apierror.Violation,
	handle func(context.Context, P, *call.Info) (*Res, error),
) {
	u := &unaryMethod[Req, Res, P]{method: s.newMethod(procedure), check: check, handle: handle}
	u.budget = s.budgetOf(u.right)
	u.Handler = connect.NewUnaryHandler(procedure,
		func(ctx context.Context, req *connect.Request[request.Received[Req, P]]) (*connect.Response[Res], error) {
			info := call.Info{Lag: -1, LongPages: s.budgets.LongPages}
			defer info.ReleaseLongPage()

			// What other nodes answer is in memory here, so it counts for the caller of this call.
			if c := httpCallOf(ctx); s.cluster != nil && c != nil {
				var release func()
				ctx, release = s.cluster.ChargeAnswers(ctx, c.memory.Caller())
				defer release()
			}

			res, err := u.answer(ctx, identityOf(ctx), req.Msg, &info)
			if err != nil {
				return nil, err
			}

			// The answer is in memory twice: as a message, and as its encoded bytes. If there is no
			// memory for it, it is garbage at once.
			message, _ := any(res).(proto.Message)
			if f := reserveAnswer(ctx, admission.HeldPerByte*proto.Size(message)); f != nil {
				return nil, s.answerRefusedError(ctx, f)
			}
			response := connect.NewResponse(res)
			if info.Lag >= 0 {
				response.Header()[LagHeader] = formatLag(info.Lag)
			}
			return response, nil
		}, s.handlerOptions(procedure)...)
	s.methods[procedure] = u
}

// answer answers a call of Connect's handler or of the loop in package http1. A caller without the
// required role is refused before the request is examined.
func (u *unaryMethod[Req, Res, P]) answer(
	ctx context.Context, id identity, req *request.Received[Req, P], info *call.Info,
) (res *Res, err error) {
	start := time.Now()
	ctx = u.beginSpan(ctx)
	// A refused call must be counted, too, and recover works only in a deferred function.
	defer func() { err = u.finishCall(ctx, start, err, recover()) }()

	if err := u.checkRole(id); err != nil {
		return nil, err
	}
	if err := u.reserveCall(id, start); err != nil {
		return nil, err
	}
	defer u.releaseCall(id)
	if err := validateRequest(req, u.check); err != nil {
		return nil, err
	}
	if err := u.checkSubject(ctx, id, req.Message()); err != nil {
		return nil, err
	}

	res, err = u.handle(ctx, &req.Msg, info)
	conceal := u.right.bound.conceal
	isBound := id.caller.User != ""
	if err == nil && conceal != nil && isBound {
		message, _ := any(res).(proto.Message)
		conceal(id.caller.User, req.Message(), message)
	}
	return res, err
}

// budgetOf returns the budget for the calls of a method with this right.
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

// reserveCall takes a place for a call in the budget of its class and in the limits of its caller,
// or refuses the call. The caller of reserveCall must call releaseCall when the call has ended.
// Calls that need no authentication do not count for a caller.
func (m *method) reserveCall(id identity, now time.Time) error {
	// The connection counts as busy first, so that a call that has a place never loses it.
	id.conn.Begin(now)

	// The budget of the class has no limit per caller, so it needs no name.
	if f := m.budget.Take("", 1); f != nil {
		id.conn.End()
		return f
	}
	if !m.right.open {
		if f := m.s.reserveForCaller(id.caller.Name, now); f != nil {
			m.budget.Release("", 1)
			id.conn.End()
			return f
		}
	}
	return nil
}

// reserveForCaller counts a call for its caller, or refuses it. A call that exceeds the rate of its
// caller gives its place back.
func (s *Server) reserveForCaller(caller string, now time.Time) *apierror.Failure {
	if f := s.budgets.Callers.Take(caller, 1); f != nil {
		return f
	}
	f := s.callerRates.Take(caller, now)
	if f != nil {
		s.budgets.Callers.Release(caller, 1)
	}
	return f
}

// releaseCall gives back what reserveCall has taken.
func (m *method) releaseCall(id identity) {
	id.conn.End()
	m.budget.Release("", 1)
	if !m.right.open {
		m.s.budgets.Callers.Release(id.caller.Name, 1)
	}
}

// streamMethod is a method that answers with a stream. Its requests are checked like those of
// [mountUnary].
type streamMethod[Req, Res any, P request.Message[Req]] struct {
	*method
	procedure string
	check     func(P) []apierror.Violation
	handle    func(context.Context, P, call.Stream[Res]) error
}

// mountStream mounts a method that answers with a stream. Each such method has a budget of its own.
// Streams of operators and of methods that need no authentication are not shed when calls wait long
// for a processor.
func mountStream[Req, Res any, P request.Message[Req]](
	s *Server, procedure string,
	check func(*request.Checker, P),
	handle func(context.Context, P, call.Stream[Res]) error,
) *streamMethod[Req, Res, P] {
	m := &streamMethod[Req, Res, P]{s.newMethod(procedure), procedure, checkRulesAndIDs(s, check), handle}
	m.budget = s.budgets.NewStream(procedure, !m.right.open && !m.right.roles.Any(access.Admin))
	s.streams[procedure] = true
	s.methods[procedure] = connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, req *connect.Request[request.Received[Req, P]], out *connect.ServerStream[Res]) error {
			return m.answer(ctx, req.Msg, &rpcStream[Res]{out, answerDeadlineOf(ctx)})
		}, s.handlerOptions(procedure)...)
	return m
}

// answer answers a call, of RPC clients or of browsers (sse.go), until its stream ends.
func (m *streamMethod[Req, Res, P]) answer(ctx context.Context, req *request.Received[Req, P], out call.Stream[Res]) (err error) {
	start := time.Now()
	ctx = m.beginSpan(ctx)
	// finishCall must not get the context of the stream, which is assigned to ctx below.
	spanCtx := ctx
	defer func() { err = m.finishCall(spanCtx, start, err, recover()) }()

	id := identityOf(ctx)
	if err := m.checkRole(id); err != nil {
		return err
	}
	if err := m.reserveCall(id, start); err != nil {
		return err
	}
	defer m.releaseCall(id)
	if err := validateRequest(req, m.check); err != nil {
		return err
	}
	if err := m.checkSubject(ctx, id, req.Message()); err != nil {
		return err
	}

	if d := answerDeadlineOf(ctx); d != nil {
		d.clearReadDeadline()
	}
	ctx, end := m.streamContext(ctx, id)
	defer end()
	err = m.handle(ctx, &req.Msg, out)
	if err != nil && ctx.Err() != nil {
		// The method only knows that its context has ended.
		return streamEndError(ctx, err)
	}
	return err
}

// validateRequest returns the error of a request that did not decode or does not pass check.
func validateRequest[Req any, P request.Message[Req]](
	req *request.Received[Req, P], check func(P) []apierror.Violation,
) error {
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
	if violations := check(&req.Msg); len(violations) > 0 {
		return apierror.Invalid(violations...)
	}
	return nil
}

// commonLags are the values of LagHeader that nearly all answers have, so that these answers
// allocate nothing for it.
var commonLags = [...][]string{{"0"}, {"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"7"}}

// formatLag returns the value of LagHeader. It must not be changed.
func formatLag(lag int64) []string {
	if lag < int64(len(commonLags)) {
		return commonLags[lag]
	}
	return []string{fmt.Sprint(lag)}
}

func (s *Server) newMethod(procedure string) *method {
	name := strings.TrimPrefix(procedure, "/")
	// The counter is exposed as 0 before the first error: the rate function of Prometheus sees the
	// first error only if there was a 0 before.
	s.metrics.Internal.WithLabelValues(name)
	return &method{s: s, name: name, right: s.rights[procedure], metrics: s.metrics.RPC(name)}
}

// handlerOptions returns the options of Connect's handler for a method: the same codecs and limits
// for all, and GET for those without side effects.
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

// hasNoSideEffects reports whether the proto declares that the method changes nothing. Such methods
// may be called by GET.
func hasNoSideEffects(d protoreflect.MethodDescriptor) bool {
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// descriptorOf returns the descriptor of a method, or nil if no proto declares it.
func descriptorOf(procedure string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MethodDescriptor)
	return m
}

// finishCall ends a call: it maps its error, or its panic, to the error that the client gets, logs
// faults of the service, and counts.
func (m *method) finishCall(ctx context.Context, start time.Time, err error, panicked any) error {
	if panicked != nil {
		// net/http and package http1 use this panic to close the connection without a log line.
		panicErr, isError := panicked.(error)
		if isError && errors.Is(panicErr, http.ErrAbortHandler) {
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

	// Making an id costs more than refusing a call, so only a call that is logged gets one.
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

// checkRulesAndIDs returns a function that checks a request against the rules in its proto, and its
// ids only if no rule is broken.
func checkRulesAndIDs[P proto.Message](s *Server, checkIDs func(*request.Checker, P)) func(P) []apierror.Violation {
	return func(req P) []apierror.Violation {
		violations := s.rules.Check(req)
		if len(violations) > 0 || checkIDs == nil {
			return violations
		}
		var c request.Checker
		checkIDs(&c, req)
		return c.Violations
	}
}
