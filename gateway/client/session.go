package client

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/events"
)

// Session is an interceptor that makes the calls of its clients one session: each read contains the
// writes of the session, and no read is answered from an older state than a read before it,
// whichever process answers. The session remembers the latest position of all answers, and sends it
// as at_least with each read whose own at_least is empty.
//
//	s := new(client.Session)
//	c, err := client.Dial(url, client.Options{Connect: []connect.ClientOption{connect.WithInterceptors(s)}})
//
// A read waits if the process that answers it is behind. A Session may be used concurrently, but
// two calls at a time must not share a request message.
type Session struct {
	mu sync.Mutex
	// latest is the latest position of all answers, and latestText is the position as it came.
	latest     events.Position
	latestText string
}

var _ connect.Interceptor = (*Session)(nil)

// Position returns the latest position of the session, or "" if there is none yet. If it is passed
// to [Session.Remember] of a session in another process, that session continues from the same
// state.
func (s *Session) Position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latestText
}

// Remember sets the position of the session if it is later than the present one, or belongs to
// another log. It ignores a text that is no position.
func (s *Session) Remember(position string) {
	p, err := events.ParsePosition(position)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isLater := p.Epoch > s.latest.Epoch || p.Epoch == s.latest.Epoch && p.Seq > s.latest.Seq
	if p.Log != s.latest.Log || isLater {
		s.latest = p
		s.latestText = position
	}
}

// WrapUnary is part of connect.Interceptor.
func (s *Session) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		defer s.setAtLeast(req.Any())()
		res, err := next(ctx, req)
		if err == nil {
			s.rememberAnswer(res.Any())
		}
		return res, err
	}
}

// WrapStreamingClient is part of connect.Interceptor.
func (s *Session) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return &sessionConn{next(ctx, spec), s}
	}
}

// WrapStreamingHandler is part of connect.Interceptor. It changes nothing, because sessions are for
// clients.
func (s *Session) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// sessionConn is the stream of a call of the session.
type sessionConn struct {
	connect.StreamingClientConn
	session *Session
}

// Send is part of connect.StreamingClientConn.
func (c *sessionConn) Send(msg any) error {
	defer c.session.setAtLeast(msg)()
	return c.StreamingClientConn.Send(msg)
}

// Receive is part of connect.StreamingClientConn.
func (c *sessionConn) Receive(msg any) error {
	err := c.StreamingClientConn.Receive(msg)
	if err == nil {
		c.session.rememberAnswer(msg)
	}
	return err
}

// setAtLeast sets at_least of a request that has this field, if it is empty. The returned function
// clears it again, because the message belongs to the caller, who may use it for another call.
func (s *Session) setAtLeast(msg any) (restore func()) {
	position := s.Position()
	m, field := textField(msg, "at_least")
	if field == nil || position == "" || m.Get(field).String() != "" {
		return func() {}
	}
	m.Set(field, protoreflect.ValueOfString(position))
	return func() { m.Clear(field) }
}

// rememberAnswer remembers the position of an answer, if it has one.
func (s *Session) rememberAnswer(msg any) {
	if m, field := textField(msg, "position"); field != nil {
		s.Remember(m.Get(field).String())
	}
}

// textField returns a string field of a message, or nil if msg has no such field.
func textField(msg any, name protoreflect.Name) (protoreflect.Message, protoreflect.FieldDescriptor) {
	p, ok := msg.(proto.Message)
	if !ok || p == nil {
		return nil, nil
	}
	m := p.ProtoReflect()
	field := m.Descriptor().Fields().ByName(name)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return nil, nil
	}
	return m, field
}
