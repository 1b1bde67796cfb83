package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/http1"
	"github.com/skein-feed/skein/gateway/internal/request"
)

// Server-Sent Events: a stream as a page in a browser reads it, with EventSource and nothing else. It is a GET of the path of the method,
// with the request as JSON in the parameter message, as Connect has it for reads. Everything else is the way of every stream: who may
// call, what is bounded, what is checked. An event has the message as JSON and its position as id, and a browser whose connection broke
// sends the last id that it got.

// positioned is a message of a stream that can be continued after it.
type positioned interface {
	proto.Message
	GetPosition() string
}

// forBrowsers also answers the stream by GET. Resume has a request continue after the position of a message.
func forBrowsers[Req, Res any, P request.Message[Req]](m *streamMethod[Req, Res, P], resume func(req P, position string)) {
	connectStream := m.s.methods[m.procedure]
	m.s.methods[m.procedure] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			connectStream.ServeHTTP(w, r)
			return
		}
		var req request.Received[Req, P]
		if err := messageOf(r.URL.RawQuery, &req); err != nil {
			req.Err = err
		}
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			resume(&req.Msg, last)
		}
		out := &eventParts[Res]{w: w, patience: patienceOf(r.Context())}
		if err := m.answer(r.Context(), &req, out); err != nil {
			out.fail(err)
		}
	})
}

// messageOf decodes the request in a query. JSON that is none is noted by the codec, as it is of a body.
func messageOf(query string, req any) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return apierror.Invalid(apierror.InvalidField("request", "must have a query of escaped parameters: %v", err))
	}
	for name := range values {
		if name != "message" && name != "encoding" && name != "connect" {
			return apierror.Invalid(apierror.InvalidField("request",
				`must have the whole message as JSON in the parameter message, as in message={"readerId":"ann"}, escaped; %.40q is no parameter`, name))
		}
	}
	if encoding := values.Get("encoding"); encoding != "" && encoding != "json" {
		return apierror.Invalid(apierror.InvalidField("request", "must have encoding=json or no encoding; it is %.40q", encoding))
	}
	message := values.Get("message")
	if message == "" {
		message = "{}"
	}
	return (request.JSONCodec{}).Unmarshal([]byte(message), req)
}

// eventParts is a stream of Server-Sent Events.
type eventParts[Res any] struct {
	w http.ResponseWriter
	// patience is nil for a call that did not come through net/http.
	patience *patience
	begun    bool
}

// Send sends one part, which its client has to take in time.
func (p *eventParts[Res]) Send(part *Res) error {
	message, ok := any(part).(positioned)
	if !ok {
		return fmt.Errorf("gateway: %T has no position", part)
	}
	data, err := (request.JSONCodec{}).Marshal(message)
	if err != nil {
		return err
	}
	return p.send(fmt.Appendf(nil, "id: %s\ndata: %s\n\n", message.GetPosition(), data))
}

// SetLag says by how many envelopes the first part was behind the log.
func (p *eventParts[Res]) SetLag(lag int64) { p.w.Header()[LagHeader] = lagValue(lag) }

func (p *eventParts[Res]) send(event []byte) error {
	if p.patience != nil {
		p.patience.renew()
		defer p.patience.rest()
	}
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.w.Header().Set("X-Accel-Buffering", "no") // nginx would collect events
	}
	if _, err := p.w.Write(event); err != nil {
		return err
	}
	return http.NewResponseController(p.w).Flush()
}

// fail says why the stream cannot begin, as every error is said, or why it ended, by an event "end" with the same JSON.
func (p *eventParts[Res]) fail(err error) {
	if !p.begun {
		_ = http1.WriteError(p.w, err) // the client has gone
		return
	}
	text := &writtenError{header: http.Header{}}
	if werr := http1.WriteError(text, err); werr == nil && errors.As(err, new(*connect.Error)) {
		_ = p.send(fmt.Appendf(nil, "event: end\ndata: %s\n\n", text.body.Bytes()))
	}
}

// writtenError keeps the body of an error that is written to it.
type writtenError struct {
	header http.Header
	body   bytes.Buffer
}

// Header is part of [http.ResponseWriter], as are the next two.
func (e *writtenError) Header() http.Header { return e.header }

// WriteHeader ignores the status: the stream has begun with one.
func (*writtenError) WriteHeader(int) {}

// Write keeps the body.
func (e *writtenError) Write(p []byte) (int, error) { return e.body.Write(p) }
