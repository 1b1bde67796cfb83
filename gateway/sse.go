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
type positionedMessage interface {
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
		if err := decodeQuery(r.URL.RawQuery, &req); err != nil {
			req.Err = err
		}
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			resume(&req.Msg, last)
		}
		out := &sseStream[Res]{w: w, deadline: answerDeadlineOf(r.Context())}
		if err := m.answer(r.Context(), &req, out); err != nil {
			out.sendError(err)
		}
	})
}

// messageOf decodes the request in a query. JSON that is none is noted by the codec, as it is of a body.
func decodeQuery(query string, req any) error {
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
type sseStream[Res any] struct {
	w http.ResponseWriter
	// patience is nil for a call that did not come through net/http.
	deadline *answerDeadline
	hasBegun bool
}

// Send sends one part, which its client has to take in time.
func (p *sseStream[Res]) Send(part *Res) error {
	message, ok := any(part).(positionedMessage)
	if !ok {
		return fmt.Errorf("gateway: %T has no position", part)
	}
	data, err := (request.JSONCodec{}).Marshal(message)
	if err != nil {
		return err
	}
	return p.sendEvent(fmt.Appendf(nil, "id: %s\ndata: %s\n\n", message.GetPosition(), data))
}

// SetLag says by how many envelopes the first part was behind the log.
func (p *sseStream[Res]) SetLag(lag int64) { p.w.Header()[LagHeader] = formatLag(lag) }

func (p *sseStream[Res]) sendEvent(event []byte) error {
	if p.deadline != nil {
		p.deadline.extend()
		defer p.deadline.clear()
	}
	if !p.hasBegun {
		p.hasBegun = true
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.w.Header().Set("X-Accel-Buffering", "no") // nginx would collect events
	}
	if _, err := p.w.Write(event); err != nil {
		return err
	}
	return http.NewResponseController(p.w).Flush()
}

// fail says why the stream cannot begin, as every error is said, or why it ended, by an event "end" with the same JSON.
func (p *sseStream[Res]) sendError(err error) {
	if !p.hasBegun {
		_ = http1.WriteError(p.w, err) // the client has gone
		return
	}
	text := &errorRecorder{header: http.Header{}}
	if werr := http1.WriteError(text, err); werr == nil && errors.As(err, new(*connect.Error)) {
		_ = p.sendEvent(fmt.Appendf(nil, "event: end\ndata: %s\n\n", text.body.Bytes()))
	}
}

// writtenError keeps the body of an error that is written to it.
type errorRecorder struct {
	header http.Header
	body   bytes.Buffer
}

// Header is part of [http.ResponseWriter], as are the next two.
func (e *errorRecorder) Header() http.Header { return e.header }

// WriteHeader ignores the status: the stream has begun with one.
func (*errorRecorder) WriteHeader(int) {}

// Write keeps the body.
func (e *errorRecorder) Write(p []byte) (int, error) { return e.body.Write(p) }
