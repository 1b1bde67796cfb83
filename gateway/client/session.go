package client

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/events"
)

// Session is an interceptor that makes the calls of its clients one session: they read their own writes, and no read
// comes from an older state than one before it, whichever process answers. It remembers the latest position that any
// of its calls was answered with, and demands it of every read that demands nothing itself.
//
//	s := new(client.Session)
//	c, err := client.Dial(url, client.Options{Connect: []connect.ClientOption{connect.WithInterceptors(s)}})
//
// It is safe for concurrent use, as long as no request message is used by two calls at a time. A read waits where the
// process that answers is behind.
type Session struct {
	mu   sync.Mutex
	last events.Position
	text string
}

var _ connect.Interceptor = (*Session)(nil)

// Position returns the latest position that was seen; empty means none. Handed to the session of another process
// (see [Session.Note]), that one continues where this one is.
func (s *Session) Position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// Note remembers a position, unless it knows a later one. It ignores a text that is no position. A position of another log
// replaces the known one.
func (s *Session) Note(position string) {
	p, err := events.ParsePosition(position)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	later := p.Epoch > s.last.Epoch || p.Epoch == s.last.Epoch && p.Seq > s.last.Seq
	if p.Log != s.last.Log || later {
		s.last, s.text = p, position
	}
}

// WrapUnary is part of connect.Interceptor.
func (s *Session) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		defer s.demand(req.Any())()
		res, err := next(ctx, req)
		if err == nil {
			s.noteAnswer(res.Any())
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

// WrapStreamingHandler is part of connect.Interceptor. Sessions are for clients: it changes nothing.
func (s *Session) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type sessionConn struct {
	connect.StreamingClientConn
	session *Session
}

// Send is part of connect.StreamingClientConn.
func (c *sessionConn) Send(msg any) error {
	defer c.session.demand(msg)()
	return c.StreamingClientConn.Send(msg)
}

// Receive is part of connect.StreamingClientConn.
func (c *sessionConn) Receive(msg any) error {
	err := c.StreamingClientConn.Receive(msg)
	if err == nil {
		c.session.noteAnswer(msg)
	}
	return err
}

// demand writes the position into a request that has room for one and none in it, and returns what takes it out again:
// the message is the caller's, who may use it for another call.
func (s *Session) demand(msg any) (restore func()) {
	restore = func() {}
	at := s.Position()
	m, field := textField(msg, "at_least")
	if field == nil || at == "" || m.Get(field).String() != "" {
		return restore
	}
	m.Set(field, protoreflect.ValueOfString(at))
	return func() { m.Clear(field) }
}

func (s *Session) noteAnswer(msg any) {
	if m, field := textField(msg, "position"); field != nil {
		s.Note(m.Get(field).String())
	}
}

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
